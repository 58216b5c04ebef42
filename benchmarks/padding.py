"""How many of the tokens that training computes are real, on a run folder's own pairs.

python -m benchmarks.padding --workdir=runs/multi30k
python -m benchmarks.padding --workdir=runs/mine --shapes=16,23 --batch_tokens=25000 --multiple=8
python -m benchmarks.padding --workdir=runs/multi30k --batch_tokens=4096 --limit_steps=800

Plans the first epoch as training does, batches that are not full included, with one pair a row
and packed (data.packing). With --limit_steps the last column is a share that no choice of so
many shapes can pass with one pair a row, however pairs are put into them: a bound from Lagrange
multipliers, tighter with more steps.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from absl import flags
from jaxtyping import Float, Int

from benchmarks.measuring import header, table
from experiments.cli import FLAGS, define_workdir, open_door, run_folder
from jax_transformer.data.batching import Epoch, assign_shapes, padding_share, plan_epoch
from jax_transformer.data.bucketing import Shape, learn_shapes
from jax_transformer.data.packing import learn_packing, pack_epoch
from jax_transformer.data.token_store import TokenStore, open_store
from jax_transformer.errors import InputError

COLUMNS = [
    *("batch_tokens", "multiple", "pairs a row", "shapes", "batches", "tokens a batch"),
    *("real", "at most"),
]


def define_flags() -> None:
    """This benchmark's flags."""
    define_workdir()
    flags.DEFINE_list("shapes", ["16", "23", "32"], "Most shapes to learn.")
    flags.DEFINE_list("batch_tokens", ["1536", "4096", "25000"], "Tokens of a batch's longer side.")
    flags.DEFINE_list("multiple", ["1", "8"], "Rows are multiples of these numbers of devices.")
    flags.DEFINE_integer("limit_steps", 0, "Steps towards the limit; 0: none.", lower_bound=0)


def main() -> int:
    """Plan an epoch for each combination and print a table."""
    choices = {name: _numbers(name) for name in ("shapes", "batch_tokens", "multiple")}
    store = open_store(run_folder().tokens("train"))
    print(header(), flush=True)
    rows = [
        measured(store, most, batch_tokens, multiple, packed)
        for batch_tokens in choices["batch_tokens"]
        for multiple in choices["multiple"]
        for packed in (False, True)
        for most in (choices["shapes"] if not packed else [max(choices["shapes"])])
    ]
    if FLAGS.limit_steps:
        lengths = store.lengths("source"), store.lengths("target")
        limits = {n: limit(*lengths, n, FLAGS.limit_steps) for n in choices["shapes"]}
        order = [*(f"{limits[n]:.2%}" for n in choices["shapes"]), ""]  # and that of packed rows
        order *= len(rows) // len(order)
        rows = [[*row[:-1], most] for row, most in zip(rows, order, strict=True)]
    print(table(COLUMNS, rows))
    return 0


def measured(
    store: TokenStore, most: int, batch_tokens: int, multiple: int, packed: bool
) -> list[str]:
    """A row of the table, without the limit."""
    shapes, plan = first_epoch(
        store, packed, most=most, batch_tokens=batch_tokens, multiple=multiple
    )
    rows = len(store) if plan.places is None else (plan.places == 1).sum()
    longer = [shapes[i].rows * max(shapes[i][:2]) for i in plan.shapes.tolist()]
    return [
        f"{batch_tokens:,}",
        str(multiple),
        f"{len(store) / rows:.1f}" if packed else "1",
        str(len(shapes)),
        f"{len(plan):,}",
        f"{np.mean(longer):,.0f}",
        f"{1 - padding_share(plan, shapes, store):.2%}",
        "",
    ]


def first_epoch(store: TokenStore, packed: bool, **settings: Any) -> tuple[Sequence[Shape], Epoch]:
    """Batch shapes learned with these settings, and the first epoch of seed 1 in them."""
    lengths = store.lengths("source"), store.lengths("target")
    if packed:
        packing = learn_packing(*lengths, **settings)
        return packing.shapes, pack_epoch(packing, shuffle=(1, 0))
    shapes = learn_shapes(*lengths, **settings)
    return shapes, plan_epoch(assign_shapes(*lengths, shapes), shapes, shuffle=(1, 0))


def limit(
    source: Int[np.ndarray, " pairs"], target: Int[np.ndarray, " pairs"], most: int, steps: int
) -> float:
    """A share of real tokens that no `most` shapes can pass.

    Where each pair may go to any number of shapes, at a price for each pair that is in none
    or a reward given twice for one in two, shapes are worth what they are worth by
    themselves, and the best are found by sorting. Any prices give a lower bound on the
    tokens; each step moves them towards where each pair is held once.
    """
    longest = int(source.max()) + 1, int(target.max()) + 1
    counts = np.bincount(source * longest[1] + target, minlength=longest[0] * longest[1])
    kinds = np.stack(np.unravel_index(np.flatnonzero(counts), longest), axis=1)  # (source, target)
    count, real = counts[counts > 0].astype(float), int(source.sum() + target.sum())
    price = kinds.sum(1) * 1.08
    best, best_price, scale, stalled = 0.0, price, 0.05 * real, 0
    trend = np.zeros(len(kinds))
    for _ in range(steps):
        tokens, held = _priced(price, kinds, count, longest, most)
        stalled += 1
        if tokens > best:
            best, best_price, stalled = tokens, price, 0
        elif stalled > 10:
            price, scale, stalled, trend = best_price, 0.7 * scale, 0, np.zeros(len(kinds))
            continue
        trend = 0.6 * trend + 0.4 * (1 - held)
        step = scale / max(float(((trend * count) ** 2).sum()), 1e-9)
        price = np.maximum(price + step * trend * count, kinds.sum(1))
    return real / max(math.ceil(best - 0.01), real)  # tokens are whole numbers, `best` is rounded


def _priced(
    price: Float[np.ndarray, " kinds"],
    kinds: Int[np.ndarray, "kinds 2"],
    count: Float[np.ndarray, " kinds"],
    longest: tuple[int, int],
    most: int,
) -> tuple[float, Int[np.ndarray, " kinds"]]:
    """(Fewest tokens at these prices a pair, how many of the chosen shapes hold each kind)."""
    sizes = np.add.outer(np.arange(longest[0]), np.arange(longest[1]))
    worth = np.zeros(longest)
    for size in range(2, sizes.max() + 1):
        gain = np.zeros(longest)
        gain[kinds[:, 0], kinds[:, 1]] = np.maximum(price - size, 0) * count
        place = sizes == size
        worth[place] = gain.cumsum(0).cumsum(1)[place]
    chosen = np.stack(np.unravel_index(np.argsort(-worth, axis=None)[:most], longest), axis=1)
    fits = (kinds[:, None, :] <= chosen).all(-1) & (chosen.sum(1) < price[:, None])
    return float(price @ count - worth[chosen[:, 0], chosen[:, 1]].sum()), fits.sum(1)


def _numbers(flag: str) -> list[int]:
    given = getattr(FLAGS, flag)
    try:
        numbers = [int(text) for text in given]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 1:
        raise InputError(
            f"--{flag}={','.join(given)}: expected whole numbers from 1 on, found another; "
            f"give such as --{flag}=16,23"
        )
    return numbers


if __name__ == "__main__":
    open_door(define_flags, main, __doc__)
