"""§6.1 A warning about lines unlike a run's own: their best translations are improbable."""

import logging
from collections.abc import Sequence

import numpy as np

from jax_transformer.decoding.translator import Translation

logger = logging.getLogger(__name__)

RARE = 0.002  # the share of the run's own lines about which the check would warn
FEWEST = 100  # with fewer lines of its own a run does not have a limit


def usual_log_prob(found: Sequence[Sequence[Translation]]) -> float | None:
    """Return the log P per token, in nats, that the best output of all but RARE lines exceeds.

    found: the outputs of each line, best first. Returns None if fewer than FEWEST lines have one.
    """
    best = [outputs[0].log_prob / outputs[0].num_tokens for outputs in found if outputs]
    return float(np.quantile(best, RARE)) if len(best) >= FEWEST else None


class UnfamiliarLine:
    """A check that logs a warning about the first line with an unusually improbable translation."""

    def __init__(self, usual: float | None) -> None:
        """Set the limit.

        usual: the `usual_log_prob` of the run's own text; with None the check never warns.
        """
        self._usual = usual

    def check(self, number: int, outputs: Sequence[Translation]) -> None:
        """Check the translations, best first, of the line with this number."""
        if self._usual is None or not outputs:
            return
        found = outputs[0].log_prob / outputs[0].num_tokens
        if found < self._usual:
            logger.warning(
                f"line {number:,} is unlike the text of this model's training (log P of its "
                f"translation: {found:.2f} nats a token, on the run's own text rarely below "
                f"{self._usual:.2f}); expect mistakes in such lines"
            )
            self._usual = None
