"""§6.3 Treebanks: files of bracketed trees, and the corpus of (words, linearized tree) pairs."""

import logging
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jax_transformer.data.sources import Corpus, Pairs, training_splits
from jax_transformer.data.text import file_fingerprint, read_lines, sample_lines
from jax_transformer.data.urls import absolute
from jax_transformer.errors import InputError, warn_once
from jax_transformer.files import check_utf8
from jax_transformer.parsing.linearize import is_tag, linearize
from jax_transformer.parsing.ptb import COMMENT, Oddities, parse_trees
from jax_transformer.parsing.trees import ROOTS, Tree, escaped, leaves, normalize, write_tree

if TYPE_CHECKING:
    from jax_transformer.data.vocabularies.labels import LabelVocabulary

logger = logging.getLogger(__name__)

# Sections of the Wall Street Journal (§6.3).
SECTIONS = {"train": range(2, 22), "dev": range(22, 23), "test": range(23, 24)}
_SUBFOLDERS = ("wsj", "parsed/mrg/wsj", "mrg/wsj", "combined/wsj", "treebank_3/parsed/mrg/wsj")

# LDC's names, also packed, or as text; not wsj_0001.mrg.bak.
_NAMED = re.compile(r"(?i).*\.mrg(?:\.txt)?(?:\.bz2|\.gz|\.xz)?")
_DOCUMENT = re.compile(r"(?i)(?:readme|licen[cs]e|copying|copyright).*|.*\.(?:log|md|pdf|html?)")


def read_trees(*paths: str | Path) -> Iterator[Tree]:
    """Stream the trees of files, or of folders in LDC's layout; plain, .bz2, .gz or .xz.

    They are as in the files, with outer brackets. One warning counts the `Oddities`.

    Raises InputError for a file without trees and, with the line, for malformed ones.
    """
    odd = Oddities()
    for path in paths:
        found = False
        for file in treebank_files(path):
            for tree in parse_trees(read_lines(file), str(file), odd=odd):
                found = True
                yield tree
        if not found:
            other = "only what stands beside trees" if odd.left_out else "only blank lines"
            raise InputError(f"expected trees in {path}, found {other}; give another file")
    if message := odd.describe():
        more = f" and {len(paths) - 1} more" if paths[1:] else ""
        warn_once(logger, f"{paths[0]}{more}: {message}; see docs/parsing.md")


def treebank_files(path: str | Path) -> list[Path]:
    """List the file itself, or the files of trees below a folder, sorted by path.

    If some have .mrg in their names, such as LDC's wsj_0001.mrg, only these are listed, with a
    warning if others begin with a tree; else those that begin with a tree, with a warning if there
    are others; or all, if none does. Hidden files and documentation are left out.

    Raises InputError if there are none.
    """
    path = Path(path)
    if not path.exists():
        raise InputError(f"expected a file at {path}, found nothing; check the path")
    if not path.is_dir():
        return [path]
    files = sorted(_files_below(path))
    named = [file for file in files if _NAMED.fullmatch(file.name)]
    others = [f for f in files if f not in {*named} and not _DOCUMENT.fullmatch(f.name)]
    begun = [file for file in others if _begins_with_a_tree(file)]
    chosen = named or begun or others  # without any, reading them says what is there instead
    if not chosen:
        found = f"only {files[0].name}" if files else "none"
        raise InputError(f"expected files of trees in {path}, found {found}; give another folder")
    for file in chosen:
        check_utf8(file)
    if left := [file for file in (begun if named else others) if file not in {*chosen}]:
        why = "without .mrg in their names" if named else "which do not begin with a tree"
        count = f"{len(left):,} of {len(files):,} files"
        warn_once(logger, f"{path}: left out {count}, {why}: {left[0]} ...")
    return chosen


