"""§5.1 The text of a run: its declaration, and the parallel files and sacreBLEU's test sets.

The corpora that are trained on are called "train", "train_2", "train_3" and so on; "extra" are a
parser's extra trees.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import chain, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from jax_transformer.config import DataConfig
from jax_transformer.data.text import (
    SIDES,
    ParallelFiles,
    file_fingerprint,
    read_lines,
    sample_lines,
)
from jax_transformer.declared import Declared, Rule
from jax_transformer.errors import InputError, did_you_mean
from jax_transformer.files import expanded

if TYPE_CHECKING:
    from jax_transformer.data.vocabularies.base import Vocabulary

Pairs = Iterator[tuple[int, str, str]]
Paths = tuple[str, ...]


@dataclass(frozen=True)
class Text(Declared):
    """Parallel text: files that are aligned line by line, and read in order."""

    source: Paths = ()
    target: Paths = ()


@dataclass(frozen=True)
class Trees(Declared):
    """Files or folders of bracketed trees, read in order."""

    trees: Paths = ()


@dataclass(frozen=True)
class Sources(Declared):
    """The text or the trees of a run; all empty for those of the demo.

    train: each corpus that is trained on. extra: a parser's extra trees. data_dir: the folder of
    WMT. treebank_dir: the folder of the Penn Treebank.
    """

    train: tuple[Text, ...] | tuple[Trees, ...] = ()
    dev: Text | Trees | None = None
    test: Text | Trees | None = None
    extra: Trees | None = None
    data_dir: str = ""
    treebank_dir: str = ""

    @classmethod
    def named(cls, files: Mapping[str, Sequence[str]], kind: type[Text] | type[Trees]) -> "Sources":
        """Return the sources whose files have the names of flags: "train_source", "dev_trees".

        Each file to train on is a corpus. Raises InputError if one side has more of them.
        """
        sides = [part.name for part in fields(kind)]
        columns = [files.get(f"train_{side}", ()) for side in sides]
        if len({len(paths) for paths in columns if paths}) > 1:
            raise InputError(
                "expected --train_target as often as --train_source, once for each corpus, found "
                f"{len(columns[1])} and {len(columns[0])}; give both for each"
            )
        parts: dict[str, Any] = {
            split: kind(*(tuple(files.get(f"{split}_{side}", ())) for side in sides))
            for split in ("dev", "test", "extra")
        }
        given = {split: part for split, part in parts.items() if part != kind()}
        rows = zip_longest(*columns, fillvalue="")
        train: Any = tuple(kind(*((path,) if path else () for path in row)) for row in rows)
        return cls(train, **given, treebank_dir="".join(files.get("treebank_dir", ())))

    def splits(self) -> dict[str, Any]:
        """Return the Text or Trees of each split."""
        names = ["train", *(f"train_{number}" for number in range(2, len(self.train) + 1))]
        parts = {"dev": self.dev, "test": self.test, "extra": self.extra}
        return dict(zip(names, self.train, strict=False)) | {n: p for n, p in parts.items() if p}

    def flags(self) -> dict[str, Paths]:
        """Return the paths of each side of each split by name, such as "dev_source"."""
        return {
            f"{split}_{side}": paths
            for split, part in self.splits().items()
            for side, paths in vars(part).items()
            if paths
        }


@dataclass(frozen=True)
class Vocabularies(Declared):
    """User-provided vocabularies: see `load_user_vocabulary`."""

    rules: ClassVar = (
        Rule(
            lambda given: (
                bool(given.vocabulary) + bool(given.source_vocabulary) != 1
                or bool(given.source_vocabulary) != bool(given.target_vocabulary)
            ),
            "expected --vocabulary alone, or --source_vocabulary and --target_vocabulary, found "
            "{names}; give one or the other",
        ),
    )

    vocabulary: Paths = ()
    source_vocabulary: Paths = ()
    target_vocabulary: Paths = ()

    @property
    def names(self) -> str:
        """The names of the flags of those that are given."""
        return " and ".join(f"--{name}" for name, paths in vars(self).items() if paths)


def training_splits(splits: Iterable[str]) -> list[str]:
    """Return the splits that are trained on, in order.

    >>> training_splits(["train_10", "extra", "dev", "train_2", "train"])
    ['train', 'train_2', 'train_10', 'extra']
    """
    splits = sorted(splits, key=lambda split: (len(split), split))
    own = [split for split in splits if split.partition("_")[0] == "train"]
    return own + [split for split in splits if split == "extra"]


def check_weights(data: DataConfig, splits: Iterable[str]) -> None:
    """Raise InputError unless there is a weight for each corpus, or none."""
    corpora = [split for split in training_splits(splits) if split != "extra"]
    if data.weights and len(data.weights) != len(corpora):
        raise InputError(
            f"data.train_weights={data.train_weights}: expected a number for each corpus, found "
            f"{len(data.weights)} for {len(corpora)}; give --train_source and --train_target, or "
            "--train_trees, once for each corpus, and one weight for each, or "
            "--set data.train_weights= for none"
        )


def pairs_of_epoch(sizes: Mapping[str, int], data: DataConfig) -> list[int | None]:
    """Return the number of pairs that an epoch draws from each corpus; None: all of them, once.

    sizes: the number of pairs of each corpus, in the order of `training_splits`. With weights an
    epoch has about as many pairs as the corpora together; extra trees come on top.

    >>> pairs_of_epoch({"train": 900, "train_2": 100}, DataConfig(train_weights="1,1"))
    [500, 500]
    >>> pairs_of_epoch({"train": 60, "extra": 9000}, DataConfig(extra_share=0.25))
    [None, 20]
    """
    own = sum(size for split, size in sizes.items() if split != "extra")
    total = sum(data.weights)
    counts: list[int | None] = [max(round(own * one / total), 1) for one in data.weights]
    counts = counts or [None for split in sizes if split != "extra"]
    if "extra" in sizes:
        wanted = round(own * data.extra_share / (1 - data.extra_share))
        counts.append(wanted if sizes["extra"] else 0)
    return counts


class Corpus(ABC):
    """The source of an experiment's text."""

    has_labels = False  # True if the target's vocabulary is not learned: the labels of trees

    @abstractmethod
    def splits(self) -> list[str]:
        """List the splits that exist: those of `training_splits`, dev, and perhaps test."""

    @abstractmethod
    def pairs(self, split: str) -> Pairs:
        """Yield (line number from 1, source, target) of every pair."""

    @abstractmethod
    def fingerprint(self, split: str, cached: dict[str, Any]) -> dict[str, Any]:
        """Return a fingerprint, equal for equal texts, with "pairs", their number or 0 if unknown.

        cached: the fingerprint of an earlier call; files of the same size and time are not read.
        """

    @abstractmethod
    def sample(self, limit: int, seed: int, sides: Sequence[str] = SIDES) -> list[str]:
        """Draw at most `limit` lines of these sides of what is trained on, for a vocabulary."""

    def scored(self, split: str) -> Iterator[tuple[str, str]]:
        """Yield (source, reference) of each pair of a split, as it is decoded and scored."""
        return ((source, target) for _, source, target in self.pairs(split))

    def labels(self) -> "Vocabulary | None":
        """Return the target's vocabulary if it is not learned: the labels of trees."""
        return None


