"""Products against float64 NumPy, and bfloat16 held to operands of products alone."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from test_transformer import PARAMS, SOURCE, TARGET, logits_of, transformer

from jax_transformer.models.layers import FeedForward
from jax_transformer.models.products import dense_product, product
from jax_transformer.training.optimizer import adam_with_warmup
from jax_transformer.training.train_step import Batch, initial_state, make_train_step


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def rounded(array: np.ndarray, dtype: Any) -> np.ndarray:
    return array.astype(dtype).astype(np.float64)


TYPES = [np.float32, ml_dtypes.bfloat16]


@pytest.mark.parametrize("dtype", TYPES)
def test_a_product_rounds_its_operands_and_sums_in_float32(dtype):
    left, right, cotangent = normal(1, 2, 3, 4), normal(2, 4, 5), normal(3, 2, 3, 5)
    ours, back = jax.vjp(lambda a, b: product("xyz,zw->xyw", a, b, dtype), left, right)
    assert ours.dtype == jnp.float32
    np.testing.assert_allclose(ours, rounded(left, dtype) @ rounded(right, dtype), atol=1e-5)
    of_left, of_right = back(cotangent)
    assert of_left.dtype == of_right.dtype == jnp.float32
    gradient = rounded(cotangent, dtype)
    np.testing.assert_allclose(of_left, gradient @ rounded(right, dtype).T, atol=1e-5)
    expected = rounded(left, dtype).reshape(-1, 4).T @ gradient.reshape(-1, 5)
    np.testing.assert_allclose(of_right, expected, atol=1e-5)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("heads", [(2, 3), (2,), ()])
def test_a_gradient_is_right_whichever_operand_is_larger(dtype, heads):
    for wide, narrow in ((16, 2), (2, 16)):
        left, right = normal(1, 2, 3, wide), normal(2, wide, *heads, narrow)
        letters = "cde"[: len(heads)] + "z"
        cotangent = normal(3, 2, 3, *heads, narrow)
        _, back = jax.vjp(
            lambda a, b, to=letters: product(f"xyw,w{to}->xy{to}", a, b, dtype), left, right
        )
        expected = rounded(left, dtype).reshape(6, -1).T @ rounded(cotangent, dtype).reshape(6, -1)
        found = back(cotangent)[1]
        np.testing.assert_allclose(found, expected.reshape(right.shape), atol=1e-5)


@pytest.mark.parametrize("dtype", TYPES)
def test_logits_have_the_gradients_of_a_matrix_product(dtype):
    hidden, matrix, cotangent = normal(1, 2, 3, 4), normal(2, 7, 4), normal(3, 2, 3, 7)
    ours, back = jax.vjp(lambda h, e: product("btd,vd->btv", h, e, dtype), hidden, matrix)
    np.testing.assert_allclose(ours, rounded(hidden, dtype) @ rounded(matrix, dtype).T, atol=1e-5)
    of_hidden, of_matrix = back(cotangent)
    gradient = rounded(cotangent, dtype)
    np.testing.assert_allclose(of_hidden, gradient @ rounded(matrix, dtype), atol=1e-5)
    expected = gradient.reshape(-1, 7).T @ rounded(hidden, dtype).reshape(-1, 4)
    np.testing.assert_allclose(of_matrix, expected, atol=1e-5)


def test_the_product_of_a_layer_is_its_dot_general():
    left, right = normal(1, 2, 3, 4, 5), normal(2, 4, 5, 6, 7)
    dimensions = (((2, 3), (0, 1)), ((), ()))
    ours = dense_product(jnp.float32)(left, right, dimensions)
    np.testing.assert_allclose(ours, jax.lax.dot_general(left, right, dimensions), atol=1e-5)


def test_a_feed_forward_network_in_bfloat16_is_near_the_one_in_float32():
    x = normal(1, 2, 3, 8)
    exact = FeedForward(16, 8)
    params = exact.init(jax.random.key(0), x)
    ours = np.asarray(FeedForward(16, 8, jnp.bfloat16).apply(params, x))
    expected = np.asarray(exact.apply(params, x))
    assert 1e-5 < np.abs(ours - expected).max() < 2e-2 * np.abs(expected).max()


# ---- The whole model ----------------------------------------------------------------------


def equations(jaxpr: Any) -> Any:
    """Every equation, those inside loops and calls too."""
    for equation in jaxpr.eqns:
        yield equation
        for inner in jax.tree.leaves(list(equation.params.values()), is_leaf=_is_jaxpr):
            if _is_jaxpr(inner):
                yield from equations(getattr(inner, "jaxpr", inner))


def _is_jaxpr(value: Any) -> bool:
    return hasattr(value, "eqns") or hasattr(value, "jaxpr")


def test_a_step_in_bfloat16_has_it_in_operands_of_products_and_nowhere_else():
    model = transformer(compute_dtype="bfloat16", dropout_rate=0.1)
    optimizer = adam_with_warmup(16, 10)
    step = make_train_step(model, optimizer, 1, 0.1)
    state = initial_state(model, optimizer, jax.random.key(0))
    assert {leaf.dtype for leaf in jax.tree.leaves(state.params)} == {np.dtype("float32")}
    jaxpr = jax.make_jaxpr(step)(state, Batch(SOURCE, TARGET)).jaxpr
    products = 0
    casts = {"convert_element_type", "pjit", "jit", "custom_vjp_call", "custom_vjp_call_jaxpr"}
    # What only moves a product's operands about.
    casts |= {"transpose", "reshape", "broadcast_in_dim", "squeeze"}
    for equation in equations(jaxpr):
        into = [str(variable.aval.dtype) for variable in equation.invars]
        out = [str(variable.aval.dtype) for variable in equation.outvars]
        if equation.primitive.name == "dot_general":
            products += 1
            assert into == ["bfloat16", "bfloat16"], equation
            assert out == ["float32"], equation
        elif equation.primitive.name not in casts:
            assert "bfloat16" not in into + out, equation
    # Two layers: 6 products an attention (three of them), 2 a feed-forward network (two),
    # and the logits; each forward once and backward twice.
    assert products == 3 * (2 * (3 * 6 + 2 * 2) + 1)


def test_logits_in_bfloat16_are_near_those_in_float32():
    exact = np.asarray(logits_of(transformer(), PARAMS, SOURCE, TARGET))
    ours = np.asarray(logits_of(transformer(compute_dtype="bfloat16"), PARAMS, SOURCE, TARGET))
    assert ours.dtype == np.float32
    assert 1e-4 < np.abs(ours - exact).max() < 0.05 * np.abs(exact).max()


def test_training_in_bfloat16_learns_a_batch_by_heart():
    model = dataclasses.replace(transformer(compute_dtype="bfloat16", dropout_rate=0.0))
    optimizer = adam_with_warmup(16, 20, 1.0)
    step = jax.jit(make_train_step(model, optimizer, 1, 0.0))
    state = initial_state(model, optimizer, jax.random.key(0))
    losses = []
    for _ in range(60):
        state, metrics = step(state, Batch(SOURCE, TARGET))
        losses.append(float(metrics.loss.nll / metrics.loss.tokens))
    assert losses[-1] < 0.2 * losses[0]
