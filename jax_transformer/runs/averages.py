"""§6.1 The mean of the last checkpoints: the model that is scored, saved in a folder of its own."""

import contextlib
import logging
import shutil
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jax_transformer.errors import InputError
from jax_transformer.progress import Progress
from jax_transformer.runs.best import NAME, BestStep
from jax_transformer.runs.checkpoints import (
    Checkpoints,
    good_checkpoints,
    restore_params,
    settled,
)
from jax_transformer.runs.run_dir import Run, RunFolder, saved_steps
from jax_transformer.types import Params

ENDED = "ended"  # in the position of a checkpoint with which on_metrics has ended training

logger = logging.getLogger(__name__)


def average(
    folder: str | Path, params_like: Any, last: int, regular: Callable[[int], bool] = lambda _: True
) -> tuple[list[int], Any]:
    """Return (steps, params): the mean of the `last` newest good checkpoints (§6.1).

    mean = (params_1 + ... + params_n) / n, summed in float64, returned in the params' dtype.
    regular: a predicate for the steps to average; if it holds for none of them, all are.
    Corrupt checkpoints are skipped with a logged warning, and fewer are averaged if there are
    fewer than `last`.
    """
    folder = Path(folder).absolute()

    def summed(saved: list[int]) -> tuple[list[int], Any]:
        saved, steps = [step for step in saved if regular(step)] or saved, []
        total = jax.tree.map(lambda leaf: np.zeros(leaf.shape, np.float64), params_like)
        good = good_checkpoints(folder, {"params": params_like}, saved)
        with Progress("average", last, "checkpoints") as progress:
            for step, trees, _ in islice(good, last):
                total = jax.tree.map(lambda s, x: np.add(s, x, out=s), total, trees["params"])
                steps.insert(0, step)
                progress.update()
        return steps, total

    steps, total = settled(folder, summed)
    n = len(steps)
    if n < last:
        logger.warning(
            "%s has only %d good checkpoints instead of %d; they are averaged", folder, n, last
        )
    return steps, jax.tree.map(lambda s, x: np.asarray(s / n, x.dtype), total, params_like)


def save_average(
    folder: str | Path, params: Any, steps: Sequence[int], origin: dict, **position: Any
) -> None:
    """Save an averaged model in a folder of its own, then remove the one before it.

    position: further values to save beside its steps.
    """
    try:
        with Checkpoints(folder, keep=1, asynchronous=False) as averages:
            number = max(averages.steps(), default=0) + 1
            averages.save(number, params, (), {"steps": list(steps), **position}, origin)
    except OSError:  # the disk may be full, so nothing unfinished stays on it
        for unfinished in Path(folder).glob("*.orbax-checkpoint-tmp*"):
            shutil.rmtree(unfinished, ignore_errors=True)
        raise


def average_run(
    folder: RunFolder,
    run: Run,
    best: BestStep | None,
    params_like: Any,
    origin: dict[str, Any],
    last: int | None = None,
    end: int | None = None,
) -> tuple[list[int], Any]:
    """Average the last checkpoints of a run, up to its best step, and save the mean (§6.1).

    best: None if there is no best step. last: the number of checkpoints; None takes
    training.average_last, and does not replace a mean of more checkpoints that ends at the same
    step. end: a step with which training has ended, whatever its number.
    params_like, and what is returned: as for `average`.
    """
    asked, last = last is not None, last or run.config.training.average_last

    def saved(end: int) -> tuple[list[int], Any] | None:
        if not asked and saved_steps(folder.averaged):
            with contextlib.suppress(InputError):  # a damaged one
                steps, mean = restore_params(folder.averaged, params_like)
                if steps[-1] == end:
                    return steps, mean
        return None

    folder.fetch_steps(folder.averaged)  # the new one is numbered after them
    if best and best.step not in folder.trained_steps():
        gone = f"{best}: its checkpoint is gone"
        if there := saved(best.step):
            logger.warning("%s; the mean that ends with it is kept", gone)
            return there
        logger.warning("%s; the last ones are averaged", gone)
        best = None

    def regular(step: int) -> bool:
        if best and step >= best.step:  # which was the last step, before more were requested
            return step == best.step
        return step == end or run.is_regular(step)

    folder.fetch_steps(
        folder.checkpoints, lambda saved: ([*filter(regular, saved)] or saved)[-last:]
    )
    steps, params = average(folder.checkpoints, params_like, last, regular)
    if len(steps) < last and (there := saved(steps[-1])) and len(there[0]) > len(steps):
        logger.warning("the mean of %d, which was there already, is kept", len(there[0]))
        return there
    state = {NAME: vars(best)} if best else {}
    save_average(folder.averaged, params, steps, origin, **state)
    return steps, params


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

    try:
        folder.fetch_steps(folder.checkpoints, before)
    except InputError as error:  # a bucket that cannot be reached now is no reason to end training
        logger.warning("%s; averaging the checkpoints that are here", error)
    steps = before(checkpoints.steps())
    if not steps:
        return params
    good, mean = average(folder.checkpoints, params, len(steps), steps.__contains__)
    n = np.float64(len(good))  # in float32 the bias of what is never written would overflow
    return jax.tree.map(lambda m, x: np.asarray((n * m + x) / (n + 1), x.dtype), mean, params)
