"""§6.3 EVALB's totals over sentences, and its report, byte for byte."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from jax_transformer.parsing.evalb import Parameters, SentenceScore, Status, percent

_RULE = "=" * 76
_HEAD = f"""\
  Sent.                        Matched  Bracket   Cross        Correct Tag
 ID  Len.  Stat. Recal  Prec.  Bracket gold test Bracket Words  Tags Accracy
{_RULE}
"""


class Total(NamedTuple):
    """The sums over sentences: the number of each status, and the counts of the valid ones."""

    sentences: int
    errors: int
    skipped: int
    complete: int
    uncrossed: int
    crossed_twice_at_most: int
    counts: SentenceScore

    @property
    def valid(self) -> int:
        """The number of sentences that are scored."""
        return self.sentences - self.errors - self.skipped

    @property
    def average_crossing(self) -> float:
        """The number of crossing brackets per valid sentence."""
        return self.counts.crossing / self.valid if self.valid else 0.0


def total(scores: Iterable[SentenceScore], cutoff: int | None = None) -> Total:
    """Sum over all sentences, or over those of at most `cutoff` words."""
    chosen = [score for score in scores if cutoff is None or score.length <= cutoff]
    valid = [score for score in chosen if score.status == Status.VALID]
    parts = ("length", "matched", "gold", "test", "crossing", "words", "tags")
    sums: dict[str, Any] = {part: sum(getattr(s, part) for s in valid) for part in parts}
    return Total(
        sentences=len(chosen),
        errors=sum(score.status == Status.ERROR for score in chosen),
        skipped=sum(score.status == Status.SKIPPED for score in chosen),
        complete=sum(score.complete for score in valid),
        uncrossed=sum(score.crossing == 0 for score in valid),
        crossed_twice_at_most=sum(score.crossing <= 2 for score in valid),
        counts=SentenceScore(**sums),
    )


def report(scores: Sequence[SentenceScore], parameters: Parameters) -> str:
    """Return EVALB's report: a row for each sentence, totals, and totals of the short sentences."""
    rows = "".join(_row(number, score) for number, score in enumerate(scores, start=1))
    everything = total(scores)
    return (
        f"{_HEAD}{rows}{_RULE}\n{_total_row(everything)}=== Summary ===\n"
        f"\n-- All --\n{_summary(everything)}"
        f"\n-- len<={parameters.cutoff} --\n{_summary(total(scores, parameters.cutoff))}"
    )


def _row(number: int, score: SentenceScore) -> str:
    return (
        f"{number:4d}  {score.length:3d}    {score.status:d}  "
        f"{score.recall:6.2f} {score.precision:6.2f}   {score.matched:3d}    "
        f"{score.gold:3d}  {score.test:3d}    {score.crossing:3d}   "
        f"{score.words:4d}  {score.tags:4d}   {score.tagging:6.2f}\n"
    )


def _total_row(result: Total) -> str:
    counts = result.counts
    brackets = (
        f"{'':16}{counts.recall:6.2f} {counts.precision:6.2f} {counts.matched:6d} "
        f"{counts.gold:5d} {counts.test:5d}  {counts.crossing:5d}"
    )
    # EVALB omits the brackets if one side has none.
    return (
        f"{brackets if counts.gold and counts.test else ''}"
        f"  {counts.words:5d} {counts.tags:5d}   {counts.tagging:6.2f}\n"
    )


def _summary(result: Total) -> str:
    counts = result.counts
    lines = {
        "Number of sentence": f"{result.sentences:6d}",
        "Number of Error sentence": f"{result.errors:6d}",
        "Number of Skip  sentence": f"{result.skipped:6d}",
        "Number of Valid sentence": f"{result.valid:6d}",
        "Bracketing Recall": f"{counts.recall:6.2f}",
        "Bracketing Precision": f"{counts.precision:6.2f}",
        "Bracketing FMeasure": f"{counts.f1:6.2f}",
        "Complete match": f"{percent(result.complete, result.valid):6.2f}",
        "Average crossing": f"{result.average_crossing:6.2f}",
        "No crossing": f"{percent(result.uncrossed, result.valid):6.2f}",
        "2 or less crossing": f"{percent(result.crossed_twice_at_most, result.valid):6.2f}",
        "Tagging accuracy": f"{counts.tagging:6.2f}",
    }
    return "".join(f"{name:<25} = {value}\n" for name, value in lines.items())
