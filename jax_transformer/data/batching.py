"""§5.1 Batching: a few shapes, and epochs of batches of pairs of about the same length.

Batch i of epoch e is a pure function of (seed, e, i): two numbers give the position of a run
in its data, and a run continues exactly. Planning takes some 45 bytes a pair for a moment, or 60
with packing, and training 5 bytes a pair, or 8 with packing.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
from jaxtyping import Integer

from jax_transformer.data.text import SIDES
from jax_transformer.data.token_store import Lengths, TokenStore, token_rows

Item = TypeVar("Item")

_GRID = 256  # the number of lengths that a side of a shape may have


class Shape(NamedTuple):
    """A batch shape: `rows` rows of `source` and `target` tokens each."""

    source: int
    target: int
    rows: int


def learn_shapes(
    source: Lengths,
    target: Lengths,
    *,
    most: int,
    batch_tokens: int,
    multiple: int,
    longest: Sequence[int] = (0, 0),
) -> list[Shape]:
    """Return at most `most` batch shapes, in order of tokens a row; the last holds every pair.

    Greedy: each further one is the shape that saves most padding, among all whose two lengths are
    in a grid of quantiles. A batch has up to `batch_tokens` tokens on its longer side, but at least
    `multiple` rows, and a multiple of them. longest: the greatest lengths of other pairs that have
    to fit too.

    Differs: tensor2tensor's buckets are fixed lengths of the longer side.
    """
    sides = [_grid(source, longest[0]), _grid(target, longest[1])]
    cells = tuple(map(np.searchsorted, sides, (source, target)))
    counts = np.zeros([*map(len, sides)], np.int64)
    np.add.at(counts, cells, 1)
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


def _grid(lengths: Lengths, longest: int) -> Integer[np.ndarray, " G"]:
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
    """Lower the rows of each shape so that its last batch is not mostly empty, but not below half.

    The number of batches stays the same. counts: the number of rows of each shape in an epoch.
    """

    def rows(count: int, full: int) -> int:
        batches = max(-(-count // full), 1)
        even = -(-count // (batches * multiple)) * multiple
        return max(even, -(-full // (2 * multiple)) * multiple)

    pairs = zip(shapes, counts.tolist(), strict=True)
    return [shape._replace(rows=rows(count, shape.rows)) for shape, count in pairs]


def assign_shapes(
    source: Lengths, target: Lengths, shapes: Sequence[Shape]
) -> Integer[np.ndarray, " pairs"]:
    """Return the index of the cheapest shape that holds each pair. shapes: in order of cost."""
    assigned = np.full(len(source), -1, np.int8 if len(shapes) < 128 else np.int32)
    for index in reversed(range(len(shapes))):
        assigned[(source <= shapes[index].source) & (target <= shapes[index].target)] = index
    assert (assigned >= 0).all(), "a pair is longer than every shape"
    return assigned


@dataclass(frozen=True)
class Epoch:
    """The batches of one pass over the data: batch i is pairs order[starts[i]:ends[i]].

    number, stores: the number of a training epoch, from 0, or if text is segmented anew of a part
      of one, counted on over epochs; and the stores of its pairs.
    """

    order: Integer[np.ndarray, " pairs"]
    starts: Integer[np.ndarray, " batches"]
    ends: Integer[np.ndarray, " batches"]
    shapes: Integer[np.ndarray, " batches"]
    # The number of each pair in its row, from 1: a 1 begins a row. None: one pair in each row.
    segment_ids: Integer[np.ndarray, " pairs"] | None = None
    number: int = 0
    stores: Sequence[TokenStore] = ()

    def __len__(self) -> int:
        """Return the number of batches."""
        return len(self.starts)

    def pairs(self, index: int) -> Integer[np.ndarray, " R"]:
        """Return the pairs of one batch, as positions in the store."""
        return self.order[self.starts[index] : self.ends[index]]


def plan_epoch(
    assigned: Integer[np.ndarray, " pairs"],
    shapes: Sequence[Shape],
    *,
    shuffle: tuple[int, int] | None,
    of: Integer[np.ndarray, " some"] | None = None,
) -> Epoch:
    """Plan an epoch that has every pair once, in batches of one shape each.

    shuffle: the pair (seed, epoch) for training, None for shape after shape. of: the pairs to use
    instead of all.
    """
    order = every_pair(len(assigned)) if of is None else of.copy()
    generator = None if shuffle is None else np.random.default_rng(shuffle)
    if generator is not None:
        generator.shuffle(order)
    batches = cut_batches(assigned[order], shapes, generator)
    sizes = np.array([len(rows) for _, rows in batches], np.int64)
    ends = np.cumsum(sizes)
    return Epoch(
        order[np.concatenate([rows for _, rows in batches])] if batches else order,
        ends - sizes,
        ends,
        np.array([index for index, _ in batches], np.int32),
    )


def cut_batches(
    row_shapes: Integer[np.ndarray, " rows"],
    shapes: Sequence[Shape],
    generator: np.random.Generator | None,
) -> list[tuple[int, Integer[np.ndarray, " R"]]]:
    """Return (shape, rows) of each batch, with every row once, in its shape or a larger one.

    The rows left over after a shape's full batches move to a larger shape if they cost less there
    than in a batch of their own. generator: the source of a random order of the batches, if any.
    """
    groups = [np.flatnonzero(row_shapes == index) for index in range(len(shapes))]
    for index, shape in enumerate(shapes):
        left = len(groups[index]) % shape.rows
        holding = (
            other
            for other in range(index + 1, len(shapes))
            if shapes[other].source >= shape.source and shapes[other].target >= shape.target
        )
        larger = next(holding, None)  # the cheapest
        if left == 0 or larger is None:
            continue
        other = shapes[larger]
        if left * (other.source + other.target) < shape.rows * (shape.source + shape.target):
            groups[larger] = np.concatenate([groups[index][-left:], groups[larger]])
            groups[index] = groups[index][:-left]
    batches = [
        (index, group[start : start + shapes[index].rows])
        for index, group in enumerate(groups)
        for start in range(0, len(group), shapes[index].rows)
    ]
    order = range(len(batches)) if generator is None else generator.permutation(len(batches))
    return [batches[i] for i in order]


def padding_share(epoch: Epoch, shapes: Sequence[Shape], lengths: Sequence[Lengths]) -> float:
    """Return the fraction of an epoch's computed tokens, on both sides, that is padding."""
    computed = sum(shapes[i].rows * sum(shapes[i][:2]) for i in epoch.shapes.tolist())
    real = sum(int(side[epoch.order].sum(dtype=np.int64)) for side in lengths)
    return 1.0 - real / computed


