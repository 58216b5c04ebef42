"""§6.3 Penn Treebank trees as plain tuples: normalizing them and writing them.

A tree is (label, children): the children are a tuple of trees or, if the label is a part-of-speech
tag, the word. Nothing here recurses, so depth is limited by memory alone (but `==`, `hash` and
`repr` of tuples recurse, and fail at some thousand levels).

Only ASCII white space separates tokens, as in EVALB: a no-break space is part of its word.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import TypeAlias

from jax_transformer.errors import InputError

Tree: TypeAlias = tuple[str, "str | tuple[Tree, ...]"]

ROOTS = frozenset({"", "TOP", "ROOT", "S1", "VROOT"})
EMPTY = "-NONE-"
_TEXT = re.compile(r"[^\s()]+", re.ASCII)
_FUNCTION = re.compile(r"[-=|]|##")


def write_tree(tree: Tree) -> str:
    """Write a tree as Penn bracketing on one line; brackets in words become -LRB- and -RRB-.

    Raises InputError for what a bracketing cannot express, such as an empty label or word.

    >>> write_tree(("S", (("NP", (("PRP", "She"),)), ("VP", (("VBZ", "sleeps"),)))))
    '(S (NP (PRP She)) (VP (VBZ sleeps)))'
    """
    parts: list[str] = []
    stack: list[Tree | None] = [tree]
    while stack:
        node = stack.pop()
        if node is None:
            parts.append(")")
            continue
        label, children = node
        if parts or label or isinstance(children, str):  # only the outermost may have no label
            _check_text(label, "label")
        if isinstance(children, str):
            word = escaped(children)
            _check_text(word, "word")
            parts.append(f" ({label} {word})")
        elif children:
            parts.append(f" ({label}")
            stack.append(None)
            stack.extend(reversed(children))
        else:
            raise InputError(f"expected children in each constituent, found none in {label!r}")
    return "".join(parts)[1:]


def escaped(word: str) -> str:
    """Return the word as trees write it: with -LRB- for `(` and -RRB- for `)`."""
    return word.replace("(", "-LRB-").replace(")", "-RRB-")


def leaves(tree: Tree) -> list[tuple[str, str]]:
    """Return (tag, word) of each word, from left to right."""
    found: list[tuple[str, str]] = []
    stack = [tree]
    while stack:
        label, children = stack.pop()
        if isinstance(children, str):
            found.append((label, children))
        else:
            stack.extend(children[::-1])
    return found


def without_root(tree: Tree) -> Tree:
    """Return the tree without an outer bracket labelled "", TOP, ROOT, S1 or VROOT.

    A bracket that contains several constituents stays, labelled TOP.
    """
    label, children = tree
    while label in ROOTS and not isinstance(children, str):
        if len(children) != 1:
            return "TOP", children
        label, children = children[0]
    return label, children


def with_root(tree: Tree, label: str = "TOP") -> tuple[str, tuple[Tree, ...]]:
    """Put the tree in an outer bracket with this label, which replaces one already there."""
    if tree[0] in ROOTS and not isinstance(tree[1], str):
        return label, tree[1]
    return label, (tree,)


@lru_cache(maxsize=4096)
def category(label: str) -> str:
    """Return the label without functions: NP for NP-SBJ-1 and NP=2, ADVP for ADVP|PRT.

    NP##case=gen## is NP, too. A label that begins with a hyphen, such as -LRB-, or that is one of
    `-=|`, stays.
    """
    if label.startswith("-"):
        return label
    found = _FUNCTION.search(label, 1)
    return label[: found.start()] if found else label


def normalize(tree: Tree) -> Tree | None:
    """Return the tree that parsers are trained and scored on; None if it has no words.

    Leaves tagged -NONE- or -NONE-X, which are traces, and constituents of nothing else are removed;
    labels and tags become their `category`; a constituent whose only child has the same label is
    merged with it; and the outer bracket is removed.
    """
    normal = map_tree(tree, _normal_leaf, _normal_constituent)
    return None if normal is None else without_root(normal)


def map_tree(
    tree: Tree,
    leaf: Callable[[str, str], Tree | None],
    constituent: Callable[[str, tuple[Tree, ...]], Tree] = lambda *node: node,
) -> Tree | None:
    """Rebuild the tree bottom-up by a function of its leaves, and one of its constituents.

    A leaf that becomes None is removed, and so is a constituent of nothing else.
    """
    order, stack = [], [tree]
    while stack:
        node = stack.pop()
        order.append(node)
        if not isinstance(node[1], str):
            stack.extend(node[1])
    # `order` has each node before its children, and these from right to left. Reversed, it has
    # the children from left to right and then their parent.
    built: list[Tree | None] = []
    for label, children in reversed(order):
        if isinstance(children, str):
            built.append(leaf(label, children))
        else:
            start = len(built) - len(children)
            rest = tuple([child for child in built[start:] if child is not None])
            del built[start:]
            built.append(constituent(label, rest) if rest else None)
    return built[0]


def _normal_leaf(tag: str, word: str) -> Tree | None:
    return None if tag.startswith(EMPTY) else (category(tag), word)


def _normal_constituent(label: str, children: tuple[Tree, ...]) -> Tree:
    label = category(label)
    if len(children) == 1 and children[0][0] == label and not isinstance(children[0][1], str):
        return children[0]
    return label, children


@lru_cache(maxsize=4096)
def _check_text(text: str, what: str) -> None:
    if not _TEXT.fullmatch(text):
        raise InputError(
            f"expected a {what} without spaces and brackets, found {text!r}; a bracketing "
            "cannot express it"
        )
