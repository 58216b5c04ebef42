"""TensorBoard events of a run, beside metrics.jsonl."""

import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def _without_torch() -> Iterator[None]:
    """tensorboardX loads PyTorch where that is: seconds and 180 MB for what is not used here."""
    loaded = sys.modules.setdefault("torch", None)  # pyright: ignore
    try:
        yield
    finally:
        if loaded is None:
            del sys.modules["torch"]


with _without_torch():
    from tensorboardX.proto.event_pb2 import Event, SessionLog  # pyright: ignore
    from tensorboardX.proto.summary_pb2 import Summary  # pyright: ignore
    from tensorboardX.record_writer import RecordWriter

FLUSH_SECONDS = 10.0


class Events:
    """TensorBoard scalars of the lines of metrics.jsonl.

    Written by this thread: with a writer that has its own, a full disk is a traceback of
    that thread, not an error here.
    """

    def __init__(self, folder: Path, step: int) -> None:
        """A new file; it takes the place of events after `step`."""
        folder.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{time.time():.0f}.{socket.gethostname()}.{os.getpid()}"
        self._records = RecordWriter(str(folder / name))
        self._record(file_version="brain.Event:2")
        # TensorBoard forgets what an earlier session wrote from this step on.
        self._record(step=step + 1, session_log=SessionLog(status=SessionLog.START))
        self._flushed = time.monotonic()

    def write(self, line: dict[str, Any]) -> None:
        """One event with a scalar for each number."""
        values = [
            Summary.Value(tag=f"{line['split']}/{name}", simple_value=value)
            for name, value in line.items()
            if name not in ("step", "split")
        ]
        self._record(step=line["step"], summary=Summary(value=values))
        if time.monotonic() - self._flushed > FLUSH_SECONDS:
            self._records.flush()
            self._flushed = time.monotonic()

    def close(self) -> None:
        """Write what is left."""
        self._records.close()

    def _record(self, **content: Any) -> None:
        self._records.write(Event(wall_time=time.time(), **content).SerializeToString())
