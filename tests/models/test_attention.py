"""Attention against float64 loops over every index, and what masks allow and forbid."""

import functools
import math
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_transformer.models import attention
from jax_transformer.models.attention import (
    Dropout,
    MultiHeadAttention,
    attention_weights,
    causal_mask,
    fused_attention,
    local_attention_mask,
    padding_mask,
    scaled_dot_product_attention,
    segment_mask,
)

BATCH, QUERIES, KEYS, HEADS, D_K, D_V = 2, 4, 5, 3, 6, 7


def attention_by_loops(queries, keys, values, mask) -> np.ndarray:
    """Equation (1), one query at a time, over the legal keys alone, in float64."""
    batch, heads, length, d_k = queries.shape
    result = np.zeros((batch, heads, length, values.shape[-1]))
    mask = np.broadcast_to(mask, (batch, 1, length, keys.shape[2]))
    for b, h, q in np.ndindex(batch, heads, length):
        legal = [k for k in range(keys.shape[2]) if mask[b, 0, q, k]]
        exponentials = {}
        for k in legal:
            products = [float(queries[b, h, q, i]) * float(keys[b, h, k, i]) for i in range(d_k)]
            exponentials[k] = math.exp(math.fsum(products) / math.sqrt(d_k))
        for k in legal:
            weight = exponentials[k] / math.fsum(exponentials.values())
            result[b, h, q] += weight * values[b, h, k].astype(np.float64)
    return result


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


PADDED = np.array([[5, 6, 7, 0, 0], [5, 6, 7, 8, 9]])
SOME = np.random.default_rng(0).random((BATCH, 1, QUERIES, KEYS)) < 0.5
SOME[..., 0] = True  # rows without any key have a test of their own
CAUSAL = np.tri(QUERIES, KEYS, dtype=bool)[None, None]


# ---- Attention ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("leading", "of_keys", "mask"),
    [
        ((), (), None),
        ((), (), CAUSAL),
        ((HEADS,), (), SOME[0]),
        ((BATCH, HEADS), (BATCH, HEADS), SOME),
        ((BATCH, HEADS), (BATCH, 1), (PADDED != 0)[:, None, None]),
        ((2, BATCH, HEADS), (2, BATCH, HEADS), SOME[1, 0]),
    ],
)
def test_attention_is_equation_1_looped_over_every_index_in_float64(leading, of_keys, mask):
    queries = normal(1, *leading, QUERIES, D_K)
    keys, values = normal(2, *of_keys, KEYS, D_K), normal(3, *of_keys, KEYS, D_V)
    found = scaled_dot_product_attention(queries, keys, values, mask)
    assert found.shape == (*leading, QUERIES, D_V)
    keys, values = (np.broadcast_to(y, (*leading, *y.shape[-2:])) for y in (keys, values))
    masks = np.ones((QUERIES, KEYS), bool) if mask is None else mask
    masks = masks if leading else masks.reshape(QUERIES, KEYS)
    masks = np.broadcast_to(masks, (*leading, QUERIES, KEYS))
    rows = [y.reshape(-1, 1, *y.shape[-2:]) for y in (queries, keys, values, masks)]
    expected = attention_by_loops(*rows).reshape(found.shape)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_masked_keys_weigh_exactly_nothing_however_high_their_score():
    queries = jnp.ones((1, 1, 1, 1))
    keys = jnp.array([-1e4, 1e6, -1e4, 1e30])[None, None, :, None]
    mask = jnp.array([True, False, True, False])[None, None, None]
    weights = attention_weights(queries, keys, mask)
    assert weights[0, 0, 0].tolist() == [0.5, 0.0, 0.5, 0.0]


def test_fully_masked_rows_are_finite_in_value_and_gradient():
    mask = np.ones((1, 1, 3, 4), bool)
    mask[:, :, 1] = False
    queries = jnp.asarray(normal(6, 1, 2, 3, D_K))
    keys, values = jnp.asarray(normal(7, 1, 2, 4, D_K)), jnp.asarray(normal(8, 1, 2, 4, D_V))

    def attended(queries, keys, values):
        return scaled_dot_product_attention(queries, keys, values, mask)

    outputs, pull_back = jax.vjp(attended, queries, keys, values)
    gradients = pull_back(jnp.asarray(normal(9, *outputs.shape)))
    for array in (outputs, *gradients):
        assert np.isfinite(array).all()
    # Equal weights give the average of the values, and no score can change it.
    average = np.asarray(values, np.float64).mean(axis=2)[0]
    np.testing.assert_allclose(outputs[0, :, 1], average, rtol=1e-5, atol=1e-6)
    assert not np.asarray(gradients[0])[0, :, 1].any()
    assert np.asarray(gradients[0])[0, :, 0].any()


