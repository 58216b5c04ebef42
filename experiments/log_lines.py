"""Log lines of the commands: plain text on standard error, without the INFO of other libraries."""

import io
import logging
import os
import re
import sys
from typing import Any

from absl import logging as absl_logging

# All but tab and newline, the C1 controls, and the halves of surrogate pairs, which are not UTF-8.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def printable(text: str) -> str:
    r"""Escape the control characters of a text, which a terminal obeys, as `\x1b` and so on."""
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


class _Formatter(logging.Formatter):
    """A formatter that writes the message, after the level if it is a warning or an error.

    On a terminal it first erases a progress bar.
    """

    def format(self, record: logging.LogRecord) -> str:
        erase = "\r\x1b[K" if sys.stderr.isatty() else ""
        level = f"{record.levelname.lower()}: " if record.levelno >= logging.WARNING else ""
        return f"{erase}{level}{printable(super().format(record))}"


def _is_shown(record: logging.LogRecord) -> bool:
    """Return False for INFO of other libraries, and for tracebacks of what orbax raises again.

    asyncio logs the other failed tasks of such a save, "Task exception was never retrieved".
    """
    if record.exc_info and ("/orbax/" in record.pathname or record.name == "asyncio"):
        return False
    ours = record.name.split(".")[0] in ("jax_transformer", "experiments", "benchmarks", "__main__")
    return ours or record.levelno != logging.INFO


def _unraisable(error: Any) -> None:
    """Report an error as Python does, except for files that orbax was writing in a failed save."""
    if str(error.exc_value) != "Event loop is closed":
        sys.__unraisablehook__(error)


def open_streams() -> None:
    """Write standard output in UTF-8, and open /dev/null as standard error if it is closed.

    Programs that a daemon starts have it closed. The next file would get its number, and libraries
    in C would write into that file.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115


def show_log_lines() -> None:
    """Show log lines as plain text on standard error."""
    absl_logging.use_absl_handler()
    handler = absl_logging.get_absl_handler().python_handler
    handler.setFormatter(_Formatter())
    handler.addFilter(_is_shown)
    sys.unraisablehook = _unraisable
