"""§5.1 Token stores: encoded pairs on disk, written in parts by all cores, memory-mapped."""

import json
import os
import shutil
import zipfile
import zlib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int

from jax_transformer.data.text import unescape_html
from jax_transformer.data.vocabulary import Encoder
from jax_transformer.errors import InputError
from jax_transformer.files import write_text

SIDES = ("source", "target")
FORMAT = 3  # of the files; stores of another format count as none
NAMES = [*(f"{side}.{part}" for side in SIDES for part in ("tokens", "offsets")), "lines"]
COUNTS = ("read", "kept", "dropped_unknown", "dropped_blank", "dropped_too_long", "dropped_ratio")
PART = 50_000  # pairs of a part: an interruption costs less than one
CHUNK = 1_000  # pairs that a thread encodes at a time
# sentencepiece releases Python's lock. Affinity may leave a process fewer cores than there are.
THREADS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
_SLICE = 1 << 20  # items looked at together, so that memory does not grow with the corpus

Pair = tuple[int, str, str]  # line, source, target


@dataclass(frozen=True)
class TokenStore:
    """Pairs of token sequences, memory-mapped from disk or in memory.

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
        """Tokens of each sequence, EOS included; 4 bytes a pair."""
        result = np.empty(len(self), np.int32)
        for start in range(0, len(self), _SLICE):
            part = slice(start, start + _SLICE)
            result[part] = np.diff(self.offsets[side][start : start + _SLICE + 1])
        return result

    def padded(
        self, side: str, pairs: Int[np.ndarray, " R"], rows: int, length: int, pad_id: int
    ) -> Int[np.ndarray, "rows length"]:
        """The sequences of `pairs`, PAD after each, and rows of PAD to make up `rows`."""
        result = np.full((rows, length), pad_id, np.int32)
        starts, ends = self.offsets[side][pairs], self.offsets[side][pairs + 1]
        columns = starts[:, None] + np.arange(length)[None, :]
        real = columns < ends[:, None]
        result[: len(pairs)][real] = self.tokens[side][columns[real]]
        return result

    def packed(
        self,
        side: str,
        pairs: Int[np.ndarray, " P"],
        segment_ids: Int[np.ndarray, " P"],
        rows: int,
        length: int,
        pad_id: int,
    ) -> tuple[Int[np.ndarray, "rows length"], Int[np.ndarray, "rows length"]]:
        """The sequences of `pairs` one after another, several in a row, then PAD.

        segment_ids: the number of each pair in its row, 1 where a row begins. Also returns the
        segment id of each token, 0 for PAD.
        """
        result = np.full(rows * length, pad_id, np.int32)
        segments = np.zeros(rows * length, np.int32)
        starts = self.offsets[side][pairs]
        sizes = self.offsets[side][pairs + 1] - starts
        before = np.cumsum(sizes) - sizes  # tokens of all pairs before it
        begins = segment_ids == 1
        row = np.cumsum(begins) - 1
        columns = before - before[begins][row]
        of_tokens = np.arange(sizes.sum())
        into = np.repeat(row * length + columns - before, sizes) + of_tokens
        result[into] = self.tokens[side][np.repeat(starts - before, sizes) + of_tokens]
        segments[into] = np.repeat(segment_ids, sizes)
        return result.reshape(rows, length), segments.reshape(rows, length)


class Encoders(NamedTuple):
    """The vocabularies of both sides; for two languages the same one twice."""

    source: Encoder
    target: Encoder


@dataclass(frozen=True)
class Rules:
    """Which pairs are kept, and how their text is read."""

    max_length: int  # tokens of the longer side, EOS included
    max_length_ratio: float = 0.0  # longer side over shorter side, in tokens without EOS; 0: any
    unescape_html: bool = False


def write_store(
    folder: Path,
    pairs: Callable[[int], Iterable[Pair]],
    encoders: Encoders,
    rules: Rules,
    made_of: dict[str, Any],
    *,
    threads: int = THREADS,
    advance: Callable[[int], None] = lambda pairs: None,
) -> None:
    """Encode (line, source, target) pairs into `folder`, in memory that does not grow with them.

    pairs(n) gives the pairs after the first n. `made_of` is what the store depends on, as JSON.
    Pairs with a blank side, a side over the longest length, or sides of too different lengths are
    dropped and counted in the manifest, each under the first of these reasons. The store does not
    depend on the number of threads.

    `folder` appears whole or not at all. An interruption leaves the parts of `PART` pairs that are
    done in `folder`.building, from which the next call with the same `made_of` continues. advance
    is called with the number of pairs that are done, first with those of an earlier call.
    """
    building = folder.with_name(folder.name + ".building")
    kind = "uint16" if max(encoder.size for encoder in encoders) <= 1 << 16 else "int32"
    made_of = {"format": FORMAT, "token_type": kind, **made_of, **asdict(rules)}
    parts = _finished_parts(building, made_of)
    advance(sum(_counts(part)["read"] for part in parts))
    remaining = iter(pairs(len(parts) * PART))
    with ThreadPoolExecutor(threads, thread_name_prefix="encoding") as pool:
        while part := list(islice(remaining, PART)):
            chunks = [part[start : start + CHUNK] for start in range(0, len(part), CHUNK)]
            encoded = list(pool.map(lambda chunk: _encode(chunk, encoders, rules, kind), chunks))
            parts.append(building / f"{len(parts):06d}.npz")
            joined = {name: np.concatenate([e[name] for e in encoded]) for name in encoded[0]}
            joined["counts"] = np.sum([e["counts"] for e in encoded], axis=0)
            _save(parts[-1], joined)
            advance(len(part))
    _join(parts, building, made_of)
    shutil.rmtree(folder, ignore_errors=True)
    building.rename(folder)
    for path in (*folder.glob("*.npz"), folder / "made_of.json"):
        path.unlink()


def encode_pairs(pairs: Sequence[Pair], encoders: Encoders, rules: Rules) -> TokenStore:
    """The store of a few pairs, in memory: those that `write_store` would write."""
    arrays = _encode(list(pairs), encoders, rules, "int32")
    return TokenStore(
        tokens={side: arrays[f"{side}.tokens"] for side in SIDES},
        offsets={side: np.append(0, np.cumsum(arrays[f"{side}.lengths"])) for side in SIDES},
        lines=arrays["lines"],
        manifest=dict(zip(COUNTS, arrays["counts"].tolist(), strict=True)),
    )


def _finished_parts(building: Path, made_of: dict[str, Any]) -> list[Path]:
    """The parts that an interrupted call left, up to the first that is missing or damaged."""
    record = building / "made_of.json"
    try:
        same = json.loads(record.read_text(encoding="utf-8")) == json.loads(json.dumps(made_of))
    except (OSError, ValueError):
        same = False
    if not same:
        shutil.rmtree(building, ignore_errors=True)
        write_text(record, json.dumps(made_of))
    found: list[Path] = []
    while _is_whole(path := building / f"{len(found):06d}.npz"):
        found.append(path)
    return found


def _is_whole(path: Path) -> bool:
    """Whether this is a part of `PART` pairs whose checksums hold."""
    try:
        with zipfile.ZipFile(path) as file:
            return file.testzip() is None and _counts(path)["read"] == PART
    except (OSError, ValueError, KeyError, zipfile.BadZipFile):
        return False


def _counts(part: Path) -> dict[str, int]:
    with np.load(part) as arrays:
        return dict(zip(COUNTS, arrays["counts"].tolist(), strict=True))


def _save(path: Path, arrays: dict[str, np.ndarray]) -> None:
    partial = path.with_name(f"{path.name}.partial")
    with partial.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def _encode(
    chunk: list[Pair], encoders: Encoders, rules: Rules, kind: str
) -> dict[str, np.ndarray]:
    """The arrays of a part, for the pairs of this chunk that the rules keep."""
    numbers, *texts = zip(*chunk, strict=True)
    ids: list[list[list[int]]] = []
    unknown = np.zeros(len(chunk), bool)
    for encoder, lines in zip(encoders, texts, strict=True):
        plain = [unescape_html(line) for line in lines] if rules.unescape_html else list(lines)
        encoded = encoder.encode_batch(plain)
        unknown |= np.array([sequence is None for sequence in encoded])
        ids.append([sequence or [] for sequence in encoded])
    lengths = np.array([[len(sequence) for sequence in side] for side in ids])
    shorter, longer = lengths.min(axis=0), lengths.max(axis=0)
    keep, counts = np.ones(len(chunk), bool), [len(chunk)]
    for dropped_for in (  # in the order of COUNTS
        unknown,
        shorter == 0,
        longer >= rules.max_length,
        longer > (rules.max_length_ratio or np.inf) * np.maximum(shorter, 1),
    ):
        counts.append(int((keep & dropped_for).sum()))
        keep &= ~dropped_for
    counts.insert(1, int(keep.sum()))
    arrays = {"counts": np.array(counts), "lines": np.array(numbers, np.int64)[keep]}
    for row, (side, encoder) in enumerate(zip(SIDES, encoders, strict=True)):
        kept = chain.from_iterable([*ids[row][i], encoder.eos_id] for i in np.flatnonzero(keep))
        arrays[f"{side}.tokens"] = np.fromiter(kept, kind)
        arrays[f"{side}.lengths"] = lengths[row, keep] + 1
    return arrays


def _join(parts: Sequence[Path], building: Path, made_of: dict[str, Any]) -> None:
    """Join the parts to the files of a store, and write its manifest."""
    counts, before = np.zeros(len(COUNTS), np.int64), dict.fromkeys(SIDES, 0)
    for name in NAMES:
        first = [np.zeros(1, np.int64)] if name.endswith("offsets") else []
        (building / name).write_bytes(b"".join(array.tobytes() for array in first))
    for part in parts:
        with np.load(part) as arrays:
            contents = {name: arrays[name] for name in NAMES if not name.endswith("offsets")}
            for side in SIDES:
                offsets = before[side] + np.cumsum(arrays[f"{side}.lengths"], dtype=np.int64)
                before[side] += int(arrays[f"{side}.lengths"].sum())
                contents[f"{side}.offsets"] = offsets
            counts += arrays["counts"]
        for name, content in contents.items():
            with (building / name).open("ab") as file:
                file.write(content.tobytes())
                file.flush()
                os.fsync(file.fileno())
    facts = {
        name: {"bytes": (building / name).stat().st_size, "crc32": _crc32(building / name)}
        for name in NAMES
    }
    named = dict(zip(COUNTS, counts.tolist(), strict=True))
    manifest = {**made_of, **named, "files": facts}
    write_text(building / "manifest.json", json.dumps(manifest, indent=1))


def _crc32(path: Path) -> int:
    result = 0
    with path.open("rb") as file:
        while content := file.read(_SLICE):
            result = zlib.crc32(content, result)
    return result


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """What a store was made of and what was dropped; None where there is no whole store."""
    try:
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    return manifest if manifest.get("format") == FORMAT else None


def dropped(manifest: dict[str, Any]) -> str:
    """What became of the pairs that are not in the store, in words."""
    text = (
        f"{manifest['dropped_blank']:,} with a blank side, "
        f"{manifest['dropped_too_long']:,} over {manifest['max_length']} tokens"
    )
    if unknown := manifest.get("dropped_unknown"):
        text += f", {unknown:,} with a symbol that no training tree has"
    if ratio := manifest["max_length_ratio"]:
        text += f", {manifest['dropped_ratio']:,} with one side over {ratio:g} times the other"
    return text


def open_store(folder: Path) -> TokenStore:
    """Memory-map a store that `write_store` made.

    Raises:
      InputError: there is none, or a file is not as it was written: its size or CRC-32 differs.
    """
    manifest = read_manifest(folder)
    if manifest is None:
        raise InputError(f"expected a token store in {folder}, found none; prepare the text again")

    def mapped(name: str, kind: Any) -> np.ndarray:
        path, expected = folder / name, manifest["files"][name]["bytes"]
        size = path.stat().st_size if path.exists() else 0
        if size != expected:
            raise InputError(
                f"expected {expected:,} bytes in {path}, found {size:,}: damaged; "
                f"remove {folder} and give the same command again"
            )
        if _crc32(path) != manifest["files"][name]["crc32"]:
            raise InputError(
                f"expected {path} as it was written, found another checksum: damaged; remove "
                f"{folder} and give the same command again"
            )
        if size == 0:  # an empty file cannot be mapped
            return np.zeros(0, kind)
        return np.memmap(path, kind, mode="r")

    return TokenStore(
        tokens={side: mapped(f"{side}.tokens", manifest["token_type"]) for side in SIDES},
        offsets={side: mapped(f"{side}.offsets", np.int64) for side in SIDES},
        lines=mapped("lines", np.int64),
        manifest=manifest,
    )
