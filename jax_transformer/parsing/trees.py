"""§6.3 Penn Treebank trees as plain tuples: normalizing them, changing leaves, writing them.

A tree is (label, children): the children are a tuple of trees or, if the label is a part-of-speech
tag, the word. Nothing here recurses, so depth is limited by memory alone (but `==`, `hash` and
`repr` of tuples recurse, and fail at some thousand levels).

Only space, tab and line end separate tokens: a no-break space is part of its word.
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

    Raises InputError for what no bracketing can express: an empty label or word, one with a
    space, a bracket in a label, a constituent without children.

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
    """The word as trees write it: with -LRB- for `(` and -RRB- for `)`."""
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
    """The tree with other words, such as those of the text before brackets were escaped.

    Raises InputError where the number of words is not that of the leaves.
    """
    given = _one_per_leaf(tree, words, "words")
    return _not_none(_map_tree(tree, lambda tag, _: (tag, next(given)), lambda *node: node))


def with_tags(tree: Tree, tags: Sequence[str]) -> Tree:
    """The tree with other part-of-speech tags.

    Raises InputError where the number of tags is not that of the leaves.
    """
    given = _one_per_leaf(tree, tags, "tags")
    return _not_none(_map_tree(tree, lambda _, word: (next(given), word), lambda *node: node))


def without_root(tree: Tree) -> Tree:
    """Without an outer bracket labelled "", TOP, ROOT or S1.

    One that contains several constituents stays, labelled TOP.
    """
    label, children = tree
    while label in ROOTS and not isinstance(children, str):
        if len(children) != 1:
            return "TOP", children
        label, children = children[0]
    return label, children


def with_root(tree: Tree, label: str = "TOP") -> Tree:
    """In an outer bracket with this label, which replaces one that is there already."""
    if tree[0] in ROOTS and not isinstance(tree[1], str):
        return label, tree[1]
    return label, (tree,)


def without_empties(tree: Tree) -> Tree | None:
    """Without -NONE- leaves and constituents of nothing else; None if nothing is left.

    A trace is no word of the text, so a parser cannot see it.
    """
    return _map_tree(tree, _drop_empty, _drop_childless)


def without_functions(tree: Tree) -> Tree:
    """With the `category` of each label and tag."""
    return _not_none(
        _map_tree(
            tree,
            lambda tag, word: (category(tag), word),
            lambda label, children: (category(label), children),
        )
    )


def without_repeats(tree: Tree) -> Tree:
    """With each constituent merged with its only child, if that has the same label."""
    return _not_none(_map_tree(tree, lambda *leaf: leaf, _merge_repeat))


@lru_cache(maxsize=4096)
def category(label: str) -> str:
    """The label without functions: NP of NP-SBJ-1 and NP=2, ADVP of ADVP|PRT.

    A label that begins with a hyphen, such as -LRB-, or that is one of `-=|`, stays.
    """
    if label.startswith("-"):
        return label
    found = _FUNCTION.search(label, 1)
    return label[: found.start()] if found else label


def normalize(tree: Tree) -> Tree | None:
    """The tree that parsers are trained and scored on; None if it has no words.

    `without_empties`, `without_functions`, `without_repeats` and `without_root` in one pass.
    """
    normal = _map_tree(tree, _normal_leaf, _normal_constituent)
    return None if normal is None else without_root(normal)


Leaf: TypeAlias = Callable[[str, str], Tree | None]
Constituent: TypeAlias = Callable[[str, tuple[Tree, ...]], Tree | None]


def _map_tree(tree: Tree, leaf: Leaf, constituent: Constituent) -> Tree | None:
    """The tree rebuilt bottom-up, without nodes for which a function returns None."""
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
            built.append(constituent(label, rest))
    return built[0]


def _one_per_leaf(tree: Tree, given: Sequence[str], what: str) -> Iterator[str]:
    count = len(leaves(tree))
    if count != len(given):
        raise InputError(f"expected {count} {what}, one per leaf, found {len(given)}")
    return iter(given)


def _not_none(tree: Tree | None) -> Tree:
    assert tree is not None
    return tree


def _drop_empty(tag: str, word: str) -> Tree | None:
    return None if tag == EMPTY else (tag, word)


def _drop_childless(label: str, children: tuple[Tree, ...]) -> Tree | None:
    return (label, children) if children else None


def _merge_repeat(label: str, children: tuple[Tree, ...]) -> Tree:
    if len(children) == 1 and children[0][0] == label and not isinstance(children[0][1], str):
        return children[0]
    return label, children


def _normal_leaf(tag: str, word: str) -> Tree | None:
    return None if tag == EMPTY else (category(tag), word)


def _normal_constituent(label: str, children: tuple[Tree, ...]) -> Tree | None:
    return _merge_repeat(category(label), children) if children else None


@lru_cache(maxsize=4096)
def _check_text(text: str, what: str) -> None:
    if not _TEXT.fullmatch(text):
        raise InputError(
            f"expected a {what} without spaces and brackets, found {text!r}; a bracketing "
            "cannot express it"
        )
