"""§5.1 From pairs of text to a token store: on all cores, in flat memory, and resumable."""

import json
import os
import shutil
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from jax_transformer.data.text import unescape_html
from jax_transformer.data.token_store import FORMAT, NAMES, SIDES, token_type
from jax_transformer.data.vocabulary import Encoder

CHUNK = 2_000  # pairs that a thread encodes at a time
SEAL = 25  # chunks from one seal to the next: what a stop may cost
# sentencepiece releases Python's lock. Affinity may leave a process fewer cores than there are.
THREADS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
JOURNAL = "journal"
COUNTS = ("read", "kept", "dropped_unknown", "dropped_blank", "dropped_too_long", "dropped_ratio")
_READ = 1 << 22  # bytes read together

Pair = tuple[int, str, str]  # line, source, target


class Encoders(NamedTuple):
    """One for each side; for two languages with one vocabulary twice the same."""

    source: Encoder
    target: Encoder


@dataclass(frozen=True)
class Rules:
    """Which pairs are kept, and how their text is read."""

    max_length: int  # tokens of the longer side, with the end mark
    max_length_ratio: float = 0.0  # longer side over shorter side, in tokens; 0: any
    unescape_html: bool = False


class Encoded(NamedTuple):
    """A chunk of pairs: what was kept of it, and what became of the rest."""

    counts: dict[str, int]
    lines: Int[np.ndarray, " kept"]
    lengths: dict[str, Int[np.ndarray, " kept"]]
    tokens: dict[str, Int[np.ndarray, " all"]]


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
    """Encode (line, source, target) pairs into `folder`, in flat memory.

    pairs(n): the pairs after the first n. `made_of` is what the store depends on, for
    JSON. Pairs with a blank side, a side over the longest length, or sides of too
    different lengths are dropped and counted in the manifest, each under the first
    of these that holds. The store does not depend on the number of threads.

    `folder` appears whole or not at all. A stop leaves `folder`.building, from which the
    next call with the same `made_of` goes on: after its last part whose checksum holds.
    `advance` hears of pairs as they are read, or found to be encoded already.
    """
    path = folder.with_name(folder.name + ".building")
    size = max(encoder.size for encoder in encoders)
    with Building(path, {**made_of, **asdict(rules)}, size) as building:
        advance(building.counts["read"])
        work = _Chunks(encoders, rules, building.token_type)
        remaining = iter(pairs(building.counts["read"]))
        for number, encoded in enumerate(work.encoded(remaining, threads), start=1):
            building.append(encoded)
            advance(encoded.counts["read"])
            if number % SEAL == 0:
                building.seal()
        building.finish()
    shutil.rmtree(folder, ignore_errors=True)
    path.rename(folder)
    (folder / JOURNAL).unlink()


class _Chunks:
    """Encodes chunks of pairs on threads, in order."""

    def __init__(self, encoders: Encoders, rules: Rules, kind: str) -> None:
        self.encoders, self.rules, self.kind = encoders, rules, kind

    def encoded(self, pairs: Iterator[Pair], threads: int) -> Iterator[Encoded]:
        """Chunks in the order of the text; a few wait for each thread, never more."""
        waiting: deque[Future[Encoded]] = deque()
        pool = ThreadPoolExecutor(threads, thread_name_prefix="encoding")
        try:
            while chunk := list(islice(pairs, CHUNK)):
                waiting.append(pool.submit(self.encode, chunk))
                if len(waiting) > 2 * threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)

    def encode(self, chunk: list[Pair]) -> Encoded:
        """Tokens of the pairs that the rules keep."""
        numbers, *texts = zip(*chunk, strict=True)
        ids: dict[str, list[list[int]]] = {}
        unknown = np.zeros(len(chunk), bool)
        for side, encoder, lines in zip(SIDES, self.encoders, texts, strict=True):
            plain = map(unescape_html, lines) if self.rules.unescape_html else lines
            encoded = encoder.encode_batch(list(plain))
            unknown |= np.array([sequence is None for sequence in encoded])
            ids[side] = [sequence or [] for sequence in encoded]
        lengths = np.array([[len(sequence) for sequence in ids[side]] for side in SIDES])
        keep, counts = self._judge(lengths.min(0), lengths.max(0), unknown)
        tokens = {}
        for side, encoder in zip(SIDES, self.encoders, strict=True):
            kept = [ids[side][i] for i in keep.tolist()]
            ends = [[encoder.eos_id]] * len(kept)
            whole = chain.from_iterable(chain.from_iterable(zip(kept, ends, strict=True)))
            tokens[side] = np.fromiter(whole, self.kind)
        both = {side: lengths[row, keep] + 1 for row, side in enumerate(SIDES)}
        return Encoded(counts, np.array(numbers, np.int64)[keep], both, tokens)

    def _judge(
        self,
        shorter: Int[np.ndarray, " C"],
        longer: Int[np.ndarray, " C"],
        unknown: Bool[np.ndarray, " C"],
    ) -> tuple[Int[np.ndarray, " kept"], dict[str, int]]:
        """Which pairs stay, and how many went for which reason."""
        ratio = self.rules.max_length_ratio or np.inf
        reasons = {
            "dropped_unknown": unknown,
            "dropped_blank": shorter == 0,
            "dropped_too_long": longer >= self.rules.max_length,
            "dropped_ratio": longer > ratio * np.maximum(shorter, 1),
        }
        left = np.ones(len(shorter), bool)
        counts = {"read": len(shorter), "kept": 0}
        for reason, holds in reasons.items():
            counts[reason] = int((left & holds).sum())
            left &= ~holds
        counts["kept"] = int(left.sum())
        return np.flatnonzero(left), counts


