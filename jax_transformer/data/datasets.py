"""The corpora of experiments: parallel files of one's own, and the built-in demo (§5.1)."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from itertools import islice
from typing import Any

from jax_transformer.data.text import ParallelFiles, file_identity, listed_paths, sample_lines
from jax_transformer.demo import sentences as demo_corpus
from jax_transformer.errors import InputError

Pairs = Iterator[tuple[int, str, str]]
SIDES = ("source", "target")


class Corpus(ABC):
    """Where the text of an experiment comes from."""

    @abstractmethod
    def splits(self) -> list[str]:
        """train, dev, and test where there is one."""

    @abstractmethod
    def pairs(self, split: str, start: int = 0) -> Pairs:
        """(line from 1, source, target), without the first `start`."""

    @abstractmethod
    def identity(self, split: str, known: dict[str, Any]) -> dict[str, Any]:
        """Equal if and only if the split's text is; `known` is the last one, to save reading.

        `pairs` in it is how many there are.
        """

    @abstractmethod
    def sample(self, limit: int, seed: int) -> list[str]:
        """Lines of train, to learn a vocabulary from."""

    def scored(self, split: str) -> Iterator[tuple[str, str]]:
        """(source, reference) of each pair of a split, as it is decoded and scored."""
        return ((source, target) for _, source, target in self.pairs(split))


class FileCorpus(Corpus):
    """Parallel text files, plain, .gz or .xz; several of a split are read one after another."""

    def __init__(self, files: dict[str, str]) -> None:
        """files: "train_source" -> path, or paths with commas between them; and so on.

        Raises InputError where a side has more files than the other.
        """
        self.files = {
            split: _paired(split, files)
            for split in ("train", "dev", "test")
            if f"{split}_source" in files
        }

    def splits(self) -> list[str]:
        """Those that were given."""
        return list(self.files)

    def pairs(self, split: str, start: int = 0) -> Pairs:
        """Streamed; lines are counted through all files of the split."""
        both = ((s, t) for files in self.files[split] for _, s, t in files.pairs())
        numbered = ((number, s, t) for number, (s, t) in enumerate(both, start=1))
        return islice(numbered, start, None)

    def identity(self, split: str, known: dict[str, Any]) -> dict[str, Any]:
        """Digests of the files; a file of known size and time is not read again.

        Raises InputError where new files do not fit together.
        """
        identity: dict[str, Any] = {}
        for number, files in enumerate(self.files[split], start=1):
            for side, path in (("source", files.source), ("target", files.target)):
                key = side if number == 1 else f"{side} {number}"
                identity[key] = file_identity(path, known.get(key, {}))
        if identity == {key: known[key] for key in known if key != "pairs"}:
            return known
        return {**identity, "pairs": sum(files.check() for files in self.files[split])}

    def sample(self, limit: int, seed: int) -> list[str]:
        """A seeded uniform sample over all files of both sides."""
        train = self.files["train"]
        paths = [files.source for files in train] + [files.target for files in train]
        return sample_lines(paths, limit, seed)


class DemoCorpus(Corpus):
    """The built-in English-German grammar. Its text does not depend on the run's seed."""

    def __init__(self) -> None:
        """Nothing is generated before it is asked for."""
        self._splits: demo_corpus.Splits | None = None

    def splits(self) -> list[str]:
        """All three."""
        return ["train", "dev", "test"]

    def pairs(self, split: str, start: int = 0) -> Pairs:
        """Generated from the grammar."""
        self._splits = self._splits or demo_corpus.splits()
        examples = enumerate(getattr(self._splits, split), start=1)
        for number, example in islice(examples, start, None):
            yield number, example.english, example.german

    def identity(self, split: str, known: dict[str, Any]) -> dict[str, Any]:
        """A digest of the generated text."""
        digest, count = hashlib.blake2b(digest_size=16), 0
        for _, source, target in self.pairs(split):
            digest.update(f"{source}\n{target}\n".encode())
            count += 1
        return {"demo": digest.hexdigest(), "pairs": count}

    def sample(self, limit: int, seed: int) -> list[str]:
        """The first `limit` lines."""
        return [line for _, *sides in self.pairs("train") for line in sides][:limit]


def _paired(split: str, files: dict[str, str]) -> list[ParallelFiles]:
    sources, targets = (listed_paths(files[f"{split}_{side}"]) for side in SIDES)
    if len(sources) != len(targets):
        raise InputError(
            f"{split}: expected a target file for each source file, found {len(sources)} in "
            f"--{split}_source and {len(targets)} in --{split}_target; give as many of each, in "
            "the same order"
        )
    return [ParallelFiles(*pair) for pair in zip(sources, targets, strict=True)]
