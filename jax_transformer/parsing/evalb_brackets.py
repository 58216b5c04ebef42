"""§6.3 EVALB's reading of a line of brackets, and its rules for matching and crossing ones."""

import re
from dataclasses import dataclass, field

from jax_transformer.errors import InputError
from jax_transformer.parsing.evalb_parameters import Parameters

# A word with its tag, or the opening of a constituent, or a closing, or space.
_TOKEN = re.compile(r"\(([^\s()]*)(?:\s+([^\s()]*)\))?|(\))|\s+", re.ASCII)
_FUNCTIONS = re.compile("[-=].*", re.DOTALL)
_QUOTES = ("'", '"', "/")


@dataclass
class Bracket:
    """A constituent over words[start:end]."""

    label: str
    start: int
    end: int = -1


@dataclass
class Quote:
    """A word that may be a quotation mark or a possessive, kept or deleted.

    index: where it stands or stood among the kept words; opened: brackets that had been
    opened before it; around: those of them that were open.
    """

    tag: str
    word: str
    index: int
    opened: int
    around: list[Bracket]


@dataclass
class Sentence:
    """What EVALB keeps of a line: (tag, word) pairs and brackets in the order of opening."""

    length: int = 0
    words: list[tuple[str, str]] = field(default_factory=list)
    brackets: list[Bracket] = field(default_factory=list)
    quotes: list[Quote] = field(default_factory=list)


def read_sentence(line: str, parameters: Parameters, place: str) -> Sentence:
    """What counts of a line; `place` is what errors call it.

    Only ASCII white space separates. A tag is what stands in brackets with one word alone.

    Raises:
      InputError: the line is not made of trees; the message has the column.
    """
    sentence, around, at = Sentence(), [], 0
    kept, brackets = sentence.words, sentence.brackets
    while at < len(line):
        token = _TOKEN.match(line, at)
        if token is None:
            raise _misplaced(line, at, place, f"a bracket, found '{line[at : at + 20]}'")
        label, word, closing = token.groups()
        if word is not None:
            sentence.length += label not in parameters.deleted_for_length
            if label in parameters.quotes and word in _QUOTES:
                place_of = (len(kept), len(brackets), list(around))
                sentence.quotes.append(Quote(label, word, *place_of))
            if label not in parameters.deleted:
                kept.append((label, word))
        elif label is not None:
            around.append(Bracket(label, len(kept)))
            brackets.append(around[-1])
        elif closing and not around:
            raise _misplaced(line, at, place, "an opening bracket before it, found ')'")
        elif closing:
            around.pop().end = len(kept)
        at = token.end()
    if around:
        missing = f"{len(around)} more closing brackets" if around[1:] else "a closing bracket"
        raise _misplaced(line, at, place, f"{missing}, found the end of the line")
    return sentence


def _misplaced(line: str, at: int, place: str, expected: str) -> InputError:
    return InputError(
        f"{place}, column {at + 1}: expected {expected}; a line is a tree such as "
        "(S (NP (NN time)) (VP (VBZ flies)))"
    )


def difference(gold: Sentence, test: Sentence, parameters: Parameters) -> str:
    """What keeps two sentences from being compared, in EVALB's words; "" where nothing."""
    if len(gold.words) != len(test.words):
        return f"Length unmatch ({len(gold.words)}|{len(test.words)})"
    for (_, word), (_, other) in zip(gold.words, test.words, strict=True):
        if not parameters.same_word(word, other):
            return f"Words unmatch ({word}|{other})"
    return ""


def counted_brackets(brackets: list[Bracket], parameters: Parameters) -> list[Bracket]:
    """Brackets around words, labels without functions, deleted ones left out."""
    around_words = (
        Bracket(_FUNCTIONS.sub("", bracket.label), bracket.start, bracket.end)
        for bracket in brackets
        if bracket.start < bracket.end
    )
    return [bracket for bracket in around_words if not parameters.deletes(bracket.label)]


def count_matches(gold: list[Bracket], test: list[Bracket], parameters: Parameters) -> int:
    """Each gold bracket, in order, takes the first test bracket that is left and matches."""
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


def count_crossing(gold: list[Bracket], test: list[Bracket]) -> int:
    """Test brackets that share words with a gold bracket while neither holds the other."""
    spans = {(bracket.start, bracket.end) for bracket in gold}
    return sum(
        any(
            start < bracket.start < end < bracket.end or bracket.start < start < bracket.end < end
            for start, end in spans
        )
        for bracket in test
    )


def restore_quotes(gold: Sentence, test: Sentence, parameters: Parameters) -> None:
    """Put a deleted quotation mark back where the other side has it under a kept tag.

    So a tagger that takes a closing quote for a possessive does not make the sentence an error.
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


def _reinsert(sentence: Sentence, number: int) -> None:
    quote = sentence.quotes[number]
    sentence.words.insert(quote.index, (quote.tag, quote.word))
    for bracket in sentence.brackets[quote.opened :]:
        bracket.start += 1
        bracket.end += 1
    for bracket in quote.around:
        bracket.end += 1
    for later in sentence.quotes[number:]:
        later.index += 1
