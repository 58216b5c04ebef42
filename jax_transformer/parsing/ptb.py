"""§6.3 A fast reader of Penn bracketings, whose errors name line and column.

Only ASCII white space separates tokens, as in EVALB: a no-break space is part of its word.
"""

import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import islice

from jax_transformer.errors import InputError, warn_once
from jax_transformer.parsing.trees import EMPTY, ROOTS, Tree, category, leaves, map_tree

logger = logging.getLogger(__name__)

# A tree has fewer lines, so that a bracket that is never closed does not read a whole corpus.
_MOST_LINES = 20_000

_TEXT = r"[^\s()]"
# Events are leaves (tag, word, ""), openings (label, "", ""), and ("", "", other) for closings,
# openings without a label, and misplaced text.
_EVENTS = re.compile(rf"\(({_TEXT}++)(?:\s++({_TEXT}++)\s*+\))?|([()]|{_TEXT}++)", re.ASCII)

# Lines between trees that are not parts of one: comments, the licence at the head of LDC's files,
# markup such as <S ID=1>, and the ends of texts in ATIS.
COMMENT = re.compile(r"[ \t]*(?:;|#|%%|\*x\*|<[^()]*$|\( *END_OF_TEXT_UNIT *\)[ \t]*$)")
# What treebanks of the Penn-Helsinki kind put beside a tree, in its outer bracket.
_BESIDE = frozenset({"ID", "CODE", "CODING", "METADATA", "VERSION"})
# What some parsers write for a sentence that they cannot parse.
_NO_TREE = re.compile(r"\s*\(\s*(?:\(\s*\)\s*)?\)\s*$")
_DISFLUENCY = "-DFL-"  # the tag of a mark in Switchboard, of a restart or a slash unit
_BESIDE_A_TREE = re.compile(rf"\((?:{'|'.join(sorted(_BESIDE))}|{_DISFLUENCY})[ \t\n(]")
_TRACE = re.compile(r"\*(?![LR]RB\*)[^*]+\*|\*-?[0-9]+$|[*0]$")
# Tags of 0 and * if they are words.
_SIGN = re.compile("[^A-Za-z].*|CD|NUM|CARD|M|LS|SYM|NNP?S?|JJ|FW|XX?|NFP|HYPH|PU(?:NCT?)?")
_PAIR = re.compile(r"[^-_/|~]+([-_/|~])[^-_/|~]+")  # word-lemma
_OUTERMOST = ROOTS - {""}


def parse_trees(
    lines: Iterable[str], name: str, odd: "Oddities | None" = None, *, single: bool = False
) -> Iterator[Tree]:
    """Stream the trees of a bracketing as written, with their outer brackets.

    A line may hold one tree, several, or a part of one (the .mrg layout). Blank lines are skipped,
    and so are lines of comments and markup between trees.

    name: the name of the text, for errors. odd: counts and removes what stands beside the trees.
    single: True for one tree, in which a label of outer brackets may stand inside, too.

    Raises InputError, with line and column, for what is not a row of trees, and for a tree that
    opens inside an unfinished one, at the beginning of a line. If the first tree has such lines,
    all are read as constituents, with a warning in the log.
    """
    held: list[str] = []
    depth = number = 0
    flush = None  # True if the first tree has lines that begin as a tree does
    for number, line in enumerate(lines, start=1):
        if not held and COMMENT.match(line):
            if odd:
                odd.left_out["lines of comments or markup"] += 1
            continue
        if odd and not held and _NO_TREE.match(line):
            odd.left_out["lines with brackets alone"] += 1
            continue
        depth += line.count("(") - line.count(")")
        held.append(line)
        if depth > 0 and len(held) <= _MOST_LINES:
            continue
        text, first = "\n".join(held), number - len(held) + 1
        trees, words = _trees(text, name, first, single)
        inside = _opened_inside(text) if held[1:] else None
        if inside and not flush:
            place = first + text.count("\n", 0, inside.start(1))
            if flush is False:
                raise InputError(
                    f"{name}, line {first}: expected the tree that opens here to be closed before "
                    f"line {place}, where another opens, found {inside[1]!r} inside it; close it, "
                    "or indent the lines of a tree"
                )
            warn_once(
                logger,
                f"{name}, line {place}: read as a constituent of the tree that opens on line "
                f"{first}; if it is a tree of its own, close the tree before it",
            )
        if trees and flush is None:
            flush = inside is not None
        held = []
        if odd:
            if _BESIDE_A_TREE.search(text):
                trees = [rest for tree in trees if (rest := odd.without_beside(tree))]
                words = [leaf for tree in trees for leaf in leaves(tree)]
            odd.count(words)
        yield from trees
    if held:
        _trees("\n".join(held), name, number - len(held) + 1, single)  # raises the error


def _opened_inside(text: str) -> re.Match[str] | None:
    """Find a line after the first that opens a bracket no further indented."""
    indent = len(text) - len(text.lstrip(" \t"))
    return re.search(rf"\n[ \t]{{0,{indent}}}(\(.{{0,39}})", text)


