"""How fast translation is: sentences/s and output tokens/s of greedy and of beam search.

python -m benchmarks.decode                        tiny and base; greedy, beam 4 (§6.1), 21 (§6.3)
python -m benchmarks.decode --model=base --beam_size=4 --batch_size=128 --text=test.en

Weights are random, and EOS never likely, so every output is as long as its source. The search has
room for outputs that are 50 tokens longer, as in real use, where nobody knows their lengths.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import flags
from jaxtyping import Array, Int

from benchmarks.measuring import (
    BOS_ID,
    EOS_ID,
    FLAGS,
    PAD_ID,
    Timing,
    Workload,
    define_workloads,
    header,
    middle_batch,
    random_sentences,
    run,
    table,
    text_lengths,
    time_call,
    workloads,
)
from jax_transformer.config import DecodingConfig
from jax_transformer.decoding.beam_search import beam_search
from jax_transformer.decoding.generate import start_decoding
from jax_transformer.errors import InputError
from jax_transformer.models.transformer import Transformer
from jax_transformer.parallel import Devices

define_workloads()
flags.DEFINE_multi_integer(
    "beam_size", [1, 4, 21], "Hypotheses in the search; 1 is greedy", lower_bound=1
)
flags.DEFINE_integer("batch_size", 64, "Sentences decoded together.", lower_bound=1)
flags.DEFINE_string(
    "text", None, "A text with a sentence a line, whose lengths in words the sources get."
)

DECODING = DecodingConfig()
COLUMNS = [
    "model",
    "beam",
    "dtype",
    "sentences/s",
    "output tokens/s",
    "ms/batch",
    "range",
    "compile s",
]


def main() -> None:
    """Measure each model with each beam, and print the table."""
    shapes = workloads()
    most = min(shape.vocabulary_size for shape in shapes.values()) // 8
    if max(FLAGS.beam_size) > most:  # EOS ranks in the middle of the vocabulary
        raise InputError(
            f"--beam_size={max(FLAGS.beam_size)}: expected at most {most}, an eighth of the "
            "vocabulary; give a smaller beam or a larger --model"
        )
    lengths = middle_batch(text_lengths(FLAGS.text), FLAGS.batch_size)
    print(header(), flush=True)
    rows = []
    for name, shape in shapes.items():
        for beam_size in FLAGS.beam_size:
            timing = measure(shape, beam_size, lengths)
            rows.append(row(name, shape, beam_size, lengths, timing))
    print(f"timing      one device, median and range of {FLAGS.trials} batches")
    print(f"work        {len(lengths)} sources of {lengths.min()} to {lengths.max()} tokens")
    print(f"\n{table(COLUMNS, rows)}")


def measure(shape: Workload, beam_size: int, lengths: np.ndarray) -> Timing:
    """Decode one batch from token ids on the host to the best outputs on the host."""
    model = Transformer(shape.model, shape.vocabulary_size, PAD_ID)
    token = jnp.zeros((1, 2), jnp.int32)
    devices = Devices(1)
    params = never_ending(model.init(jax.random.key(1), token, token)["params"])
    params = devices.replicate(params)
    random = np.random.default_rng(1)
    source = random_sentences(random, lengths, lengths.max(), shape.vocabulary_size)
    search = devices.map_rows(searching(model, beam_size))
    outputs: Any = None

    def decode_batch() -> None:
        nonlocal outputs
        outputs = devices.gather(search(params, source))

    timing = time_call(decode_batch, FLAGS.trials)
    assert ((outputs == EOS_ID).argmax(axis=-1) == lengths - 1).all()
    return timing


def searching(model: Transformer, beam_size: int) -> Callable[[Any, Any], Any]:
    """`translate` as a function of parameters and sources, stopped at each source's length."""

    def search(params: Any, source: Int[Array, "B S"]) -> Int[Array, "B T"]:
        length = source.shape[1] + DECODING.max_extra_length
        step, state = start_decoding(model, params, source, beam_size, length)
        found = beam_search(
            step,
            state,
            (source != PAD_ID).sum(axis=1),
            beam_size=beam_size,
            length=length,
            alpha=DECODING.alpha,
            bos_id=BOS_ID,
            eos_id=EOS_ID,
            pad_id=PAD_ID,
        )
        return found.tokens[:, 0]

    return search


def never_ending(params: Any) -> Any:
    """Random parameters of a tied model with EOS's embedding at 0.

    The logits of half of the tokens lie above that of EOS, so EOS is never among the likeliest.
    """
    matrix = jnp.asarray(params["embedding"]["matrix"]).at[EOS_ID].set(0.0)
    return params | {"embedding": params["embedding"] | {"matrix": matrix}}


def row(
    name: str, shape: Workload, beam_size: int, lengths: np.ndarray, timing: Timing
) -> list[str]:
    """One model's and beam's line of the table."""
    return [
        name,
        str(beam_size),
        shape.model.compute_dtype,
        f"{len(lengths) / timing.median:,.1f}",
        f"{lengths.sum() / timing.median:,.0f}",
        *timing.cells(),
        f"{timing.compile_seconds:.1f}",
    ]


if __name__ == "__main__":
    run(main)
