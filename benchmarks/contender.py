"""The process of one contender: it prepares its work, and does a turn of it whenever told to.

python -m benchmarks.contender FD       is started by benchmarks.contest, with a pipe

Only the standard library is imported here, so that a contender's memory is its own.
"""

import importlib
import os
import resource
import signal
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

STATUS = Path("/proc/self/status")


def cores() -> int:
    """CPU cores that this process may use, which its affinity may limit."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@dataclass(frozen=True)
class Prepared:
    """A contender that is ready: its work, and what it found out while preparing.

    take_turn: does `calls` pieces of work, one after another, and returns when all are done.
    facts: for the parent to check and to print; plain values.
    memory: the peak so far in bytes; of main memory where there is nothing to ask.
    """

    take_turn: Callable[[], Any]
    calls: int = 1
    facts: dict[str, Any] = field(default_factory=dict)
    memory: Callable[[], int] | None = None


@dataclass(frozen=True)
class Ready:
    """`Prepared` as the parent sees it."""

    calls: int
    facts: dict[str, Any]


@dataclass(frozen=True)
class Turn:
    """One turn: seconds by the clock, seconds of CPU this process took, what the work gave."""

    seconds: float
    own_cpu: float
    result: Any


@dataclass(frozen=True)
class Refusal:
    """What a user can mend, in one line."""

    message: str


class RefusalError(Exception):
    """Raised by a contender that cannot run here; its text says what, why and the remedy."""


def serve(connection: Connection, function: str, arguments: dict[str, Any]) -> None:
    """Prepare by `module:function` and its arguments, then answer until the pipe closes.

    Answers "turn" with a Turn and "memory" with the peak in bytes.
    """
    module, _, name = function.partition(":")
    try:
        prepared: Prepared = getattr(importlib.import_module(module), name)(**arguments)
    except RefusalError as error:
        connection.send(Refusal(str(error)))
        return
    connection.send(Ready(prepared.calls, prepared.facts))
    while True:
        try:
            asked = connection.recv()
        except EOFError:
            return
        memory = prepared.memory or peak_memory
        connection.send(_turn(prepared) if asked == "turn" else memory())


def _turn(prepared: Prepared) -> Turn:
    cpu, start = _cpu_seconds(), time.perf_counter()
    result = prepared.take_turn()
    return Turn(time.perf_counter() - start, _cpu_seconds() - cpu, result)


def _cpu_seconds() -> float:
    """Of this process, and of those that it started and that have ended."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


def peak_memory() -> int:
    """Bytes of main memory this process had at most so far (resident).

    Linux counts them for each program anew; elsewhere a process starts with its parent's.
    """
    if sys.platform == "linux" and STATUS.exists():
        for line in STATUS.read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024  # macOS counts bytes, Linux kibibytes
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def main() -> None:
    """Take the pipe, and keep standard output free for the parent's table."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends us, and says what is to be said
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    warnings.simplefilter("ignore")  # what libraries warn of is nothing a user can mend
    connection = Connection(int(sys.argv[1]))
    function, arguments = connection.recv()
    serve(connection, function, arguments)


if __name__ == "__main__":
    # Not from here: what is pickled has to be of the module that the parent imports.
    from benchmarks import contender

    contender.main()
