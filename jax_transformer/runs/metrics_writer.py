"""What a run reports of itself: metrics.jsonl and TensorBoard events, in step with each other."""

import json
import logging
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import jax

from jax_transformer.evaluation.bleu import perplexity
from jax_transformer.runs.run_dir import RunFolder, write_text
from jax_transformer.training.train_step import StepMetrics

if TYPE_CHECKING:
    from jax_transformer.runs.tensorboard_events import Events
    from jax_transformer.runs.trainer import Done

logger = logging.getLogger(__name__)

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
        self._folder, self._step = folder, step
        self._events: Events | None = None
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
        if self._events is None:
            # TensorBoard's writer imports all of PyTorch where there is one: seconds, which the
            # first step need not wait for.
            from jax_transformer.runs.tensorboard_events import Events

            self._events = Events(self._folder.tensorboard, self._step)
        self._events.write(line)

    def close(self) -> None:
        """Flush both."""
        try:
            self._file.close()
        finally:
            if self._events is not None:
                self._events.close()


def _read_lines(folder: RunFolder) -> Iterator[dict[str, Any]]:
    try:
        content = folder.metrics.read_text(encoding="utf-8")
    except FileNotFoundError:
        return
    for line in content.splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            logger.warning("%s: left out a line that was cut short", folder.metrics)
