"""Scores during training: the evaluation of the development text, and the best step by it.

training.keep_best and training.stop_after follow the best step. Its state is part of every
checkpoint, so that a run that is resumed goes on with it.
"""

import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from jax_transformer.config import TrainingConfig
from jax_transformer.data.prepare import text_lines
from jax_transformer.decoding.line_search import LineSearch
from jax_transformer.errors import InputError
from jax_transformer.evaluation.evaluate import METRICS, evaluate, samples
from jax_transformer.runs.checkpoints import read_description
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
        """Return the state after the evaluation of a step: scores are by the names of metrics.

        A step that is evaluated again, because metrics.jsonl is gone, counts once.
        """
        if step == self.evaluated:
            return self
        score = scores[self.metric]
        sign = 1 if METRICS[self.metric].larger_is_better else -1
        if score == score and (not self.step or sign * score > sign * self.score):
            return BestStep(self.metric, step, score, 0, step)
        since = self.evaluations_since + 1
        return replace(self, evaluations_since=since, evaluated=step)

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


def read_best(training: TrainingConfig, folder: RunFolder) -> BestStep | None:
    """Return the newest state in a run's checkpoints; None if they have no best step.

    That of the averaged model is the newest if the last step was evaluated after a resume.
    """
    positions = [read_description(folder.checkpoints).get("position", {})]
    with contextlib.suppress(InputError):  # a damaged one, which can be made again
        positions.append(read_description(folder.averaged).get("position", {}))
    found = [best for each in positions if (best := best_of(each, training)) and best.step]
    return max(found, key=lambda best: best.evaluated, default=None)


def best_checkpoint(folder: RunFolder, run: Run) -> int:
    """Return the best step of a run. Raises InputError if there is none."""
    best = read_best(run.config.training, folder)
    if best is None:
        kept = run.config.training.keep_best
        found = "training.keep_best=none" if kept == "none" else "no evaluated step"
        raise InputError(
            f"{folder.address}: expected a run that keeps its best step, found {found}; give "
            "another checkpoint, or train a new run with training.keep_best"
        )
    return best.step


class Development:
    """The evaluation of the development text during training: its loss and its greedy outputs."""

    def __init__(self, run: Run, folder: RunFolder, greedy: LineSearch) -> None:
        """Hold a greedy search without parameters."""
        self._run, self._folder, self._greedy = run, folder, greedy
        self.best: BestStep | None = None

    @property
    def ended(self) -> bool:
        """True if training.stop_after has ended training."""
        patience = self._run.config.training.stop_after
        return self.best is not None and 0 < patience <= self.best.evaluations_since

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
