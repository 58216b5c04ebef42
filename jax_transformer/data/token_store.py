"""§5.1 A memory-mapped token store: pairs of token sequences on disk."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from jax_transformer.errors import InputError

SIDES = ("source", "target")
FORMAT = 2  # of the files; stores of another format count as none
NAMES = [*(f"{side}.{part}" for side in SIDES for part in ("tokens", "offsets")), "lines"]
_SLICE = 1 << 20  # pairs looked at together, so that memory does not grow with the corpus


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
        """Tokens of each sequence, EOS included; 4 bytes a pair."""
        result = np.empty(len(self), np.int32)
        for start in range(0, len(self), _SLICE):
            part = slice(start, start + _SLICE)
            result[part] = np.diff(self.offsets[side][start : start + _SLICE + 1])
        return result

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

    def packed(
        self,
        side: str,
        pairs: Int[np.ndarray, " P"],
        places: Int[np.ndarray, " P"],
        rows: int,
        length: int,
        pad_id: int,
    ) -> tuple[Int[np.ndarray, "rows length"], Int[np.ndarray, "rows length"]]:
        """The sequences of `pairs` one behind the other, several a row, then PAD.

        places: the number of each pair in its row, 1 where a row begins. Also returns the place
        that each token's pair has, 0 for PAD.
        """
        result = np.full(rows * length, pad_id, np.int32)
        segments = np.zeros(rows * length, np.int32)
        starts = self.offsets[side][pairs]
        sizes = self.offsets[side][pairs + 1] - starts
        before = np.cumsum(sizes) - sizes  # tokens of the pairs in front, in all rows
        begins = places == 1
        row = np.cumsum(begins) - 1
        columns = before - before[begins][row]
        of_tokens = np.arange(sizes.sum())
        into = np.repeat(row * length + columns - before, sizes) + of_tokens
        result[into] = self.tokens[side][np.repeat(starts - before, sizes) + of_tokens]
        segments[into] = np.repeat(places, sizes)
        return result.reshape(rows, length), segments.reshape(rows, length)


def token_type(vocabulary_size: int) -> str:
    """The smaller of two kinds of whole number that holds every id."""
    return "uint16" if vocabulary_size <= 1 << 16 else "int32"


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
      InputError: there is none, or a file has not the size that it was written with.
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
        if size == 0:  # an empty file cannot be mapped
            return np.zeros(0, kind)
        return np.memmap(path, kind, mode="r")

    return TokenStore(
        tokens={side: mapped(f"{side}.tokens", manifest["token_type"]) for side in SIDES},
        offsets={side: mapped(f"{side}.offsets", np.int64) for side in SIDES},
        lines=mapped("lines", np.int64),
        manifest=manifest,
    )
