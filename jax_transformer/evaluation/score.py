"""A number that never travels without all that is needed to compare it (§6)."""

from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Score:
    """A score with its signature; scores compare only under equal signatures.

    signature: how it was computed, with versions; for BLEU and chrF sacreBLEU's own.
    detail: its parts, for BLEU the precisions of 1- to 4-grams, BP, ratio and lengths.
    mean, interval: with bootstrap resampling, 95% of the samples lie within mean +- interval.
    """

    metric: str
    score: float
    signature: str
    detail: str = ""
    mean: float | None = None
    interval: float | None = None

    def __str__(self) -> str:
        """The number alone: a percentage with two decimals, a loss or a perplexity with three."""
        three = self.metric in ("loss", "nll", "perplexity")
        return f"{self.score:.{3 if three else 2}f}"

    def as_dict(self) -> dict[str, str | float]:
        """The fields that are not None, by name, ready for JSON."""
        return {name: value for name, value in asdict(self).items() if value is not None}
