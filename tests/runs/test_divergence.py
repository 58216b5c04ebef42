"""When a loss says that training has gone wrong."""

import math

from jax_transformer.runs.divergence import DivergenceCheck

HIGH, GOOD = 2.01 * math.log(50), 1.99 * math.log(50)


def steps_that_are_too_much(losses, last=None, **settings):
    options = {"vocabulary_size": 50, "warmup_steps": 10, "steps_allowed": 5} | settings
    check = DivergenceCheck(**options)
    found = [check.take(step, loss, last=step == last) for step, loss in enumerate(losses, 1)]
    return [step for step, text in enumerate(found, 1) if text]


def test_only_steps_in_a_row_after_the_warm_up_count():
    assert steps_that_are_too_much([HIGH] * 15) == [15]
    assert steps_that_are_too_much([GOOD] * 20 + [HIGH] * 5) == [25]
    assert steps_that_are_too_much([HIGH] * 14 + [GOOD] + [HIGH] * 4 + [GOOD] * 9) == []
    assert steps_that_are_too_much([1e30] * 100, steps_allowed=0, last=100) == []


def test_the_last_step_may_not_be_above_the_limit_at_all():
    assert steps_that_are_too_much([GOOD, GOOD, HIGH], last=3) == [3]
    assert steps_that_are_too_much([HIGH, HIGH, GOOD], last=3) == []