class Building:
    """A store on the way: its files, and a journal of how far they are known to be whole.

    The first line of the journal is what the store is made of. Each further line is a
    seal: the counts, and the size and running CRC-32 of every file at that moment.
    """

    def __init__(self, path: Path, made_of: dict[str, Any], vocabulary_size: int) -> None:
        """Go on from the last good seal in `path`, or begin."""
        self.path, self.token_type = path, token_type(vocabulary_size)
        self.made_of = {"format": FORMAT, "token_type": self.token_type, **made_of}
        self.counts: dict[str, int] = dict.fromkeys(COUNTS, 0)
        self.sizes, self.sums = dict.fromkeys(NAMES, 0), dict.fromkeys(NAMES, 0)
        self._files: dict[str, IO[bytes]] = {}

    def __enter__(self) -> "Building":
        """Open the files behind what is sealed."""
        good = self._good_seals()
        if not good:
            shutil.rmtree(self.path, ignore_errors=True)
            self.path.mkdir(parents=True)
        else:
            self.counts |= good[-1]["counts"]
            self.sizes = {name: good[-1]["files"][name]["bytes"] for name in NAMES}
            self.sums = {name: good[-1]["files"][name]["crc32"] for name in NAMES}
        for name in NAMES:
            self._files[name] = (self.path / name).open("r+b" if good else "wb")
            self._files[name].truncate(self.sizes[name])
            self._files[name].seek(self.sizes[name])
        lines = [json.dumps(entry) + "\n" for entry in (self.made_of, *good)]
        (self.path / JOURNAL).write_text("".join(lines), encoding="utf-8")
        if not good:
            for side in SIDES:
                self._write(f"{side}.offsets", np.zeros(1, np.int64))
        return self

    def __exit__(self, *_: object) -> None:
        """Close the files."""
        for file in self._files.values():
            file.close()

    def append(self, encoded: Encoded) -> None:
        """Write a chunk behind the last one."""
        for side in SIDES:
            before = self.sizes[f"{side}.tokens"] // np.dtype(self.token_type).itemsize
            self._write(
                f"{side}.offsets", before + np.cumsum(encoded.lengths[side], dtype=np.int64)
            )
            self._write(f"{side}.tokens", encoded.tokens[side])
        self._write("lines", encoded.lines)
        for kind, count in encoded.counts.items():
            self.counts[kind] += count

    def seal(self) -> None:
        """Promise that all so far is on the disk."""
        for file in self._files.values():
            file.flush()
            os.fsync(file.fileno())
        with (self.path / JOURNAL).open("a", encoding="utf-8") as journal:
            journal.write(json.dumps({"counts": self.counts, "files": self._facts()}) + "\n")
            journal.flush()
            os.fsync(journal.fileno())

    def finish(self) -> None:
        """Seal the last part and write the manifest, which makes the store whole."""
        self.seal()
        manifest = {**self.made_of, **self.counts, "files": self._facts()}
        (self.path / "manifest.json").write_text(json.dumps(manifest, indent=1), encoding="utf-8")

    def _facts(self) -> dict[str, dict[str, int]]:
        return {name: {"bytes": self.sizes[name], "crc32": self.sums[name]} for name in NAMES}

    def _write(self, name: str, array: np.ndarray) -> None:
        content = array.tobytes()
        self._files[name].write(content)
        self.sizes[name] += len(content)
        self.sums[name] = zlib.crc32(content, self.sums[name])

    def _good_seals(self) -> list[dict[str, Any]]:
        """The seals up to the first that a file does not fulfil."""
        try:
            lines = (self.path / JOURNAL).read_text(encoding="utf-8").split("\n")[:-1]
            made_of, *seals = map(json.loads, lines)
        except (OSError, ValueError):
            return []
        if made_of != json.loads(json.dumps(self.made_of)):
            return []
        good = len(seals)
        for name in NAMES:
            good = min(good, _fulfilled(self.path / name, [s["files"][name] for s in seals]))
        return seals[:good]


def _fulfilled(path: Path, facts: list[dict[str, int]]) -> int:
    """How many of the (size, checksum) of the beginnings of a file hold."""
    running = done = 0
    try:
        with path.open("rb") as file:
            for count, fact in enumerate(facts):
                while done < fact["bytes"]:
                    content = file.read(min(_READ, fact["bytes"] - done))
                    if not content:
                        return count
                    running, done = zlib.crc32(content, running), done + len(content)
                if running != fact["crc32"]:
                    return count
    except OSError:
        return 0
    return len(facts)
