"""Ctrl-C and SIGTERM during training: note the signal, so that the loop can save and leave."""

import signal
import threading
from types import FrameType
from typing import Any


class Preemption:
    """The signal that asked the training loop to end; None until one comes.

        with Preemption() as preemption:
            for step in ...:
                ...
                if preemption.signal:
                    break  # after saving

    Inside the block the first SIGINT or SIGTERM is only noted; a second one ends the process at
    once, as it would without this class.
    """

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "Preemption":
        # Python lets only the main thread handle signals.
        if threading.current_thread() is threading.main_thread():
            kinds = (signal.SIGINT, signal.SIGTERM)
            self._previous = {kind: signal.signal(kind, self._note) for kind in kinds}
        return self

    def __exit__(self, *_: object) -> None:
        for kind, handler in self._previous.items():
            signal.signal(kind, handler)
        self._previous = {}

    def _note(self, number: int, _: FrameType | None) -> None:
        self.signal = signal.Signals(number)
        self.__exit__()
