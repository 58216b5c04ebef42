"""What a run reports of itself: metrics.jsonl and TensorBoard events, in step with each other."""

import json
import math
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
from tensorboardX.proto.event_pb2 import Event, SessionLog  # pyright: ignore
from tensorboardX.proto.summary_pb2 import Summary  # pyright: ignore
from tensorboardX.record_writer import RecordWriter

from experiments.flags import warn
from jax_transformer.metrics import perplexity
from jax_transformer.run_folder import RunFolder, write_text
from jax_transformer.training import StepMetrics

if TYPE_CHECKING:
    from experiments.training_loop import Done

FLUSH_SECONDS = 10.0


_compilations = 0  # of this process


def _count_compilations(event: str, duration_secs: float, **_: Any) -> None:
    """A function taken from the cache on disk counts too: it was not there before."""
    global _compilations
    del duration_secs
    _compilations += event == "/jax/core/compile/backend_compile_duration"


jax.monitoring.register_event_duration_secs_listener(_count_compilations)


class MetricsLog:
    """metrics.jsonl and TensorBoard events of a run; seconds count over all its sessions."""

    def __init__(self, folder: RunFolder, step: int) -> None:
        """Go on after `step`: lines of steps that were lost with a crash are taken out."""
        kept = [line for line in _read_lines(folder) if line["step"] <= step]
        write_text(folder.metrics, "".join(json.dumps(line) + "\n" for line in kept))
        self._evaluated = {line["step"] for line in kept if line["split"] == "dev"}
        self._seconds = max((line.get("total_seconds", 0.0) for line in kept), default=0.0)
        self._file = folder.metrics.open("a", encoding="utf-8")
        self._events = Events(folder.tensorboard, step)
        self._clock = time.perf_counter()
        self._input_seconds, self._compilations = 0.0, _compilations

    def has_dev(self, step: int) -> bool:
        """Whether the dev text was scored at this step."""
        return step in self._evaluated

    def restart_clock(self) -> None:
        """Leave what passed since the last line out of tokens/s."""
        now = time.perf_counter()
        self._seconds += now - self._clock
        self._clock, self._compilations = now, _compilations

    @contextmanager
    def making_input(self) -> Iterator[None]:
        """Count the time within: devices wait for so much of it as they have no step to take."""
        start = time.perf_counter()
        yield
        self._input_seconds += time.perf_counter() - start

    def training_line(
        self, done: "Done", fetched: list[StepMetrics], computed: int, rate: float
    ) -> dict[str, Any]:
        """Write what the last steps came to: sums over them, divided once."""
        now = time.perf_counter()
        seconds, self._clock = now - self._clock, now
        self._seconds += seconds
        tokens = sum(float(m.loss.tokens) for m in fetched)
        source = sum(float(m.source_tokens) for m in fetched)
        nll = sum(float(m.loss.nll) for m in fetched)
        line = {
            "step": done.step,
            "split": "train",
            "epoch": done.epoch,
            "loss": sum(float(m.loss.smoothed) for m in fetched) / tokens,
            "nll": nll / tokens,
            "perplexity": perplexity(nll, tokens),
            "learning_rate": rate,
            "gradient_norm": float(fetched[-1].gradient_norm),
            "tokens_per_second": (tokens + source) / seconds,
            "tokens_per_second_with_padding": computed / seconds,
            "target_tokens_per_second": tokens / seconds,
            "seconds": round(seconds, 3),
            "input_seconds": round(self._input_seconds, 6),
            "compilations": _compilations - self._compilations,
            "total_seconds": round(self._seconds, 3),
        }
        self._input_seconds, self._compilations = 0.0, _compilations
        self.write(line)
        return line

    def write(self, line: dict[str, Any]) -> None:
        """One JSON object a line, and the same numbers as events; JSON has null for infinity."""
        finite = {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in line.items()
        }
        self._file.write(json.dumps(finite, allow_nan=False) + "\n")
        self._file.flush()
        self._events.write(line)

    def close(self) -> None:
        """Flush both."""
        try:
            self._file.close()
        finally:
            self._events.close()


class Events:
    """TensorBoard scalars of the lines of metrics.jsonl.

    Written by this thread: with a writer that has its own, a full disk is a traceback of
    that thread, not an error here.
    """

    def __init__(self, folder: Path, step: int) -> None:
        """A file that appears with the first line; it takes the place of events after `step`."""
        self._folder, self._step = folder, step
        self._records: RecordWriter | None = None
        self._flushed = time.monotonic()

    def write(self, line: dict[str, Any]) -> None:
        """One event with a scalar for each number."""
        values = [
            Summary.Value(tag=f"{line['split']}/{name}", simple_value=value)
            for name, value in line.items()
            if name not in ("step", "split")
        ]
        self._records = records = self._records or self._opened()
        self._record(records, step=line["step"], summary=Summary(value=values))
        if time.monotonic() - self._flushed > FLUSH_SECONDS:
            records.flush()
            self._flushed = time.monotonic()

    def close(self) -> None:
        """Write what is left."""
        if self._records is not None:
            self._records.close()

    def _opened(self) -> RecordWriter:
        self._folder.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{time.time():.0f}.{socket.gethostname()}.{os.getpid()}"
        records = RecordWriter(str(self._folder / name))
        self._record(records, file_version="brain.Event:2")
        # TensorBoard forgets what an earlier session wrote from this step on.
        start = SessionLog(status=SessionLog.START)
        self._record(records, step=self._step + 1, session_log=start)
        return records

    @staticmethod
    def _record(records: RecordWriter, **content: Any) -> None:
        records.write(Event(wall_time=time.time(), **content).SerializeToString())


def _read_lines(folder: RunFolder) -> Iterator[dict[str, Any]]:
    try:
        content = folder.metrics.read_text(encoding="utf-8")
    except FileNotFoundError:
        return
    for line in content.splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            warn(f"{folder.metrics}: left out a line that was cut short")
