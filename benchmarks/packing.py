"""What a training step costs with one pair a row and packed, on a run folder's own pairs.

python -m benchmarks.packing --workdir=runs/multi30k                          tiny
python -m benchmarks.packing --workdir=runs/multi30k --shape=base --batch_tokens=2048 --batches=4

Takes steps on batches drawn from an epoch of each way, in turn, and compares seconds for each
real target token: packed rows have less padding, but attention costs with the length of a row.
"""

import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import jax
import numpy as np
from absl import flags

from benchmarks.measuring import (
    BOS_ID,
    PAD_ID,
    SHAPES,
    Shape,
    header,
    in_own_process,
    table,
)
from benchmarks.padding import first_epoch
from experiments.cli import FLAGS, define_workdir, open_door, run_folder
from jax_transformer.config import TrainingConfig
from jax_transformer.data.batching import batch_arrays, padding_share
from jax_transformer.data.token_store import TokenStore, open_store
from jax_transformer.models.transformer import Transformer
from jax_transformer.training.optimizer import adam_with_warmup
from jax_transformer.training.train_step import Batch, initial_state, make_train_step

COLUMNS = [
    "rows hold",
    "shapes",
    "real",
    "first steps s",
    "real target tokens/s",
    "seconds a token",
]
WAYS = ("one pair", "several pairs")


def define_flags() -> None:
    """This benchmark's flags."""
    define_workdir()
    flags.DEFINE_enum("shape", "tiny", list(SHAPES), "The model; its batches are the folder's.")
    flags.DEFINE_integer("batch_tokens", 4096, "Tokens of a batch's longer side.", lower_bound=1)
    flags.DEFINE_integer("batches", 12, "Drawn from an epoch of each way.", lower_bound=1)
    flags.DEFINE_integer("repetitions", 7, "Turns of both ways.", lower_bound=3)


def main() -> int:
    """Measure in a process of its own, and print a table."""
    print(header(), flush=True)
    folder = run_folder().tokens("train")
    given = SHAPES[FLAGS.shape], FLAGS.batch_tokens, FLAGS.batches, FLAGS.repetitions
    print(table(COLUMNS, in_own_process(measured, folder, *given, devices=1)))
    return 0


def measured(
    folder: Path, shape: Shape, batch_tokens: int, count: int, repetitions: int
) -> list[list[str]]:
    """Rows of the table."""
    store = open_store(folder)
    found = [drawn(store, way == WAYS[1], batch_tokens, count) for way in WAYS]
    size = max(int(np.max(store.tokens[side])) + 1 for side in store.tokens)
    model = Transformer(shape.model, max(size, shape.vocabulary_size), PAD_ID)
    training = TrainingConfig()
    optimizer = adam_with_warmup(shape.model.d_model, training.warmup_steps)
    step = jax.jit(
        make_train_step(model, optimizer, BOS_ID, training.label_smoothing), donate_argnums=0
    )
    state = initial_state(model, optimizer, jax.random.key(1))

    def seconds(batches: Sequence[Batch]) -> float:
        nonlocal state
        start = time.perf_counter()
        for batch in batches:
            state, _ = jax.block_until_ready(step(state, batch))
        return time.perf_counter() - start

    compiling = [seconds(batches) for batches, *_ in found]
    turns = [[seconds(batches) for batches, *_ in found] for _ in range(repetitions)]
    tokens = [
        sum(int((batch.target != PAD_ID).sum()) for batch in batches) for batches, *_ in found
    ]
    a_token = np.array(turns) / np.array(tokens)
    ratios = (a_token / a_token[:, :1]).T
    return [
        [
            way,
            str(shapes),
            f"{real:.1%}",
            f"{compiling[i]:.1f}",
            f"{statistics.median(1 / a_token[:, i]):,.0f}",
            f"{statistics.median(ratios[i]):.3f} ({ratios[i].min():.3f} - {ratios[i].max():.3f})",
        ]
        for i, (way, (_, shapes, real)) in enumerate(zip(WAYS, found, strict=True))
    ]


def drawn(
    store: TokenStore, packed: bool, batch_tokens: int, count: int
) -> tuple[list[Batch], int, float]:
    """Batches of the first epoch, the number of its shapes, and its share of real tokens."""
    shapes, plan = first_epoch(store, packed, most=23, batch_tokens=batch_tokens, multiple=1)
    some = range(min(count, len(plan)))  # batches come in an order that was drawn
    batches = [Batch(*batch_arrays(store, plan, index, shapes, PAD_ID)) for index in some]
    return batches, len(shapes), 1 - padding_share(plan, shapes, store)


if __name__ == "__main__":
    open_door(define_flags, main, __doc__)
