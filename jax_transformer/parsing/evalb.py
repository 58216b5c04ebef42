"""§6.3 EVALB: labelled brackets of a parse matched with those of the gold tree.

Every rule is EVALB's, also where another would be as good: published scores are its.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from jax_transformer.errors import InputError
from jax_transformer.parsing.evalb_brackets import (
    count_crossing,
    count_matches,
    counted_brackets,
    difference,
    read_sentence,
    restore_quotes,
)
from jax_transformer.parsing.evalb_parameters import COLLINS as COLLINS
from jax_transformer.parsing.evalb_parameters import Parameters as Parameters
from jax_transformer.parsing.evalb_parameters import read_parameters as read_parameters

if TYPE_CHECKING:
    from jax_transformer.evaluation.bleu import Score


class Status(IntEnum):
    """What became of a sentence; the numbers are those that EVALB prints."""

    VALID = 0
    ERROR = 1
    SKIPPED = 2


@dataclass(frozen=True)
class SentenceScore:
    """The counts of a sentence. All but the length are 0 where it is not valid.

    length: words of the gold tree but those deleted for length. matched, gold, test:
    brackets. crossing: brackets of the test that cross one of gold. words: without the
    deleted ones; tags: how many of them have the gold tag. problem: what makes it an error.
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
        """Whether all brackets match."""
        return self.matched == self.gold == self.test

    @property
    def recall(self) -> float:
        """Percent of the gold brackets that match."""
        return percent(self.matched, self.gold)

    @property
    def precision(self) -> float:
        """Percent of the test brackets that match."""
        return percent(self.matched, self.test)

    @property
    def f1(self) -> float:
        """Harmonic mean of recall and precision, in percent; 0 where nothing matches."""
        return _harmonic(self.recall, self.precision)

    @property
    def tagging(self) -> float:
        """Percent of the words that have the gold tag."""
        return percent(self.tags, self.words)


@dataclass(frozen=True)
class Total:
    """Sums over sentences: how many of each status, and the counts of the valid ones."""

    sentences: int = 0
    errors: int = 0
    skipped: int = 0
    complete: int = 0
    uncrossed: int = 0
    crossed_twice_at_most: int = 0
    counts: SentenceScore = field(default_factory=lambda: SentenceScore(0))

    @property
    def valid(self) -> int:
        """Sentences that the score is of."""
        return self.sentences - self.errors - self.skipped

    @property
    def average_crossing(self) -> float:
        """Crossing brackets a valid sentence."""
        return self.counts.crossing / self.valid if self.valid else 0.0


def percent(part: int, whole: int) -> float:
    """100 part / whole, 0 where the whole is 0."""
    return 100.0 * part / whole if whole else 0.0


def _harmonic(recall: float, precision: float) -> float:
    return 2 * precision * recall / (precision + recall) if recall and precision else 0.0


def score_sentence(
    gold: str,
    test: str,
    parameters: Parameters = COLLINS,
    places: tuple[str, str] = ("gold", "test"),
) -> SentenceScore:
    """Compare two lines of brackets, each one tree or several, over the same words.

    Labels of constituents are compared up to their first `-` or `=`, tags as they are.
    Equal brackets match one to one. `places` is what errors call the lines.

    Raises:
      InputError: a line is not made of trees.
    """
    ours = read_sentence(gold, parameters, places[0])
    theirs = read_sentence(test, parameters, places[1])
    if not theirs.words:
        return SentenceScore(ours.length, Status.SKIPPED)
    if len(ours.words) != len(theirs.words):
        restore_quotes(ours, theirs, parameters)
    problem = difference(ours, theirs, parameters)
    if problem:
        return SentenceScore(ours.length, Status.ERROR, problem=problem)
    wanted, found = (counted_brackets(side.brackets, parameters) for side in (ours, theirs))
    return SentenceScore(
        ours.length,
        matched=count_matches(wanted, found, parameters),
        gold=len(wanted),
        test=len(found),
        crossing=count_crossing(wanted, found),
        words=len(ours.words),
        tags=sum(
            parameters.same_label(tag, other)
            for (tag, _), (other, _) in zip(ours.words, theirs.words, strict=True)
        ),
    )


def total(scores: Iterable[SentenceScore], cutoff: int | None = None) -> Total:
    """The sums, over all sentences or over those of at most `cutoff` words."""
    taken = [score for score in scores if cutoff is None or score.length <= cutoff]
    valid = [score for score in taken if score.status == Status.VALID]
    parts = ("length", "matched", "gold", "test", "crossing", "words", "tags")
    sums: dict[str, Any] = {part: sum(getattr(s, part) for s in valid) for part in parts}
    return Total(
        sentences=len(taken),
        errors=sum(score.status == Status.ERROR for score in taken),
        skipped=sum(score.status == Status.SKIPPED for score in taken),
        complete=sum(score.complete for score in valid),
        uncrossed=sum(score.crossing == 0 for score in valid),
        crossed_twice_at_most=sum(score.crossing <= 2 for score in valid),
        counts=SentenceScore(**sums),
    )


def f1(golds: Sequence[str], tests: Sequence[str], parameters: Parameters = COLLINS) -> "Score":
    """Labelled F1, in percent, of a tree a line against the gold tree of the same number.

    2 P R / (P + R) of the brackets of all valid sentences. The signature names the settings
    and counts the sentences left out, which can only raise a score: compare it where there
    are as few of them. `detail` has recall, precision, complete match and tagging.

    Raises:
      InputError: the counts differ or are 0, or a line is not made of trees.
    """
    if len(golds) != len(tests) or not golds:
        raise InputError(
            f"expected one parse for each gold tree, and at least one, found {len(tests):,} "
            f"parses and {len(golds):,} gold trees; score parses of exactly the gold sentences"
        )
    numbered = enumerate(zip(golds, tests, strict=True), start=1)
    result = total(
        score_sentence(gold, test, parameters, (f"gold, line {n}", f"test, line {n}"))
        for n, (gold, test) in numbered
    )
    return f1_of(result, parameters)


def f1_of(result: Total, parameters: Parameters = COLLINS) -> "Score":
    """The F1 of sums that are there already; signature and detail as in `f1`."""
    # Imported late, as sacreBLEU comes with it.
    from jax_transformer.evaluation.bleu import Score

    counts = result.counts
    return Score(
        "F1",
        counts.f1,
        f"evalb|prm:{parameters.name}|sentences:{result.sentences}"
        f"|errors:{result.errors}|skipped:{result.skipped}",
        f"recall {counts.recall:.2f}, precision {counts.precision:.2f}, complete match "
        f"{percent(result.complete, result.valid):.2f}, tagging {counts.tagging:.2f}",
    )
