"""§6 A score, together with everything that is needed to compare it."""

from dataclasses import asdict, dataclass

# The settings of a search that a score depends on.
SEARCH = ("beam_size", "alpha", "patience", "narrowing", "length_penalty", "max_extra_length")

# Of the bootstrap: 95% of fewer are all, and sacreBLEU holds the statistics of all at once.
FEWEST_RESAMPLES, MOST_RESAMPLES = 40, 10_000


@dataclass(frozen=True)
class Score:
    """A score with its signature; scores compare only under equal signatures.

    signature: the method of computation, with versions. detail: the parts of the score.
    mean, interval: the results of bootstrap resampling; 95% of the samples lie within +- interval.
    counted: a text about the sentences that an F1 counts, if EVALB leaves some out as errors.
    """

    metric: str
    score: float
    signature: str
    detail: str = ""
    mean: float | None = None
    interval: float | None = None
    counted: str | None = None

    def __str__(self) -> str:
        """Return the number alone: a percentage to two decimals, loss and perplexity to three."""
        three = self.metric in ("loss", "nll", "perplexity")
        return f"{self.score:.{3 if three else 2}f}"

    def as_dict(self) -> dict[str, str | float]:
        """Return the fields that are not None, by name, ready for JSON."""
        return {name: value for name, value in asdict(self).items() if value is not None}
