"""§5.1 Bucketing: the few batch shapes that hold pairs of similar length with little padding."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Integer

_GRID = 256  # the number of lengths that a side of a shape may have


class Shape(NamedTuple):
    """A batch shape: `rows` rows of `source` and `target` tokens each."""

    source: int
    target: int
    rows: int


def learn_shapes(
    source: Integer[np.ndarray, " pairs"],
    target: Integer[np.ndarray, " pairs"],
    *,
    most: int,
    batch_tokens: int,
    multiple: int,
    longest: Sequence[int] = (0, 0),
) -> list[Shape]:
    """Return at most `most` batch shapes, in order of tokens a row; the last holds every pair.

    Greedy: the first shape holds every pair; each further one is the shape that saves most padding,
    among all whose two lengths are in a grid of quantiles. A batch has up to `batch_tokens` tokens
    on its longer side, in a multiple of `multiple` rows. longest: the greatest lengths of other
    pairs that have to fit too.

    Differs: tensor2tensor's buckets are fixed lengths of the longer side.
    """
    sides = [_grid(source, longest[0]), _grid(target, longest[1])]
    cells = [
        np.searchsorted(grid, side) for grid, side in zip(sides, (source, target), strict=True)
    ]
    counts = np.zeros([len(grid) for grid in sides], np.int64)
    np.add.at(counts, tuple(cells), 1)
    tokens = np.add.outer(*sides)  # tokens of a row with both lengths
    cost = np.full(counts.shape, tokens[-1, -1])  # tokens that a pair of each cell takes so far
    chosen = {(sides[0][-1], sides[1][-1])}
    while len(chosen) < most:
        # A shape saves the same for all smaller pairs that now have the same cost.
        saved = np.zeros(counts.shape, np.int64)
        for now in np.unique(cost):
            below = np.where(cost == now, counts, 0).cumsum(axis=0).cumsum(axis=1)
            saved += np.maximum(now - tokens, 0) * below
        i, j = np.unravel_index(np.argmax(saved), saved.shape)
        if saved[i, j] == 0:
            break
        cost[: i + 1, : j + 1] = np.minimum(cost[: i + 1, : j + 1], tokens[i, j])
        chosen.add((sides[0][i], sides[1][j]))
    sizes = sorted(((int(s), int(t)) for s, t in chosen), key=lambda size: (sum(size), size))
    shapes = [Shape(s, t, full_rows(max(s, t), batch_tokens, multiple)) for s, t in sizes]
    of_shapes = np.bincount(assign_shapes(source, target, shapes), minlength=len(shapes))
    return even_batches(shapes, of_shapes, multiple)


def _grid(lengths: Integer[np.ndarray, " pairs"], longest: int) -> Integer[np.ndarray, " G"]:
    """Return the lengths that a shape may have: quantiles of the pairs', and the longest."""
    levels = np.linspace(0, 1, _GRID + 1)[1:]
    grid = np.unique(np.quantile(lengths, levels, method="higher").astype(np.int64))
    return np.unique([*grid, max(int(lengths.max()), longest)])


def full_rows(length: int, batch_tokens: int, multiple: int) -> int:
    """Return the number of rows of this length in a batch, a multiple of `multiple`."""
    return max(batch_tokens // length // multiple, 1) * multiple


def even_batches(
    shapes: Sequence[Shape], counts: Integer[np.ndarray, " shapes"], multiple: int
) -> list[Shape]:
    """Even out the batches of each shape, so that the last one is not mostly empty.

    The number of batches stays the same, and a shape keeps at least half of its rows.
    counts: the number of rows of each shape in an epoch.
    """

    def rows(count: int, full: int) -> int:
        batches = max(-(-count // full), 1)
        even = -(-count // (batches * multiple)) * multiple
        return max(even, -(-full // (2 * multiple)) * multiple)

    pairs = zip(shapes, counts.tolist(), strict=True)
    return [shape._replace(rows=rows(count, shape.rows)) for shape, count in pairs]


def assign_shapes(
    source: Integer[np.ndarray, " pairs"],
    target: Integer[np.ndarray, " pairs"],
    shapes: Sequence[Shape],
) -> Integer[np.ndarray, " pairs"]:
    """Return the index of the cheapest shape that holds each pair. shapes: in order of cost."""
    assigned = np.full(len(source), -1, np.int8 if len(shapes) < 128 else np.int32)
    for index in reversed(range(len(shapes))):
        assigned[(source <= shapes[index].source) & (target <= shapes[index].target)] = index
    assert (assigned >= 0).all(), "a pair is longer than every shape"
    return assigned
