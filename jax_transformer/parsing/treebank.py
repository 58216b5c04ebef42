"""§6.3 Treebanks: files of bracketed trees, and the corpus of (words, linearized tree) pairs."""

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

import msgspec

from jax_transformer.data.datasets import Corpus, Pairs
from jax_transformer.data.text import file_fingerprint, listed_paths, read_lines, sample_lines
from jax_transformer.errors import InputError
from jax_transformer.files import read_json, write_json
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
    """The content of symbols.json: a LabelVocabulary with a digest."""

    digest: str
    root: str | None
    symbols: list[str]


def load_labels(path: str | Path) -> LabelVocabulary:
    """Read the file that `save_labels` wrote.

    Raises InputError if the file is missing or damaged.
    """
    remedy = "restore the file, or train anew"
    content = read_json(Path(path), _LabelsFile, remedy)
    if content is None:
        raise InputError(f"{path}: expected a parser's label vocabulary, found none; {remedy}")
    labels = LabelVocabulary(content.symbols, content.root)
    if labels.fingerprint != content.digest:
        raise InputError(f"{path}: expected it as it was written, found another checksum; {remedy}")
    return labels


def save_labels(path: Path, labels: LabelVocabulary) -> None:
    """Write the vocabulary as JSON, whole or not at all."""
    write_json(path, _LabelsFile(labels.fingerprint, labels.root, labels.names))


class TreebankCorpus(Corpus):
    """Files or folders of bracketed trees for each split, and extra trees to train on."""

    def __init__(self, paths: dict[str, list[str]]) -> None:
        """Keep the paths of "train" and "dev", perhaps of "test", and perhaps of "extra" trees."""
        self.paths = paths

    def splits(self) -> list[str]:
        """List the splits that have files."""
        return [split for split in self.paths if split != "extra"]

    def trees(self, split: str) -> Iterator[Tree]:
        """Stream the trees as they are in the files."""
        return chain.from_iterable(map(read_trees, self.paths[split]))

    def pairs(self, split: str, start: int = 0) -> Pairs:
        """Yield (number, words, symbols) of normalized trees, both "" for a tree without words.

        The extra trees follow those of train; their numbers are -1, -2, ...
        """
        numbered: Iterable[tuple[int, Tree]] = enumerate(self.trees(split), start=1)
        if split == "train" and "extra" in self.paths:
            extra = ((-number, tree) for number, tree in enumerate(self.trees("extra"), start=1))
            numbered = chain(numbered, extra)
        for number, tree in islice(numbered, start, None):
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
                f"{part} {place}.{number}": file
                for part in (["train", "extra"] if split == "train" else [split])
                for place, path in enumerate(self.paths.get(part, []), start=1)
                for number, file in enumerate(treebank_files(path), start=1)
            }
        except InputError:
            if cached:  # the files were moved or deleted: their tokens are enough
                return cached
            raise
        found = {k: file_fingerprint(str(file), cached.get(k, {})) for k, file in files.items()}
        return {**found, "pairs": 0}  # counting them would take as long as encoding them

    def sample(self, limit: int, seed: int) -> list[str]:
        """Draw the words of `limit` trees, one line each, uniformly from train and extra."""
        return sample_lines((words for _, words, _ in self.pairs("train")), limit, seed)

    def target_vocabulary(self, path: Path, *, learn: bool) -> LabelVocabulary:
        """Return the labels of train without the extra trees: machine-made trees add no labels."""
        if learn:
            save_labels(path, LabelVocabulary.from_trees(self.trees("train")))
        return load_labels(path)


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
