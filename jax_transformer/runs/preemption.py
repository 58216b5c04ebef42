"""Signals that end training: note the first one, so that the loop can save and leave."""

import contextlib
import os
import signal
import stat
import threading
from collections.abc import Sequence
from types import FrameType
from typing import Any

# SIGHUP: the terminal was closed, or the connection was lost. SIGUSR1: Slurm's time limit is near.
KINDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)


class Preemption:
    """A handler that notes the signal that ends the training loop; None until one comes.

    Inside the block the first signal of KINDS is only noted. A second one ends the process at once,
    as it would without this class; a second SIGHUP does not, because a terminal that closes may
    send several. A signal that is ignored (nohup) stays ignored.
    """

    def __init__(self, kinds: Sequence[signal.Signals] = KINDS) -> None:
        self._kinds = kinds
        self.signal: signal.Signals | None = None
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "Preemption":
        # Python lets only the main thread handle signals.
        if threading.current_thread() is threading.main_thread():
            handlers = {kind: signal.getsignal(kind) for kind in self._kinds}
            self._previous = {
                kind: handler
                for kind, handler in handlers.items()
                if handler not in (signal.SIG_IGN, None)  # None: not Python's
            }
            for kind in self._previous:
                signal.signal(kind, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for kind, handler in self._previous.items():
            signal.signal(kind, handler)
        self._previous = {}

    def _note(self, number: int, _: FrameType | None) -> None:
        self.signal = self.signal or signal.Signals(number)
        for kind, handler in self._previous.items():
            if kind is not signal.SIGHUP:
                signal.signal(kind, handler)
        _leave_closed_terminal()


def _leave_closed_terminal() -> None:
    """Redirect output to a closed terminal to /dev/null, since writing to it is an error."""
    for stream in (1, 2):
        with contextlib.suppress(OSError):  # a stream that was closed before
            if stat.S_ISCHR(os.fstat(stream).st_mode) and not os.isatty(stream):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
