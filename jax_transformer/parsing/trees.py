"""Penn Treebank trees: what one is, how it is normalized and written (§6.3).

A tree is two plain values, (label, children): the children are a tuple of trees, or, where the
label is a part-of-speech tag, the word itself. Tuples are what Python builds fastest, and they
compare and hash by what they hold. Nothing here recurses, so depth is bounded by memory alone
(but `==`, `hash` and `repr` of tuples do recurse, and give up at some thousand levels).

Space, tab and line end part tokens and nothing else does: a no-break space is part of its word.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import TypeAlias

from jax_transformer.errors import InputError

Tree: TypeAlias = tuple[str, "str | tuple[Tree, ...]"]

ROOTS = frozenset({"", "TOP", "ROOT", "S1"})
EMPTY = "-NONE-"
_TEXT = re.compile(r"[^ \t\n()]+")
_FUNCTION = re.compile(r"[-=|]")


def write_tree(tree: Tree) -> str:
    """Penn bracketing on one line; brackets in words become -LRB- and -RRB-.

    Raises InputError for what no bracketing can hold: a label or word that is empty or has a
    space in it, a bracket in a label, a constituent without children.
    """
    parts: list[str] = []
    stack: list[Tree | None] = [tree]
    while stack:
        node = stack.pop()
        if node is None:
            parts.append(")")
            continue
        label, children = node
        if parts or label or isinstance(children, str):  # the outermost may go without a label
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
    """The word as trees write it: `(` as -LRB- and `)` as -RRB-, also inside a word."""
    if "(" in word or ")" in word:
        return word.replace("(", "-LRB-").replace(")", "-RRB-")
    return word


def leaves(tree: Tree) -> list[tuple[str, str]]:
    """(tag, word) of each word, from left to right."""
    found: list[tuple[str, str]] = []
    stack = [tree]
    while stack:
        label, children = stack.pop()
        if isinstance(children, str):
            found.append((label, children))
        else:
            stack.extend(reversed(children))
    return found


def with_words(tree: Tree, words: Sequence[str]) -> Tree:
    """The tree over other words, such as those of the text before its brackets were escaped.

    Raises InputError where there are not as many words as leaves.
    """
    given = _one_a_leaf(tree, words, "words")
    return _kept(_folded(tree, lambda tag, _: (tag, next(given)), lambda *node: node))


def with_tags(tree: Tree, tags: Sequence[str]) -> Tree:
    """The tree with other tags on its words.

    Raises InputError where there are not as many tags as leaves.
    """
    given = _one_a_leaf(tree, tags, "tags")
    return _kept(_folded(tree, lambda _, word: (next(given), word), lambda *node: node))


def without_root(tree: Tree) -> Tree:
    """Without an outer bracket that is empty, TOP, ROOT or S1.

    One that holds several constituents has to stay, and is called TOP.
    """
    label, children = tree
    while label in ROOTS and not isinstance(children, str):
        if len(children) != 1:
            return "TOP", children
        label, children = children[0]
    return label, children


def with_root(tree: Tree, label: str = "TOP") -> Tree:
    """In an outer bracket, unless it has one already."""
    if tree[0] in ROOTS and not isinstance(tree[1], str):
        return label, tree[1]
    return label, (tree,)


def without_empties(tree: Tree) -> Tree | None:
    """Without -NONE- leaves and the constituents that hold nothing else; None if nothing is left.

    So a trace leaves no word that a parser could not see.
    """
    return _folded(tree, _unless_empty, _unless_childless)


def without_functions(tree: Tree) -> Tree:
    """Labels and tags by their category alone: see `category`."""
    return _kept(
        _folded(
            tree,
            lambda tag, word: (category(tag), word),
            lambda label, children: (category(label), children),
        )
    )


def without_repeats(tree: Tree) -> Tree:
    """Each constituent whose only child is a constituent of its own label, joined with it."""
    return _kept(_folded(tree, lambda *leaf: leaf, _joined))


@lru_cache(maxsize=4096)
def category(label: str) -> str:
    """NP of NP-SBJ-1 and of NP=2, S of S-TTL-3-FRM, ADVP of ADVP|PRT.

    What begins with a hyphen is a name of its own, such as -LRB- and -NONE-, and so are the tags
    of one of these signs.
    """
    if label.startswith("-"):
        return label
    found = _FUNCTION.search(label, 1)
    return label[: found.start()] if found else label


def normalize(tree: Tree) -> Tree | None:
    """What parsers are trained and scored on; None if the tree has no words.

    `without_empties`, `without_functions`, `without_repeats` and `without_root`, in one pass over
    the tree.
    """
    kept = _folded(tree, _normal_leaf, _normal_constituent)
    return None if kept is None else without_root(kept)


Leaf: TypeAlias = Callable[[str, str], Tree | None]
Constituent: TypeAlias = Callable[[str, tuple[Tree, ...]], Tree | None]


def _folded(tree: Tree, leaf: Leaf, constituent: Constituent) -> Tree | None:
    """The tree rebuilt from its leaves up; None where a function gives none for the root."""
    order, stack = [], [tree]
    while stack:
        node = stack.pop()
        order.append(node)
        if not isinstance(node[1], str):
            stack.extend(node[1])
    # Each node came before its children, and those from right to left: backwards, it is children
    # from left to right, and then their parent.
    built: list[Tree | None] = []
    for label, children in reversed(order):
        if isinstance(children, str):
            built.append(leaf(label, children))
        else:
            start = len(built) - len(children)
            kept = tuple([child for child in built[start:] if child is not None])
            del built[start:]
            built.append(constituent(label, kept))
    return built[0]


def _one_a_leaf(tree: Tree, given: Sequence[str], what: str) -> Iterator[str]:
    count = len(leaves(tree))
    if count != len(given):
        raise InputError(f"expected {count} {what}, one a leaf, found {len(given)}")
    return iter(given)


def _kept(tree: Tree | None) -> Tree:
    assert tree is not None
    return tree


def _unless_empty(tag: str, word: str) -> Tree | None:
    return None if tag == EMPTY else (tag, word)


def _unless_childless(label: str, children: tuple[Tree, ...]) -> Tree | None:
    return (label, children) if children else None


def _joined(label: str, children: tuple[Tree, ...]) -> Tree:
    if len(children) == 1 and children[0][0] == label and not isinstance(children[0][1], str):
        return children[0]
    return label, children


def _normal_leaf(tag: str, word: str) -> Tree | None:
    return None if tag == EMPTY else (category(tag), word)


def _normal_constituent(label: str, children: tuple[Tree, ...]) -> Tree | None:
    return _joined(category(label), children) if children else None


@lru_cache(maxsize=4096)
def _check_text(text: str, what: str) -> None:
    if not _TEXT.fullmatch(text):
        raise InputError(
            f"expected a {what} without spaces and brackets, found {text!r}; a bracketing "
            "cannot hold it"
        )
