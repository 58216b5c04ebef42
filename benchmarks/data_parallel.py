"""What it costs to train on several devices beside the work itself: all-reduce and dispatch.

python -m benchmarks.data_parallel --shape=tiny --devices=8

A CPU is cut into so many devices, which share its cores: then the step without the
all-reduce is the work, and what the whole step takes beyond it is the price of exchange.
"""

from dataclasses import dataclass
from typing import Any

import jax
from absl import flags

from benchmarks.measuring import (
    BOS_ID,
    PAD_ID,
    SHAPES,
    Shape,
    Timing,
    header,
    in_own_process,
    table,
    take_devices,
    time_call,
)
from benchmarks.train_step import ragged_batch
from experiments.cli import FLAGS, open_door
from jax_transformer.config import TrainingConfig
from jax_transformer.models.transformer import Transformer
from jax_transformer.parallel import AXIS, Devices
from jax_transformer.training.optimizer import adam_with_warmup
from jax_transformer.training.train_step import initial_state, make_train_step

COLUMNS = ["what", "devices", "ms", "range", "of the step", "compile s"]


@dataclass(frozen=True)
class Parts:
    """Timings of one shape; `reduced` is what every device hands to the all-reduce, in bytes."""

    devices: str
    count: int
    step: Timing
    alone: Timing
    all_reduce: Timing
    dispatch: Timing
    one_device: Timing
    reduced: int


def define_flags() -> None:
    """This door's flags."""
    flags.DEFINE_enum("shape", "tiny", list(SHAPES), "Model and batch, as in train_step.")
    flags.DEFINE_integer("devices", 8, "Devices; a CPU is cut into so many.", lower_bound=2)
    flags.DEFINE_integer("repetitions", 7, "Calls timed, after warming up.", lower_bound=5)


def main() -> None:
    """Measure the parts in one process, and print the table."""
    print(header(), flush=True)
    count = FLAGS.devices
    shape = SHAPES[FLAGS.shape]
    parts = in_own_process(measure, shape, count, FLAGS.repetitions, devices=count)
    print(report(FLAGS.shape, shape, parts))


def measure(shape: Shape, count: int, repetitions: int) -> Parts:
    """The step on all devices, its parts by themselves, and the same batch on one device."""
    devices = take_devices(count, shape.rows)
    training = TrainingConfig()
    model = Transformer(shape.model, shape.vocabulary_size, PAD_ID)
    optimizer = adam_with_warmup(shape.model.d_model, training.warmup_steps)
    step = make_train_step(model, optimizer, BOS_ID, training.label_smoothing)
    batch = ragged_batch(shape)
    first = initial_state(model, optimizer, jax.random.key(1))
    reduced = sum(leaf.nbytes for leaf in jax.tree.leaves(first.params))
    pmap: dict[str, Any] = {"axis_name": AXIS, "devices": devices.devices}

    def without_exchange(state: Any, batch: Any) -> Any:
        return step(state, batch, lambda tree: tree, jax.lax.axis_index(AXIS))

    def summed(tree: Any) -> Any:
        return jax.lax.psum(tree, AXIS)

    def timed(devices: Devices, function: Any, *more: Any) -> Timing:
        state = devices.replicate(first)

        def call() -> None:
            nonlocal state
            state = jax.block_until_ready(function(state, *more))

        return time_call(call, repetitions)

    def next_state(devices: Devices) -> Any:
        function = devices.train_step(step)
        return lambda state, batch: function(state, batch)[0]

    alone = jax.pmap(without_exchange, donate_argnums=0, **pmap)
    single, shared = Devices(1), devices.shard(batch)
    summing = jax.pmap(lambda state: state._replace(params=summed(state.params)), **pmap)
    passing = jax.pmap(lambda state: state, donate_argnums=0, **pmap)
    return Parts(
        devices.describe(),
        devices.count,
        step=timed(devices, next_state(devices), batch),
        alone=timed(devices, lambda state, batch: alone(state, batch)[0], shared),
        all_reduce=timed(devices, summing),
        dispatch=timed(devices, passing),
        one_device=timed(single, next_state(single), batch),
        reduced=reduced,
    )


def report(name: str, shape: Shape, parts: Parts) -> str:
    """The table, with what its numbers are."""
    rows = [
        ("the step", parts.count, parts.step),
        ("the step without exchange", parts.count, parts.alone),
        ("all-reduce of the gradients by itself", parts.count, parts.all_reduce),
        ("dispatch: a state in, the same state out", parts.count, parts.dispatch),
        ("the step on the whole batch", 1, parts.one_device),
    ]
    cells = [
        [
            what,
            str(count),
            *timing.cells(),
            f"{timing.median / parts.step.median:.1%}",
            f"{timing.compile_seconds:.1f}",
        ]
        for what, count, timing in rows
    ]
    lines = [
        f"devices     {parts.devices}, float32",
        f"work        {name}: {shape.rows} rows x ({shape.length} + {shape.length}) tokens in all",
        f"exchange    {parts.reduced / 1e6:,.1f} MB of gradients to and from each device a step",
        "",
        table(COLUMNS, cells),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    open_door(define_flags, main, __doc__)
