"""Treebanks on disk: files of Penn bracketings, and folders of them as LDC lays them out (§6.3)."""

import gc
from collections.abc import Iterator
from pathlib import Path

from jax_transformer.data.text import read_lines
from jax_transformer.errors import InputError
from jax_transformer.parsing.ptb import parse_trees
from jax_transformer.parsing.trees import Tree, without_root


def read_trees(path: str | Path, *, keep_root: bool = False) -> Iterator[Tree]:
    """The trees of a file or of all files in a folder, streamed; plain, .gz or .xz.

    Outer brackets (empty, TOP, ROOT, S1) are taken off unless `keep_root`;
    `trees.with_root` puts them back.

    Raises:
      InputError: there are no trees, a file cannot be read, or a bracketing is malformed; the
        message names file, line and column.
    """
    found = False
    for file in treebank_files(path):
        for tree in parse_trees(read_lines(file), str(file)):
            found = True
            yield tree if keep_root else without_root(tree)
    if not found:
        raise InputError(f"expected trees in {path}, found blank lines alone; give another file")


def load_trees(path: str | Path, *, keep_root: bool = False) -> list[Tree]:
    """All that `read_trees` yields, held in memory.

    Several times as fast as a list of it: the collector of cyclic garbage, which walks over all
    that is held again and again, rests meanwhile. Trees have no cycles.

    Raises InputError as `read_trees` does.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        return list(read_trees(path, keep_root=keep_root))
    finally:
        if collecting:
            gc.enable()


def treebank_files(path: str | Path) -> list[Path]:
    """The file itself; of a folder all files in it and below, sorted by path.

    If some have .mrg in their names, as LDC's wsj_0001.mrg, only those: what lies beside them is
    documentation. Hidden files are no trees.

    Raises InputError where a folder has no files.
    """
    path = Path(path)
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
