"""Scores during training: the evaluation of the development text, and the best step by it.

training.keep_best and training.stop_after follow the best step. Its state is part of every
checkpoint, so that a run that is resumed goes on with it.
"""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jax_transformer.config import TrainingConfig
from jax_transformer.data.prepare import text_lines
from jax_transformer.decoding.line_search import LineSearch
from jax_transformer.errors import InputError
from jax_transformer.evaluation.evaluate import METRICS, evaluate, samples
from jax_transformer.runs.checkpoints import Checkpoints, average, read_description, save_average
from jax_transformer.runs.metrics_writer import MetricsWriter
from jax_transformer.runs.run_dir import Run, RunFolder
from jax_transformer.types import Params

logger = logging.getLogger(__name__)

NAME = "best"  # in the position of a checkpoint


@dataclass(frozen=True)
class BestStep:
    """The best of the dev scores so far.

    Of equal scores the first one is the best. A score that is not a number is never the best.

    >>> best = BestStep("bleu").after(100, {"bleu": 20.0}).after(200, {"bleu": 20.0})
    >>> best.step, best.score, best.evaluations_since, best.evaluated
    (100, 20.0, 1, 200)
    >>> BestStep("loss").after(100, {"loss": 3.0}).after(200, {"loss": 2.5}).step
    200
    """

    metric: str  # a value of training.keep_best
    step: int = 0  # 0: no step was evaluated
    score: float = 0.0
    evaluations_since: int = 0
    evaluated: int = 0  # the last step that was evaluated

    def after(self, step: int, scores: Mapping[str, float]) -> "BestStep":
        """Return the state after the evaluation of a step: scores are by the names of metrics."""
        score = scores[self.metric]
        sign = 1 if METRICS[self.metric].larger_is_better else -1
        if score == score and (not self.step or sign * score > sign * self.score):
            return BestStep(self.metric, step, score, 0, step)
        since = self.evaluations_since + 1
        return replace(self, evaluations_since=since, evaluated=step)

    def ends(self, training: TrainingConfig) -> bool:
        """Return True if training.stop_after ends training here."""
        return 0 < training.stop_after <= self.evaluations_since

    def __str__(self) -> str:
        return f"the best {self.metric} on dev, {self.score:.4g}, at step {self.step:,}"


def best_of(position: Mapping[str, Any], training: TrainingConfig) -> BestStep | None:
    """Return the state in a checkpoint's position; None if training keeps no best step.

    It is a new one if the checkpoint has none, or one of another metric.
    """
    if training.keep_best == "none":
        return None
    state = position.get(NAME)
    if state and state["metric"] == training.keep_best:
        return BestStep(**state)
    return BestStep(training.keep_best)


def read_best(training: TrainingConfig, *folders: Path) -> BestStep | None:
    """Return the newest state in folders of checkpoints; None if training keeps no best step."""
    positions = [read_description(folder).get("position", {}) for folder in folders]
    found = [best_of(position, training) for position in positions]
    return max(filter(None, found), key=lambda best: best.evaluated, default=None)


def best_checkpoint(folder: RunFolder, run: Run) -> int:
    """Return the best step of a run. Raises InputError if there is none."""
    best = read_best(run.config.training, folder.averaged, folder.checkpoints)
    if best is None or not best.step:
        found = "training.keep_best=none" if best is None else "no evaluated step"
        raise InputError(
            f"{folder.address}: expected a run that keeps its best step, found {found}; train with "
            "--set training.keep_best=bleu, or give another checkpoint"
        )
    return best.step


def average_run(
    folder: RunFolder,
    run: Run,
    best: BestStep | None,
    params_like: Any,
    origin: dict[str, Any],
    last: int | None = None,
) -> tuple[list[int], Any]:
    """Average the last checkpoints of a run, up to its best step, and save the mean (§6.1).

    last: the number of checkpoints; None takes training.average_last. params_like, and what is
    returned: as for `average`.
    """
    best = best if best and best.step else None
    regular = run.regular_to(best.step) if best else run.is_regular
    last = last or run.config.training.average_last
    folder.fetch_steps(
        folder.checkpoints, lambda saved: ([*filter(regular, saved)] or saved)[-last:]
    )
    folder.fetch_steps(folder.averaged)  # the new one is numbered after them
    steps, params = average(folder.checkpoints, params_like, last, regular)
    state = {NAME: vars(best)} if best else {}
    save_average(folder.averaged, params, steps, origin, **state)
    return steps, params


class Development:
    """The evaluation of the development text during training: its loss and its greedy outputs."""

    def __init__(self, run: Run, folder: RunFolder, greedy: LineSearch) -> None:
        """Hold a greedy search without parameters."""
        self._run, self._folder, self._greedy = run, folder, greedy
        self.best: BestStep | None = None

    @property
    def ended(self) -> bool:
        """True if training.stop_after has ended training."""
        return self.best is not None and self.best.ends(self._run.config.training)

    def evaluate(
        self, step: int, params: Params, metrics: MetricsWriter, between: Callable[[], None]
    ) -> None:
        """Score the text, write the scores, and update the best step.

        params: the model's parameters on the devices. between: a function to call after each batch;
        what it raises ends the evaluation.
        """
        start, config = time.perf_counter(), self._run.config
        names = [self._run.task.dev_metric, config.training.keep_best]
        by_name = {n: METRICS[n].score for n in dict.fromkeys(names) if n in METRICS}
        by_name = {name: score for name, score in by_name.items() if score}
        text = text_lines(self._folder, "dev")
        self._greedy.params = params
        try:
            found = evaluate(self._greedy, config, *text, [*by_name.values()], between=between)
        finally:
            self._greedy.params = {}  # the devices' memory is training's again
        losses = {score.metric: score.score for score in found.losses}
        greedy = {f"greedy_{score.metric}": score.score for score in found.scores}
        seconds = round(time.perf_counter() - start, 3)
        metrics.write({"step": step, "split": "dev", **losses, **greedy, "seconds": seconds})
        shown = samples(text[0], found.texts, text[1], self._greedy.shown)
        metrics.write_text("samples", step, "\n\n".join(shown))
        scores = ", ".join(f"{score.metric} {score}" for score in (*found.losses, *found.scores))
        logger.info(f"dev         step {step:,}: {scores} (greedy); {seconds:.1f} s")
        if self.best and step:
            values = zip(by_name, (score.score for score in found.scores), strict=True)
            self.best = self.best.after(step, losses | dict(values))
            logger.info(f"best        {self.best}{'; training ends' if self.ended else ''}")


def mean_with_last(
    folder: RunFolder, run: Run, step: int, params: Params, checkpoints: Checkpoints
) -> Params:
    """Return the mean of parameters and of the average_last - 1 checkpoints before.

    params: the arrays of a step that is not saved yet, on the host.
    """
    last = run.config.training.average_last
    checkpoints.wait()

    def before(saved: list[int]) -> list[int]:
        regular = [s for s in saved if s < step and run.is_regular(s)]
        return regular[max(0, len(regular) - last + 1) :]

    folder.fetch_steps(folder.checkpoints, before)
    steps = before(checkpoints.steps())
    if not steps:
        return params
    n = len(steps)
    _, mean = average(folder.checkpoints, params, n, steps.__contains__)
    return jax.tree.map(lambda m, x: (n * m + x) / np.float32(n + 1), mean, params)
