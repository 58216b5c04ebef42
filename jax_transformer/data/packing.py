"""§5.1 Packing: several pairs a row, one behind the other, so that few tokens are padding.

Pairs of the same two lengths are of one kind. Rows are planned from how many pairs there are
of each kind, so that it takes as long for millions of pairs as for thousands; each epoch then
draws anew which pairs of a kind stand where. Planning holds some 50 bytes a pair for a moment,
and 8 bytes a pair while training.
Differs: the paper batches pairs of about the same length, one a row.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from jax_transformer.data.batching import Epoch, every_pair
from jax_transformer.data.bucketing import Shape, slices

# Rows are as short as they can be while so many of all tokens are real: each token's attention
# costs with the length of its row.
ENOUGH = 0.96
_SHORTEST, _LONGEST, _STEP = 32, 128, 8  # lengths tried for most rows, in tokens
_SPARED = 100  # one row of padding in so many is given for larger batches


@dataclass(frozen=True)
class Packing:
    """What rows are made of: kinds of pairs, (source, target) lengths, and shapes of batches."""

    kinds: Int[np.ndarray, "K 2"]
    of_pairs: Int[np.ndarray, " pairs"]  # the kind of each pair of the store
    shapes: list[Shape]  # in order of their tokens a row


class Rows(NamedTuple):
    """So many rows of one shape that hold pairs of the same kinds."""

    count: int
    shape: int
    kinds: list[int]


def learn_packing(
    source: Int[np.ndarray, " pairs"],
    target: Int[np.ndarray, " pairs"],
    *,
    most: int,
    batch_tokens: int,
    multiple: int,
    of: Int[np.ndarray, " some"] | None = None,
) -> Packing:
    """At most `most` shapes of batches whose rows hold several of these pairs.

    A row has room for source and target tokens in the proportion that all pairs have: most
    have the shortest length with which `ENOUGH` of an epoch's tokens are real, longer pairs
    rows of twice and four times that, and so on. A batch has up to `batch_tokens` tokens on
    its longer side, in a multiple of `multiple` rows, at least one.

    of: the pairs of an epoch, where it does not have all.
    """
    kinds, of_pairs = _kinds(source, target)
    counts = _counts(of_pairs, len(kinds), of)
    widest = max(batch_tokens // multiple, 2)
    lengths = [n for n in range(_SHORTEST, _LONGEST + 1, _STEP) if n <= widest] or [widest]
    best, fewest = [], None
    for length in lengths:
        sizes = _row_sizes(length, counts @ kinds, kinds.max(axis=0))[-most:]
        full = [
            Shape(s, t, max(batch_tokens // max(s, t) // multiple, 1) * multiple) for s, t in sizes
        ]
        shapes, computed = _fitted(full, fill_rows(kinds, counts, full), multiple)
        if fewest is None or computed < fewest:
            best, fewest = shapes, computed
        if (counts @ kinds).sum() >= ENOUGH * fewest:
            break
    return Packing(kinds, of_pairs, best)


def fill_rows(
    kinds: Int[np.ndarray, "K 2"], counts: Int[np.ndarray, " K"], shapes: Sequence[Shape]
) -> list[Rows]:
    """Rows that hold so many pairs of each kind, each pair once.

    The largest pair that is left opens a row of the smallest shape that holds it; what
    follows is each time the pair that leaves least room on the side that has most. As many
    rows are filled alike as there are pairs of all their kinds. Where a shape's last batch is
    not full, smaller pairs fill it before they have rows of their own shape.
    """
    wide, high = shapes[-1][:2]
    number = np.full((wide + 1, high + 1), -1)
    number[tuple(kinds.T)] = np.arange(len(kinds))
    stock = np.zeros_like(number)
    stock[tuple(kinds.T)] = counts
    room = np.maximum(np.arange(wide + 1)[:, None] * high, np.arange(high + 1)[None] * wide)
    fits = kinds[:, None] <= np.array(shapes)[None, :, :2]
    smallest = fits.all(axis=-1).argmax(axis=1)
    made = [0] * len(shapes)
    rows: list[Rows] = []
    shape = len(shapes) - 1
    for kind in np.lexsort((-room[tuple(kinds.T)], -kinds.sum(axis=1), -smallest)):
        first = tuple(kinds[kind].tolist())
        while stock[first]:
            empty = -made[shape] % shapes[shape].rows
            if shape != smallest[kind] and not empty:
                shape = int(smallest[kind])
            held = _fill_one(stock, room, first, shapes[shape][:2])
            more = min(int(stock[place]) // times for place, times in held.items())
            if shape != smallest[kind]:
                more = min(more, empty - 1)
            for place, times in held.items():
                stock[place] -= more * times
            made[shape] += more + 1
            rows.append(Rows(more + 1, shape, [int(number[place]) for place in held.elements()]))
    return rows


def pack_epoch(
    packing: Packing, *, shuffle: tuple[int, int], of: Int[np.ndarray, " some"] | None = None
) -> Epoch:
    """Every pair once, in batches of one shape each, several pairs a row.

    shuffle: (seed, epoch), which decides what pairs share a row and what rows a batch. of:
    these pairs instead of all.
    """
    counts = _counts(packing.of_pairs, len(packing.kinds), of)
    rows = fill_rows(packing.kinds, counts, packing.shapes)
    generator = np.random.default_rng(shuffle)
    order = every_pair(len(packing.of_pairs)) if of is None else of.copy()
    generator.shuffle(order)
    return _in_batches(_placed(order, packing.of_pairs, rows), rows, packing.shapes, generator)


def _placed(
    order: Int[np.ndarray, " some"], of_pairs: Int[np.ndarray, " pairs"], rows: Sequence[Rows]
) -> Int[np.ndarray, " some"]:
    """The pairs row by row: those of a kind, in the order drawn, where there is a place for it."""
    number = of_pairs.dtype.type
    places = [np.tile(np.array(same.kinds, number), same.count) for same in rows]
    placed = np.empty_like(order)
    of_places = np.argsort(np.concatenate(places), kind="stable")
    placed[of_places] = order[np.argsort(of_pairs[order], kind="stable")]
    return placed


def _in_batches(
    placed: Int[np.ndarray, " some"],
    rows: Sequence[Rows],
    shapes: Sequence[Shape],
    generator: np.random.Generator,
) -> Epoch:
    """The rows of each shape shuffled and cut into batches, and those shuffled."""
    alike = [same.count for same in rows]
    sizes = np.repeat([len(same.kinds) for same in rows], alike)  # pairs of each row
    starts = np.cumsum(sizes) - sizes
    of_shape = np.repeat([same.shape for same in rows], alike)
    mixed = [generator.permutation(np.flatnonzero(of_shape == i)) for i in range(len(shapes))]
    batches = [
        (index, own[start : start + shapes[index].rows])
        for index, own in enumerate(mixed)
        for start in range(0, len(own), shapes[index].rows)
    ]
    batches = [batches[i] for i in generator.permutation(len(batches))]
    chosen = np.concatenate([own for _, own in batches])
    sizes, starts = sizes[chosen], starts[chosen]
    ends = np.cumsum(sizes)
    places = np.arange(len(placed)) - np.repeat(ends - sizes, sizes)
    ends = ends[np.cumsum([len(own) for _, own in batches]) - 1]
    return Epoch(
        placed[np.repeat(starts, sizes) + places],
        np.concatenate([[0], ends[:-1]]),
        ends,
        np.array([index for index, _ in batches], np.int32),
        (places + 1).astype(np.uint16),
    )


def _kinds(
    source: Int[np.ndarray, " pairs"], target: Int[np.ndarray, " pairs"]
) -> tuple[Int[np.ndarray, "K 2"], Int[np.ndarray, " pairs"]]:
    """The (source, target) lengths that there are, and which of them each pair has."""
    wide, high = int(source.max()) + 1, int(target.max()) + 1
    there = np.zeros(wide * high, bool)
    for part in slices(len(source)):
        there[source[part].astype(np.int64) * high + target[part]] = True
    kinds = np.stack(np.unravel_index(np.flatnonzero(there), (wide, high)), axis=1)
    number = np.cumsum(there) - 1
    of_pairs = np.empty(len(source), np.uint16 if len(kinds) <= 1 << 16 else np.int32)
    for part in slices(len(source)):
        of_pairs[part] = number[source[part].astype(np.int64) * high + target[part]]
    return kinds, of_pairs


def _counts(
    of_pairs: Int[np.ndarray, " pairs"], kinds: int, of: Int[np.ndarray, " some"] | None
) -> Int[np.ndarray, " K"]:
    """How many pairs there are of each kind."""
    counts = np.zeros(kinds, np.int64)
    for part in slices(len(of_pairs if of is None else of)):
        counts += np.bincount(of_pairs[part if of is None else of[part]], minlength=kinds)
    return counts


def _row_sizes(
    length: int, tokens: Int[np.ndarray, " 2"], longest: Int[np.ndarray, " 2"]
) -> list[tuple[int, int]]:
    """Rows of this length on the longer side, of twice that and so on, until all pairs fit.

    tokens: of both sides, which say in what proportion rows have room.
    """
    first = np.maximum(np.round(length * tokens / tokens.max()), 2)
    factors, last = [1.0], max((longest / first).max(), 1.0)
    while factors[-1] < last:
        factors.append(min(2 * factors[-1], last))
    sizes = np.ceil(np.outer(factors, first) - 1e-6).astype(int)
    return [(s, t) for s, t in sizes.tolist()]


def _fill_one(
    stock: Int[np.ndarray, "S T"],
    room: Int[np.ndarray, "S T"],
    first: tuple[int, int],
    row: tuple[int, int],
) -> Counter[tuple[int, int]]:
    """The pairs of a row that begins with `first`, taken out of the stock."""
    held: Counter[tuple[int, int]] = Counter()
    (s, t), place = row, first
    while stock[place]:
        held[place] += 1
        stock[place] -= 1
        s, t = s - place[0], t - place[1]
        left = np.where(stock[: s + 1, : t + 1] > 0, room[s::-1, t::-1], room[-1, -1] + 1)
        place = divmod(int(left.argmin()), t + 1)
    return held


def _fitted(full: Sequence[Shape], rows: Sequence[Rows], multiple: int) -> tuple[list[Shape], int]:
    """The shapes that there are rows of, and the tokens that are computed.

    Of the largest shapes all batches are full. The last shape gets so many rows in a batch that
    its last one is nearly full too.
    """
    made = [sum(same.count for same in rows if same.shape == i) for i in range(len(full))]
    shapes, computed = [], 0
    for count, shape in zip(made, full, strict=True):
        if not count and shape != full[-1]:
            continue
        most = shape.rows // multiple
        some = multiple * np.arange(most, (most - 1) // 2, -1)
        empty = -count % some
        # Batches are to be large as well: the most rows that waste little more than the best.
        fitting = int(some[np.argmax(empty <= empty.min() + count // _SPARED)])
        shapes.append(shape._replace(rows=fitting))
        computed += (count + -count % fitting) * (shape.source + shape.target)
    return shapes, computed
