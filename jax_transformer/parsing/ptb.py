"""§6.3 A fast reader of Penn bracketings, with errors that name line and column.

Only space, tab and line end separate tokens: a no-break space is part of its word.
"""

import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator

from jax_transformer.errors import InputError, warn_once
from jax_transformer.parsing.trees import Tree

logger = logging.getLogger(__name__)

# More lines than any tree has: a bracket that is never closed must not read a whole corpus.
_LONGEST = 20_000

_TEXT = r"[^ \t\n()]"
_SPACE = r"[ \t\n]"
# Events are leaves (tag, word, ""), openings (label, "", ""), and ("", "", other) for closings,
# openings without a label, and misplaced text.
_EVENTS = re.compile(rf"\(({_TEXT}++)(?:{_SPACE}++({_TEXT}++){_SPACE}*+\))?|([()]|{_TEXT}++)")

# Comments, the licence at the head of LDC's files, markup, and the ends of texts in ATIS.
_COMMENT = re.compile(r"[ \t]*(?:;|#|%%|\*x\*|<[^()]*$|\( *END_OF_TEXT_UNIT *\)[ \t]*$)")
_OUTERMOST = frozenset({"TOP", "ROOT", "S1", "VROOT"})


def parse_trees(
    lines: Iterable[str], name: str, start: int = 1, left_out: Counter[str] | None = None
) -> Iterator[Tree]:
    """Stream the trees of a bracketing as written, with their outer brackets.

    There may be one tree on a line, one on many lines (the .mrg layout), or several on a line;
    blank lines are skipped, and so are lines of comments and markup between trees.

    lines: the lines without line ends.  name: the name of the text, for errors.  start: the number
    of the first line.  left_out: counts of what is skipped, to which the comments are added.

    Raises InputError, with line and column, for brackets that do not balance, an empty constituent,
    a constituent inside a tree without a label or with that of its root, such as TOP, text outside
    a tree, or a leaf of several words; and for a tree that opens inside an unfinished one, at the
    beginning of a line. If the first tree has such lines, they are taken for its constituents, with
    a warning in the log.
    """
    held: list[str] = []
    depth = number = 0
    indented = None  # True if the first tree has no line that begins as the tree does
    for number, line in enumerate(lines, start=start):
        if not held and is_comment(line):
            if left_out is not None:
                left_out["lines of comments or markup"] += 1
            continue
        depth += line.count("(") - line.count(")")
        if depth > 0 and len(held) < _LONGEST:
            held.append(line)
            continue
        first = number - len(held)
        trees = _trees("\n".join([*held, line]), name, first)
        inside = _opened_inside([*held, line]) if held else None
        if inside and indented:
            raise InputError(
                f"{name}, line {first}: expected the tree that opens here to be closed before line "
                f"{first + inside[0]}, where another opens, found {inside[1][:40]!r} inside it; "
                "close it, or indent the lines of a tree"
            )
        if inside and indented is None:
            warn_once(
                logger,
                f"{name}, line {first + inside[0]}: read as a constituent of the tree that opens "
                f"on line {first}; if it is a tree of its own, close the tree before it",
            )
        if trees and indented is None:
            indented = not inside
        held = []
        yield from trees
    if held:
        yield from _trees("\n".join(held), name, number - len(held) + 1)


def _opened_inside(lines: list[str]) -> tuple[int, str] | None:
    """Return (index, text) of the first line that begins with a bracket as the first one does.

    lines: those of an unfinished tree. Lines that are indented further do not count.
    """
    texts = [line.lstrip(" \t") for line in lines]
    indent = len(lines[0]) - len(texts[0])
    for index, text in enumerate(texts[1:], start=1):
        if text.startswith("(") and len(lines[index]) - len(text) <= indent:
            return index, text
    return None


def is_comment(line: str) -> bool:
    """Return True for a line between trees that is not part of one, such as <S ID=1>."""
    return _COMMENT.match(line) is not None


def parse_tree(text: str) -> Tree:
    """Return the one tree of a text, as written.

    Raises InputError if the text is malformed, or has no tree or several.

    >>> parse_tree("(NP (DT the) (NN dog))")
    ('NP', (('DT', 'the'), ('NN', 'dog')))
    """
    trees = list(parse_trees(text.split("\n"), "the tree"))
    if len(trees) != 1:
        raise InputError(f"the tree: expected one tree, found {len(trees)}; give one bracketing")
    return trees[0]


def _trees(text: str, name: str, first: int) -> list[Tree]:
    """Return the trees of a text. Raises InputError if it is malformed.

    first: the number of its first line.
    """

    def fault(at: int, expected: str, found: str, remedy: str) -> InputError:
        line, column = first + text.count("\n", 0, at), at - text.rfind("\n", 0, at)
        where = f"{name}, line {line}, column {column}"
        return InputError(f"{where}: expected {expected}, found {found}; {remedy}")

    trees: list[Tree] = []
    children = trees
    stack: list[tuple[list[Tree], str, int]] = []  # children around it, label and position of each
    for event in _EVENTS.finditer(text):
        at, (label, word, other) = event.start(), event.groups("")
        if word:
            children.append((label, word))
        elif label in _OUTERMOST and stack and stack[0][1] == label:
            opened = first + text.count("\n", 0, stack[0][2])
            expected = f"the tree that opens on line {opened} to be closed before"
            raise fault(at, expected, f"another ({label} inside it", "close it")
        elif label or (other == "(" and not stack):
            stack.append((children, label, at))
            children = []
        elif other == "(":
            remedy = "label it, or close the tree before it"
            raise fault(at, "a label next to the bracket", "none", remedy)
        elif other == ")" and not stack:
            raise fault(at, "a tree", "a closing bracket where none is open", "remove it")
        elif other == ")":
            inner = children
            children, label, start = stack.pop()
            if not inner:
                remedy = "fill it or remove it"
                raise fault(start, "a word or constituents", f"none in ({label})", remedy)
            children.append((label, tuple(inner)))
        elif not stack:
            found = f"the text {other!r} outside of one"
            raise fault(at, "a tree in brackets", found, "remove it")
        else:
            expected = f"one word and its closing bracket, or constituents, in ({stack[-1][1]}"
            remedy = "put each word into brackets with its tag"
            raise fault(at, expected, repr(other), remedy)
    if stack:
        found = f"{len(stack)} open at the end of line {first + text.count(chr(10)):,}"
        raise fault(stack[0][2], "the tree that opens here to be closed", found, "close it")
    return trees
