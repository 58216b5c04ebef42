"""Where training stands, on a terminal or in a log."""

import logging
import math
import shutil
import sys
import time

from tqdm import tqdm

logger = logging.getLogger(__name__)

PROGRESS_SECONDS = 10.0


class Progress:
    """Where training stands: a bar on a terminal, elsewhere a logged line now and then."""

    def __init__(self, step: int, steps: int) -> None:
        """From `step` of `steps`."""
        size = shutil.get_terminal_size()
        self._bar = tqdm(
            total=steps,
            initial=step,
            unit="step",
            disable=not sys.stderr.isatty(),
            leave=False,
            # On a terminal that does not report its size tqdm would draw nothing.
            ncols=size.columns,
            nrows=size.lines,
        )
        self._steps, self._first, self._start = steps, step, time.monotonic()
        self._logged = -math.inf

    def update(self, step: int, loss: float, tokens_per_second: float) -> None:
        """Show the state after this step."""
        now = time.monotonic()
        if not self._bar.disable:
            self._bar.update(step - self._bar.n)
            self._bar.set_postfix_str(f"loss {loss:.3f}, {tokens_per_second:,.0f} tokens/s")
        elif now - self._logged > PROGRESS_SECONDS or step == self._steps:
            self._logged = now
            left = (now - self._start) / max(step - self._first, 1) * (self._steps - step)
            logger.info(
                f"step {step:>7,} of {self._steps:,}  loss {loss:.3f}  "
                f"{tokens_per_second:,.0f} tokens/s  {left / 60:.1f} min left"
            )

    def close(self) -> None:
        """Take the bar off the screen."""
        self._bar.close()
