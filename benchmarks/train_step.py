"""How fast a training step is: tokens/s, ms, share of the machine's peak, compile time, memory.

python -m benchmarks.train_step                     tiny and base, 7 steps each
python -m benchmarks.train_step --shape=tiny --devices=2
python -m benchmarks.train_step --shape=big --batch_tokens=25000 --dtype=bfloat16 \\
    --fused_attention --peak_size=8192              the paper's batch, on a GPU

Forward, backward and Adam, under dropout, on batches whose rows are 80 to 100 % full.
"""

from dataclasses import dataclass

import jax
import numpy as np
from absl import flags

from benchmarks.measuring import (
    BOS_ID,
    MEMORY,
    PAD_ID,
    SHAPES,
    Shape,
    Timing,
    asked_shape,
    define_shape_changes,
    device_memory,
    header,
    in_own_process,
    matrix_product_peak,
    random_sentences,
    table,
    take_devices,
    time_call,
)
from experiments.cli import FLAGS, open_door
from jax_transformer.config import TrainingConfig
from jax_transformer.models.transformer import Transformer
from jax_transformer.training.optimizer import adam_with_warmup
from jax_transformer.training.train_step import Batch, initial_state, make_train_step

COLUMNS = [
    "shape",
    "rows x (source + target)",
    "tokens/s padded",
    "real",
    "real target",
    "ms/step",
    "range",
    "GFLOP/step",
    "peak GFLOP/s",
    "MFU",
    "compile s",
    "memory MB",
]


@dataclass(frozen=True)
class Measurement:
    """What was found for one shape."""

    devices: str
    timing: Timing
    source_tokens: int  # real ones in a batch, EOS included
    target_tokens: int
    peak_memory: int  # bytes
    peak_flops: float  # FLOP/s


def define_flags() -> None:
    """This door's flags."""
    flags.DEFINE_multi_enum(
        "shape",
        ["tiny", "base"],
        list(SHAPES),
        "Model and batch: tiny (4+4 layers of 128, 8,000 words), base (the paper's, 37,000 "
        "words) or smoke (nothing to measure); repeatable.",
    )
    flags.DEFINE_integer("repetitions", 7, "Steps timed, after warming up.", lower_bound=5)
    flags.DEFINE_integer(
        "devices",
        None,
        "Devices that share the batch (default: all); a CPU is cut into so many.",
        lower_bound=1,
    )
    flags.DEFINE_multi_integer(
        "peak_size",
        [1024, 2048, 4096],
        "Widths of the square matrices whose products show the machine's peak; repeatable.",
        lower_bound=1,
    )
    define_shape_changes()


def main() -> None:
    """Measure each shape in a process of its own, and print the table."""
    asked = (FLAGS.dtype, FLAGS.batch_tokens, FLAGS.fused_attention)
    shapes = {name: asked_shape(name, *asked) for name in FLAGS.shape}
    print(header(), flush=True)
    measured = {}
    for name, shape in shapes.items():
        measured[name] = in_own_process(
            measure,
            shape,
            FLAGS.repetitions,
            FLAGS.devices,
            FLAGS.peak_size,
            devices=FLAGS.devices,
        )
    print(report(shapes, measured, FLAGS.repetitions))


def measure(
    shape: Shape, repetitions: int, device_count: int | None, peak_sizes: list[int]
) -> Measurement:
    """Take steps as training does: host batch in, state donated, one jitted or pmapped call."""
    devices = take_devices(device_count, shape.rows)
    training = TrainingConfig()
    model = Transformer(shape.model, shape.vocabulary_size, PAD_ID)
    optimizer = adam_with_warmup(shape.model.d_model, training.warmup_steps)
    step = devices.train_step(make_train_step(model, optimizer, BOS_ID, training.label_smoothing))
    batch = ragged_batch(shape)
    state = devices.replicate(initial_state(model, optimizer, jax.random.key(1)))
    metrics = None

    def take_step() -> None:
        nonlocal state, metrics
        state, metrics = jax.block_until_ready(step(state, batch))

    timing = time_call(take_step, repetitions)
    memory = device_memory()  # before the large matrices come
    assert metrics is not None
    assert np.isfinite(devices.first(metrics).loss.smoothed)
    return Measurement(
        devices.describe(),
        timing,
        source_tokens=int((batch.source != PAD_ID).sum()),
        target_tokens=int((batch.target != PAD_ID).sum()),
        peak_memory=memory,
        peak_flops=matrix_product_peak(peak_sizes, devices, shape.model.compute_dtype),
    )


