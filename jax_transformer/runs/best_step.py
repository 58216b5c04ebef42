"""The rule of training.keep_best and training.stop_after: which evaluated step is the best so far.

Its state is part of every checkpoint, so that a run that is resumed goes on with it.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from jax_transformer.config import TrainingConfig
from jax_transformer.errors import InputError
from jax_transformer.evaluation.evaluate import METRICS
from jax_transformer.runs.checkpoints import average, read_position, save_average
from jax_transformer.runs.run_dir import Run, RunFolder

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

    def as_dict(self) -> dict[str, Any]:
        """Return the state as JSON."""
        return asdict(self)

    def __str__(self) -> str:
        return f"the best {self.metric} on dev, {self.score:.4g}, at step {self.step:,}"


def best_of(position: Mapping[str, Any], training: TrainingConfig) -> BestStep | None:
    """Return the state that a checkpoint's position has; None if training keeps no best step.

    It begins again if the checkpoint has none, or one of another metric.
    """
    if training.keep_best == "none":
        return None
    state = position.get(NAME)
    if state and state["metric"] == training.keep_best:
        return BestStep(**state)
    return BestStep(training.keep_best)


def read_best(training: TrainingConfig, *folders: Path) -> BestStep | None:
    """Return the newest state in folders of checkpoints; None if training keeps no best step."""
    positions = [read_position(folder) or {} for folder in folders]
    found = [best_of(position, training) for position in positions]
    return max(filter(None, found), key=lambda best: best.evaluated, default=None)


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
    state = {NAME: best.as_dict()} if best else {}
    save_average(folder.averaged, params, steps, origin, **state)
    return steps, params


def require_best(best: BestStep | None, folder: str) -> BestStep:
    """Return the best step. Raises InputError if there is none."""
    if best is None or not best.step:
        found = "training.keep_best=none" if best is None else "no evaluated step"
        raise InputError(
            f"{folder}: expected a run that keeps its best step, found {found}; train with --set "
            "training.keep_best=bleu, or give another checkpoint"
        )
    return best
