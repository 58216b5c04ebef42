"""Progress of long work: tqdm's bar on a terminal, elsewhere a logged line every ten seconds."""

import io
import logging
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tqdm import tqdm

logger = logging.getLogger(__name__)

BAR_SECONDS = 2.0  # work that ends sooner shows no bar
LOG_SECONDS = 10.0


def shows_bars() -> bool:
    """Return True if standard error is a terminal, or if this is a notebook."""
    return _in_notebook() or (sys.stderr is not None and sys.stderr.isatty())


def _in_notebook() -> bool:
    return "ipykernel" in sys.modules


class Progress(tqdm):
    """A progress bar, or log lines where there is no terminal; close it, as by `with`.

    Nothing is shown if INFO is not logged, except in a notebook, which always has a bar.

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
        delay: seconds before a bar appears.
        always: True for a bar on a terminal although INFO is not logged.
        """
        logs = logger.isEnabledFor(logging.INFO)
        self._bar = shows_bars() and (_in_notebook() or logs or always)
        size = shutil.get_terminal_size()  # a terminal may not report its size to tqdm
        shown: dict[str, Any] = {"delay": delay, "ncols": size.columns, "nrows": size.lines}
        if not self._bar:
            # tqdm forgets a total that is exceeded, as by a file that grows.
            of, left = ("", "") if total is None else (f" of {total:,}", "<{remaining}")
            shown = {"delay": LOG_SECONDS, "mininterval": LOG_SECONDS, "file": io.StringIO()}
            shown["bar_format"] = f"{{desc}} {{n:,}}{of} {unit} [{{elapsed}}{left}{{postfix}}]"
        super().__init__(
            desc=f"{label:<11}",
            total=total,
            unit=f" {unit}",
            initial=done,
            disable=not (self._bar or logs),
            leave=False,
            miniters=1,  # by time alone, however slow the work becomes
            **shown,
        )

    def update(self, n: float = 1, note: str | None = None) -> bool | None:
        """Count `n` more items as done. note: a text to show after the numbers from now on."""
        if note is not None:
            self.set_postfix_str(note, refresh=self._bar and not self.delay)
        return super().update(n)

    @contextmanager
    def noting(self, note: str) -> Iterator[None]:
        """Show another text after the numbers during the block."""
        before = getattr(self, "postfix", None)  # a disabled bar has none
        self.update(0, note)
        yield
        self.update(0, before or "")

    def display(self, msg: str | None = None, pos: int | None = None) -> bool | None:
        """Draw the bar, or log a line instead."""
        if self._bar:
            return super().display(msg, pos)
        if msg is None:
            logger.info(f"{self}")
        return True