def ragged_batch(shape: Shape, seed: int = 1) -> Batch:
    """Full-width rows of which 80 to 100 % are real, drawn evenly: about 90 % of all tokens.

    Length buckets leave about as much padding in training.
    """
    random = np.random.default_rng(seed)
    shortest = round(0.8 * shape.length)

    def side() -> np.ndarray:
        lengths = random.integers(shortest, shape.length + 1, shape.rows)
        return random_sentences(random, lengths, shape.length, shape.vocabulary_size)

    return Batch(side(), side())


def training_flops(shape: Shape) -> int:
    """Floating-point operations of one step's matrix products, padding included.

    Multiply-adds of the forward pass for a row of S source and T target positions, with
    attend(Q, K) = d_model H (Q d_k + K d_k + K d_v + Q d_v)   projections W^Q W^K W^V W^O
                 + Q K H (d_k + d_v)                           scores and weighted values
    feed(T)      = 2 T d_model d_ff
    are N (attend(S, S) + feed(S)) in the encoder, N (attend(T, T) + attend(T, S) + feed(T))
    in the decoder, and T d_model V before the softmax. A multiply-add is two operations;
    the backward pass takes two products for each of the forward's. Scores the causal mask
    hides are computed, and counted. Element-wise work, look-ups and Adam are not counted.
    """
    model, length = shape.model, shape.length

    def attend(queries: int, keys: int) -> int:
        widths = (queries + keys) * (model.d_k + model.d_v)
        products = queries * keys * (model.d_k + model.d_v)
        return model.num_heads * (model.d_model * widths + products)

    feed = 2 * length * model.d_model * model.d_ff
    encoder = attend(length, length) + feed
    decoder = 2 * attend(length, length) + feed
    row = model.num_layers * (encoder + decoder) + length * model.d_model * shape.vocabulary_size
    return 3 * 2 * shape.rows * row


def report(shapes: dict[str, Shape], measured: dict[str, Measurement], repetitions: int) -> str:
    """The table, with what its numbers are."""
    any_one = next(iter(measured.values()))
    dtypes = dict.fromkeys(shape.model.compute_dtype for shape in shapes.values())
    share = ", ".join(
        f"{name} {(m.source_tokens + m.target_tokens) / (2 * _tokens(shapes[name])):.1%}"
        for name, m in measured.items()
    )
    lines = [
        f"devices     {any_one.devices}, {' and '.join(dtypes)}",
        f"timing      median and range of {repetitions} steps, each run to its end",
        f"tokens      source and target together, or target alone; real ones: {share}",
        "MFU         matrix products of forward and backward, padding included, over the peak: "
        "the best square product",
        f"memory      {MEMORY}",
        "",
        table(COLUMNS, [row(name, shapes[name], m) for name, m in measured.items()]),
    ]
    return "\n".join(lines)


def _tokens(shape: Shape) -> int:
    """Of one side of a batch, padding included."""
    return shape.rows * shape.length


def row(name: str, shape: Shape, measured: Measurement) -> list[str]:
    """One shape's line of the table."""
    seconds = measured.timing.median
    flops = training_flops(shape)
    return [
        name,
        f"{shape.rows} x ({shape.length} + {shape.length})",
        f"{2 * _tokens(shape) / seconds:,.0f}",
        f"{(measured.source_tokens + measured.target_tokens) / seconds:,.0f}",
        f"{measured.target_tokens / seconds:,.0f}",
        *measured.timing.cells(),
        f"{flops / 1e9:,.1f}",
        f"{measured.peak_flops / 1e9:,.0f}",
        f"{flops / seconds / measured.peak_flops:.1%}",
        f"{measured.timing.compile_seconds:.1f}",
        f"{measured.peak_memory / 1e6:,.0f}",
    ]


if __name__ == "__main__":
    open_door(define_flags, main, __doc__)
