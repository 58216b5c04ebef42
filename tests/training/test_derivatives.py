"""JAX's transformations of the whole model and of its loss: derivatives, vmap, jaxprs, PRNGs."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
from random_params import random_params

from jax_transformer.config import DecodingConfig, ModelConfig
from jax_transformer.decoding.generate import translate
from jax_transformer.models.transformer import Transformer
from jax_transformer.training.optimizer import adam_with_warmup
from jax_transformer.training.train_step import (
    Batch,
    gradients,
    initial_state,
    make_loss,
    make_train_step,
)

PAD, BOS, EOS, SIZE = 0, 1, 2, 9
CONFIG = ModelConfig(num_layers=1, d_model=8, d_ff=16, num_heads=2, d_k=4, d_v=4, dropout_rate=0.2)
MODEL = Transformer(CONFIG, SIZE, PAD)
BATCH = Batch(np.array([[3, 4, 5, EOS], [6, EOS, PAD, PAD]]), np.array([[4, 3, EOS], [7, 8, EOS]]))
LOSS = make_loss(MODEL, BOS, 0.1)
PARAMS = random_params(MODEL)


def smoothed(params: Any) -> jax.Array:
    """The loss without dropout."""
    return LOSS(params, BATCH).smoothed


def logits(params: Any) -> jax.Array:
    found = MODEL.apply({"params": params}, BATCH.source, BATCH.target)
    assert isinstance(found, jax.Array)
    return found


def random_like(tree: Any, seed: int) -> Any:
    random = np.random.default_rng(seed)
    return jax.tree.map(lambda leaf: random.normal(size=leaf.shape).astype(np.float32), tree)


def moved(params: Any, direction: Any, step: float) -> Any:
    return jax.tree.map(lambda one, other: one + step * other, params, direction)


def dot(tree: Any, other: Any) -> Any:
    products = jax.tree.map(lambda one, two: (one * two).sum(), tree, other)
    return sum(jax.tree.leaves(products))


def central_difference(function: Any, params: Any, direction: Any, step: float = 3e-3) -> Any:
    """The derivative of `function` along `direction`, by two values of it."""
    ahead, back = (function(moved(params, direction, s)) for s in (step, -step))
    return jax.tree.map(lambda one, other: (one - other) / (2 * step), ahead, back)


def assert_near(found: Any, expected: Any, tolerance: float) -> None:
    """Every leaf within `tolerance` of the largest entry of all."""
    largest = max(float(np.abs(leaf).max()) for leaf in jax.tree.leaves(expected))
    assert largest > 0.01
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=tolerance * largest)


# ---- Derivatives --------------------------------------------------------------------------


@pytest.mark.slow
def test_the_jvp_of_the_model_is_its_change_along_a_direction():
    direction = random_like(PARAMS, 1)
    _, tangent = jax.jit(lambda p, d: jax.jvp(logits, (p,), (d,)))(PARAMS, direction)
    assert_near(tangent, central_difference(jax.jit(logits), PARAMS, direction, 1e-3), 0.01)


@pytest.mark.slow
def test_the_hessian_of_the_loss_is_the_change_of_its_gradient_by_each_parameter():
    """In the last norm's scale, 8 parameters."""

    def of_scale(scale):
        layer = PARAMS["decoder_0"]
        norm = {"norm": {**layer["feed_forward_norm"]["norm"], "scale": scale}}
        return smoothed({**PARAMS, "decoder_0": {**layer, "feed_forward_norm": norm}})

    scale = PARAMS["decoder_0"]["feed_forward_norm"]["norm"]["scale"]
    hessian = np.asarray(jax.jit(jax.hessian(of_scale))(scale))
    of_gradient = jax.jit(jax.grad(of_scale))
    expected = np.stack([central_difference(of_gradient, scale, one) for one in np.eye(8)])
    assert_near(hessian, expected, 0.01)
    assert_near(hessian, hessian.T, 1e-4)


