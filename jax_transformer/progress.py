"""Progress reports of long work: a bar on a terminal, elsewhere a logged line now and then."""

import logging
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

from tqdm import tqdm

from jax_transformer.compilations import compilation_events

logger = logging.getLogger(__name__)

BAR_SECONDS = 2.0  # work that ends sooner shows no bar
LOG_SECONDS = 10.0
TICK_SECONDS = 1.0


class Progress:
    """A report of the number of items done and the time left; close it, as by `with`.

    Nothing is shown if INFO is not logged, except in a notebook, which has a bar always.

    >>> with Progress("translating", 3000, "lines") as progress:
    ...     progress.update(2000)
    """

    def __init__(
        self,
        label: str,
        total: int | None,
        unit: str,
        *,
        done: int = 0,
        delay: float = BAR_SECONDS,
        always: bool = False,
    ) -> None:
        """Start the report.

        total: the number of items, None if unknown. done: the number that an earlier process did.
        always: True for a bar on a terminal although INFO is not logged.
        """
        self.done, self._total = done, total
        self._label, self._unit, self._note = f"{label:<11}", unit, ""
        self._waiting = False  # for something that is no item, so that the time left is not known
        self._logged = time.monotonic()
        size = shutil.get_terminal_size()
        terminal = sys.stderr is not None and sys.stderr.isatty()
        logs = always or logger.isEnabledFor(logging.INFO)
        shown = (terminal and logs) or "ipykernel" in sys.modules
        bar = "" if total is None else "{percentage:3.0f}%|{bar}| "
        self._bar = tqdm(
            total=total,
            initial=done,
            disable=not shown,
            delay=delay,
            leave=False,
            miniters=1,  # by time alone, however slow the work becomes
            # On a terminal that does not report its size tqdm would draw nothing.
            ncols=size.columns,
            nrows=size.lines,
            bar_format=f"{self._label} {bar}{{desc}}",
        )
        # The pace: updates during which something was compiled do not count.
        self._paced, self._seconds, self._compiled = 0, 0.0, len(compilation_events())
        self._last = time.monotonic()

    def __enter__(self) -> Self:
        """Return the report itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close the report."""
        self.close()

    def clear(self) -> None:
        """Remove the bar from the terminal until the next update."""
        self._bar.clear()

    def close(self) -> None:
        """Remove the bar from the terminal, and end the report."""
        self._bar.close()

    def update(self, n: int = 1, note: str | None = None) -> None:
        """Count `n` more items as done. note: a text to show after the numbers from now on."""
        now, compiled = time.monotonic(), len(compilation_events())
        if compiled == self._compiled:
            self._paced += n
            self._seconds += now - self._last
        self._last, self._compiled = now, compiled
        self.done += n
        self._note = self._note if note is None else note
        self._show()
        self._bar.update(n)

    @contextmanager
    def noting(self, note: str) -> Iterator[None]:
        """Show another text after the numbers during the block, with its time each second."""
        before, start, ended = self._note, time.monotonic(), threading.Event()

        def show(text: str) -> None:
            self._note = text
            self._show()
            self._bar.refresh()

        def tick() -> None:
            while not ended.wait(TICK_SECONDS):
                show(f"{note}, {time.monotonic() - start:.0f} s")

        self._waiting, clock = True, threading.Thread(target=tick, daemon=True)
        show(note)
        clock.start()
        try:
            yield
        finally:
            ended.set()
            clock.join()
            self._waiting, self._last = False, time.monotonic()
            show(before)

    def _show(self) -> None:
        now = time.monotonic()
        if not self._bar.disable:
            self._bar.set_description_str(self._state(), refresh=False)
        elif now - self._logged > LOG_SECONDS:
            self._logged = now
            logger.info(f"{self._label} {self._state()}")

    def _state(self) -> str:
        of = "" if self._total is None else f" of {self._total:,}"
        parts = [f"{self.done:,}{of} {self._unit}", self._note]
        if self._total is not None and self._paced and not self._waiting:
            left = self._seconds / self._paced * (self._total - self.done)
            parts.append(f"{duration(left)} left")
        return ", ".join(filter(None, parts))


def duration(seconds: float) -> str:
    """Return a duration as text, in its two largest units.

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
