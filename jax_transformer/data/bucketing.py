"""§5.1 Batch shapes: which few (rows, source, target) hold a corpus with little padding.

The search works on how many pairs there are of each length on both sides, so that it takes
as long for millions of pairs as for thousands.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int

_SLICE = 1 << 20  # pairs looked at together, so that temporary arrays stay small
_SPARED = 500  # one token of padding in so many is given for larger batches


class Shape(NamedTuple):
    """A batch shape: `rows` pairs, padded to these lengths."""

    source: int
    target: int
    rows: int


class _Histogram(NamedTuple):
    """How many pairs have lengths up to sources[i] and targets[j], and over those before."""

    sources: Int[np.ndarray, " I"]
    targets: Int[np.ndarray, " J"]
    counts: Int[np.ndarray, "I J"]
    sizes: Int[np.ndarray, "I J"]  # tokens of a pair of both lengths


def learn_shapes(
    source: Int[np.ndarray, " pairs"],
    target: Int[np.ndarray, " pairs"],
    *,
    most: int,
    batch_tokens: int,
    multiple: int,
    longest: Sequence[int] = (0, 0),
) -> list[Shape]:
    """At most `most` batch shapes that hold an epoch of these pairs with little padding.

    A batch has up to `batch_tokens` tokens on its longer side, in a multiple of `multiple`
    rows, at least one. Its rows are between half of those that fit and all, so many that
    the pairs fill whole batches. longest: lengths of both sides up to which there are other pairs.

    Shapes come in order of their tokens a row. No single one of them could be put elsewhere
    with less padding.

    Differs: tensor2tensor's buckets are fixed lengths of the longer side, and full batches only.
    """
    histogram = _histogram(source, target, longest)
    cells = _search(histogram, most)
    owners = _owners(cells, histogram)
    pairs = [int(histogram.counts[owners == index].sum()) for index in range(len(cells))]
    lengths = zip(histogram.sources[cells[:, 0]], histogram.targets[cells[:, 1]], strict=True)
    full = [
        Shape(int(s), int(t), max(batch_tokens // int(max(s, t)) // multiple, 1) * multiple)
        for s, t in lengths
    ]
    return _filled(full, pairs, multiple)


def next_larger(index: int, shapes: Sequence[Shape]) -> int | None:
    """The cheapest other shape that holds all pairs of one, None for the largest."""
    source, target, _ = shapes[index]
    for other in range(index + 1, len(shapes)):
        if shapes[other].source >= source and shapes[other].target >= target:
            return other
    return None


def worth_moving(left: Any, rows: Any, shape: Shape, larger: Shape) -> Any:
    """Whether `left` pairs cost less in the larger shape than in a batch of `rows` of their own.

    left, rows: whole numbers, or arrays of them; so is the result.
    """
    return left * (larger.source + larger.target) < rows * (shape.source + shape.target)


def slices(count: int) -> list[slice]:
    """The numbers below `count` in parts, so that what is done with each takes little memory."""
    return [slice(start, start + _SLICE) for start in range(0, count, _SLICE)]


def _histogram(
    source: Int[np.ndarray, " pairs"], target: Int[np.ndarray, " pairs"], longest: Sequence[int]
) -> _Histogram:
    ends = max(int(source.max()), longest[0]), max(int(target.max()), longest[1])
    grid = _grid(max(ends))
    place = np.searchsorted(grid, np.arange(max(ends) + 1))
    counts = np.zeros(len(grid) ** 2, np.int64)
    for part in slices(len(source)):
        cell = place[source[part]] * len(grid) + place[target[part]]
        counts += np.bincount(cell, minlength=len(counts))
    counts = counts.reshape(len(grid), len(grid))
    # Lengths that no pair has are no use; where the grid is coarse, the longest pair may be
    # shorter than its end.
    places = np.arange(len(grid))
    rows = counts.any(axis=1) | (places == place[ends[0]])
    columns = counts.any(axis=0) | (places == place[ends[1]])
    sources, targets = np.minimum(grid[rows], ends[0]), np.minimum(grid[columns], ends[1])
    return _Histogram(
        sources, targets, counts[np.ix_(rows, columns)], sources[:, None] + targets[None, :]
    )


def _grid(longest: int) -> Int[np.ndarray, " G"]:
    """Lengths that a shape may have: each up to 64, then in steps of a 32nd or less."""
    lengths = list(range(1, 65))
    while lengths[-1] < longest:
        lengths.append(lengths[-1] + (1 << max(lengths[-1].bit_length() - 6, 0)))
    return np.array(lengths)


def _owners(cells: Int[np.ndarray, "C 2"], histogram: _Histogram) -> Int[np.ndarray, "I J"]:
    """For each place of the grid the first cell that holds it; cells come in order of size."""
    owners = np.full(histogram.counts.shape, -1, np.int16)
    for index in reversed(range(len(cells))):
        i, j = cells[index]
        owners[: i + 1, : j + 1] = index
    return owners


def _in_order(cells: Int[np.ndarray, "C 2"], histogram: _Histogram) -> Int[np.ndarray, "C 2"]:
    sizes = histogram.sizes[cells[:, 0], cells[:, 1]]
    return cells[np.argsort(sizes, kind="stable")]


def _search(histogram: _Histogram, most: int) -> Int[np.ndarray, "C 2"]:
    """Places of the grid: the longest, then the best one more, again and again.

    Then each is taken away and put where it saves most, until none has a better place.
    """
    cells = np.array([histogram.counts.shape]) - 1
    while len(cells) < most:
        place, saved = _best_addition(cells, histogram)
        if saved == 0:
            break
        cells = _in_order(np.vstack([cells, place]), histogram)
    moved = True
    while moved:
        moved = False
        for index in range(len(cells) - 1):
            others = np.delete(cells, index, axis=0)
            place, saved = _best_addition(others, histogram)
            if _tokens(others, histogram) - saved < _tokens(cells, histogram):
                cells, moved = _in_order(np.vstack([others, place]), histogram), True
    return cells


def _tokens(cells: Int[np.ndarray, "C 2"], histogram: _Histogram) -> int:
    """Padded tokens, both sides, if each pair goes to the smallest cell that holds it."""
    sizes = histogram.sizes[cells[:, 0], cells[:, 1]]
    return int((sizes[_owners(cells, histogram)] * histogram.counts).sum())


def _best_addition(
    cells: Int[np.ndarray, "C 2"], histogram: _Histogram
) -> tuple[Int[np.ndarray, " 2"], int]:
    """Where one more cell saves most tokens, and how many."""
    sizes, owners = histogram.sizes, _owners(cells, histogram)
    saved = np.zeros(sizes.shape, np.int64)
    for index, (i, j) in enumerate(cells):
        pairs = np.where(owners[: i + 1, : j + 1] == index, histogram.counts[: i + 1, : j + 1], 0)
        if not pairs.any():
            continue
        # Places that hold some of these pairs and are smaller: behind the first, and not far.
        first = pairs.any(axis=1).argmax(), pairs.any(axis=0).argmax()
        size = sizes[i, j]
        last = (
            np.searchsorted(histogram.sources, size - histogram.targets[first[1]]),
            np.searchsorted(histogram.targets, size - histogram.sources[first[0]]),
        )
        near = slice(first[0], last[0]), slice(first[1], last[1])
        held = np.zeros(sizes[near].shape, np.int64)
        inside = pairs[near]
        held[: inside.shape[0], : inside.shape[1]] = inside
        held = held.cumsum(axis=0).cumsum(axis=1)
        saved[near] += np.maximum(size - sizes[near], 0) * held
    best = np.array(np.unravel_index(np.argmax(saved), saved.shape))
    return best, int(saved[*best])


def _filled(full: list[Shape], pairs: list[int], multiple: int) -> list[Shape]:
    """The shapes with as many rows as their pairs fill, at most those given and at least half.

    pairs: how many of an epoch each shape is the cheapest for. What is left after its full batches
    goes the way of `plan_epoch`.
    """
    shapes, pairs = full.copy(), pairs.copy()
    for index, shape in enumerate(full):
        most = shape.rows // multiple
        rows = multiple * np.arange(most, (most - 1) // 2, -1)
        left, size = pairs[index] % rows, shape.source + shape.target
        wasted, moved = np.where(left > 0, (rows - left) * size, 0), np.zeros(len(rows), bool)
        above = next_larger(index, full)
        if above is not None:
            moved = worth_moving(left, rows, shape, full[above])
            gained = full[above].source + full[above].target - size
            wasted = np.where(moved, left * gained, wasted)
        # Batches are to be large as well: the most rows that waste little more than the best.
        chosen = np.argmax(wasted <= wasted.min() + pairs[index] * size // _SPARED)
        shapes[index] = shape._replace(rows=int(rows[chosen]))
        if moved[chosen] and above is not None:
            pairs[above] += int(left[chosen])
    return shapes
