"""§5.1 Token stores: encoded pairs on disk, appended part by part, memory-mapped."""

import logging
import os
import shutil
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Integer

from jax_transformer.data.text import unescape_html
from jax_transformer.data.vocabulary import Encoder
from jax_transformer.errors import InputError
from jax_transformer.files import naming, read_sealed, write_sealed
from jax_transformer.progress import Progress

SIDES = ("source", "target")
FORMAT = 4  # the version of the files; stores of another version are not used
NAMES = [*(f"{side}.{part}" for side in SIDES for part in ("tokens", "offsets")), "lines"]
COUNTS = ("read", "kept", "dropped_unknown", "dropped_blank", "dropped_too_long", "dropped_ratio")
PART = 50_000  # pairs encoded together: an interruption costs less than one part

logger = logging.getLogger(__name__)

Pair = tuple[int, str, str]  # line, source, target


@dataclass(frozen=True)
class TokenStore:
    """Pairs of token sequences, memory-mapped from disk or in memory.

    Each sequence ends with EOS. `lines` are the 1-based line numbers in the source text.
    """

    tokens: dict[str, Integer[np.ndarray, " all"]]
    offsets: dict[str, Integer[np.ndarray, " pairs_and_1"]]
    lines: Integer[np.ndarray, " pairs"]
    manifest: dict[str, Any]

    def __len__(self) -> int:
        """Return the number of pairs."""
        return len(self.lines)

    def lengths(self, side: str) -> Integer[np.ndarray, " pairs"]:
        """Return the number of tokens of each sequence, EOS included; 4 bytes a pair."""
        return np.diff(self.offsets[side]).astype(np.int32)

    def rows(
        self,
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
        starts = self.offsets[side][pairs]
        sizes = self.offsets[side][pairs + 1] - starts
        before = np.cumsum(sizes) - sizes  # tokens of all pairs before each
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
    """The rules for reading the text of pairs, and for dropping some."""

    max_length: int  # tokens of the longer side, EOS included
    max_length_ratio: float = 0.0  # longer side over shorter side, in tokens without EOS; 0: any
    unescape_html: bool = False


def write_store(
    folder: Path,
    pairs: Callable[[int], Iterable[Pair]],
    encoders: Encoders,
    rules: Rules,
    made_of: dict[str, Any],
    count: int | None = None,
) -> None:
    """Encode (line, source, target) pairs into `folder`, in memory that does not grow with them.

    pairs: a function of n that returns the pairs after the first n. made_of: everything that the
    store depends on, as JSON.
    Pairs with a symbol that the target's vocabulary lacks, a blank side, a side over the longest
    length, or sides of too different lengths are dropped and counted in the manifest, each under
    the first of these reasons.

    `folder` appears whole or not at all. An interruption leaves the finished parts in
    `folder`.building, from which the next call with the same `made_of` continues. count: the number
    of pairs, if it is known, to show the progress.
    """
    building = folder.with_name(folder.name + ".building")
    kind = "uint16" if max(encoder.size for encoder in encoders) <= 1 << 16 else "int32"
    made_of = {"format": FORMAT, "token_type": kind, **made_of, **asdict(rules)}
    manifest = _unfinished(building, made_of) or _empty_store(building, made_of)
    if manifest["read"]:
        logger.info(f"tokens      {folder.name}, continuing after {manifest['read']:,} pairs")
    remaining = iter(pairs(manifest["read"]))
    with Progress("tokens", count, f"{folder.name} pairs", done=manifest["read"]) as progress:
        while part := list(islice(remaining, PART)):
            counts, arrays = _encode(part, encoders, rules, kind)
            for side in SIDES:
                width = np.dtype(kind).itemsize
                arrays[f"{side}.offsets"] += manifest["files"][f"{side}.tokens"]["bytes"] // width
            _append(building, manifest, counts, arrays)
            progress.update(len(part))
    shutil.rmtree(folder, ignore_errors=True)
    building.rename(folder)


def encode_pairs(pairs: Sequence[Pair], encoders: Encoders, rules: Rules) -> TokenStore:
    """Return a store in memory of a few pairs: those that `write_store` would write."""
    counts, arrays = _encode(list(pairs), encoders, rules, "int32")
    return TokenStore(
        tokens={side: arrays[f"{side}.tokens"] for side in SIDES},
        offsets={side: np.append(0, arrays[f"{side}.offsets"]) for side in SIDES},
        lines=arrays["lines"],
        manifest=counts,
    )


def _unfinished(building: Path, made_of: dict[str, Any]) -> dict[str, Any] | None:
    """Restore an interrupted call with the same `made_of`, if any; return its manifest."""
    manifest = read_manifest(building)
    if manifest is None or not made_of.items() <= manifest.items():
        return None
    for name, facts in manifest["files"].items():
        path = building / name
        if not path.exists() or path.stat().st_size < facts["bytes"]:
            return None
        os.truncate(path, facts["bytes"])  # a part that the manifest does not have yet
    return manifest


def _empty_store(building: Path, made_of: dict[str, Any]) -> dict[str, Any]:
    """Create the files of a store without pairs; return its manifest."""
    shutil.rmtree(building, ignore_errors=True)
    building.mkdir(parents=True)
    files = {name: {"bytes": 0, "crc32": 0} for name in NAMES}
    manifest = {**made_of, **dict.fromkeys(COUNTS, 0), "files": files}
    empty = {name: np.zeros(int(name.endswith("offsets")), np.int64) for name in NAMES}
    _append(building, manifest, {}, empty)  # offsets begin with 0
    return manifest


def _append(
    building: Path,
    manifest: dict[str, Any],
    counts: dict[str, int],
    arrays: dict[str, np.ndarray],
) -> None:
    """Append arrays to the files of the same names; then add them to the manifest."""
    for name, array in arrays.items():
        with naming(building / name), (building / name).open("ab") as file:
            file.write(array.data)
            file.flush()
            os.fsync(file.fileno())
        facts = manifest["files"][name]
        facts["bytes"] += array.nbytes
        facts["crc32"] = zlib.crc32(array.data, facts["crc32"])
    for name, count in counts.items():
        manifest[name] += count
    write_sealed(building / "manifest.json", manifest)


def _encode(
    pairs: list[Pair], encoders: Encoders, rules: Rules, kind: str
) -> tuple[dict[str, int], dict[str, np.ndarray]]:
    """Return (counts, arrays) of these pairs; the arrays hold those that the rules keep."""
    numbers, *texts = zip(*pairs, strict=True)
    ids: list[list[list[int]]] = []
    unknown = np.zeros(len(pairs), bool)
    for encoder, lines in zip(encoders, texts, strict=True):
        plain = [unescape_html(line) for line in lines] if rules.unescape_html else list(lines)
        encoded = encoder.encode_batch(plain)
        unknown |= np.array([sequence is None for sequence in encoded])
        ids.append([sequence or [] for sequence in encoded])
    lengths = np.array([[len(sequence) for sequence in side] for side in ids])
    shorter, longer = lengths.min(axis=0), lengths.max(axis=0)
    reasons = {
        "dropped_unknown": unknown,
        "dropped_blank": shorter == 0,
        "dropped_too_long": longer >= rules.max_length,
        "dropped_ratio": longer > (rules.max_length_ratio or np.inf) * np.maximum(shorter, 1),
    }
    keep, counts = np.ones(len(pairs), bool), {"read": len(pairs)}
    for name, applies in reasons.items():
        counts[name] = int((keep & applies).sum())
        keep &= ~applies
    counts["kept"] = int(keep.sum())
    arrays = {"lines": np.array(numbers, np.int64)[keep]}
    for row, (side, encoder) in enumerate(zip(SIDES, encoders, strict=True)):
        kept = chain.from_iterable([*ids[row][i], encoder.eos_id] for i in np.flatnonzero(keep))
        arrays[f"{side}.tokens"] = np.fromiter(kept, kind)
        arrays[f"{side}.offsets"] = np.cumsum(lengths[row, keep] + 1, dtype=np.int64)
    return counts, arrays


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """Return the inputs of a store and its counts of pairs; None without a whole store."""
    try:
        manifest = read_sealed(folder / "manifest.json", "its tokens are not used")
    except InputError as error:
        logger.warning("%s", error)
        return None
    return manifest if manifest and manifest["format"] == FORMAT else None


def dropped(manifest: dict[str, Any]) -> str:
    """Return the numbers of dropped pairs by reason, as text."""
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

    Raises InputError if there is none, or if the size or CRC-32 of a file differs from what was
    written.
    """
    manifest = read_manifest(folder)
    if manifest is None:
        raise InputError(f"expected a token store in {folder}, found none; prepare the text again")

    def mapped(name: str, kind: Any) -> np.ndarray:
        path = folder / name
        size = path.stat().st_size if path.exists() else 0
        # An empty file cannot be mapped.
        content = np.memmap(path, np.uint8, "r") if size else np.zeros(0, np.uint8)
        if {"bytes": size, "crc32": zlib.crc32(content.data)} != manifest["files"][name]:
            raise InputError(
                f"expected {path} as it was written, found another size or checksum: damaged; "
                f"remove {folder} and give the same command again"
            )
        return content.view(kind)

    return TokenStore(
        tokens={side: mapped(f"{side}.tokens", manifest["token_type"]) for side in SIDES},
        offsets={side: mapped(f"{side}.offsets", np.int64) for side in SIDES},
        lines=mapped("lines", np.int64),
        manifest=manifest,
    )
