"""§5.1 Packing: several pairs in a row, with segment ids, so that few tokens are padding.

Rows are planned on the histogram of (source, target) lengths, which takes as long for millions of
pairs as for thousands; each epoch then assigns pairs of equal lengths to positions at random.
Differs: the paper batches pairs of about the same length, one pair in each row.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Integer

from jax_transformer.data.batching import (
    Epoch,
    Shape,
    cut_batches,
    even_batches,
    every_pair,
    full_rows,
)
from jax_transformer.data.token_store import Lengths

# Rows are the shortest with this share of real tokens: attention costs more in longer rows.
ENOUGH = 0.96
LENGTHS = range(32, 129, 8)  # candidates for most rows, in tokens of the longer side
MOST_SHAPES = 4


@dataclass(frozen=True)
class Packing:
    """The kinds of pairs, by their (source, target) lengths, and the batch shapes for them."""

    kinds: Integer[np.ndarray, "K 2"]
    of_pairs: Integer[np.ndarray, " pairs"]  # the kind of each pair of the store
    shapes: list[Shape]  # in order of tokens a row; the last holds every pair


class Rows(NamedTuple):
    """`count` rows of one shape that hold pairs of the same kinds."""

    count: int
    shape: int
    kinds: list[int]


def learn_packing(
    source: Lengths,
    target: Lengths,
    *,
    most: int,
    batch_tokens: int,
    multiple: int,
    of: Integer[np.ndarray, " some"] | None = None,
) -> Packing:
    """Learn at most `most` shapes, and at most four, whose rows hold several of these pairs.

    A row has source and target tokens in the proportion of all pairs. Most rows have the shortest
    length at which `ENOUGH` of an epoch's tokens are real; longer pairs go to rows of twice that
    length, four times, and so on. batch_tokens, multiple: those of `learn_shapes`. of: the pairs of
    an epoch, if it does not have all.
    """
    kinds, of_pairs = kinds_of(source, target)
    counts = np.bincount(of_pairs if of is None else of_pairs[of], minlength=len(kinds))
    real, best, fewest = int((counts @ kinds).sum()), [], None
    widest = max(batch_tokens // multiple, 2)
    for length in [n for n in LENGTHS if n <= widest] or [widest]:
        sizes = _row_sizes(length, counts @ kinds, kinds.max(axis=0))[-min(most, MOST_SHAPES) :]
        shapes = [Shape(s, t, full_rows(max(s, t), batch_tokens, multiple)) for s, t in sizes]
        made = np.zeros(len(shapes), int)
        for rows in fill_rows(kinds, counts, shapes):
            made[rows.shape] += rows.count
        shapes = even_batches(shapes, made, multiple)
        computed = sum(
            -(-int(count) // shape.rows) * shape.rows * sum(shape[:2])
            for count, shape in zip(made, shapes, strict=True)
        )
        if fewest is None or computed < fewest:
            best, fewest = shapes, computed
        if real >= ENOUGH * computed:
            break
    return Packing(kinds, of_pairs, best)


def kinds_of(
    source: Lengths, target: Lengths
) -> tuple[Integer[np.ndarray, "K 2"], Integer[np.ndarray, " pairs"]]:
    """Return the different (source, target) lengths, and which of them each pair has."""
    wide = int(target.max()) + 1
    codes, of_pairs = np.unique(source.astype(np.int64) * wide + target, return_inverse=True)
    kinds = np.stack(np.divmod(codes, wide), axis=1)
    return kinds, of_pairs.astype(np.uint16 if len(kinds) <= 1 << 16 else np.int32)


def fill_rows(
    kinds: Integer[np.ndarray, "K 2"], counts: Integer[np.ndarray, " K"], shapes: Sequence[Shape]
) -> list[Rows]:
    """Fill rows with `counts` pairs of each kind, each pair once.

    The largest pair that is left opens a row of the smallest shape that holds it. Then repeatedly
    add the pair that leaves the least free space on the emptier side of the row. Rows of the same
    kinds follow while pairs of all of them are left.
    """
    wide, high = shapes[-1][:2]
    number = np.full((wide + 1, high + 1), -1)
    number[tuple(kinds.T)] = np.arange(len(kinds))
    stock = np.zeros_like(number)
    stock[tuple(kinds.T)] = counts
    room = np.maximum(np.arange(wide + 1)[:, None] * high, np.arange(high + 1)[None] * wide)
    fits = kinds[:, None] <= np.array(shapes)[None, :, :2]
    smallest = fits.all(axis=-1).argmax(axis=1)
    rows: list[Rows] = []
    for kind in np.lexsort((-room[tuple(kinds.T)], -kinds.sum(axis=1), -smallest)):
        first, shape = tuple(kinds[kind].tolist()), int(smallest[kind])
        while stock[first]:
            held = _fill_one(stock, room, first, shapes[shape][:2])
            more = min(int(stock[place]) // times for place, times in held.items())
            for place, times in held.items():
                stock[place] -= more * times
            rows.append(Rows(more + 1, shape, [int(number[place]) for place in held.elements()]))
    return rows


def pack_epoch(
    packing: Packing, *, shuffle: tuple[int, int], of: Integer[np.ndarray, " some"] | None = None
) -> Epoch:
    """Plan an epoch as `plan_epoch` does, with several pairs in a row.

    shuffle: the pair (seed, epoch), which decides which pairs share a row, and which rows a batch.
    """
    generator = np.random.default_rng(shuffle)
    order = every_pair(len(packing.of_pairs)) if of is None else of.copy()
    generator.shuffle(order)
    kind_of = packing.of_pairs[order]
    same = fill_rows(
        packing.kinds, np.bincount(kind_of, minlength=len(packing.kinds)), packing.shapes
    )
    # Pairs of a kind go, in the order drawn, to the positions of that kind in the rows.
    row_kinds = np.concatenate([np.tile(np.array(rows.kinds), rows.count) for rows in same])
    placed = np.empty_like(order)
    placed[np.argsort(row_kinds, kind="stable")] = order[np.argsort(kind_of, kind="stable")]
    alike = [rows.count for rows in same]
    mixed = generator.permutation(sum(alike))
    row_shapes = np.repeat([rows.shape for rows in same], alike)[mixed]
    batches = cut_batches(row_shapes, packing.shapes, generator)
    rows = mixed[np.concatenate([rows for _, rows in batches])]
    sizes = np.repeat([len(rows.kinds) for rows in same], alike)  # the number of pairs in each row
    starts, sizes = (np.cumsum(sizes) - sizes)[rows], sizes[rows]
    before = np.arange(len(placed)) - np.repeat(np.cumsum(sizes) - sizes, sizes)  # in its row
    ends = np.cumsum(sizes)[np.cumsum([len(rows) for _, rows in batches]) - 1]
    return Epoch(
        placed[np.repeat(starts, sizes) + before],
        np.concatenate([[0], ends[:-1]]),
        ends,
        np.array([index for index, _ in batches], np.int32),
        (before + 1).astype(np.uint16),
    )


def _row_sizes(
    length: int, tokens: Integer[np.ndarray, " 2"], longest: Integer[np.ndarray, " 2"]
) -> list[tuple[int, int]]:
    """Return row sizes: `length` on the longer side, twice that and so on, until all pairs fit."""
    first = np.maximum(np.round(length * tokens / tokens.max()), 2)
    factors, last = [1.0], max((longest / first).max(), 1.0)
    while factors[-1] < last:
        factors.append(min(2 * factors[-1], last))
    sizes = np.ceil(np.outer(factors, first) - 1e-6).astype(int)
    return [(s, t) for s, t in sizes.tolist()]


def _fill_one(
    stock: Integer[np.ndarray, "S T"],
    room: Integer[np.ndarray, "S T"],
    first: tuple[int, int],
    row: tuple[int, int],
) -> Counter[tuple[int, int]]:
    """Take the pairs of a row that begins with `first` out of the stock, and return them."""
    held: Counter[tuple[int, int]] = Counter()
    (s, t), place = row, first
    while stock[place]:
        held[place] += 1
        stock[place] -= 1
        s, t = s - place[0], t - place[1]
        left = np.where(stock[: s + 1, : t + 1] > 0, room[s::-1, t::-1], room[-1, -1] + 1)
        place = divmod(int(left.argmin()), t + 1)
    return held
