"""§5.1 Token stores: encoded pairs on disk, memory-mapped, verified in blocks as they are read."""

import os
import re
import shutil
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any

import numpy as np
from jaxtyping import Bool, Integer

from jax_transformer.data.text import SIDES, unescape_html
from jax_transformer.data.vocabularies.base import Vocabulary
from jax_transformer.errors import InputError
from jax_transformer.files import check_regular, encode_json, naming, parse_json, write_bytes
from jax_transformer.progress import Progress

FORMAT = 5  # the version of the files; stores of another version are not used
DESCRIPTION = "store.json"  # what a store was made of, its counts, and the sums of its blocks
NAMES = [*(f"{side}.{part}" for side in SIDES for part in ("tokens", "offsets")), "lines"]
COUNTS = ("read", "kept", "dropped_unknown", "dropped_blank", "dropped_too_long", "dropped_ratio")
PART = 50_000  # pairs encoded together
BLOCK = 1 << 16  # bytes with one checksum

_WORD = re.compile(r"\S+", re.ASCII)  # of a tree

Pair = tuple[int, str, str]  # line, source, target
Both = tuple[Vocabulary, Vocabulary]  # of source and target, perhaps the same one twice
Lengths = Integer[np.ndarray, " pairs"]  # the tokens of one side of each pair, EOS included


