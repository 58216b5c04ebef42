"""§6.1 A warning about lines unlike a run's own: their best translations are improbable."""

import logging
from collections.abc import Sequence

import numpy as np

from jax_transformer.decoding.translator import Translation

logger = logging.getLogger(__name__)

RARE = 0.002  # share of the run's own lines with an output as improbable as one that is warned of
FEWEST = 100  # lines that show what is usual


def usual_log_prob(found: Sequence[Sequence[Translation]]) -> float | None:
    """The log P a token, in nats, that the best output of all but RARE of the lines exceeds.

    found: outputs of each line, best first. None if fewer than FEWEST lines have one.
    """
    best = [outputs[0].log_prob / outputs[0].num_tokens for outputs in found if outputs]
    return float(np.quantile(best, RARE)) if len(best) >= FEWEST else None


class UnfamiliarLine:
    """Logs one warning, about the first line whose translation is less probable than usual."""

    def __init__(self, usual: float | None) -> None:
        """usual: `usual_log_prob` of the run's own text, or None, which never warns."""
        self._usual = usual

    def check(self, number: int, outputs: Sequence[Translation]) -> None:
        """Look at the translations of the line with this number, best first."""
        if self._usual is None or not outputs:
            return
        found = outputs[0].log_prob / outputs[0].num_tokens
        if found < self._usual:
            logger.warning(
                f"line {number:,} is unlike the text that this model knows (log P of its "
                f"translation: {found:.2f} nats a token, on the run's own text rarely below "
                f"{self._usual:.2f}); expect mistakes in such lines"
            )
            self._usual = None
