"""A contender whose turn is a whole command, from its start to its end. Standard library only."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.contender import Prepared


def prepare(command: list[str], source: str, output: str) -> Prepared:
    """Each turn runs the command with `source` as its input and `output` as what it writes.

    A turn gives its exit code, seconds of CPU and peak of memory in bytes. Memory is right
    because this process is small: a command counts its parent's at its start.
    """
    unit = 1 if sys.platform == "darwin" else 1024  # macOS counts bytes, Linux kibibytes

    def take_turn() -> dict[str, Any]:
        with Path(source).open("rb") as given, Path(output).open("wb") as taken:
            process = subprocess.Popen(command, stdin=given, stdout=taken)
            _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        return {
            "exit": process.returncode,
            "cpu": usage.ru_utime + usage.ru_stime,
            "memory": usage.ru_maxrss * unit,
        }

    return Prepared(take_turn)
