"""Positions worked out by hand, dropout, and what parameters are drawn from."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_transformer.models.layers import (
    AddNorm,
    Embedding,
    FeedForward,
    positional_encoding,
    segment_positions,
)


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


# ---- Positions ----------------------------------------------------------------------------


def test_positions_are_the_paper_s_sines_and_cosines_at_points_worked_out_by_hand():
    found = np.asarray(positional_encoding(4, 4))[[0, 1, 3]]  # rates 1 and 1/100
    expected = [
        [0.0, 1.0, 0.0, 1.0],
        [math.sin(1), math.cos(1), math.sin(0.01), math.cos(0.01)],
        [math.sin(3), math.cos(3), math.sin(0.03), math.cos(0.03)],
    ]
    np.testing.assert_allclose(found, expected, atol=1e-6)
    # Dimension 6 of 512 at position 50: 50 / 10000^(6 / 512).
    assert positional_encoding(0, 4).shape == (0, 4)
    found = np.asarray(positional_encoding(jnp.array([50]), 512))[0]
    angle = 50 / 10000 ** (6 / 512)
    np.testing.assert_allclose(found[6:8], [math.sin(angle), math.cos(angle)], atol=1e-5)


def test_every_position_up_to_1024_agrees_with_float64():
    found = positional_encoding(jnp.arange(1024), 64)
    expected = [
        [
            (math.cos if dimension % 2 else math.sin)(position / 10000 ** (dimension // 2 * 2 / 64))
            for dimension in range(64)
        ]
        for position in range(1024)
    ]
    # An angle near 1024 has a float32 rounding error of 1024 * 2^-24 = 6e-5 radians.
    np.testing.assert_allclose(found, expected, atol=1.3e-4)


def test_positions_count_from_0_in_each_segment_of_a_row():
    segments = jnp.array([[1, 1, 1, 2, 3, 3, 0, 0], [1, 2, 2, 2, 2, 2, 2, 2], [0] * 8])
    expected = [[0, 1, 2, 0, 0, 1, 0, 0], [0, 0, 1, 2, 3, 4, 5, 6], [0] * 8]
    assert segment_positions(segments).tolist() == expected


# ---- Sub-layers ---------------------------------------------------------------------------


def layer_norm(x) -> np.ndarray:
    x = np.asarray(x, np.float64)
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-6)


def test_dropout_applies_to_the_sublayer_and_never_to_the_residual():
    x, sublayer = normal(6, 2, 3, 8), normal(7, 2, 3, 8)
    x[0, 0] *= 0.001  # small enough for epsilon to show
    norm = {"scale": np.ones(8, np.float32), "bias": np.zeros(8, np.float32)}
    params, rngs = {"params": {"norm": norm}}, {"dropout": jax.random.key(6)}
    alone = AddNorm(0.5).apply(params, jnp.asarray(x), jnp.zeros_like(x), rngs=rngs)
    np.testing.assert_allclose(np.asarray(alone), layer_norm(x), rtol=1e-5, atol=1e-5)
    both = AddNorm(0.5).apply(params, jnp.asarray(x), jnp.asarray(sublayer), rngs=rngs["dropout"])
    assert np.abs(np.asarray(both) - layer_norm(x + sublayer)).max() > 0.1


def test_embeddings_start_with_unit_variance_once_scaled():
    tokens = jnp.arange(500)[None]
    embedding = Embedding(500, 64)
    embedded = embedding.apply(embedding.init(jax.random.key(7), tokens), tokens)
    # 32,000 draws: the deviation's standard error is 1 / sqrt(64,000) = 0.4 %.
    assert np.asarray(embedded).std() == pytest.approx(1, rel=0.016)


def test_a_feed_forward_network_starts_with_glorot_uniform_matrices():
    x = jnp.zeros((1, 1, 32))
    params = FeedForward(d_ff=128, d_model=32).init(jax.random.key(1), x)["params"]
    bound = math.sqrt(6 / (32 + 128))
    for name in ("inner", "outer"):
        drawn = np.asarray(params[name]["kernel"])
        assert 0.99 * bound < np.abs(drawn).max() <= bound
        assert drawn.std() == pytest.approx(bound / math.sqrt(3), rel=0.03)  # of 4,096 draws
        assert not np.asarray(params[name]["bias"]).any()
