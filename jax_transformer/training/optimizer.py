"""§5.3 Adam with the warm-up then inverse square root schedule, as an optax chain."""

from collections.abc import Callable
from functools import partial

import jax.numpy as jnp
import optax
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int

from jax_transformer.checks import check_range
from jax_transformer.types import AnyArray

Schedule = Callable[..., Float[Array, "..."]]


def learning_rate(
    step: int | Int[AnyArray, "*S"], d_model: int, warmup_steps: int, scale: float = 1.0
) -> Float[Array, "*S"]:
    """Return scale * d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5), equation (3).

    step counts from 1. The base model's peak, at step 4,000, is 6.99e-4.

    >>> [f"{learning_rate(step, 512, warmup_steps=4000):.2e}" for step in (1, 4000, 100_000)]
    ['1.75e-07', '6.99e-04', '1.40e-04']
    """
    check_range(1, 2**31 - 1, d_model=d_model, warmup_steps=warmup_steps)
    step = jnp.asarray(step, jnp.float32)
    return scale * d_model**-0.5 * jnp.minimum(step**-0.5, step * warmup_steps**-1.5)


def adam_with_warmup(
    d_model: int,
    warmup_steps: int,
    scale: float = 1.0,
    b1: float = 0.9,
    b2: float = 0.98,
    epsilon: float = 1e-9,
) -> optax.GradientTransformation:
    """Return the paper's optimizer: Adam, no weight decay, no clipping.

    Epsilon stands outside the root and moments are bias-corrected, as in Kingma and Ba's
    paper and in optax.
    Differs: TensorFlow 1's Adam, which the paper's code used, divides epsilon by sqrt(1 - b2^t).

    Adam's first step is the learning rate, against the sign of the gradient:

    >>> optimizer = adam_with_warmup(d_model=512, warmup_steps=4000)
    >>> state = optimizer.init(jnp.zeros(2))
    >>> updates, state = optimizer.update(jnp.array([0.3, -20.0]), state)
    >>> [f"{update:.2e}" for update in updates]
    ['-1.75e-07', '1.75e-07']
    """
    schedule = partial(learning_rate, d_model=d_model, warmup_steps=warmup_steps, scale=scale)
    return adam(schedule, b1, b2, epsilon)


def adam(schedule: Schedule, b1: float, b2: float, epsilon: float) -> optax.GradientTransformation:
    """Return Adam with a learning rate that is a function of the step, which counts from 1."""

    def rate(count: ArrayLike) -> Float[Array, "..."]:
        return schedule(jnp.asarray(count) + 1)  # optax counts the steps taken so far

    return optax.chain(
        optax.scale_by_adam(b1=b1, b2=b2, eps=epsilon), optax.scale_by_learning_rate(rate)
    )