def test_the_softmax_is_float32_even_where_the_operands_are_bfloat16():
    queries = jnp.asarray(normal(11, 1, 2, 2, D_K), jnp.bfloat16)
    keys = jnp.asarray(normal(12, 1, 2, 300, D_K), jnp.bfloat16)
    weights = attention_weights(queries, keys, jnp.ones((1, 1, 1, 300), bool))
    assert weights.dtype == jnp.float32
    # In bfloat16, 300 rounded weights would miss 1 by parts in a thousand.
    np.testing.assert_allclose(np.asarray(weights, np.float64).sum(-1), 1, atol=1e-6)


# ---- Several heads ------------------------------------------------------------------------


def test_query_key_and_value_start_as_one_glorot_uniform_matrix_and_the_output_as_its_own():
    d_model, heads, width = 64, 8, 8
    module = MultiHeadAttention(heads, d_model, width, width)
    x = jnp.zeros((1, 1, d_model))
    params = jax.jit(lambda key: module.init(key, x)["params"])(jax.random.key(1))
    for name, fan_out in (("query", 3), ("key", 3), ("value", 3), ("output", 1)):
        drawn = np.asarray(params[name]["kernel"])
        bound = math.sqrt(6 / (d_model + fan_out * heads * width))
        assert drawn.size == d_model * heads * width
        assert 0.99 * bound < np.abs(drawn).max() <= bound, name
        # A uniform variable's deviation is bound / sqrt(3); 4096 draws miss it by 0.7 %.
        assert drawn.std() == pytest.approx(bound / math.sqrt(3), rel=0.03), name


def test_heads_are_computed_by_equation_1_so_changing_it_changes_them(monkeypatch):
    module, x = MultiHeadAttention(2, 8, 4, 4), normal(0, 1, 3, 8)
    params = module.init(jax.random.key(0), x)
    usual = np.asarray(module.apply(params, x))

    def doubled(*arguments, **options):
        return 2 * scaled_dot_product_attention(*arguments, **options)

    monkeypatch.setattr(attention, "scaled_dot_product_attention", doubled)
    changed = np.asarray(module.apply(params, x))
    np.testing.assert_allclose(changed, 2 * usual, rtol=1e-5)


def test_attention_dropout_drops_weights_with_a_key_and_none_without():
    module = MultiHeadAttention(1, 64, 1, 64, dropout_rate=0.25)
    eye = np.eye(64, dtype=np.float32)
    params = {  # scores are 0 and values one-hot, so the output is the weights themselves
        "query": {"kernel": np.zeros((64, 1, 1), np.float32)},
        "key": {"kernel": np.zeros((64, 1, 1), np.float32)},
        "value": {"kernel": eye[:, None, :]},
        "output": {"kernel": eye[None]},
    }
    x, apply = jnp.asarray(eye)[None], jax.jit(module.apply)
    exact = np.asarray(apply({"params": params}, x))
    np.testing.assert_allclose(exact, 1 / 64, rtol=1e-6)
    random = np.asarray(apply({"params": params}, x, rngs={"dropout": jax.random.key(0)}))
    remaining = random != 0
    np.testing.assert_allclose(random[remaining], 1 / 64 / 0.75, rtol=1e-5)
    deviation = math.sqrt(0.75 * 0.25 / remaining.size)
    assert abs(remaining.mean() - 0.75) < 4 * deviation


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_dropout_drops_each_element_on_its_own_at_its_rate(rate):
    """Elements j and j + 16 of a row of 31 share the bits of one random word."""
    rows = 20_000
    found = Dropout(rate).apply({}, jnp.ones((rows, 31)), rngs={"dropout": jax.random.key(3)})
    dropped = np.asarray(found) == 0
    np.testing.assert_allclose(np.asarray(found)[~dropped], 1 / (1 - rate), rtol=1e-4)
    deviation = math.sqrt(rate * (1 - rate) / rows)
    assert np.abs(dropped.mean(axis=0) - rate).max() < 4.5 * deviation
    both = (dropped[:, :15] & dropped[:, 16:]).mean(axis=0)
    assert np.abs(both - rate**2).max() < 4.5 * math.sqrt(rate**2 * (1 - rate**2) / rows)


