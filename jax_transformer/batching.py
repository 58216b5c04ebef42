"""§5.1 Batching: a memory-mapped token store, batch shapes, and epochs of batches.

Batch i of epoch e is a pure function of (seed, e, i): where a run stands in its data is
two numbers, and continuing it is exact.
"""

import json
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from jaxtyping import Float, Int

SIDES = ("source", "target")
CHUNK = 20_000  # pairs encoded at a time
THREADS = os.cpu_count() or 1


class Encoder(Protocol):
    """What the store asks of a vocabulary."""

    @property
    def eos_id(self) -> int:
        """The end mark."""
        ...

    def encode_batch(self, texts: Sequence[str], threads: int = 1) -> list[list[int]]:
        """Token ids of each line, without an end mark."""
        ...


class Shape(NamedTuple):
    """A batch shape: `rows` pairs, padded to these lengths."""

    source: int
    target: int
    rows: int


@dataclass(frozen=True)
class TokenStore:
    """Pairs of token sequences on disk, memory-mapped: opening takes no time or memory.

    Each sequence ends with EOS. `lines` are the 1-based line numbers in the source text.
    """

    tokens: dict[str, Int[np.ndarray, " all"]]
    offsets: dict[str, Int[np.ndarray, " pairs_and_1"]]
    lines: Int[np.ndarray, " pairs"]
    manifest: dict[str, Any]

    def __len__(self) -> int:
        """How many pairs."""
        return len(self.lines)

    def lengths(self, side: str) -> Int[np.ndarray, " pairs"]:
        """Tokens of each sequence, EOS included."""
        return np.diff(self.offsets[side])

    def padded(
        self, side: str, pairs: Int[np.ndarray, " R"], rows: int, length: int, pad_id: int
    ) -> Int[np.ndarray, "rows length"]:
        """The sequences of `pairs`, PAD behind each, and rows of PAD to make up `rows`."""
        result = np.full((rows, length), pad_id, np.int32)
        starts, ends = self.offsets[side][pairs], self.offsets[side][pairs + 1]
        columns = starts[:, None] + np.arange(length)[None, :]
        real = columns < ends[:, None]
        result[: len(pairs)][real] = self.tokens[side][columns[real]]
        return result


def write_store(
    folder: Path,
    pairs: Iterable[tuple[int, str, str]],
    vocabulary: Encoder,
    max_length: int,
    manifest: dict[str, Any],
) -> None:
    """Encode (line, source, target) pairs into `folder`, in flat memory.

    Pairs with a blank side, or a side over `max_length` tokens with EOS, are dropped and
    counted in the manifest. Whole or not at all: a stop on the way leaves no `folder`.
    """
    building = folder.with_name(folder.name + ".building")
    shutil.rmtree(building, ignore_errors=True)
    building.mkdir(parents=True)
    counts = {"read": 0, "kept": 0, "dropped_blank": 0, "dropped_too_long": 0}
    try:
        with _StoreFiles(building) as files:
            remaining = iter(pairs)
            while chunk := list(islice(remaining, CHUNK)):
                _write_chunk(files, chunk, vocabulary, max_length, counts)
        (building / "manifest.json").write_text(
            json.dumps({**manifest, **counts}, indent=1), encoding="utf-8"
        )
        shutil.rmtree(folder, ignore_errors=True)
        building.rename(folder)
    finally:
        shutil.rmtree(building, ignore_errors=True)  # still there only where a stop came


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """What a store was made of and what was dropped; None where there is no whole store."""
    try:
        return json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None


def open_store(folder: Path) -> TokenStore:
    """Memory-map a store that `write_store` made."""

    def mapped(name: str, kind: Any) -> np.ndarray:
        path = folder / name
        if path.stat().st_size == 0:  # an empty file cannot be mapped
            return np.zeros(0, kind)
        return np.memmap(path, kind, mode="r")

    return TokenStore(
        tokens={side: mapped(f"{side}.tokens", np.int32) for side in SIDES},
        offsets={
            side: np.concatenate([[0], mapped(f"{side}.ends", np.int64)]).astype(np.int64)
            for side in SIDES
        },
        lines=mapped("lines", np.int64),
        manifest=read_manifest(folder) or {},
    )


