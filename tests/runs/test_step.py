"""§5 Parameters in few arrays, the learning rate of a run, and its step."""

import jax
import numpy as np
import pytest

from jax_transformer.config import Config, override
from jax_transformer.models.transformer import Transformer
from jax_transformer.runs.step import Stacked, schedule_of, stack_params, training_step, unstack
from jax_transformer.training.optimizer import adam_with_warmup
from jax_transformer.training.train_step import Batch, initial_state, make_loss, make_train_step


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
def test_the_step_of_a_run_has_every_setting():
    config = override(
        Config(),
        *("model.num_layers=1", "model.d_model=16", "model.d_ff=32", "model.num_heads=2"),
        *("model.d_k=8", "model.d_v=8", "model.dropout_rate=0.2"),
        *("training.adam_b1=0.7", "training.adam_b2=0.8", "training.adam_epsilon=1e-3"),
        *("training.warmup_steps=2", "training.learning_rate_scale=3"),
        *("training.label_smoothing=0.3", "training.accumulate=2"),
    )
    model = Transformer(config.model, vocabulary_size=20, pad_id=0)
    batch = Batch(np.array([[5, 6, 2], [7, 2, 0]]), np.array([[8, 2], [9, 2]]))

    optimizer, step = training_step(config, model, bos_id=1)
    state = stack_params(initial_state(model, optimizer, seed=1))
    optimizer = adam_with_warmup(16, 2, scale=3.0, b1=0.7, b2=0.8, epsilon=1e-3)
    expected = initial_state(model, optimizer, seed=1)
    expected_step = jax.jit(make_train_step(make_loss(model, 1, 0.3), optimizer, 2))
    step = jax.jit(step)
    for _ in range(3):
        state, metrics = step(state, batch)
        expected, expected_metrics = expected_step(expected, batch)
        for found, wanted in zip(
            jax.tree.leaves((unstack(state.params), metrics)),
            jax.tree.leaves((expected.params, expected_metrics)),
            strict=True,
        ):
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