@pytest.mark.slow
def test_the_jvp_of_the_loss_is_its_gradient_and_that_of_the_gradient_a_symmetric_matrix():
    """Along a direction, the Hessian in u H v = v H u."""
    u, v = random_like(PARAMS, 3), random_like(PARAMS, 5)
    both = jax.jit(lambda p, d: jax.jvp(jax.value_and_grad(smoothed), (p,), (d,)))
    ((_, gradient), (along_u, product_u)), (_, (_, product_v)) = (both(PARAMS, d) for d in (u, v))
    np.testing.assert_allclose(along_u, dot(gradient, u), rtol=1e-3)
    one, other = dot(u, product_v), dot(v, product_u)
    assert abs(one) > 0.1
    np.testing.assert_allclose(one, other, rtol=1e-3)


# ---- Randomness ---------------------------------------------------------------------------


@pytest.mark.release
def test_vmap_over_dropout_keys_is_a_loop_over_them():
    keys = jax.random.split(jax.random.key(4), 5)

    def loss(key):
        return LOSS(PARAMS, BATCH, key).smoothed

    together, alone = np.asarray(jax.jit(jax.vmap(loss))(keys)), jax.jit(loss)
    assert len(set(together.tolist())) == 5
    np.testing.assert_allclose(together, [alone(key) for key in keys], rtol=1e-5)


def test_keys_of_another_prng_give_dropout_to_the_model():
    loss = jax.jit(lambda params, key: LOSS(params, BATCH, key).smoothed)
    keys = [jax.random.key(seed, impl="rbg") for seed in (0, 0, 1)]
    one, again, other = (float(loss(PARAMS, key)) for key in keys)
    assert one == again != other
    assert np.isfinite([one, other]).all()


# ---- Tracing ------------------------------------------------------------------------------


def test_model_loss_gradient_and_step_have_jaxprs():
    optimizer = adam_with_warmup(CONFIG.d_model, 10)
    state = jax.eval_shape(lambda: initial_state(MODEL, optimizer, 0))
    step = make_train_step(LOSS, optimizer)
    outputs = [
        jax.make_jaxpr(function, return_shape=True)(PARAMS)[1]
        for function in (logits, smoothed, jax.grad(smoothed))
    ]
    shapes = [leaf.shape for leaf in jax.tree.leaves(outputs)]
    assert shapes == [(2, 3, SIZE), (), *(leaf.shape for leaf in jax.tree.leaves(PARAMS))]
    after, _ = jax.make_jaxpr(step, return_shape=True)(state, BATCH)[1]
    assert jax.tree.map(jnp.shape, after) == jax.tree.map(jnp.shape, state)


def search(source):
    decoding = DecodingConfig(beam_size=2, max_extra_length=2)
    return translate(MODEL, PARAMS, source, decoding, bos_id=BOS, eos_id=EOS)


def test_a_batch_without_rows_has_results_without_rows():
    nothing = Batch(BATCH.source[:0], BATCH.target[:0])
    gradient, sums = gradients(LOSS, PARAMS, nothing)
    assert float(sums.tokens) == float(sums.smoothed) == 0
    assert not any(leaf.any() for leaf in jax.tree.leaves(gradient))
    assert search(nothing.source).tokens.shape == (0, 1, 6)


@pytest.fixture
def annotations_are_not_checked():
    """Because jaxtyping does not broadcast symbolic shapes."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.mark.usefixtures("annotations_are_not_checked")
def test_gradients_and_a_search_are_exported_for_any_number_of_rows():
    (rows,) = jax.export.symbolic_shape("rows")
    batch = jax.tree.map(lambda ids: jax.ShapeDtypeStruct((rows, ids.shape[1]), jnp.int32), BATCH)
    of_batch = jax.jit(lambda batch: gradients(LOSS, PARAMS, batch)[1].nll)
    found = jax.export.export(of_batch)(batch).call(jax.tree.map(jnp.asarray, BATCH))
    np.testing.assert_allclose(found, LOSS(PARAMS, BATCH).nll, rtol=1e-6)
    exported = jax.export.export(jax.jit(search))(batch.source)
    assert [str(leaf.shape[0]) for leaf in exported.out_avals] == ["rows"] * 4


def test_an_empty_cache_can_be_donated():
    model = Transformer(dataclasses.replace(CONFIG, num_layers=2), SIZE, PAD)
    donating = jax.jit(lambda cache: jax.tree.map(jnp.cos, cache), donate_argnums=0)
    assert len(jax.tree.leaves(donating(model.empty_cache(2, 3)))) == 4