def batch_arrays(
    stores: Sequence[TokenStore],
    epoch: Epoch,
    index: int,
    shapes: Sequence[Shape],
    pad_ids: tuple[int, int],
    part: tuple[int, int] = (0, 1),
) -> tuple[Integer[np.ndarray, "B _"], ...]:
    """Return (source, target) token ids of one batch, each [rows, tokens] of its shape, PAD last.

    With packing, return (source, target, source_segments, target_segments): a segment id is the
    number of a token's pair in its row, from 1; PAD has 0. pad_ids: PAD of source and target.
    part: the pair (i, n), to make only part i, from 0, of n equal parts of the rows.
    """
    shape, pairs = shapes[epoch.shapes[index]], epoch.pairs(index)
    segment_ids = np.ones(len(pairs), np.int32)  # each pair begins a row
    if epoch.segment_ids is not None:
        segment_ids = epoch.segment_ids[epoch.starts[index] : epoch.ends[index]]
    rows = shape.rows // part[1]
    own = (np.cumsum(segment_ids == 1) - 1) // rows == part[0]
    pairs, segment_ids = pairs[own], segment_ids[own]
    sides = [
        token_rows(stores, side, pairs, segment_ids, rows, length, pad_id)
        for side, length, pad_id in zip(SIDES, shape[:2], pad_ids, strict=True)
    ]
    tokens, segments = zip(*sides, strict=True)
    return tokens if epoch.segment_ids is None else (*tokens, *segments)


def every_pair(count: int) -> Integer[np.ndarray, " count"]:
    """Return the numbers from 0 to count - 1, in 4 bytes each if those suffice."""
    return np.arange(count, dtype=np.int32 if count < 1 << 31 else np.int64)


def mixture_members(
    sizes: Sequence[int], wanted: Sequence[int | None], *, seed: int, epoch: int
) -> Integer[np.ndarray, " some"]:
    """Return the pairs of an epoch, `wanted` of each corpus, or for None each of its pairs once.

    sizes: the number of pairs of each corpus. The pairs are numbered on from one to the next.
    Each epoch continues through a corpus where the last one stopped; each pass has its own order.
    """
    pairs, first, members = every_pair(sum(sizes)), 0, []
    for place, (size, count) in enumerate(zip(sizes, wanted, strict=True)):
        own = pairs[first : first + size]
        members.append(own if count is None else own[_drawn(size, count, (seed, place), epoch)])
        first += size
    return np.concatenate(members)


def _drawn(
    size: int, wanted: int, key: tuple[int, int], epoch: int
) -> Integer[np.ndarray, " wanted"]:
    if not wanted:
        return np.zeros(0, np.int64)
    (seed, corpus), (first, start) = key, divmod(epoch * wanted, size)
    passes = range(first, first + -(-(start + wanted) // size))
    # The leading 1 keeps these draws apart from those of `plan_epoch`, except some of seed 1: to
    # NumPy (1, 1, 0, 0) is (1, 1).
    orders = (np.random.default_rng((1, seed, n, corpus)).permutation(size) for n in passes)
    return np.concatenate([*orders])[start : start + wanted]


def batches_from(
    position: tuple[int, int], plan_of: Callable[[int], Epoch]
) -> Iterator[tuple[tuple[int, int], Epoch]]:
    """Yield ((epoch, index), plan) without end from a position on, one plan for each epoch."""
    epoch, index = position
    while True:
        plan = plan_of(epoch)
        for i in range(index, len(plan)):
            yield (epoch, i), plan
        epoch, index = epoch + 1, 0


def prefetch(endless: Iterator[Item], ahead: int) -> Generator[Item, None, None]:
    """Yield the items of an endless iterator in order; one thread makes `ahead` of them in advance.

    An error that the iterator raises is raised in place of its item. Closing this generator waits
    for the item that is being made.

    >>> import itertools
    >>> squares = prefetch((i * i for i in itertools.count()), ahead=2)
    >>> [next(squares) for _ in range(4)]
    [0, 1, 4, 9]
    >>> squares.close()
    """
    maker = ThreadPoolExecutor(1, thread_name_prefix="prefetch")
    try:
        made = deque(maker.submit(next, endless) for _ in range(ahead))
        while True:
            made.append(maker.submit(next, endless))
            yield made.popleft().result()
    finally:
        maker.shutdown(cancel_futures=True)