class FileCorpus(Corpus):
    """Parallel text files, plain, .bz2, .gz or .xz; several files of a split are read in order.

    >>> FileCorpus({"train": Text(("a.en", "b.en"), ("a.de", "b.de"))}).splits()
    ['train']
    """

    def __init__(self, texts: Mapping[str, Text]) -> None:
        """Keep the files of each split, the same number for both sides."""
        self.files = {
            split: [ParallelFiles(*pair) for pair in zip(text.source, text.target, strict=True)]
            for split, text in texts.items()
        }

    def splits(self) -> list[str]:
        """List the splits that have files."""
        return list(self.files)

    def pairs(self, split: str) -> Pairs:
        """Stream the pairs; lines are counted through all files of the split."""
        both = (pair for files in self.files[split] for pair in files.pairs())
        return ((number, *pair) for number, pair in enumerate(both, start=1))

    def fingerprint(self, split: str, cached: dict[str, Any]) -> dict[str, Any]:
        """Return digests of the files. Raises InputError if the two sides differ in length."""
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


def cached_test_set(name: str, language_pair: str) -> list[str]:
    """Find a test set ("wmt14/full", "en-de") in sacreBLEU's cache: its source, its references.

    The references are those that sacreBLEU itself takes: of "wmt21/B" the second one alone. Raises
    InputError if sacreBLEU does not have them, or has not fetched them.
    """
    from sacrebleu.dataset import DATASETS  # slow to import, and seldom needed

    if name not in DATASETS:
        hint = did_you_mean(name, DATASETS)
        raise InputError(f"--test_set={name}: expected a test set of sacreBLEU, found none{hint}")
    pairs = sorted(DATASETS[name].langpairs)
    if language_pair not in pairs:
        raise InputError(
            f"--test_set={name}: expected one of its language pairs, {', '.join(pairs)}, found "
            f"{language_pair}; change data.source_language or data.target_language with --set"
        )
    # The methods of sacreBLEU's own class fetch missing files, some even to return their names.
    cache = Path(expanded(os.environ.get("SACREBLEU") or "~/.sacrebleu"))
    stem = f"{name.replace('/', '_')}.{language_pair}"
    source = cache / name / f"{stem}.src"
    # Since 2021 a file has the references of several translators; a test set has some of them.
    allowed = getattr(DATASETS[name], "_get_langpair_allowed_refs", lambda _: [])(language_pair)
    ends = [field.replace(":", "-") for field in allowed] or ["ref*"]
    references = sorted(path for end in ends for path in (cache / name).glob(f"{stem}.{end}"))
    if not source.is_file() or not references:
        raise InputError(
            f"expected {name} {language_pair} in {cache / name}, found no {stem}.src and "
            f"{stem}.ref; fetch it with: sacrebleu -t {name} -l {language_pair} --echo src"
        )
    return [str(path) for path in (source, *references)]