def learn_shapes(
    source: Int[np.ndarray, " pairs"],
    target: Int[np.ndarray, " pairs"],
    *,
    most: int,
    batch_tokens: int,
    multiple: int,
) -> list[Shape]:
    """At most `most` batch shapes that hold every pair with little padding.

    Starts from a grid of length pairs that occur, and joins the two cells that cost
    the fewest extra padded tokens until few enough are left. A batch has about
    `batch_tokens` tokens on its longer side, in a multiple of `multiple` rows.
    """
    grid = _grid(int(max(source.max(), target.max())))
    on_grid = np.stack([grid[np.searchsorted(grid, side)] for side in (source, target)], axis=1)
    cells, counts = np.unique(on_grid, axis=0, return_counts=True)
    cells = _join_cells(cells, counts, most)
    # Grid lengths round up; where the longest pair is shorter, so is the shape.
    limits = np.array([source.max(), target.max()])
    cells = np.unique(np.minimum(cells, limits), axis=0)
    cells = cells[np.argsort(cells.sum(-1), kind="stable")]
    return [
        Shape(int(s), int(t), max(batch_tokens // int(max(s, t)) // multiple, 1) * multiple)
        for s, t in cells
    ]


def assign_shapes(
    source: Int[np.ndarray, " pairs"], target: Int[np.ndarray, " pairs"], shapes: Sequence[Shape]
) -> Int[np.ndarray, " pairs"]:
    """The cheapest shape that holds each pair. Shapes come in order of cost."""
    assigned = np.full(len(source), -1, np.int32)
    for index in reversed(range(len(shapes))):
        fits = (source <= shapes[index].source) & (target <= shapes[index].target)
        assigned[fits] = index
    assert (assigned >= 0).all(), "a pair is longer than every shape"
    return assigned


@dataclass(frozen=True)
class Epoch:
    """The batches of one pass over the data: batch i is pairs order[starts[i]:ends[i]]."""

    order: Int[np.ndarray, " pairs"]
    starts: Int[np.ndarray, " batches"]
    ends: Int[np.ndarray, " batches"]
    shapes: Int[np.ndarray, " batches"]

    def __len__(self) -> int:
        """How many batches."""
        return len(self.starts)

    def pairs(self, index: int) -> Int[np.ndarray, " R"]:
        """The pairs of one batch, as positions in the store."""
        return self.order[self.starts[index] : self.ends[index]]


def plan_epoch(
    assigned: Int[np.ndarray, " pairs"],
    shapes: Sequence[Shape],
    *,
    shuffle: tuple[int, int] | None,
) -> Epoch:
    """Every pair once, in batches of one shape each.

    shuffle: (seed, epoch) for training, None for the order of the text. What is left of a
    shape after its full batches moves to a larger shape if that wastes less, else makes
    a batch that is not full.
    """
    if shuffle is None:
        order = np.argsort(assigned, kind="stable")
    else:
        generator = np.random.default_rng(shuffle)
        shuffled = generator.permutation(len(assigned))
        order = shuffled[np.argsort(assigned[shuffled], kind="stable")]
    groups = _move_leftovers(order, assigned[order], shapes)
    batches = [
        (index, group[start : start + shapes[index].rows])
        for index, group in enumerate(groups)
        for start in range(0, len(group), shapes[index].rows)
    ]
    if shuffle is not None:
        batches = [batches[i] for i in generator.permutation(len(batches))]
    sizes = np.array([len(pairs) for _, pairs in batches], np.int64)
    ends = np.cumsum(sizes)
    return Epoch(
        np.concatenate([pairs for _, pairs in batches]) if batches else order,
        ends - sizes,
        ends,
        np.array([index for index, _ in batches], np.int32),
    )


def padding_share(epoch: Epoch, shapes: Sequence[Shape], store: TokenStore) -> float:
    """The part of an epoch's computed tokens, both sides, that is padding."""
    computed = sum(
        shapes[i].rows * (shapes[i].source + shapes[i].target) for i in epoch.shapes.tolist()
    )
    real = sum(int(store.offsets[side][-1]) for side in SIDES)
    return 1.0 - real / computed


def batch_arrays(
    store: TokenStore, epoch: Epoch, index: int, shapes: Sequence[Shape], pad_id: int
) -> tuple[Int[np.ndarray, "B S"], Int[np.ndarray, "B T"]]:
    """Source and target token ids of one batch, in its full shape."""
    shape, pairs = shapes[epoch.shapes[index]], epoch.pairs(index)
    return (
        store.padded("source", pairs, shape.rows, shape.source, pad_id),
        store.padded("target", pairs, shape.rows, shape.target, pad_id),
    )


class _StoreFiles:
    """The open files of a store that is being written."""

    def __init__(self, folder: Path) -> None:
        names = [f"{side}.{part}" for side in SIDES for part in ("tokens", "ends")] + ["lines"]
        self.files = {name: (folder / name).open("wb") for name in names}
        self.total: dict[str, int] = dict.fromkeys(SIDES, 0)

    def __enter__(self) -> "_StoreFiles":
        return self

    def __exit__(self, *_: object) -> None:
        for file in self.files.values():
            file.close()

    def append(self, side: str, sequences: list[list[int]]) -> None:
        ends = self.total[side] + np.cumsum([len(sequence) for sequence in sequences])
        self.total[side] = int(ends[-1])
        self.files[f"{side}.ends"].write(ends.astype(np.int64).tobytes())
        flat = [token for sequence in sequences for token in sequence]
        self.files[f"{side}.tokens"].write(np.array(flat, np.int32).tobytes())


def _write_chunk(
    files: _StoreFiles,
    chunk: list[tuple[int, str, str]],
    vocabulary: Encoder,
    max_length: int,
    counts: dict[str, int],
) -> None:
    sources = vocabulary.encode_batch([source for _, source, _ in chunk], THREADS)
    targets = vocabulary.encode_batch([target for _, _, target in chunk], THREADS)
    kept: list[tuple[int, list[int], list[int]]] = []
    for (line, _, _), source, target in zip(chunk, sources, targets, strict=True):
        counts["read"] += 1
        if not source or not target:
            counts["dropped_blank"] += 1
        elif max(len(source), len(target)) >= max_length:
            counts["dropped_too_long"] += 1
        else:
            counts["kept"] += 1
            kept.append((line, [*source, vocabulary.eos_id], [*target, vocabulary.eos_id]))
    if kept:
        files.append("source", [source for _, source, _ in kept])
        files.append("target", [target for _, _, target in kept])
        files.files["lines"].write(np.array([line for line, _, _ in kept], np.int64).tobytes())


def _join_cells(
    cells: Int[np.ndarray, "C 2"], counts: Int[np.ndarray, " C"], most: int
) -> Int[np.ndarray, "most 2"]:
    """Join, again and again, the two cells whose pairs gain the fewest padded tokens."""
    cells, counts = cells.copy(), counts.copy()

    def growth(i: Any) -> Float[np.ndarray, "..."]:
        """Tokens gained by joining cell i, or each of the cells i, with every cell."""
        sizes = cells.sum(-1)
        joined = np.maximum(cells[i][..., None, :], cells).sum(-1)
        gained = (joined - sizes[i][..., None]) * counts[i][..., None] + (joined - sizes) * counts
        return gained.astype(np.float32)

    cost = growth(slice(None))
    np.fill_diagonal(cost, np.inf)
    alive = np.ones(len(cells), bool)
    for _ in range(len(cells) - most):
        i, j = np.unravel_index(np.argmin(cost), cost.shape)
        cells[i], counts[i], alive[j] = np.maximum(cells[i], cells[j]), counts[i] + counts[j], False
        cost[i] = cost[:, i] = np.where(alive, growth(i), np.inf)
        cost[i, i] = np.inf
        cost[j] = cost[:, j] = np.inf
    return cells[alive]


def _grid(longest: int) -> Int[np.ndarray, " G"]:
    """Lengths a shape may start from: every even one to 32, then steps of about an eighth."""
    lengths: list[int] = list(range(4, 33, 2))
    while lengths[-1] < longest:
        lengths.append(lengths[-1] + 4 * max(lengths[-1] // 32, 1))
    return np.array(lengths)


def _move_leftovers(
    order: Int[np.ndarray, " pairs"],
    assigned: Int[np.ndarray, " pairs"],
    shapes: Sequence[Shape],
) -> list[Int[np.ndarray, " R"]]:
    """The pairs of each shape, after leftovers moved to larger shapes where that is cheaper."""
    groups = [order[assigned == index] for index in range(len(shapes))]
    for index, shape in enumerate(shapes):
        left = len(groups[index]) % shape.rows
        if left == 0:
            continue
        larger = [
            other
            for other in range(index + 1, len(shapes))
            if shapes[other].source >= shape.source and shapes[other].target >= shape.target
        ]
        if not larger:
            continue
        size, next_size = (s.source + s.target for s in (shape, shapes[larger[0]]))
        if left * next_size < shape.rows * size:
            groups[larger[0]] = np.concatenate([groups[index][-left:], groups[larger[0]]])
            groups[index] = groups[index][:-left]
    return groups


def batches_from(
    seed: int,
    position: tuple[int, int],
    assigned: Int[np.ndarray, " pairs"],
    shapes: Sequence[Shape],
) -> Iterator[tuple[tuple[int, int], Epoch]]:
    """Endless ((epoch, index), plan) from a position on, one plan for each epoch."""
    epoch, index = position
    while True:
        plan = plan_epoch(assigned, shapes, shuffle=(seed, epoch))
        for i in range(index, len(plan)):
            yield (epoch, i), plan
        epoch, index = epoch + 1, 0
