"""§5.1 Data sets: parallel text files, pairs made by a program, and sacreBLEU's test sets."""

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any

from jax_transformer.data.text import (
    ParallelFiles,
    file_fingerprint,
    listed_paths,
    read_lines,
    sample_lines,
)
from jax_transformer.data.token_store import SIDES
from jax_transformer.data.vocabulary import Encoder
from jax_transformer.errors import InputError, did_you_mean

Pairs = Iterator[tuple[int, str, str]]
Splits = Mapping[str, Sequence[tuple[str, str]]]


class Corpus(ABC):
    """Where the text of an experiment comes from."""

    @abstractmethod
    def splits(self) -> list[str]:
        """The splits that exist: train, dev, and perhaps test."""

    @abstractmethod
    def pairs(self, split: str, start: int = 0) -> Pairs:
        """(line number from 1, source, target) of every pair after the first `start`."""

    @abstractmethod
    def fingerprint(self, split: str, cached: dict[str, Any]) -> dict[str, Any]:
        """Equal, apart from `pairs`, if and only if the text of the split is equal.

        cached: the fingerprint of an earlier call, which saves reading unchanged files. The entry
        `pairs` is the number of pairs, 0 where counting them takes too long.
        """

    @abstractmethod
    def sample(self, limit: int, seed: int) -> list[str]:
        """At most `limit` lines of train, to learn a vocabulary from."""

    def scored(self, split: str) -> Iterator[tuple[str, str]]:
        """(source, reference) of each pair of a split, as it is decoded and scored."""
        return ((source, target) for _, source, target in self.pairs(split))

    def target_vocabulary(self, path: Path, *, learn: bool) -> Encoder | None:
        """The vocabulary of the target side; None where both sides share one.

        learn: learn it from train and write it to `path`, rather than read it from there.
        """
        del path, learn
        return None


class FileCorpus(Corpus):
    """Parallel text files, plain, .gz or .xz; several files of a split are read in order.

    >>> FileCorpus({"train_source": "a.en,b.en", "train_target": "a.de,b.de"}).splits()
    ['train']
    """

    def __init__(self, files: dict[str, str]) -> None:
        """files: "train_source" -> a path, or several separated by commas; and so on.

        Raises InputError where one side of a split has more files than the other.
        """
        self.files = {
            split: _paired(split, files)
            for split in ("train", "dev", "test")
            if f"{split}_source" in files
        }

    def splits(self) -> list[str]:
        """Those with files."""
        return list(self.files)

    def pairs(self, split: str, start: int = 0) -> Pairs:
        """Streamed; lines are counted through all files of the split."""
        both = (pair for files in self.files[split] for pair in files.pairs())
        numbered = ((number, *pair) for number, pair in enumerate(both, start=1))
        return islice(numbered, start, None)

    def fingerprint(self, split: str, cached: dict[str, Any]) -> dict[str, Any]:
        """Digests of the files; a file whose size and time are cached is not read again.

        Raises InputError where the two sides differ in length.
        """
        found: dict[str, Any] = {}
        for number, files in enumerate(self.files[split], start=1):
            for side, path in (("source", files.source), ("target", files.target)):
                key = side if number == 1 else f"{side} {number}"
                found[key] = file_fingerprint(path, cached.get(key, {}))
        if found == {key: cached[key] for key in cached if key != "pairs"}:
            return cached
        return {**found, "pairs": sum(files.count() for files in self.files[split])}

    def sample(self, limit: int, seed: int) -> list[str]:
        """A seeded uniform sample over all files of both sides."""
        train = self.files["train"]
        paths = [files.source for files in train] + [files.target for files in train]
        return sample_lines(chain.from_iterable(map(read_lines, paths)), limit, seed)


class PairsCorpus(Corpus):
    """Pairs in memory, made by a function when they are first needed.

    >>> corpus = PairsCorpus(lambda: {"train": [("a b", "A B")], "dev": [("b", "B")]})
    >>> list(corpus.pairs("train"))
    [(1, 'a b', 'A B')]
    """

    def __init__(self, make: Callable[[], Splits]) -> None:
        """make: returns the (source, target) pairs of each split."""
        self._make = make

    @cached_property
    def _splits(self) -> Splits:
        return self._make()

    def splits(self) -> list[str]:
        """Those that the function makes."""
        return list(self._splits)

    def pairs(self, split: str, start: int = 0) -> Pairs:
        """In their order, numbered from 1."""
        for number, (source, target) in enumerate(self._splits[split][start:], start + 1):
            yield number, source, target

    def fingerprint(self, split: str, cached: dict[str, Any]) -> dict[str, Any]:
        """A digest of all pairs."""
        pairs = self._splits[split]
        digest = hashlib.blake2b(digest_size=16)
        for source, target in pairs:
            digest.update(f"{source}\n{target}\n".encode())
        return {"text": digest.hexdigest(), "pairs": len(pairs)}

    def sample(self, limit: int, seed: int) -> list[str]:
        """The first `limit` lines."""
        return [line for pair in self._splits["train"] for line in pair][:limit]


def cached_test_set(name: str, language_pair: str) -> ParallelFiles:
    """Source and first reference of a test set such as "wmt14/full", "en-de", in sacreBLEU's cache.

    The cache is the folder $SACREBLEU, or else ~/.sacrebleu. It is only read: nothing is fetched.
    Raises InputError where sacreBLEU knows no such test set or language pair, or has not fetched
    it.
    """
    from sacrebleu.dataset import DATASETS  # slow to import, and seldom needed

    if name not in DATASETS:
        family = name.split("/")[0]
        near = " or ".join(sorted(known for known in DATASETS if known.split("/")[0] == family))
        hint = f"; did you mean {near}?" if near else did_you_mean(name, DATASETS)
        raise InputError(f"--test_set={name}: sacreBLEU knows no such test set{hint}")
    pairs = sorted(DATASETS[name].langpairs)
    if language_pair not in pairs:
        raise InputError(
            f"--test_set={name}: expected one of its language pairs, {', '.join(pairs)}, found "
            f"{language_pair}; --set data.source_language and data.target_language"
        )
    # The methods of sacreBLEU's own class fetch what is missing, some even to name the files.
    cache = Path(os.environ.get("SACREBLEU") or Path.home() / ".sacrebleu")
    stem = f"{name.replace('/', '_')}.{language_pair}"
    source = cache / name / f"{stem}.src"
    references = sorted((cache / name).glob(f"{stem}.ref*"))
    if not source.is_file() or not references:
        raise InputError(
            f"expected {name} {language_pair} in {cache / name}, found no {stem}.src and "
            f"{stem}.ref; fetch it with: sacrebleu -t {name} -l {language_pair} --echo src"
        )
    return ParallelFiles(str(source), str(references[0]))


def _paired(split: str, files: dict[str, str]) -> list[ParallelFiles]:
    sources, targets = (listed_paths(files[f"{split}_{side}"]) for side in SIDES)
    if len(sources) != len(targets):
        raise InputError(
            f"{split}: expected a target file for each source file, found {len(sources)} in "
            f"--{split}_source and {len(targets)} in --{split}_target; give as many of each, in "
            "the same order"
        )
    return [ParallelFiles(*pair) for pair in zip(sources, targets, strict=True)]
