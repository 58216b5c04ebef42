"""§5.1 Data sets: parallel text files, and sacreBLEU's test sets."""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jax_transformer.data.corpora import training_splits
from jax_transformer.data.text import (
    SIDES,
    ParallelFiles,
    file_fingerprint,
    listed_paths,
    read_lines,
    sample_lines,
)
from jax_transformer.errors import InputError, did_you_mean
from jax_transformer.files import expanded

if TYPE_CHECKING:
    from jax_transformer.data.vocabulary import Encoder

Pairs = Iterator[tuple[int, str, str]]


class Corpus(ABC):
    """The source of an experiment's text."""

    @abstractmethod
    def splits(self) -> list[str]:
        """List the splits that exist: those of `training_splits`, dev, and perhaps test."""

    @abstractmethod
    def pairs(self, split: str) -> Pairs:
        """Yield (line number from 1, source, target) of every pair."""

    @abstractmethod
    def fingerprint(self, split: str, cached: dict[str, Any]) -> dict[str, Any]:
        """Return a fingerprint of a split's text.

        Two fingerprints are equal, apart from `pairs`, if and only if the texts are equal.
        cached: the fingerprint of an earlier call, which saves reading unchanged files. The entry
        `pairs` is the number of pairs, 0 if counting them takes too long.
        """

    @abstractmethod
    def sample(self, limit: int, seed: int, sides: Sequence[str] = SIDES) -> list[str]:
        """Return at most `limit` lines of these sides of what is trained on.

        A vocabulary is learned from them.
        """

    def scored(self, split: str) -> Iterator[tuple[str, str]]:
        """Yield (source, reference) of each pair of a split, as it is decoded and scored."""
        return ((source, target) for _, source, target in self.pairs(split))

    def target_vocabulary(self, content: bytes | None) -> tuple["Encoder", bytes] | None:
        """Return the vocabulary of the target side and its file's content; None if one is shared.

        content: that of the file, or None to learn the vocabulary from train.
        """
        del content
        return None


class FileCorpus(Corpus):
    """Parallel text files, plain, .gz or .xz; several files of a split are read in order.

    >>> FileCorpus({"train_source": "a.en,b.en", "train_target": "a.de,b.de"}).splits()
    ['train']
    """

    def __init__(self, files: dict[str, Any]) -> None:
        """Keep the paths of each split.

        files: a map from "train_source" and so on to what `named_files` returns for it;
        "train_2_source" is the source of a second corpus to train on.

        Raises InputError if one side of a split has more files than the other.
        """
        given = [name.removesuffix("_source") for name in files if name.endswith("_source")]
        splits = [*training_splits(given), *(s for s in ("dev", "test") if s in given)]
        self.files = {split: _paired(split, files) for split in splits}

    def splits(self) -> list[str]:
        """List the splits that have files."""
        return list(self.files)

    def pairs(self, split: str) -> Pairs:
        """Stream the pairs; lines are counted through all files of the split."""
        both = (pair for files in self.files[split] for pair in files.pairs())
        return ((number, *pair) for number, pair in enumerate(both, start=1))

    def fingerprint(self, split: str, cached: dict[str, Any]) -> dict[str, Any]:
        """Return digests of the files; a file whose size and time are cached is not read again.

        Raises InputError if the two sides differ in length.
        """
        found: dict[str, Any] = {}
        for number, files in enumerate(self.files[split], start=1):
            for side, path in (("source", files.source), ("target", files.target)):
                key = side if number == 1 else f"{side} {number}"
                found[key] = file_fingerprint(path, cached.get(key, {}))
        if found == {key: cached[key] for key in cached if key != "pairs"}:
            return cached
        return {**found, "pairs": sum(files.count() for files in self.files[split])}

    def sample(self, limit: int, seed: int, sides: Sequence[str] = SIDES) -> list[str]:
        """Draw a seeded uniform sample over all files of these sides; weights do not count."""
        trained_on = [files for split in training_splits(self.files) for files in self.files[split]]
        paths = [getattr(files, side) for side in sides for files in trained_on]
        return sample_lines(chain.from_iterable(map(read_lines, paths)), limit, seed)


def cached_test_set(name: str, language_pair: str) -> ParallelFiles:
    """Find source and first reference of a test set ("wmt14/full", "en-de") in sacreBLEU's cache.

    The cache is the folder $SACREBLEU, or else ~/.sacrebleu. It is only read: nothing is fetched.
    Raises InputError if sacreBLEU does not have such a test set or language pair, or has not
    fetched it.
    """
    from sacrebleu.dataset import DATASETS  # slow to import, and seldom needed

    if name not in DATASETS:
        family = name.split("/")[0]
        near = " or ".join(sorted(known for known in DATASETS if known.split("/")[0] == family))
        hint = f"; did you mean {near}?" if near else did_you_mean(name, DATASETS)
        raise InputError(f"--test_set={name}: expected a test set of sacreBLEU, found none{hint}")
    pairs = sorted(DATASETS[name].langpairs)
    if language_pair not in pairs:
        raise InputError(
            f"--test_set={name}: expected one of its language pairs, {', '.join(pairs)}, found "
            f"{language_pair}; --set data.source_language and data.target_language"
        )
    # The methods of sacreBLEU's own class fetch missing files, some even to return their names.
    cache = Path(expanded(os.environ.get("SACREBLEU") or "~/.sacrebleu"))
    stem = f"{name.replace('/', '_')}.{language_pair}"
    source = cache / name / f"{stem}.src"
    references = sorted((cache / name).glob(f"{stem}.ref*"))
    if not source.is_file() or not references:
        raise InputError(
            f"expected {name} {language_pair} in {cache / name}, found no {stem}.src and "
            f"{stem}.ref; fetch it with: sacrebleu -t {name} -l {language_pair} --echo src"
        )
    return ParallelFiles(str(source), str(references[0]))


def _paired(split: str, files: dict[str, Any]) -> list[ParallelFiles]:
    sources, targets = (listed_paths(files[f"{split}_{side}"]) for side in SIDES)
    if len(sources) != len(targets):
        flag = split.partition("_")[0]  # train_2 has no flags of its own
        raise InputError(
            f"{split}: expected a target file for each source file, found {len(sources)} in "
            f"--{flag}_source and {len(targets)} in --{flag}_target; give one of each, in the "
            "same order"
        )
    return [ParallelFiles(*pair) for pair in zip(sources, targets, strict=True)]
