"""A trace of some training steps: what host and devices do, for TensorBoard's profiler."""

import logging
import re
from pathlib import Path

import jax

from jax_transformer.errors import InputError

logger = logging.getLogger(__name__)


def parse_steps(text: str, steps: int) -> range:
    """`100:110` as the steps from 100 to 110, both included.

    Raises InputError where these are not among the `steps` of the training.
    """
    match = re.fullmatch(r"(\d{1,10}):(\d{1,10})", text, re.ASCII)
    first, last = map(int, match.groups()) if match else (0, 0)
    if not 1 <= first <= last <= steps:
        raise InputError(
            f"--profile_steps={text}: expected FIRST:LAST among the steps 1 to {steps}, as in "
            f"1:{min(10, steps)}; give other steps, or leave the flag out"
        )
    return range(first, last + 1)


class StepProfile:
    """Writes a trace of these steps; of those alone that this process takes.

    with StepProfile(range(100, 111), folder.tensorboard) as profile:
        profile.turn(step)
        while step < steps:
            ...
            step += 1
            if profile.turns(step):
                ...  # wait for the step
            profile.turn(step)

    Leaving the block, also by an exception, writes what was traced until then.
    """

    def __init__(self, steps: range, folder: Path) -> None:
        """Nothing is traced if there are no steps."""
        self._steps, self._folder, self._tracing = steps, folder, False

    def __enter__(self) -> "StepProfile":
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def turns(self, step: int) -> bool:
        """Whether the trace begins or ends after this step."""
        return (step + 1 in self._steps) != self._tracing

    def turn(self, step: int) -> None:
        """Begin or end the trace if it is due after this step, which has to be done."""
        if step + 1 not in self._steps:
            self._stop()
        elif not self._tracing:
            jax.profiler.start_trace(self._folder)
            self._tracing = True

    def _stop(self) -> None:
        if self._tracing:
            self._tracing = False
            jax.profiler.stop_trace()
            logger.info("profile     traced; tensorboard --logdir %s", self._folder)
