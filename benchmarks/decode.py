"""How fast translation is: sentences/s and output tokens/s of beam and greedy search.

python -m benchmarks.decode                         tiny and base, beams of 4 and 1
python -m benchmarks.decode --shape=base --beam_size=4 --batch_size=128

Weights are random, and EOS's such that no output ends by itself: all of them are ended
after --steps tokens, EOS included. Room is kept for --max_extra_length more than the
source, as in real use, where nobody knows beforehand how long a translation will be.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import flags

from benchmarks.measuring import (
    BOS_ID,
    EOS_ID,
    MEMORY,
    PAD_ID,
    SHAPES,
    Shape,
    Timing,
    device_memory,
    header,
    in_own_process,
    random_sentences,
    table,
    take_devices,
    time_call,
)
from experiments.cli import FLAGS, open_door
from jax_transformer.config import DecodingConfig
from jax_transformer.decoding.beam_search import Hypotheses
from jax_transformer.decoding.generate import translate
from jax_transformer.errors import InputError
from jax_transformer.models.transformer import Transformer

COLUMNS = [
    "shape",
    "beam",
    "sentences/s",
    "output tokens/s",
    "ms/batch",
    "range",
    "compile s",
    "memory MB",
]


@dataclass(frozen=True)
class Task:
    """What is translated, and how."""

    batch_size: int
    source_length: int
    steps: int
    decoding: DecodingConfig


@dataclass(frozen=True)
class Measurement:
    """What was found for one shape and beam."""

    devices: str
    timing: Timing
    peak_memory: int  # bytes


def define_flags() -> None:
    """This door's flags."""
    flags.DEFINE_multi_enum(
        "shape",
        ["tiny", "base"],
        list(SHAPES),
        "The model: tiny (4+4 layers of 128, 8,000 words), base (the paper's, 37,000 words) "
        "or smoke (nothing to measure); repeatable.",
    )
    flags.DEFINE_multi_integer(
        "beam_size", [4, 1], "Hypotheses kept; 1 is greedy; repeatable.", lower_bound=1
    )
    flags.DEFINE_integer("batch_size", 64, "Sentences decoded together.", lower_bound=1)
    flags.DEFINE_integer(
        "source_length", 20, "Tokens of every source, EOS included; no padding.", lower_bound=1
    )
    flags.DEFINE_integer("steps", 20, "Tokens of every output, EOS included.", lower_bound=1)
    flags.DEFINE_integer(
        "max_extra_length",
        DecodingConfig().max_extra_length,
        "Room for outputs longer than their source by so many tokens.",
        lower_bound=0,
    )
    flags.DEFINE_integer("repetitions", 7, "Batches timed, after warming up.", lower_bound=5)
    flags.DEFINE_integer(
        "devices",
        None,
        "Devices that share the batch (default: all); a CPU is cut into so many.",
        lower_bound=1,
    )


def main() -> None:
    """Measure each shape and beam in a process of its own, and print the table."""
    room = FLAGS.source_length + FLAGS.max_extra_length
    if room < FLAGS.steps:
        raise InputError(
            f"--steps={FLAGS.steps}: expected at most source_length + max_extra_length, "
            f"found {room}; give a larger --max_extra_length"
        )
    check_beams("--beam_size", FLAGS.beam_size, FLAGS.shape)
    print(header(), flush=True)
    measured = {}
    for name in FLAGS.shape:
        for beam_size in FLAGS.beam_size:
            measured[name, beam_size] = in_own_process(
                measure,
                SHAPES[name],
                _task(beam_size),
                FLAGS.repetitions,
                FLAGS.devices,
                devices=FLAGS.devices,
            )
    print(report(measured, _task(1), FLAGS.repetitions))


def check_beams(flag: str, beams: Sequence[int], shapes: Sequence[str]) -> None:
    """InputError where EOS could be a candidate: it is as likely as the middle one of the words."""
    words = min(SHAPES[name].vocabulary_size for name in shapes)
    if 8 * max(beams) > words:
        raise InputError(
            f"{flag}={max(beams)}: expected at most an eighth of {words} words; give a smaller one"
        )


def _task(beam_size: int) -> Task:
    decoding = DecodingConfig(beam_size=beam_size, max_extra_length=FLAGS.max_extra_length)
    return Task(FLAGS.batch_size, FLAGS.source_length, FLAGS.steps, decoding)


def never_ending(params: Any) -> Any:
    """Random parameters of a model of one matrix, with EOS's embedding at 0.

    The words' logits lie on both sides of that, so EOS is never among the likeliest.
    """
    assert not {"target_embedding", "output_embedding"} & set(params)
    matrix = jnp.asarray(params["embedding"]["matrix"]).at[EOS_ID].set(0.0)
    return params | {"embedding": params["embedding"] | {"matrix": matrix}}


def translate_in_steps(
    model: Transformer, params: Any, source: Any, decoding: DecodingConfig, steps: int
) -> Hypotheses:
    """`translate` without scores, ended after `steps` tokens, with room for all that it allows."""
    return translate(
        model,
        params,
        source,
        decoding,
        bos_id=BOS_ID,
        eos_id=EOS_ID,
        scores=False,
        max_lengths=jnp.full(len(source), steps),
    )


def measure(shape: Shape, task: Task, repetitions: int, device_count: int | None) -> Measurement:
    """Translate one batch as a run's translator does: ids in, the best outputs back on the host."""
    devices = take_devices(device_count, task.batch_size)
    model = Transformer(shape.model, shape.vocabulary_size, PAD_ID)
    token = jnp.zeros((1, 2), jnp.int32)
    params = never_ending(model.init(jax.random.key(1), token, token)["params"])
    params = devices.replicate(params)
    random = np.random.default_rng(1)
    lengths = np.full(task.batch_size, task.source_length)
    source = random_sentences(random, lengths, task.source_length, shape.vocabulary_size)
    search = devices.map_rows(
        lambda params, rows: translate_in_steps(model, params, rows, task.decoding, task.steps)
    )
    found: Any = None

    def translate_batch() -> None:
        nonlocal found
        found = search(params, source)

    timing = time_call(translate_batch, repetitions)
    assert ((found.tokens == EOS_ID).argmax(axis=-1) == task.steps - 1).all()
    return Measurement(devices.describe(), timing, device_memory())


def report(measured: dict[tuple[str, int], Measurement], task: Task, repetitions: int) -> str:
    """The table, with what its numbers are."""
    any_one = next(iter(measured.values()))
    lines = [
        f"devices     {any_one.devices}, float32",
        f"timing      median and range of {repetitions} batches, results back on the host",
        f"work        {task.batch_size} sources of {task.source_length} tokens without padding, "
        f"outputs of {task.steps}, EOS included, room for "
        f"{task.source_length + task.decoding.max_extra_length}; random weights",
        f"memory      {MEMORY}",
        "",
        table(COLUMNS, [row(name, beam, task, m) for (name, beam), m in measured.items()]),
    ]
    return "\n".join(lines)


def row(name: str, beam_size: int, task: Task, measured: Measurement) -> list[str]:
    """One line of the table; tokens are those of the best output of each sentence."""
    seconds = measured.timing.median
    return [
        name,
        str(beam_size),
        f"{task.batch_size / seconds:,.1f}",
        f"{task.batch_size * task.steps / seconds:,.0f}",
        *measured.timing.cells(),
        f"{measured.timing.compile_seconds:.1f}",
        f"{measured.peak_memory / 1e6:,.0f}",
    ]


if __name__ == "__main__":
    open_door(define_flags, main, __doc__)
