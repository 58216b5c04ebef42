"""The schedule and Adam against float64 NumPy."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jax_transformer.training.optimizer import adam_with_warmup, learning_rate


def test_the_learning_rate_is_equation_3_in_float64_at_every_step():
    steps = np.arange(1, 100_001)
    expected = [512**-0.5 * min(step**-0.5, step * 4000**-1.5) for step in steps.tolist()]
    np.testing.assert_allclose(learning_rate(jnp.asarray(steps), 512, 4000), expected, rtol=1e-6)


def adam_by_hand(start, gradients, rates, b1: float, b2: float, epsilon: float) -> np.ndarray:
    """Algorithm 1 of Kingma and Ba, 2015, in float64."""
    theta = start.astype(np.float64)
    m = v = np.zeros_like(theta)
    for t, gradient in enumerate(gradients.astype(np.float64), start=1):
        m = b1 * m + (1 - b1) * gradient
        v = b2 * v + (1 - b2) * gradient**2
        m_hat, v_hat = m / (1 - b1**t), v / (1 - b2**t)
        theta = theta - rates[t - 1] * m_hat / (np.sqrt(v_hat) + epsilon)
    return theta


def test_twenty_steps_are_adam_s_in_float64():
    random = np.random.default_rng(0)
    start = random.normal(size=(3, 4)).astype(np.float32)
    gradients = random.normal(size=(20, 3, 4)).astype(np.float32)
    gradients[:, 0] *= 1e-3  # of epsilon's size, so that its place shows
    gradients[:, 1, 0] = 0  # a parameter without gradient stays
    epsilon = 1e-3
    d_model, warmup_steps, scale = 64, 8, 0.1  # twenty steps see both arms of the schedule
    rates = [
        scale / math.sqrt(d_model) * min(step**-0.5, step * warmup_steps**-1.5)
        for step in range(1, 21)
    ]
    optimizer = adam_with_warmup(d_model, warmup_steps, scale, 0.9, 0.98, epsilon)

    @jax.jit
    def update(params, state, gradient):
        updates, state = optimizer.update(gradient, state, params)
        return optax.apply_updates(params, updates), state

    params = jnp.asarray(start)
    state = optimizer.init(params)
    for t, gradient in enumerate(gradients, start=1):
        params, state = update(params, state, gradient)
        expected = adam_by_hand(start, gradients[:t], rates, 0.9, 0.98, epsilon)
        np.testing.assert_allclose(params, expected, atol=1e-6, rtol=0, err_msg=f"step {t}")
    assert np.asarray(params)[1, 0] == start[1, 0]


def test_the_paper_s_numbers_are_the_defaults():
    gradient = jnp.array([3.0, -0.5])
    optimizer = adam_with_warmup(512, 4000)
    state = optimizer.init(jnp.zeros(2))
    first, state = optimizer.update(gradient, state)
    second, _ = optimizer.update(jnp.zeros(2), state)
    rate = 512**-0.5 * 4000**-1.5
    # Step 1: m_hat / sqrt(v_hat) is the gradient's sign.
    np.testing.assert_allclose(np.asarray(first), [-rate, rate], rtol=1e-5)
    # Step 2, no gradient, twice the rate:
    # m_hat = 0.9 * 0.1 g / 0.19, v_hat = 0.98 * 0.02 g^2 / 0.0396
    step = 2 * rate * (0.09 / 0.19) / math.sqrt(0.0196 / 0.0396)
    np.testing.assert_allclose(np.asarray(second), [-step, step], rtol=1e-4)
