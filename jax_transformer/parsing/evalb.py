"""§6.3 EVALB: labelled brackets of a parse matched with those of the gold tree.

Every rule is EVALB's, even if another would be as good, because published scores are EVALB's.
"""

import re
from dataclasses import dataclass, field
from enum import IntEnum

from jax_transformer.errors import InputError
from jax_transformer.parsing.evalb_parameters import COLLINS, Parameters


class Status(IntEnum):
    """The outcome of scoring a sentence, numbered as EVALB prints it."""

    VALID = 0
    ERROR = 1
    SKIPPED = 2


@dataclass(frozen=True)
class SentenceScore:
    """The counts of a sentence; all except the length are 0 if it is not valid.

    length: the words of the gold tree without those deleted for length. matched, gold, test: the
    brackets that match, of the gold tree and of the other. crossing: the test brackets that cross a
    gold bracket. words: the words without deleted ones; tags: those with the gold tag. problem: the
    reason for an error.
    """

    length: int
    status: Status = Status.VALID
    matched: int = 0
    gold: int = 0
    test: int = 0
    crossing: int = 0
    words: int = 0
    tags: int = 0
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
    gold_sentence = _read_sentence(gold, parameters, names[0])
    test_sentence = _read_sentence(test, parameters, names[1])
    if not test_sentence.words:
        return SentenceScore(gold_sentence.length, Status.SKIPPED)
    if len(gold_sentence.words) != len(test_sentence.words):
        _restore_quotes(gold_sentence, test_sentence, parameters)
    problem = _difference(gold_sentence, test_sentence, parameters)
    if problem:
        return SentenceScore(gold_sentence.length, Status.ERROR, problem=problem)
    gold_brackets, test_brackets = (
        _counted_brackets(side.brackets, parameters) for side in (gold_sentence, test_sentence)
    )
    return SentenceScore(
        gold_sentence.length,
        matched=_count_matches(gold_brackets, test_brackets, parameters),
        gold=len(gold_brackets),
        test=len(test_brackets),
        crossing=_count_crossing(gold_brackets, test_brackets),
        words=len(gold_sentence.words),
        tags=sum(
            parameters.same_label(tag, other)
            for (tag, _), (other, _) in zip(gold_sentence.words, test_sentence.words, strict=True)
        ),
    )


# A word with its tag, or the opening of a constituent, or a closing, or space.
_TOKEN = re.compile(r"\(([^\s()]*)(?:\s+([^\s()]*)\))?|(\))|\s+", re.ASCII)
_FUNCTIONS = re.compile("[-=].*", re.DOTALL)
_QUOTES = ("'", '"', "/")


@dataclass
class _Bracket:
    """A constituent over words[start:end]."""

    label: str
    start: int
    end: int = -1


@dataclass
class _Quote:
    """A word that may be a quotation mark or a possessive, deleted or not.

    index: its index among the words that are not deleted.  opened: the number of brackets that open
    before it.  around: the brackets around it.
    """

    tag: str
    word: str
    index: int
    opened: int
    around: list[_Bracket]


@dataclass
class _Sentence:
    """A line as EVALB reads it: (tag, word) pairs, and brackets in the order of opening."""

    length: int = 0
    words: list[tuple[str, str]] = field(default_factory=list)
    brackets: list[_Bracket] = field(default_factory=list)
    quotes: list[_Quote] = field(default_factory=list)


def _read_sentence(line: str, parameters: Parameters, name: str) -> _Sentence:
    """Read a line without deleted words; brackets around one token make it a tagged word.

    Only ASCII white space separates. Raises InputError if the line does not consist of trees.
    """
    sentence, around, at = _Sentence(), [], 0
    words, brackets = sentence.words, sentence.brackets
    while at < len(line):
        token = _TOKEN.match(line, at)
        if token is None:
            raise _syntax_error(line, at, name, f"a bracket, found '{line[at : at + 20]}'")
        label, word, closing = token.groups()
        if word is not None:
            sentence.length += label not in parameters.deleted_for_length
            if label in parameters.quotes and word in _QUOTES:
                position = (len(words), len(brackets), list(around))
                sentence.quotes.append(_Quote(label, word, *position))
            if label not in parameters.deleted:
                words.append((label, word))
        elif label is not None:
            around.append(_Bracket(label, len(words)))
            brackets.append(around[-1])
        elif closing and not around:
            raise _syntax_error(line, at, name, "an opening bracket before it, found ')'")
        elif closing:
            around.pop().end = len(words)
        at = token.end()
    if around:
        missing = f"{len(around)} more closing brackets" if around[1:] else "a closing bracket"
        raise _syntax_error(line, at, name, f"{missing}, found the end of the line")
    return sentence


def _syntax_error(line: str, at: int, name: str, expected: str) -> InputError:
    return InputError(
        f"{name}, column {at + 1}: expected {expected}; a line is a tree such as "
        "(S (NP (NN time)) (VP (VBZ flies)))"
    )


def _difference(gold: _Sentence, test: _Sentence, parameters: Parameters) -> str:
    """Return EVALB's reason why two sentences cannot be compared, or "" if they can."""
    if len(gold.words) != len(test.words):
        return f"Length unmatch ({len(gold.words)}|{len(test.words)})"
    for (_, word), (_, other) in zip(gold.words, test.words, strict=True):
        if not parameters.same_word(word, other):
            return f"Words unmatch ({word}|{other})"
    return ""


def _counted_brackets(brackets: list[_Bracket], parameters: Parameters) -> list[_Bracket]:
    """Return the brackets around words whose labels, functions removed, are not deleted."""
    around_words = (
        _Bracket(_FUNCTIONS.sub("", bracket.label), bracket.start, bracket.end)
        for bracket in brackets
        if bracket.start < bracket.end
    )
    return [bracket for bracket in around_words if not parameters.deletes(bracket.label)]


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


def _restore_quotes(gold: _Sentence, test: _Sentence, parameters: Parameters) -> None:
    """Put a deleted quotation mark back if the other side's tag for it is not deleted.

    Otherwise a tagger that takes a closing quote for a possessive would cause an error.
    """
    for i, theirs in enumerate(test.quotes):
        index = theirs.index
        for j, ours in enumerate(gold.quotes):
            if ours.index != index or ours.tag == theirs.tag:
                continue
            deleted = [quote.tag in parameters.deleted for quote in (ours, theirs)]
            if deleted == [True, False]:
                _reinsert(gold, j)
            elif deleted == [False, True]:
                _reinsert(test, i)


def _reinsert(sentence: _Sentence, number: int) -> None:
    quote = sentence.quotes[number]
    sentence.words.insert(quote.index, (quote.tag, quote.word))
    for bracket in sentence.brackets[quote.opened :]:
        bracket.start += 1
        bracket.end += 1
    for bracket in quote.around:
        bracket.end += 1
    for later in sentence.quotes[number:]:
        later.index += 1
