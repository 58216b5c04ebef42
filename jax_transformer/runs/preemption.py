"""Ctrl-C and SIGTERM during training: note the signal, so that the loop can save and leave."""

import signal
import threading
from types import FrameType
from typing import Any

import jax
from jax.experimental import multihost_utils


class Preemption:
    """Whether a signal asked the training loop to end.

        with Preemption() as preemption:
            for step in ...:
                ...
                if preemption.reached(step):
                    break  # after saving

    Inside the block the first SIGINT or SIGTERM is only noted; a second one ends the process at
    once, as it would without this class. With several processes JAX's own preemption service
    catches SIGTERM and all of them leave after the same step.
    """

    def __init__(self) -> None:
        """No signal yet."""
        self.signal: signal.Signals | None = None
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "Preemption":
        # Python lets only the main thread handle signals.
        if jax.process_count() == 1 and threading.current_thread() is threading.main_thread():
            kinds = (signal.SIGINT, signal.SIGTERM)
            self._previous = {kind: signal.signal(kind, self._note) for kind in kinds}
        return self

    def __exit__(self, *_: object) -> None:
        for kind, handler in self._previous.items():
            signal.signal(kind, handler)
        self._previous = {}

    def reached(self, step: int) -> bool:
        """Whether to save and leave after this step; all processes get the same answer."""
        if multihost_utils.reached_preemption_sync_point(step):
            self.signal = signal.SIGTERM
        return self.signal is not None

    def _note(self, number: int, _: FrameType | None) -> None:
        self.signal = signal.Signals(number)
        self.__exit__()
