"""§6.3 Reading Penn bracketings, fast, with errors that name line and column.

Only space, tab and line end separate tokens: a no-break space is part of its word.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from jax_transformer.errors import InputError
from jax_transformer.parsing.trees import Tree

# More lines than any tree has: a bracket that is never closed must not read a whole corpus.
_LONGEST = 20_000

_TEXT = r"[^ \t\n()]"
_SPACE = r"[ \t\n]"
# Events are leaves (tag, word, ""), openings (label, "", ""), and ("", "", other) for closings,
# openings without a label, and misplaced text.
_EVENTS = re.compile(rf"\(({_TEXT}++)(?:{_SPACE}++({_TEXT}++){_SPACE}*+\))?|([()]|{_TEXT}++)")
_TOKENS = re.compile(rf"[()]|{_TEXT}+")


def parse_trees(lines: Iterable[str], name: str, start: int = 1) -> Iterator[Tree]:
    """The trees of a bracketing as written, with their outer brackets; streamed.

    One tree on a line, one on many lines (the .mrg layout), or several on a line; blank lines are
    skipped.

    lines: without line ends.  name: of the text, for errors.  start: number of the first line.

    Raises:
      InputError: brackets that do not balance, an empty constituent, a constituent without a
        label inside a tree, text outside a tree, a leaf of several words; with line and column.
    """
    held: list[str] = []
    depth = number = 0
    for number, line in enumerate(lines, start=start):
        depth += line.count("(") - line.count(")")
        if depth > 0 and len(held) < _LONGEST:
            held.append(line)
            continue
        text, first = line, number - len(held)
        if held:
            text = "\n".join([*held, line])
            held = []
        trees = _built(text)
        if trees is None:
            raise _fault(text, name, first)
        yield from trees
    if held:
        raise _fault("\n".join(held), name, number - len(held) + 1)


def parse_tree(text: str, name: str = "the tree", line: int = 1) -> Tree:
    """The one tree of a text, as written; `name` and `line` say in errors where it is from.

    Raises InputError where the text is malformed, or has no tree or several.

    >>> parse_tree("(NP (DT the) (NN dog))")
    ('NP', (('DT', 'the'), ('NN', 'dog')))
    """
    trees = list(parse_trees(text.split("\n"), name, line))
    if len(trees) != 1:
        raise InputError(
            f"{name}, line {line}: expected one tree, found {len(trees)}; give one bracketing"
        )
    return trees[0]


def _built(text: str) -> list[Tree] | None:
    """The trees of a text; None where it is malformed, and `_fault` finds out how."""
    trees: list[Tree] = []
    children = trees
    stack: list[tuple[list[Tree], str]] = []
    for label, word, other in _EVENTS.findall(text):
        if word:
            children.append((label, word))
        elif label or (other == "(" and not stack):
            stack.append((children, label))
            children = []
        elif other == ")" and stack and children:
            inner = children
            children, label = stack.pop()
            children.append((label, tuple(inner)))
        else:
            return None
    return None if stack else trees


@dataclass
class _Bracket:
    """An open bracket during the search for a fault."""

    start: int
    label: str = ""
    word: str = ""
    has_children: bool = False


def _fault(text: str, name: str, first: int) -> InputError:
    """What is wrong with a text that `_built` cannot read; `first` numbers its first line."""
    at, expected, found, remedy = _unclosed(text) or _misplaced(text)
    line = first + text.count("\n", 0, at)
    column = at - text.rfind("\n", 0, at)
    return InputError(
        f"{name}, line {line}, column {column}: expected {expected}, found {found}; {remedy}"
    )


_Finding = tuple[int, str, str, str]


def _unclosed(text: str) -> _Finding | None:
    """The bracket of the last tree, if it is still open at the end of the text.

    This is checked first: the text after a forgotten bracket seems misplaced, and is not.
    """
    depth = start = 0
    for token in _TOKENS.finditer(text):
        if token[0] == "(":
            start = token.start() if depth <= 0 else start
            depth = max(depth, 0) + 1
        elif token[0] == ")":
            depth -= 1
    if depth <= 0:
        return None
    brackets = "bracket" if depth == 1 else "brackets"
    return (
        start,
        "the tree that opens here to be closed",
        f"{depth} {brackets} still open {text.count(chr(10), start) + 1:,} lines on"
        if "\n" in text[start:]
        else f"{depth} {brackets} still open at the end",
        "close it",
    )


def _misplaced(text: str) -> _Finding:
    """The first token in a wrong place."""
    stack: list[_Bracket] = []
    for token in _TOKENS.finditer(text):
        at, mark = token.start(), token[0]
        top = stack[-1] if stack else None
        if mark == "(":
            if top:
                if top.word:
                    return _not_a_leaf(at, "a bracket", top)
                if not top.label and len(stack) > 1:
                    return _unlabelled(top)
                top.has_children = True
            stack.append(_Bracket(at))
        elif mark == ")":
            if not top:
                return at, "a tree", "a closing bracket where none is open", "remove it"
            if not top.word and not top.has_children:
                inside = f"none in ({top.label})"
                return top.start, "a word or constituents", inside, "fill it or remove it"
            stack.pop()
        elif not top:
            return at, "a tree in brackets", f"the text {mark!r} outside of one", "remove it"
        elif at == top.start + 1:
            top.label = mark
        elif not top.label:
            return _unlabelled(top)
        elif top.word or top.has_children:
            return _not_a_leaf(at, repr(mark), top)
        else:
            top.word = mark
    raise AssertionError(f"no fault found in {text!r}")


def _unlabelled(bracket: _Bracket) -> _Finding:
    return (
        bracket.start,
        "a label next to the bracket",
        "none",
        "label it, or close the tree before it",
    )


def _not_a_leaf(at: int, found: str, bracket: _Bracket) -> _Finding:
    inside = f"{found} after {bracket.word!r}" if bracket.word else f"{found} after constituents"
    return (
        at,
        f"one word or only constituents in ({bracket.label}",
        inside,
        "put each word into brackets with its tag",
    )
