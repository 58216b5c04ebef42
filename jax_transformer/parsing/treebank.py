"""§6.3 Treebanks: files of bracketed trees, and the corpus of (words, linearized tree) pairs."""

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec

from jax_transformer.data.corpora import training_splits
from jax_transformer.data.datasets import Corpus, Pairs
from jax_transformer.data.text import file_fingerprint, listed_paths, read_lines, sample_lines
from jax_transformer.errors import InputError
from jax_transformer.files import lines_of_json, parse_json
from jax_transformer.parsing.labels import LabelVocabulary
from jax_transformer.parsing.linearize import linearize
from jax_transformer.parsing.ptb import parse_trees
from jax_transformer.parsing.trees import (
    Tree,
    escaped,
    leaves,
    normalize,
    write_tree,
)

# Sections of the Wall Street Journal (§6.3).
SECTIONS = {"train": range(2, 22), "dev": range(22, 23), "test": range(23, 24)}
_SUBFOLDERS = ("", "wsj", "parsed/mrg/wsj", "mrg/wsj", "combined/wsj", "treebank_3/parsed/mrg/wsj")


def read_trees(path: str | Path) -> Iterator[Tree]:
    """Stream the trees of a file, or of all files in a folder in LDC's layout; plain, .gz or .xz.

    They are as in the files: `normalize` removes outer brackets.

    Raises InputError if a tree cannot be found, a file cannot be read, or a bracketing is
    malformed; the message names file, line and column.
    """
    found = False
    for file in treebank_files(path):
        for tree in parse_trees(read_lines(file), str(file)):
            found = True
            yield tree
    if not found:
        raise InputError(f"expected trees in {path}, found only blank lines; give another file")


def treebank_files(path: str | Path) -> list[Path]:
    """List the file itself, or all files below a folder, sorted by path, without hidden files.

    If some have .mrg in their names, such as LDC's wsj_0001.mrg, only these are listed: the others
    are documentation.

    Raises InputError if a folder has no files, or the path does not exist.
    """
    path = Path(path)
    if not path.exists():
        raise InputError(f"expected a file at {path}, found nothing; check the path")
    if not path.is_dir():
        return [path]
    files = [
        file
        for file in sorted(path.rglob("*"))
        if file.is_file() and not any(part.startswith(".") for part in file.relative_to(path).parts)
    ]
    if not files:
        raise InputError(f"expected files of trees in {path}, found none; give another folder")
    return [file for file in files if ".mrg" in file.suffixes] or files


class _LabelsFile(msgspec.Struct):
    """The content of symbols.json: a LabelVocabulary."""

    root: str | None
    symbols: list[str]


def read_labels(content: bytes) -> LabelVocabulary:
    """Return the vocabulary that `labels_content` wrote. Raises InputError for anything else."""
    try:
        labels = parse_json(content, _LabelsFile)
    except ValueError as error:
        raise InputError(
            f"expected a parser's label vocabulary, found: {error}; train anew"
        ) from None
    return LabelVocabulary(labels.symbols, labels.root)


def labels_content(labels: LabelVocabulary) -> bytes:
    """Return the vocabulary as JSON, the content of symbols.json."""
    return lines_of_json(_LabelsFile(labels.root, labels.names))


class TreebankCorpus(Corpus):
    """Files or folders of bracketed trees for each split, and extra trees to train on."""

    def __init__(self, paths: dict[str, list[str]]) -> None:
        """Keep the paths of "train" and "dev", perhaps of "test", "train_2", "extra" and so on."""
        self.paths = paths

    def splits(self) -> list[str]:
        """List the splits that have files."""
        return list(self.paths)

    def trees(self, split: str) -> Iterator[Tree]:
        """Stream the trees as they are in the files."""
        return chain.from_iterable(map(read_trees, self.paths[split]))

    def pairs(self, split: str) -> Pairs:
        """Yield (number, words, symbols) of normalized trees, both "" for a tree without words."""
        for number, tree in enumerate(self.trees(split), start=1):
            normal = normalize(tree)
            yield number, _words(normal), " ".join(linearize(normal)) if normal else ""

    def scored(self, split: str) -> Iterator[tuple[str, str]]:
        """Yield (words, tree), the tree as in the file: EVALB drops the parts that do not count."""
        for tree in self.trees(split):
            yield _words(normalize(tree)), write_tree(tree)

    def fingerprint(self, split: str, cached: dict[str, Any]) -> dict[str, Any]:
        """Return digests of the files; a file whose size and time are cached is not read again."""
        try:
            files = {
                f"{place}.{number}": file
                for place, path in enumerate(self.paths[split], start=1)
                for number, file in enumerate(treebank_files(path), start=1)
            }
        except InputError:
            if cached:  # the files were moved or deleted: their tokens are enough
                return cached
            raise
        found = {k: file_fingerprint(str(file), cached.get(k, {})) for k, file in files.items()}
        return {**found, "pairs": 0}  # counting them would take as long as encoding them

    def sample(self, limit: int, seed: int, sides: Sequence[str] = ("source",)) -> list[str]:
        """Draw the words of `limit` trees, one line each, uniformly from all to train on."""
        del sides  # labels are not learned from a sample
        pairs = chain.from_iterable(map(self.pairs, training_splits(self.paths)))
        return sample_lines((words for _, words, _ in pairs), limit, seed)

    def target_vocabulary(self, content: bytes | None) -> tuple[LabelVocabulary, bytes]:
        """Return the labels of train without the extra trees: machine-made trees add no labels."""
        if content is None:
            own = [split for split in training_splits(self.paths) if split != "extra"]
            trees = chain.from_iterable(map(self.trees, own))
            content = labels_content(LabelVocabulary.from_trees(trees))
        return read_labels(content), content


def own_trees(files: dict[str, str]) -> dict[str, list[str]]:
    """Return the paths of each split from "train_trees" and so on, separated there by commas."""
    return {
        name.removesuffix("_trees"): listed_paths(value)
        for name, value in files.items()
        if name.endswith("_trees")
    }


def wall_street_journal(treebank_dir: str) -> dict[str, list[str]]:
    """Return the folders of sections 2-21, 22 and 23 of the Penn Treebank in LDC's layout.

    Raises InputError if they are not found.
    """
    candidates = [Path(treebank_dir) / name for name in _SUBFOLDERS]
    folder = next((path for path in candidates if (path / "23").is_dir()), None)
    if folder is None:
        raise InputError(
            f"--treebank_dir={treebank_dir}: expected the Penn Treebank's folders 02 to 23, found "
            "none there, nor in wsj, parsed/mrg/wsj or combined/wsj; give the folder that holds "
            "them"
        )
    return {
        split: [str(folder / f"{section:02d}") for section in sections]
        for split, sections in SECTIONS.items()
    }


def _words(tree: Tree | None) -> str:
    return " ".join(escaped(word) for _, word in leaves(tree)) if tree else ""
