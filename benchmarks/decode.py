"""The speed of translation: sentences/s and output tokens/s of greedy and of beam search.

python -m benchmarks.decode                        tiny and base; greedy, beam 4 (§6.1), 21 (§6.3)
python -m benchmarks.decode --model=base --beam_size=4 --batch_size=128

Sources have 24 tokens. Weights are random, and EOS is never likely, so every output has the 25
tokens of its limit. The search's arrays hold 75, as in real use, where lengths are unknown.
"""

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
    random_sentences,
    run,
    table,
    time_call,
    workloads,
)
from jax_transformer.config import DecodingConfig
from jax_transformer.decoding.generate import translate
from jax_transformer.errors import InputError
from jax_transformer.models.transformer import Transformer, as_computed
from jax_transformer.parallel import Devices
from jax_transformer.types import AnyArray, Params

define_workloads()
flags.DEFINE_multi_integer(
    "beam_size", [1, 4, 21], "Hypotheses in the search; 1 is greedy", lower_bound=1
)
flags.DEFINE_integer("batch_size", 64, "Sentences decoded together.", lower_bound=1)

SOURCE_LENGTH, OUTPUT_LENGTH, ROOM = 24, 25, 75  # tokens, EOS included
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
    print(header(), flush=True)
    rows = []
    for name, shape in shapes.items():
        for beam_size in FLAGS.beam_size:
            timing = measure(shape, beam_size)
            rows.append(row(name, shape, beam_size, timing))
    print(f"timing      one device, median and range of {FLAGS.trials} batches")
    sources = f"{FLAGS.batch_size} sources of {SOURCE_LENGTH} tokens"
    print(f"work        {sources}, outputs of {OUTPUT_LENGTH}")
    print(f"\n{table(COLUMNS, rows)}")


def measure(shape: Workload, beam_size: int) -> Timing:
    """Decode one batch from token ids on the host to the best outputs on the host."""
    model = Transformer(shape.model, shape.vocabulary_size, PAD_ID)
    decoding = DecodingConfig(beam_size=beam_size, max_extra_length=OUTPUT_LENGTH - SOURCE_LENGTH)
    token = jnp.zeros((1, 2), jnp.int32)
    devices = Devices(1, shape.model.compute_dtype)
    params = never_ending(model.init(jax.random.key(1), token, token)["params"])
    transposed = devices.prefer_transposed
    params = devices.replicate(as_computed(params, model.config, transposed=transposed))
    lengths = np.full(FLAGS.batch_size, SOURCE_LENGTH)
    random = np.random.default_rng(1)
    source = random_sentences(random, lengths, SOURCE_LENGTH, shape.vocabulary_size)

    def search(params: Params, source: Int[AnyArray, "B S"]) -> Int[Array, "B 1 T"]:
        return translate(
            model, params, source, decoding, bos_id=BOS_ID, eos_id=EOS_ID, length=ROOM
        ).tokens

    run_search = devices.map_rows(search)
    outputs: Any = None

    def decode_batch() -> None:
        nonlocal outputs
        outputs = devices.gather(run_search(params, source))

    timing = time_call(decode_batch, FLAGS.trials)
    assert ((outputs == EOS_ID).argmax(axis=-1) == OUTPUT_LENGTH - 1).all()
    return timing


def never_ending(params: Params) -> Params:
    """Return random parameters with EOS's embeddings at 0.

    The logits of half of the tokens lie above that of EOS, so EOS is never among the likeliest.
    """
    matrices = {name: own["matrix"] for name, own in params.items() if "embedding" in name}
    return params | {
        name: params[name] | {"matrix": jnp.asarray(matrix).at[EOS_ID].set(0.0)}
        for name, matrix in matrices.items()
    }


def row(name: str, shape: Workload, beam_size: int, timing: Timing) -> list[str]:
    """Return the table's line for one model and beam."""
    sentences = FLAGS.batch_size / timing.median
    return [
        name,
        str(beam_size),
        shape.model.compute_dtype,
        f"{sentences:,.1f}",
        f"{sentences * OUTPUT_LENGTH:,.0f}",
        *timing.cells(),
        f"{timing.compile_seconds:.1f}",
    ]


if __name__ == "__main__":
    run(main)
