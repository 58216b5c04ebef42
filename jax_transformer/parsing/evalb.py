"""§6.3 EVALB: labelled brackets of a parse matched with those of the gold tree.

Every rule is EVALB's, even if another would be as good, because published scores are EVALB's.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import PurePath
from typing import Any

from jax_transformer.errors import InputError

Pairs = frozenset[tuple[str, str]]


@dataclass(frozen=True)
class Parameters:
    """The settings of a .prm file; without one, EVALB deletes nothing and makes nothing equal.

    A deleted tag removes its words; a deleted constituent removes only its brackets. Pairs of
    equal labels or words hold in both directions but are not chained: A = B and B = C do not make
    A = C. The report of short sentences covers those of up to `cutoff` words, without the words
    tagged with `deleted_for_length`.
    """

    name: str = "none"
    deleted: frozenset[str] = frozenset()
    deleted_for_length: frozenset[str] = frozenset()
    equal_labels: Pairs = frozenset()
    equal_words: Pairs = frozenset()
    labelled: bool = True
    cutoff: int = 40
    max_errors: int = 10

    def same_label(self, one: str, other: str) -> bool:
        """Return True if two tags, or two labels of constituents, count as equal."""
        return one == other or not self.equal_labels.isdisjoint({(one, other), (other, one)})

    def same_word(self, one: str, other: str) -> bool:
        """Return True if two words count as equal."""
        return one == other or not self.equal_words.isdisjoint({(one, other), (other, one)})

    def deletes(self, label: str) -> bool:
        """Return True if brackets with this label, functions removed, are left out."""
        return any(self.same_label(label, deleted) for deleted in self.deleted)


# The settings of the file of that name that comes with EVALB (public domain). Scores on the Penn
# Treebank are published with them: punctuation does not count, ADVP equals PRT.
COLLINS = Parameters(
    name="COLLINS.prm",
    deleted=frozenset({"TOP", "-NONE-", ",", ":", "``", "''", "."}),
    deleted_for_length=frozenset({"-NONE-"}),
    equal_labels=frozenset({("ADVP", "PRT")}),
)

_LABELS = {"DELETE_LABEL": "deleted", "DELETE_LABEL_FOR_LENGTH": "deleted_for_length"}
_PAIRS = {"EQ_LABEL": "equal_labels", "EQ_WORD": "equal_words"}
_NUMBERS = {"MAX_ERROR": "max_errors", "CUTOFF_LEN": "cutoff"}


def parse_parameters(lines: Iterable[str], name: str) -> Parameters:
    """Parse a .prm file: a keyword and its value on each line, `#` before a comment.

    Raises InputError if a line is not one of EVALB's settings. Differs: QUOTE_LABEL, which is in
    EVALB's new.prm and not in COLLINS.prm, is not one of them.
    """
    sets: dict[str, frozenset[Any]] = {}
    others: dict[str, Any] = {}
    for number, line in enumerate(lines, start=1):
        # EVALB also ignores lines of fewer than three characters.
        if line.startswith("#") or len(line.rstrip()) < 3:
            continue
        match line.split():
            case [keyword, label] if part := _LABELS.get(keyword):
                sets[part] = sets.get(part, frozenset()) | {label}
            case [keyword, *pair] if len(pair) == 2 and (part := _PAIRS.get(keyword)):
                sets[part] = sets.get(part, frozenset()) | {tuple(pair)}
            case [keyword, value] if keyword in _NUMBERS and re.fullmatch("[0-9]{1,9}", value):
                others[_NUMBERS[keyword]] = int(value)
            case ["LABELED", "0" | "1" as value]:
                others["labelled"] = value == "1"
            case ["DEBUG", _]:
                pass  # the setting of EVALB's output besides its report
            case _:
                known = ", ".join([*_LABELS, *_PAIRS, *_NUMBERS, "LABELED", "DEBUG"])
                raise InputError(
                    f"{name}, line {number}: expected one of EVALB's settings ({known}) and its "
                    f"value, found '{line.strip()}'; correct the line, or put # before it"
                )
    return Parameters(PurePath(name).name, **sets, **others)


class Status(IntEnum):
    """The outcome of scoring a sentence, numbered as EVALB prints it."""

    VALID = 0
    ERROR = 1
    SKIPPED = 2


@dataclass(frozen=True)
class SentenceScore:
    """The counts of a sentence; all except the length are 0 if it is not valid."""

    length: int  # words of the gold tree without those deleted for length
    status: Status = Status.VALID
    matched: int = 0  # brackets
    gold: int = 0
    test: int = 0
    crossing: int = 0  # test brackets that cross a gold bracket
    words: int = 0  # without deleted ones
    tags: int = 0  # words with the gold tag
    problem: str = ""

    @property
    def complete(self) -> bool:
        """True if all brackets match."""
        return self.matched == self.gold == self.test

    @property
    def recall(self) -> float:
        """The percentage of the gold brackets that match."""
        return percent(self.matched, self.gold)

    @property
    def precision(self) -> float:
        """The percentage of the test brackets that match."""
        return percent(self.matched, self.test)

    @property
    def f1(self) -> float:
        """The harmonic mean of recall and precision, in percent; 0 if nothing matches."""
        recall, precision = self.recall, self.precision
        return 2 * precision * recall / (precision + recall) if recall and precision else 0.0

    @property
    def tagging(self) -> float:
        """The percentage of the words that have the gold tag."""
        return percent(self.tags, self.words)


def percent(part: int, whole: int) -> float:
    """Return 100 part / whole, or 0 if the whole is 0."""
    return 100.0 * part / whole if whole else 0.0


def score_sentence(
    gold: str,
    test: str,
    parameters: Parameters = COLLINS,
    names: tuple[str, str] = ("gold", "test"),
) -> SentenceScore:
    """Compare two lines of brackets over the same words; each may hold one tree or several.

    Labels of constituents are compared up to their first `-` or `=`, tags as they are. Equal
    brackets match one to one. names: the names of the two lines, for errors.

    Raises InputError if a line does not consist of trees.

    >>> score = score_sentence("(S (NP (NN time)) (VP (VBZ flies)))", "(S (NN time) (NN flies))")
    >>> score.matched, score.gold, score.test, score.tags
    (1, 3, 1, 1)
    """
    ours = _read_sentence(gold, parameters, names[0])
    theirs = _read_sentence(test, parameters, names[1])
    if not theirs.words:
        return SentenceScore(ours.length, Status.SKIPPED)
    if problem := _difference(ours, theirs, parameters):
        return SentenceScore(ours.length, Status.ERROR, problem=problem)
    return SentenceScore(
        ours.length,
        matched=_count_matches(ours.brackets, theirs.brackets, parameters),
        gold=len(ours.brackets),
        test=len(theirs.brackets),
        crossing=_count_crossing(ours.brackets, theirs.brackets),
        words=len(ours.words),
        tags=sum(
            parameters.same_label(tag, other)
            for (tag, _), (other, _) in zip(ours.words, theirs.words, strict=True)
        ),
    )


# A word with its tag, or the opening of a constituent, or a closing, or space.
_TOKEN = re.compile(r"\(([^\s()]*)(?:\s+([^\s()]*)\))?|(\))|\s+", re.ASCII)
_FUNCTIONS = re.compile("[-=].*", re.DOTALL)


@dataclass
class _Bracket:
    """A constituent over words[start:end], with its label without functions."""

    label: str
    start: int
    end: int = -1


@dataclass
class _Sentence:
    """A line as EVALB reads it: (tag, word) pairs and brackets, without what is deleted."""

    length: int = 0
    words: list[tuple[str, str]] = field(default_factory=list)
    brackets: list[_Bracket] = field(default_factory=list)


def _read_sentence(line: str, parameters: Parameters, name: str) -> _Sentence:
    """Read a line, in which brackets around one token make it a tagged word."""
    sentence, around, at = _Sentence(), [], 0
    words, opened = sentence.words, list[_Bracket]()
    while at < len(line):
        token = _TOKEN.match(line, at)
        if token is None:
            raise _syntax_error(line, at, name, f"a bracket, found '{line[at : at + 20]}'")
        label, word, closing = token.groups()
        if word is not None:
            sentence.length += label not in parameters.deleted_for_length
            if label not in parameters.deleted:
                words.append((label, word))
        elif label is not None:
            around.append(_Bracket(_FUNCTIONS.sub("", label), len(words)))
            opened.append(around[-1])
        elif closing and not around:
            raise _syntax_error(line, at, name, "an opening bracket before it, found ')'")
        elif closing:
            around.pop().end = len(words)
        at = token.end()
    if around:
        missing = f"{len(around)} more closing brackets" if around[1:] else "a closing bracket"
        raise _syntax_error(line, at, name, f"{missing}, found the end of the line")
    counted = (bracket for bracket in opened if bracket.start < bracket.end)
    sentence.brackets += (each for each in counted if not parameters.deletes(each.label))
    return sentence


def _syntax_error(line: str, at: int, name: str, expected: str) -> InputError:
    return InputError(
        f"{name}, column {at + 1}: expected {expected}; a line is a tree such as "
        "(S (NP (NN time)) (VP (VBZ flies)))"
    )


def _difference(gold: _Sentence, test: _Sentence, parameters: Parameters) -> str:
    """Return EVALB's reason why two sentences cannot be compared, or ""."""
    if len(gold.words) != len(test.words):
        return f"Length unmatch ({len(gold.words)}|{len(test.words)})"
    for (_, word), (_, other) in zip(gold.words, test.words, strict=True):
        if not parameters.same_word(word, other):
            return f"Words unmatch ({word}|{other})"
    return ""


def _count_matches(gold: list[_Bracket], test: list[_Bracket], parameters: Parameters) -> int:
    """Match each gold bracket, in order, with the first equal test bracket left; count them."""
    left: dict[tuple[int, int], list[str]] = {}
    for bracket in test:
        left.setdefault((bracket.start, bracket.end), []).append(bracket.label)
    matched = 0
    for bracket in gold:
        labels = left.get((bracket.start, bracket.end), [])
        for i, label in enumerate(labels):
            if not parameters.labelled or parameters.same_label(bracket.label, label):
                del labels[i]
                matched += 1
                break
    return matched


def _count_crossing(gold: list[_Bracket], test: list[_Bracket]) -> int:
    """Count test brackets that overlap a gold bracket while neither contains the other."""
    spans = {(bracket.start, bracket.end) for bracket in gold}
    return sum(
        any(
            start < bracket.start < end < bracket.end or bracket.start < start < bracket.end < end
            for start, end in spans
        )
        for bracket in test
    )
