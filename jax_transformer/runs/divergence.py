"""Training that has gone wrong: a loss far above that of a guess, for many steps."""

import math

TIMES_GUESSING = 2


class DivergenceCheck:
    """A check that the loss does not stay above twice ln V nats per token.

    ln V is the loss of a guess that gives all V tokens of the target the same probability. The loss
    of a new model is within a nat of it. docs/training.md has the measurements.
    """

    def __init__(self, vocabulary_size: int, warmup_steps: int, steps_allowed: int) -> None:
        """Set the limit.

        vocabulary_size: the number V of target tokens.
        steps_allowed: the number of steps in a row, after the warm-up, at which training is ended;
          0 allows any number.
        """
        self._warmup_steps, self._steps_allowed = warmup_steps, steps_allowed
        self._limit = TIMES_GUESSING * math.log(vocabulary_size) if steps_allowed else math.inf
        self._limit_text = f"{self._limit:.1f} nats a token, {TIMES_GUESSING} ln {vocabulary_size}"
        self._since: int | None = None  # the first of the steps in a row

    @property
    def above(self) -> bool:
        """Return True if the loss of the last step was above the limit."""
        return self._since is not None

    def take(self, step: int, loss: float, *, last: bool) -> str | None:
        """Note a step's loss in nats per token; return what is wrong with it, or None.

        last: True for the last step of training, after which the model has to be good.
        """
        if loss <= self._limit:
            self._since = None
            return None
        self._since = self._since or step
        steps = step - max(self._since - 1, self._warmup_steps)
        if steps < self._steps_allowed and not last:
            return None
        return (
            f"expected a loss of at most {self._limit_text}, found {loss:.4g}, and more than "
            f"expected in each step since {self._since}"
        )
