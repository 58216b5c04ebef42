"""The metrics of a run: metrics.jsonl, and the same numbers as TensorBoard events."""

import functools
import logging
import os
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from jax_transformer.data.batching import Epoch
from jax_transformer.evaluation.bleu import perplexity
from jax_transformer.files import (
    append_bytes,
    encode_json,
    naming,
    parse_json,
    read_bytes,
    write_bytes,
)
from jax_transformer.runs.run_dir import RunFolder
from jax_transformer.training.train_step import StepMetrics

logger = logging.getLogger(__name__)

# A function that gets each line of metrics; it returns True to end training.
OnLine = Callable[[dict[str, Any]], object]


# The numbers of a training line that TensorBoard groups as "train"; the others are "progress".
CURVES = {"loss", "nll", "perplexity", "learning_rate", "gradient_norm"}


class StepRecord(NamedTuple):
    """A training step that was dispatched: its position in the data, and its metrics."""

    step: int
    epoch: int
    index: int  # of its batch in the epoch
    plan: Epoch
    metrics: StepMetrics  # on the devices; NumPy scalars once they were read back
    input_wait: float  # seconds that the loop waited for its batch
    compilations: int  # of its shape; 0 if that was compiled before

    @property
    def is_done(self) -> bool:
        """Return True if the devices have computed the step; does not wait for them."""
        return self.metrics.gradient_norm.is_ready()  # pyright: ignore


@functools.cache
def compilation_events() -> list[str]:
    """Return a list that grows with each function that this process compiles from now on.

    A function that is taken from JAX's cache on disk counts too.
    """
    events: list[str] = []

    def note(event: str, duration_secs: float, **_: Any) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            events.append(event)

    jax.monitoring.register_event_duration_secs_listener(note)
    return events


@dataclass(frozen=True)
class MetricsLine:
    """The part of a line of metrics.jsonl that is read back."""

    step: int
    split: str


class MetricsWriter:
    """A writer of metrics.jsonl and TensorBoard events; `total_seconds` count over restarts."""

    def __init__(
        self,
        folder: RunFolder,
        step: int,
        seconds: float = 0.0,
        *,
        writes: bool = True,
        on_line: OnLine | None = None,
    ) -> None:
        """Open the files after `step`; lines of later steps, which a crash has undone, are removed.

        seconds: the time that the steps up to this one took.
        writes: False for a process that only reads the lines, while another one writes.
        on_line: is called with each line that is written; `ends` is True once it returned True.
        """
        self._on_line, self.ends = on_line, False
        # Without a step the score of step 0 may be of another initial model, or another text.
        lines = [
            (t, line) for t, line in read_metrics(folder.metrics) if step and line.step <= step
        ]
        self._evaluated = {line.step for _, line in lines if line.split == "dev"}
        self.total_seconds = seconds
        self._folder, self._path = folder.path, folder.metrics
        self._events = None
        if writes:
            write_bytes(folder.metrics, b"".join(text + b"\n" for text, _ in lines))
            from tensorboardX import SummaryWriter  # imports PyTorch if there is one

            folder.tensorboard.mkdir(parents=True, exist_ok=True)
            # max_queue=0: its thread ends on a full disk, and a bounded queue would then block.
            own: Any = {"filename_suffix": f".{os.getpid()}", "max_queue": 0, "flush_secs": 10}
            self._events = SummaryWriter(str(folder.tensorboard), purge_step=step + 1, **own)
        self._clock = time.perf_counter()

    def has_dev(self, step: int) -> bool:
        """Return True if the dev text was scored at this step."""
        return step in self._evaluated

    def lap(self) -> float:
        """Return the seconds since the last call, or since the start."""
        now = time.perf_counter()
        seconds, self._clock = now - self._clock, now
        self.total_seconds += seconds
        return seconds

    def write_window(
        self,
        records: Sequence[StepRecord],
        source_tokens: int,
        computed_tokens: int,
        learning_rate: float,
        seconds: float,
    ) -> dict[str, Any]:
        """Write and return the line of some steps in a row: sums over them, divided once.

        source_tokens: the number of real tokens of the source side.
        computed_tokens: the number of tokens of both sides with padding.
        seconds: the time that the steps took.
        """
        fetched = [record.metrics for record in records]
        tokens = sum(float(m.loss.tokens) for m in fetched)
        nll = sum(float(m.loss.nll) for m in fetched)
        line = {
            "step": records[-1].step,
            "split": "train",
            "epoch": records[-1].epoch,
            "loss": sum(float(m.loss.smoothed) for m in fetched) / tokens,
            "nll": nll / tokens,
            "perplexity": perplexity(nll, tokens),
            "learning_rate": learning_rate,
            "gradient_norm": float(fetched[-1].gradient_norm),
            "tokens_per_second": (tokens + source_tokens) / seconds,
            "tokens_per_second_with_padding": computed_tokens / seconds,
            "target_tokens_per_second": tokens / seconds,
            "seconds": round(seconds, 3),
            "step_seconds": round(seconds / len(records), 6),
            "input_wait_share": round(sum(record.input_wait for record in records) / seconds, 6),
            "compilations": sum(record.compilations for record in records),
            "total_seconds": round(self.total_seconds, 3),
        }
        self.write(line)
        return line

    def write(self, line: dict[str, Any]) -> None:
        """Write a line with a JSON object, null for infinity, and an event of the same numbers."""
        if self._events:
            with naming(self._folder):
                if not self._path.exists():
                    logger.warning(f"{self._path}: removed during training; it begins again here")
                append_bytes(self._path, encode_json(line) + b"\n")
                split = line["split"]
                for name, value in line.items():
                    if name not in ("step", "split"):
                        group = "progress" if split == "train" and name not in CURVES else split
                        self._events.add_scalar(f"{group}/{name}", value, line["step"])
            if self._on_line:
                found = self._on_line(dict(line))  # NumPy's True ends training, too
                self.ends |= isinstance(found, bool | np.bool_) and bool(found)

    def write_text(self, name: str, step: int, text: str) -> None:
        """Write an event with a text, which TensorBoard shows letter by letter."""
        if self._events:
            with naming(self._folder):
                self._events.add_text(name, textwrap.indent(text, "    "), step)

    def close(self) -> None:
        """Close the file of events."""
        if self._events:
            with naming(self._folder):
                self._events.close()


def read_metrics(path: Path) -> Iterator[tuple[bytes, MetricsLine]]:
    """Yield (text, content) of each line of metrics.jsonl.

    A damaged line is left out, with a logged warning.
    """
    content = read_bytes(path) if path.exists() else b""
    for number, text in enumerate(content.splitlines(), start=1):
        try:
            yield text, parse_json(text, MetricsLine)
        except ValueError as error:
            logger.warning("%s, line %d is damaged and left out: %s", path, number, error)
