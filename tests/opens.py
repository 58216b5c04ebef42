"""How often each file is opened for reading while a block runs."""

import contextlib
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_counters: list["Counter[str]"] = []


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    """Count a file that is opened; called for every event of Python's auditing."""
    if event == "open" and _counters:
        path, _, flags = arguments
        if isinstance(path, str | bytes | Path) and flags & os.O_ACCMODE == os.O_RDONLY:
            _counters[-1][os.fsdecode(path)] += 1


sys.addaudithook(_note)  # cannot be removed: it does nothing outside of `counted`


@contextlib.contextmanager
def counted(folder: Path) -> Iterator["Counter[str]"]:
    """Count what is read in a folder, by the path in it; the counter is complete at the end."""
    found: Counter[str] = Counter()
    _counters.append(Counter())
    try:
        yield found
    finally:
        for name, count in _counters.pop().items():
            path = Path(name).absolute()
            if path.is_relative_to(folder):
                found[path.relative_to(folder).as_posix()] += count