def _files_below(path: Path) -> Iterator[Path]:
    """Yield all files but hidden ones, also behind links, each folder once."""
    visited = set[str]()

    def unreadable(error: OSError) -> None:
        raise error

    for folder, below, names in os.walk(path, onerror=unreadable, followlinks=True):
        below[:] = [name for name in below if not name.startswith(".")]
        if (real := os.path.realpath(folder)) in visited:
            below.clear()
        else:
            visited.add(real)
            yield from (Path(folder, name) for name in names if not name.startswith("."))


def _begins_with_a_tree(file: Path) -> bool:
    """Return True also for a file that cannot be read: reading it all will raise the error."""
    try:
        lines = (line.lstrip() for line in read_lines(file) if not COMMENT.match(line))
        return next(filter(None, lines), "").startswith("(")
    except InputError:
        return True


def label_vocabulary(trees: Iterable[Tree]) -> "LabelVocabulary":
    """Return the symbols of the normalized trees, most frequent first, and the commonest root."""
    from jax_transformer.data.vocabularies.labels import LabelVocabulary  # it imports NumPy

    counts: Counter[str] = Counter()
    roots: Counter[str | None] = Counter()
    for tree in trees:
        if normal := normalize(tree):
            counts.update(linearize(normal))
            roots[tree[0] if tree[0] in ROOTS else None] += 1
    if all(map(is_tag, counts)):
        raise InputError(
            "expected trees with constituents over their words to train on, found none; give "
            "other files"
        )
    ranked = sorted(counts, key=lambda symbol: (-counts[symbol], symbol))
    return LabelVocabulary.make(ranked, roots.most_common(1)[0][0])


class TreebankCorpus(Corpus):
    """Files or folders of bracketed trees for each split, and extra trees to train on."""

    has_labels = True

    def __init__(self, paths: dict[str, list[str]]) -> None:
        """Keep the paths of "train" and "dev", perhaps of "test", "train_2", "extra" and so on."""
        self.paths = paths

    def splits(self) -> list[str]:
        """List the splits that have files."""
        return list(self.paths)

    def trees(self, split: str) -> Iterator[Tree]:
        """Stream the trees as they are in the files."""
        return read_trees(*self.paths[split])

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
        files = dict[str, Path]()
        for place, path in enumerate(self.paths[split], start=1):
            try:
                own = treebank_files(path)
            except InputError:
                # Files that were moved or deleted: their tokens are enough.
                before = [Path(v["path"]) for k, v in cached.items() if k.startswith(f"{place}.")]
                own = [file for file in before if file.is_relative_to(absolute(path))]
                if not own:
                    raise
            files |= {f"{place}.{number}": file for number, file in enumerate(own, start=1)}
        found = {k: file_fingerprint(str(file), cached.get(k, {})) for k, file in files.items()}
        return {**found, "pairs": 0}  # counting them would take as long as encoding them

    def sample(self, limit: int, seed: int, sides: Sequence[str] = ("source",)) -> list[str]:
        """Draw the words of `limit` trees, one line each, uniformly from all to train on."""
        del sides  # labels are not learned from a sample
        pairs = chain.from_iterable(map(self.pairs, training_splits(self.paths)))
        return sample_lines((words for _, words, _ in pairs), limit, seed)

    def labels(self) -> "LabelVocabulary":
        """Return the labels of train without the extra trees: machine-made trees add no labels."""
        own = [split for split in training_splits(self.paths) if split != "extra"]
        return label_vocabulary(chain.from_iterable(map(self.trees, own)))


def wall_street_journal(treebank_dir: str) -> dict[str, list[str]]:
    """Return the folders of sections 2-21, 22 and 23 of the Penn Treebank in LDC's layout."""
    root = Path(treebank_dir)
    patterns = [re.sub("[a-z]", lambda m: f"[{m[0]}{m[0].upper()}]", name) for name in _SUBFOLDERS]
    candidates = [root, *(path for pattern in patterns for path in sorted(root.glob(pattern)))]
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
