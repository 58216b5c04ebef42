"""§5 Parameters in few arrays: the same numbers, the same training."""

from functools import partial

import jax
import numpy as np
import pytest

from jax_transformer.config import Config, ModelConfig, override
from jax_transformer.models.transformer import Transformer
from jax_transformer.runs.step import (
    Stacked,
    loss_of_stacked,
    schedule_of,
    stack_params,
    unstack,
)
from jax_transformer.training.optimizer import adam_with_warmup
from jax_transformer.training.train_step import Batch, initial_state, make_loss, make_train_step

CONFIG = ModelConfig(num_layers=1, d_model=8, d_ff=16, num_heads=2, d_k=4, d_v=4, dropout_rate=0.0)
MODEL = Transformer(CONFIG, 11, 0)
OPTIMIZER = adam_with_warmup(8, 10)
BATCH = Batch(np.array([[3, 4, 2], [5, 2, 0]], np.int32), np.array([[6, 2], [7, 2]], np.int32))


def assert_same_bits(tree, other):
    assert jax.tree.structure(tree) == jax.tree.structure(other)
    for leaf, expected in zip(jax.tree.leaves(tree), jax.tree.leaves(other), strict=True):
        assert (leaf.dtype, leaf.shape) == (expected.dtype, expected.shape)
        assert np.asarray(leaf).tobytes() == np.asarray(expected).tobytes()


def test_a_tree_comes_back_as_it_was_on_the_host_and_on_devices():
    tree = {
        "b": [np.arange(3, dtype=np.float32), np.float32(np.nan) * np.ones(3, np.float32)],
        "a": (np.arange(3, dtype=np.int32), np.array(7, np.int32), np.array(-1, np.int32)),
    }
    stacked = Stacked.of(tree)
    assert [stack.shape for stack in stacked.stacks] == [(1, 3), (2,), (2, 3)]  # "a" comes first
    assert all(type(leaf) is np.ndarray for leaf in jax.tree.leaves(stacked.tree()))
    assert_same_bits(stacked.tree(), tree)
    assert_same_bits(jax.jit(lambda stacked: stacked.tree())(stacked), tree)
    assert_same_bits(unstack({"state": (stacked, 5)})["state"][0], tree)


def test_a_given_learning_rate_is_constant_after_the_warmup():
    rate = schedule_of(override(Config(), "training.learning_rate=1e-4"))
    np.testing.assert_allclose([rate(step) for step in (400, 4000, 99_999)], [1e-5, 1e-4, 1e-4])


@pytest.mark.slow
def test_training_with_stacked_parameters_takes_the_same_steps():
    apart = jax.device_get(initial_state(MODEL, OPTIMIZER, 0))
    stacked = stack_params(apart)
    arrays, shapes = jax.tree.leaves(apart.params), {a.shape for a in jax.tree.leaves(apart.params)}
    # Parameters and both moments; the step, Adam's count, the schedule's, and the seed.
    assert len(jax.tree.leaves(apart)) == 3 * len(arrays) + 4
    assert len(jax.tree.leaves(stacked)) == 3 * len(shapes) + 4
    for name in ("params", "opt_state"):
        assert_same_bits(getattr(unstack(stacked), name), getattr(apart, name))
    loss = loss_of_stacked(make_loss(MODEL, 1, 0.1))
    step = jax.jit(make_train_step(loss, OPTIMIZER))
    for _ in range(3):
        apart, metrics = step(apart, BATCH)
        stacked, stacked_metrics = step(stacked, BATCH)
        np.testing.assert_allclose(stacked_metrics.loss.nll, metrics.loss.nll, rtol=1e-5)
        np.testing.assert_allclose(stacked_metrics.gradient_norm, metrics.gradient_norm, rtol=1e-5)
    close = partial(np.testing.assert_allclose, rtol=0, atol=2e-6)
    jax.tree.map(close, unstack(stacked).params, apart.params)