@pytest.mark.slow
def test_attention_is_to_x_itself_to_other_positions_or_to_keys_and_values_made_before():
    module = MultiHeadAttention(HEADS, 8, D_K, D_V)
    x, y = normal(1, BATCH, QUERIES, 8), normal(2, BATCH, KEYS, 8)
    variables = jax.jit(module.init)(jax.random.key(0), x)
    np.testing.assert_array_equal(module.apply(variables, x), module.apply(variables, x, x))
    made = module.apply(variables, y, method="keys_values")
    expected: Any = module.apply(variables, x, made, SOME)
    np.testing.assert_array_equal(module.apply(variables, x, y, SOME), expected)


# ---- One kernel ---------------------------------------------------------------------------

SEGMENTS = jnp.array([[1, 1, 2, 2, 0], [1, 2, 3, 3, 3]])
FUSED_MASKS = {
    "padding": padding_mask(jnp.array([[5, 5, 5, 5, 0], [5, 0, 0, 0, 0]]), 0),
    "causal": causal_mask(KEYS),
    "segments": segment_mask(SEGMENTS, SEGMENTS),
    "of all rows": jnp.array(SOME[0, 0, [0, 1, 2, 3, 3]]),
}


@pytest.mark.parametrize("mask", FUSED_MASKS.values(), ids=FUSED_MASKS)
def test_fused_attention_is_attention_in_value_and_gradient(mask):
    *operands, factors = (jnp.asarray(normal(seed, BATCH, HEADS, KEYS, 8)) for seed in range(4))

    def total(attention, queries, keys, values):
        return (attention(queries, keys, values, mask) * factors).sum()

    def both(attention):
        of_all = jax.value_and_grad(functools.partial(total, attention), argnums=(0, 1, 2))
        return jax.jit(of_all)(*operands)

    fused = functools.partial(fused_attention, implementation="xla")
    close = functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-5)
    jax.tree.map(close, both(scaled_dot_product_attention), both(fused))


def test_fused_attention_over_padding_alone_is_the_average_of_the_values():
    values = jnp.asarray(normal(3, 1, 2, 4, 8))
    mask = padding_mask(jnp.zeros((1, 4), int), 0)
    attended = fused_attention(values, values, values, mask, implementation="xla")
    average = np.asarray(values).mean(axis=2, keepdims=True)
    np.testing.assert_allclose(attended, np.broadcast_to(average, values.shape), atol=1e-6)


# ---- Masks --------------------------------------------------------------------------------


def test_masks_say_true_where_a_position_may_be_attended_to():
    padding = padding_mask(jnp.asarray(PADDED), pad_id=7)
    assert padding.shape == (2, 1, 1, 5)
    causal = causal_mask(5)
    assert causal.shape == (1, 1, 5, 5)
    assert {mask.dtype for mask in (padding, causal)} == {jnp.dtype(bool)}
    for k in range(5):
        for b in range(2):
            assert bool(padding[b, 0, 0, k]) == (PADDED[b, k] != 7)
        for q in range(5):
            assert bool(causal[0, 0, q, k]) == (k <= q)


def test_local_attention_reaches_the_positions_at_most_a_radius_away():
    mask = np.asarray(local_attention_mask(6, 2))[0, 0]
    for q, k in np.ndindex(6, 6):
        assert mask[q, k] == (abs(q - k) <= 2), (q, k)


def test_dropping_all_has_gradients_of_zero():
    dropped = jax.grad(lambda x: jnp.sum(Dropout(1.0).apply({}, x, rngs=jax.random.key(1))))  # pyright: ignore
    np.testing.assert_array_equal(dropped(jnp.ones(5)), 0)


def test_float64_arrays_of_numpy_are_attended_to_without_a_warning():
    arrays = np.random.default_rng(1).normal(size=(3, 1, 4, 8))
    with warnings.catch_warnings(action="error"):
        found = scaled_dot_product_attention(*arrays)
    np.testing.assert_array_equal(found, scaled_dot_product_attention(*map(jnp.asarray, arrays)))
