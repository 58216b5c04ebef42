"""Ctrl-C and SIGTERM: stop at the next safe place."""

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any


class StoppedError(BaseException):
    """A signal asked this process to end; what has to be kept is kept.

    Like KeyboardInterrupt no Exception, so that no handler of failures takes it for one: a
    checkpoint that was being read when the signal came is not damaged.
    """


def again_soon(raising: Callable[[], None]) -> None:
    """Have this called in the main thread once more, soon, whatever that waits for by then.

    For what a signal's handler raised where Python only tells of it, in a `__del__` or a callback
    of the garbage collector (JAX has one). To be called by a `sys.unraisablehook`, in the main
    thread; takes SIGALRM.
    """

    def met(_number: int, _: FrameType | None) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        raising()

    # A signal ends a wait; more of them, for one that comes just before a wait begins does not.
    signal.signal(signal.SIGALRM, met)
    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.1)


class Stop:
    """Whether a signal came.

    Inside `deferred()` a signal is only noted, for the training loop to see between steps;
    outside of it, it raises StoppedError at once, because everything written there is
    whole or not at all. A second signal never waits.
    """

    def __init__(self) -> None:
        """No signal yet."""
        self.signal: signal.Signals | None = None
        self._deferring = False

    @property
    def requested(self) -> bool:
        """Whether a signal came."""
        return self.signal is not None

    @property
    def name(self) -> str:
        """What a person would call it."""
        return "Ctrl-C" if self.signal is signal.SIGINT else "SIGTERM"

    @property
    def exit_code(self) -> int:
        """As a shell reports the signal: 130 or 143."""
        return 128 + (self.signal or signal.SIGTERM)

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Handle both signals inside this block."""
        if threading.current_thread() is not threading.main_thread():
            yield  # Python lets only the main thread handle signals
            return
        kinds = (signal.SIGINT, signal.SIGTERM)
        before: dict[signal.Signals, Any] = {
            kind: signal.signal(kind, self._arrived) for kind in kinds
        }
        before[signal.SIGALRM] = signal.getsignal(signal.SIGALRM)
        show = sys.unraisablehook

        def swallowed(event: Any) -> None:
            if isinstance(event.exc_value, StoppedError):
                again_soon(self._again)
            else:
                show(event)

        sys.unraisablehook = swallowed
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            if sys.unraisablehook is swallowed:
                sys.unraisablehook = show
            for kind, handler in before.items():
                signal.signal(kind, handler)

    @contextlib.contextmanager
    def deferred(self) -> Iterator[None]:
        """Only note signals inside this block; they take effect at its end."""
        self._deferring = True
        try:
            yield
        finally:
            self._deferring = False
        if self.requested:
            raise StoppedError

    def _again(self) -> None:
        if not self._deferring:
            raise StoppedError

    def _arrived(self, number: int, _: FrameType | None) -> None:
        again, self.signal = self.requested, signal.Signals(number)
        if again or not self._deferring:
            raise StoppedError
