"""§5 Parameters in few arrays, and the learning rate of a run."""

import jax
import numpy as np

from jax_transformer.config import Config, override
from jax_transformer.runs.step import Stacked, schedule_of, unstack


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