def parse_tree(text: str) -> Tree:
    """Return the one tree of a text, as written. Raises InputError if there is not just one.

    >>> parse_tree("(NP (DT the) (NN dog))")
    ('NP', (('DT', 'the'), ('NN', 'dog')))
    """
    trees = list(parse_trees(text.split("\n"), "the tree", single=True))
    if len(trees) != 1:
        raise InputError(f"the tree: expected one tree, found {len(trees)}; give one bracketing")
    return trees[0]


class Oddities:
    """Counts of what stands beside trees, and of words that look like traces or lemmas."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.left_out = Counter[str]()
        self._words = 0
        self._kinds, self._examples = Counter[str](), dict[str, str]()

    def count(self, words: list[tuple[str, str]]) -> None:
        """Count the odd leaves."""
        self._words += len(words)
        for tag, word in words:
            if (not word.isalpha() or tag == "LEMMA") and (kind := _kind(tag, word)):
                self._kinds[kind] += 1
                self._examples.setdefault(kind, f"({tag} {word})")

    def without_beside(self, tree: Tree) -> Tree | None:
        """Return the tree without codes and what stands beside it; None if nothing is left."""

        def leaf(tag: str, word: str) -> Tree | None:
            if (tag == "CODE" and word[0] in "<{") or tag == _DISFLUENCY:
                self.left_out[f"({tag} ...)"] += 1
                return None
            return tag, word

        label, children = tree
        parts = (tree,) if isinstance(children, str) or label not in ROOTS else children
        beside = [part[0] for part in parts if part[0] in _BESIDE]
        self.left_out.update(f"({name} ...)" for name in beside)
        rest = tuple(part for part in parts if part[0] not in _BESIDE)
        return map_tree((label, rest) if parts is children else tree, leaf) if rest else None

    def describe(self) -> str:
        """Return the counts with an example of each; "" if there is nothing odd."""
        found = [f"{count:,} {name}" for name, count in self.left_out.most_common()]
        parts = [f"left out {', '.join(found)} beside trees"] if found else []
        words = self._words - self._kinds.pop(EMPTY, 0)
        for kind, count in self._kinds.items():
            # Words such as "well-known" are not lemmas, unless most words are like that.
            name = "lemmas" if len(kind) == 1 and 2 * count > words else kind
            if len(name) > 1:
                parts.append(
                    f"{count:,} of {words:,} words look like {name}, such as "
                    f"{self._examples[kind]}, and are read as words"
                )
        return "; ".join(parts)


@lru_cache(1 << 16)  # a treebank repeats its words
def _kind(tag: str, word: str) -> str:
    """Return what a leaf looks like: a trace, a lemma, what joins two words, or ""."""
    if tag.startswith(EMPTY):
        return EMPTY
    if _TRACE.match(word) and not (word in ("*", "0") and _SIGN.fullmatch(category(tag))):
        return "traces"
    if tag == "LEMMA":
        return "lemmas"
    pair = _PAIR.fullmatch(word)
    return pair[1] if pair else ""


def _trees(
    text: str, name: str, first: int, single: bool
) -> tuple[list[Tree], list[tuple[str, str]]]:
    """Return the trees of a text, and their leaves. first: the number of its first line."""

    def line_and_column(index: int) -> tuple[int, int]:
        at = next(islice(_EVENTS.finditer(text), index, None)).start()
        return first + text.count("\n", 0, at), at - text.rfind("\n", 0, at)

    def fault(index: int, expected: str, found: str, remedy: str) -> InputError:
        line, column = line_and_column(index)
        where = f"{name}, line {line}, column {column}"
        return InputError(f"{where}: expected {expected}, found {found}; {remedy}")

    trees: list[Tree] = []
    words: list[tuple[str, str]] = []
    children = trees
    stack: list[tuple[list[Tree], str, int]] = []  # children around it, label and event of each
    for index, (label, word, other) in enumerate(_EVENTS.findall(text)):
        if word:
            words.append((label, word))
            children.append(words[-1])
        elif other == ")":
            if not stack:
                raise fault(index, "a tree", "a closing bracket where none is open", "remove it")
            inner = children
            children, label, start = stack.pop()
            if not inner:
                remedy = "fill it or remove it"
                raise fault(start, "a word or constituents", f"none in ({label})", remedy)
            children.append((label, tuple(inner)))
        elif label or (other == "(" and not stack):
            if stack and label == stack[0][1] and label in _OUTERMOST and not single:
                opened, _ = line_and_column(stack[0][2])
                expected = f"the tree that opens on line {opened} to be closed before"
                raise fault(index, expected, f"another ({label} inside it", "close it")
            stack.append((children, label, index))
            children = []
        elif other == "(":
            remedy = "label it, or close the tree before it"
            raise fault(index, "a label next to the bracket", "none", remedy)
        elif not stack:
            found = f"the text {other!r} outside of one"
            raise fault(index, "a tree in brackets", found, "remove it")
        else:
            expected = f"one word and its closing bracket, or constituents, in ({stack[-1][1]}"
            remedy = "put each word into brackets with its tag"
            raise fault(index, expected, repr(other), remedy)
    if stack:
        found = f"{len(stack)} open at the end of line {first + text.count(chr(10)):,}"
        raise fault(stack[0][2], "the tree that opens here to be closed", found, "close it")
    return trees, words
