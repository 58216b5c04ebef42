"""How far long work has come: a bar on a terminal, elsewhere a logged line now and then."""

import logging
import shutil
import sys
import time
from typing import Any

from tqdm import tqdm

logger = logging.getLogger(__name__)

BAR_SECONDS = 2.0  # work that ends sooner shows no bar
LOG_SECONDS = 10.0


class Progress:
    """How many of a number of things are done, and the time left; to be closed, as by `with`.

    Nothing is shown where INFO is not logged.

    >>> with Progress("translating", 3000, "lines") as progress:
    ...     progress.update(2000)
    """

    def __init__(
        self, label: str, total: int | None, unit: str, *, done: int = 0, delay: float = BAR_SECONDS
    ) -> None:
        """total: None where it is not known. done: what an earlier process did."""
        self._label, self._total, self._unit = f"{label:<11}", total, unit
        self._done, self._logged = done, time.monotonic()
        self._begun: tuple[int, float] | None = None  # (done, when) of the first update
        size = shutil.get_terminal_size()
        self._bar = _Bar(
            desc=self._label,
            total=total,
            initial=done,
            disable=not (sys.stderr.isatty() and logger.isEnabledFor(logging.INFO)),
            delay=delay,
            leave=False,
            # On a terminal that does not report its size tqdm would draw nothing.
            ncols=size.columns,
            nrows=size.lines,
            bar_format="{desc} {state}"
            if total is None
            else "{desc} {percentage:3.0f}%|{bar}| {state}",
        )
        self._bar.state = self._state("")

    def __enter__(self) -> "Progress":
        """Itself."""
        return self

    def __exit__(self, *_: Any) -> None:
        """`close`."""
        self.close()

    def update(self, count: int = 1, note: str = "") -> None:
        """`count` more are done. note: what else to show."""
        self._done += count
        now = time.monotonic()
        self._begun = self._begun or (self._done, now)
        if not self._bar.disable:
            self._bar.state = self._state(note)
            self._bar.update(count)
        elif now - self._logged > LOG_SECONDS:
            self._logged = now
            logger.info(f"{self._label} {self._state(note)}")

    def clear(self) -> None:
        """Take the bar off the screen until the next update, to write something else there."""
        self._bar.clear()

    def close(self) -> None:
        """Take the bar off the screen."""
        self._bar.close()

    def _state(self, note: str) -> str:
        of = "" if self._total is None else f" of {self._total:,}"
        parts = [f"{self._done:,}{of} {self._unit}", note]
        # The first update says nothing about the others: it has waited for compilation.
        first, since = self._begun or (self._done, 0.0)
        if self._total is not None and self._done > first:
            left = (time.monotonic() - since) / (self._done - first) * (self._total - self._done)
            parts.append(f"{duration(left)} left")
        return ", ".join(filter(None, parts))


class _Bar(tqdm):
    """tqdm's, with a text of ours beside the bar."""

    state = ""

    @property
    def format_dict(self) -> dict[str, Any]:
        """What bar_format may name."""
        return {**super().format_dict, "state": self.state}


def duration(seconds: float) -> str:
    """In the two largest units.

    >>> [duration(seconds) for seconds in (8, 95, 7260, 3_600_000)]
    ['8 s', '2 min', '2 h 1 min', '41 d 16 h']
    """
    minutes = round(seconds / 60)
    if minutes < 1:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(minutes, 60)
    if not hours:
        return f"{minutes} min"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if days else f"{hours} h {minutes} min"