class VerifiedArray:
    """A memory-mapped array on disk; each block of it is verified when it is first read."""

    def __init__(self, path: Path, kind: str, size: int, sums: Sequence[int]) -> None:
        """Map a file; `sums` are the CRC-32 of its blocks. Raises InputError for another size."""
        check_regular(path)
        found = path.stat().st_size if path.exists() else 0
        self._path, self._sums = path, sums
        if found != size:
            raise self._damaged(f"{size:,} bytes, as were written", f"{found:,}")
        # An empty file cannot be mapped.
        self._bytes = np.memmap(path, np.uint8, "r") if size else np.zeros(0, np.uint8)
        self._array = self._bytes.view(kind)
        self._unread = np.ones(len(sums), bool)
        self.dtype = self._array.dtype

    def __len__(self) -> int:
        """Return the number of elements."""
        return len(self._array)

    def __getitem__(self, index: Integer[np.ndarray, " some"]) -> Integer[np.ndarray, " some"]:
        """Return the elements at these places. Raises InputError if a block is damaged."""
        if self._unread.any():
            wanted = np.zeros(len(self._sums), bool)
            wanted[index // (BLOCK // self.dtype.itemsize)] = True
            self._verify(wanted)
        return self._array[index]

    def whole(self) -> Integer[np.ndarray, " all"]:
        """Return all elements, still mapped. Raises InputError if a block is damaged."""
        self._verify(np.ones(len(self._sums), bool))
        return self._array

    def _verify(self, wanted: Bool[np.ndarray, " blocks"]) -> None:
        for block in np.flatnonzero(wanted & self._unread).tolist():
            start = block * BLOCK
            content = self._bytes[start : start + BLOCK]
            if zlib.crc32(content.data) != self._sums[block]:
                where = f"bytes {start:,} to {start + len(content) - 1:,}"
                raise self._damaged(f"{where} as they were written", "another checksum")
        self._unread &= ~wanted

    def _damaged(self, expected: str, found: str) -> InputError:
        return InputError(
            f"{self._path}: expected {expected}, found {found}: damaged; remove "
            f"{self._path.parent} and run the same command again"
        )


@dataclass(frozen=True)
class TokenStore:
    """Pairs of token sequences, memory-mapped from disk or in memory.

    Each sequence ends with EOS. `lines` are the 1-based line numbers in the source text.
    """

    tokens: Mapping[str, np.ndarray | VerifiedArray]
    offsets: dict[str, Integer[np.ndarray, " pairs_and_1"]]
    lines: np.ndarray | VerifiedArray
    description: dict[str, Any]

    def __len__(self) -> int:
        """Return the number of pairs."""
        return len(self.lines)

    def lengths(self, side: str) -> Lengths:
        """Return the number of tokens of each sequence, EOS included; 4 bytes a pair."""
        return np.diff(self.offsets[side]).astype(np.int32)


def token_rows(
    stores: Sequence[TokenStore],
    side: str,
    pairs: Integer[np.ndarray, " P"],
    segment_ids: Integer[np.ndarray, " P"],
    rows: int,
    length: int,
    pad_id: int,
) -> tuple[Integer[np.ndarray, "rows length"], Integer[np.ndarray, "rows length"]]:
    """Return (tokens, segment ids): in each row the sequences of its pairs, then PAD.

    segment_ids: the number of each pair in its row; a 1 begins a new row. PAD has segment id 0.
    The sequences of a row must fit into `length`: this is not checked.
    """
    result = np.full(rows * length, pad_id, np.int32)
    segments = np.zeros(rows * length, np.int32)
    sizes, tokens = sequences(stores, side, pairs)
    before = np.cumsum(sizes) - sizes  # tokens of all pairs before each
    begins = segment_ids == 1
    row = np.cumsum(begins) - 1
    columns = before - before[begins][row]
    into = np.repeat(row * length + columns - before, sizes) + np.arange(sizes.sum())
    result[into] = tokens
    # Some models have PAD in place of a source's EOS, and do not attend to it.
    segments[into] = np.where(tokens == pad_id, 0, np.repeat(segment_ids, sizes))
    return result.reshape(rows, length), segments.reshape(rows, length)


def sequences(
    stores: Sequence[TokenStore], side: str, pairs: Integer[np.ndarray, " P"]
) -> tuple[Integer[np.ndarray, " P"], Integer[np.ndarray, " tokens"]]:
    """Return the lengths of these pairs' sequences, and their tokens one after another.

    The pairs of each store are numbered on after those of the one before it.
    """
    sizes, found = np.zeros(len(pairs), np.int64), []
    for own, store, places in places_in_stores(stores, pairs):
        starts = store.offsets[side][places]
        sizes[own] = of_store = store.offsets[side][places + 1] - starts
        before = np.cumsum(of_store) - of_store
        wanted = np.repeat(starts - before, of_store) + np.arange(of_store.sum())
        found.append((own, store.tokens[side][wanted]))
    result = np.empty(sizes.sum(), found[0][1].dtype)
    for own, tokens in found:
        result[np.repeat(own, sizes)] = tokens
    return sizes, result


def pair_lengths(stores: Sequence[TokenStore]) -> tuple[Lengths, Lengths]:
    """Return the numbers of source and of target tokens of every pair of the stores."""
    source, target = (np.concatenate([s.lengths(side) for s in stores]) for side in SIDES)
    return source, target


def count_tokens(stores: Sequence[TokenStore], side: str, pairs: Integer[np.ndarray, " P"]) -> int:
    """Return the number of tokens on one side of these pairs."""
    return sum(
        int((store.offsets[side][places + 1] - store.offsets[side][places]).sum())
        for _, store, places in places_in_stores(stores, pairs)
    )


def places_in_stores(
    stores: Sequence[TokenStore], pairs: Integer[np.ndarray, " P"]
) -> Iterator[tuple[Bool[np.ndarray, " P"], TokenStore, Integer[np.ndarray, " own"]]]:
    """Yield (which of the pairs are its own, store, their places in it) for each store."""
    first = 0
    for store in stores:
        own = (first <= pairs) & (pairs < first + len(store))
        yield own, store, pairs[own] - first
        first += len(store)


@dataclass(frozen=True)
class Rules:
    """The rules for reading the text of pairs, and for dropping some."""

    max_length: int  # tokens of the longer side, EOS included
    max_length_ratio: float = 0.0  # longer side over shorter side, in tokens without EOS; 0: any
    unescape_html: bool = False


def write_store(
    folder: Path,
    pairs: Iterable[Pair],
    vocabularies: Both,
    rules: Rules,
    made_of: dict[str, Any],
    count: int | None = None,
) -> bytes:
    """Encode pairs into `folder`, which appears whole or not at all, in memory of a fixed size.

    made_of: everything that the store depends on, as JSON. count: the number of pairs, if it is
    known, to show the progress. Returns the content of the file `DESCRIPTION`, for `open_store`.
    Pairs with a symbol that the target's vocabulary lacks, a blank side, a side over the longest
    length, or sides of too different lengths are dropped and counted in the description, each under
    the first of these reasons.
    """
    _check_store(folder)
    building = folder.with_name(folder.name + ".building")
    shutil.rmtree(building, ignore_errors=True)
    building.mkdir(parents=True)
    try:
        content = _write(building, folder.name, pairs, vocabularies, rules, made_of, count)
        remove_store(folder)
        building.rename(folder)
    except BaseException:  # such as a full disk
        shutil.rmtree(building, ignore_errors=True)
        raise
    return content


def _write(
    building: Path,
    name: str,
    pairs: Iterable[Pair],
    vocabularies: Both,
    rules: Rules,
    made_of: dict[str, Any],
    count: int | None,
) -> bytes:
    """Write the files of a store of this name; return the content of its description."""
    kind = "uint16" if max(each.size for each in vocabularies) <= 1 << 16 else "int32"
    counts, ends = Counter[str](dict.fromkeys(COUNTS, 0)), dict.fromkeys(SIDES, 0)
    remaining = iter(pairs)
    with ExitStack() as opened, Progress("tokens", count, f"{name} pairs") as progress:
        files = {
            file: _Blocks(opened.enter_context((building / file).open("wb"))) for file in NAMES
        }
        for side in SIDES:
            files[f"{side}.offsets"].append(np.zeros(1, np.int64))
        while part := list(islice(remaining, PART)):
            part_counts, arrays = _encode(part, vocabularies, rules, kind)
            for side in SIDES:
                arrays[f"{side}.offsets"] += ends[side]
                ends[side] += len(arrays[f"{side}.tokens"])
            for file, array in arrays.items():
                files[file].append(array)
            counts.update(part_counts)
            progress.update(len(part))
        if count not in (None, counts["read"]):
            raise InputError(
                f"{name}: expected the {count:,} pairs that were counted, found "
                f"{counts['read']:,}; the text has changed meanwhile: start again"
            )
        for each in files.values():
            each.sync()
    sums = {file: {"bytes": each.size, "crc32": each.sums} for file, each in files.items()}
    facts = {"format": FORMAT, "token_type": kind, **made_of, **asdict(rules), **counts}
    content = encode_json({**facts, "files": sums})
    write_bytes(building / DESCRIPTION, content)
    return content


def remove_store(folder: Path) -> None:
    """Remove the folder of a store. Raises InputError if it has other files, as a link may lead."""
    _check_store(folder)
    shutil.rmtree(folder, ignore_errors=True)


def _check_store(folder: Path) -> None:
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    if DESCRIPTION not in names and (other := names - {*NAMES}):
        raise InputError(f"{folder}: expected {DESCRIPTION}, found {min(other)}; move it away")


def encode_pairs(pairs: Sequence[Pair], vocabularies: Both, rules: Rules) -> TokenStore:
    """Return a store in memory of a few pairs: those that `write_store` would write."""
    counts, arrays = _encode(pairs, vocabularies, rules, "int32")
    return TokenStore(
        tokens={side: arrays[f"{side}.tokens"] for side in SIDES},
        offsets={side: np.append(0, arrays[f"{side}.offsets"]) for side in SIDES},
        lines=arrays["lines"],
        description=counts,
    )


class _Blocks:
    """A file that grows, and the CRC-32 of each of its blocks."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self.size, self.sums = file, 0, list[int]()

    def append(self, array: np.ndarray) -> None:
        content = memoryview(array.tobytes())
        with naming(self._file.name):
            self._file.write(content)
        while content:
            if self.size % BLOCK == 0:
                self.sums.append(0)
            piece = content[: BLOCK - self.size % BLOCK]
            self.sums[-1] = zlib.crc32(piece, self.sums[-1])
            self.size += len(piece)
            content = content[len(piece) :]

    def sync(self) -> None:
        with naming(self._file.name):
            self._file.flush()
            os.fsync(self._file.fileno())


def _encode(
    pairs: Sequence[Pair], vocabularies: Both, rules: Rules, kind: str
) -> tuple[Counter[str], dict[str, np.ndarray]]:
    """Return (counts, arrays) of these pairs; the arrays hold those that the rules keep."""
    numbers, *texts = zip(*pairs, strict=True)
    ids, unknown = list[list[list[int]]](), np.zeros(len(pairs), bool)
    for vocabulary, lines in zip(vocabularies, texts, strict=True):
        plain = [*map(unescape_html, lines)] if rules.unescape_html else lines
        is_words = vocabularies[1].unk_id < 0 and not ids
        ids.append(_encode_words(vocabulary, plain) if is_words else vocabulary.encode_batch(plain))
        if vocabulary.unk_id < 0:  # labels of trees
            unknown |= np.array([vocabulary.unk_id in sequence for sequence in ids[-1]])
    lengths = np.array([[len(sequence) for sequence in side] for side in ids])
    shorter, longer = lengths.min(axis=0), lengths.max(axis=0)
    reasons = {
        "dropped_unknown": unknown,
        "dropped_blank": shorter == 0,
        "dropped_too_long": longer >= rules.max_length,
        "dropped_ratio": longer > (rules.max_length_ratio or np.inf) * np.maximum(shorter, 1),
    }
    keep, counts = np.ones(len(pairs), bool), Counter(read=len(pairs))
    for name, applies in reasons.items():
        counts[name] = int((keep & applies).sum())
        keep &= ~applies
    counts["kept"] = int(keep.sum())
    arrays = {"lines": np.array(numbers, np.int64)[keep]}
    for side, own, sizes, vocabulary in zip(SIDES, ids, lengths, vocabularies, strict=True):
        kept = chain.from_iterable([*own[i], vocabulary.eos_id] for i in np.flatnonzero(keep))
        arrays[f"{side}.tokens"] = np.fromiter(kept, kind)
        arrays[f"{side}.offsets"] = np.cumsum(sizes[keep] + 1, dtype=np.int64)
    return counts, arrays


def _encode_words(vocabulary: Vocabulary, lines: Sequence[str]) -> list[list[int]]:
    """Return the ids of each line, word by word, as a parser reads them."""
    words = [_WORD.findall(line) for line in lines]
    distinct = [*dict.fromkeys(chain.from_iterable(words))]
    ids = dict(zip(distinct, vocabulary.encode_words(distinct), strict=True))
    return [[*chain.from_iterable(map(ids.__getitem__, line))] for line in words]


def dropped(description: dict[str, Any]) -> str:
    """Return the numbers of dropped pairs by reason, as text."""
    blank, long = description["dropped_blank"], description["dropped_too_long"]
    text = f"{blank:,} with a blank side, {long:,} over {description['max_length']} tokens"
    if unknown := description.get("dropped_unknown"):
        text += f", {unknown:,} with a symbol that no training tree has"
    if ratio := description["max_length_ratio"]:
        text += f", {description['dropped_ratio']:,} with one side over {ratio:g} times the other"
    return text


def open_store(folder: Path, content: bytes) -> TokenStore:
    """Memory-map a store that `write_store` made. content: that of its file `DESCRIPTION`.

    Raises InputError if a file has another size, or offsets another sum, than was written.
    """
    description = parse_json(content, dict[str, Any])

    def mapped(name: str, kind: str) -> VerifiedArray:
        facts = description["files"][name]
        return VerifiedArray(folder / name, kind, facts["bytes"], facts["crc32"])

    return TokenStore(
        tokens={side: mapped(f"{side}.tokens", description["token_type"]) for side in SIDES},
        offsets={side: mapped(f"{side}.offsets", "int64").whole() for side in SIDES},
        lines=mapped("lines", "int64"),
        description=description,
    )
