"""The training step against `jax.grad` of a mean, hand counts and a text to memorise."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jax_transformer.config import ModelConfig
from jax_transformer.loss import label_smoothed_cross_entropy
from jax_transformer.model import Transformer
from jax_transformer.training import (
    Batch,
    gradients,
    initial_state,
    loss_sums,
    make_eval_step,
    make_train_step,
    shift_right,
)

PAD, BOS, EOS, SIZE = 0, 1, 2, 13
CONFIG = ModelConfig(num_layers=1, d_model=16, d_ff=32, num_heads=2, d_k=8, d_v=8, dropout_rate=0.2)
MODEL = Transformer(CONFIG, SIZE, PAD)
EXACT = Transformer(dataclasses.replace(CONFIG, dropout_rate=0.0), SIZE, PAD)
SMOOTHING = 0.1


def padded(rows, length):
    return np.array([[*row, *[PAD] * (length - len(row))] for row in rows], np.int32)


BATCH = Batch(
    padded([[3, 4, 5, EOS], [6, EOS], [7, 8, 9, 10, 11, EOS], []], 6),
    padded([[4, 3, EOS], [12, 12, 12, 12, EOS], [11, 10, 9, 8, 7, 6, EOS], []], 7),
)


@pytest.fixture(scope="module")
def start():
    """(fresh state, compiled step): one compilation for the whole file."""
    optimizer = optax.adam(0.01)
    state = initial_state(MODEL, optimizer, jax.random.key(0))
    return state, jax.jit(make_train_step(MODEL, optimizer, BOS, SMOOTHING))


def trained(start, key, steps=1):
    state, step = start
    state, metrics = state._replace(key=key), None
    losses = []
    for _ in range(steps):
        state, metrics = step(state, BATCH)
        losses.append(float(metrics.loss.nll / metrics.loss.tokens))
    return state, metrics, losses


def equal(tree, other):
    return jax.tree.all(jax.tree.map(np.array_equal, tree, other))


def test_the_decoder_sees_bos_and_then_all_but_the_last_token():
    target = jnp.array([[5, 6, EOS], [7, EOS, PAD], [PAD, PAD, PAD]])
    assert shift_right(target, BOS).tolist() == [[BOS, 5, 6], [BOS, 7, EOS], [BOS, PAD, PAD]]
    assert shift_right(target, BOS).dtype == target.dtype


def test_the_gradient_is_that_of_the_mean_over_all_real_target_tokens(start):
    params = start[0].params

    def mean(params):
        inputs = jnp.array([[BOS, *row[:-1]] for row in BATCH.target.tolist()])
        logits = EXACT.apply({"params": params}, BATCH.source, inputs)
        assert isinstance(logits, jax.Array)
        log_probs = jax.nn.log_softmax(logits)
        wanted = jax.nn.one_hot(BATCH.target, SIZE)
        smooth = wanted * (1 - SMOOTHING) + (1 - wanted) * SMOOTHING / (SIZE - 1)
        return -(smooth * log_probs).sum(-1)[BATCH.target != PAD].mean()

    expected = jax.grad(mean)(params)
    found, sums = jax.jit(lambda params: gradients(EXACT, params, BATCH, BOS, SMOOTHING))(params)
    for leaf, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(leaf, other, rtol=1e-4, atol=1e-6)
    assert max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(expected)) > 0.01
    assert float(sums.tokens) == 15


def test_gradients_are_divided_by_the_count_after_the_reduction_and_not_before():
    """A reduction that adds another device's sums: the quotient is of both sums."""
    linear = Transformer(CONFIG, SIZE, PAD)
    params = initial_state(linear, optax.sgd(1.0), jax.random.key(1)).params

    def with_three_more_devices_like_this_one(tree):
        gradient, sums = tree
        # They see other tokens, so that their counts differ: 85 of them in all.
        return jax.tree.map(lambda g: 4 * g, gradient), sums._replace(tokens=sums.tokens + 85)

    alone, sums = gradients(EXACT, params, BATCH, BOS, 0.0)
    reduce = with_three_more_devices_like_this_one
    together, _ = gradients(EXACT, params, BATCH, BOS, 0.0, reduce=reduce)
    count = float(sums.tokens)
    for leaf, other in zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True):
        np.testing.assert_allclose(leaf, other * 4 * count / (count + 85), rtol=1e-4, atol=1e-6)


def test_a_batch_of_padding_alone_changes_nothing_and_is_no_nan():
    params = initial_state(EXACT, optax.sgd(1.0), jax.random.key(1)).params
    empty = Batch(np.zeros((2, 3), np.int32), np.zeros((2, 3), np.int32))
    found, sums = gradients(EXACT, params, empty, BOS, SMOOTHING)
    assert all((np.asarray(leaf) == 0).all() for leaf in jax.tree.leaves(found))
    assert [float(value) for value in sums] == [0, 0, 0]


def test_thirty_steps_memorise_a_few_pairs(start):
    *_, losses = trained(start, jax.random.key(1), 30)
    assert losses[0] > 0.8 * np.log(SIZE)
    assert losses[-1] < losses[0] / 3
    assert np.mean(losses[20:]) < np.mean(losses[10:20]) < np.mean(losses[:10])


def test_a_step_is_a_function_of_state_and_batch(start):
    state, metrics, _ = trained(start, jax.random.key(1), 3)
    again, same_metrics, _ = trained(start, jax.random.key(1), 3)
    assert equal(state._replace(key=0), again._replace(key=0))
    assert equal(metrics, same_metrics)
    assert int(state.step) == 3
    assert state.key == jax.random.key(1)
    other, *_ = trained(start, jax.random.key(2), 3)
    assert not equal(state.params, other.params)  # other dropout


def test_each_step_has_dropout_of_its_own(start):
    """The same parameters and batch at another step number: another loss."""
    state, step = start
    losses = [
        float(step(state._replace(step=jnp.asarray(number)), BATCH)[1].loss.nll)
        for number in range(4)
    ]
    assert len(set(losses)) == 4


def test_a_step_reports_real_tokens_loss_sums_and_the_norm_of_the_gradient(start):
    state, step = start
    _, metrics = step(state, BATCH)
    assert float(metrics.source_tokens) == 12
    assert float(metrics.loss.tokens) == 15
    key = jax.random.fold_in(jax.random.fold_in(state.key, 0), 0)
    found, sums = gradients(MODEL, state.params, BATCH, BOS, SMOOTHING, key)
    norm = np.sqrt(sum(float((np.asarray(g, np.float64) ** 2).sum()) for g in jax.tree.leaves(found)))
    np.testing.assert_allclose(metrics.gradient_norm, norm, rtol=1e-5)
    np.testing.assert_allclose(metrics.loss, sums, rtol=1e-5)


def test_evaluation_has_no_dropout(start):
    params = start[0].params
    evaluate = jax.jit(make_eval_step(MODEL, BOS, SMOOTHING))
    sums = evaluate(params, BATCH)
    assert equal(sums, evaluate(params, BATCH))
    inputs = np.array([[BOS, *row[:-1]] for row in BATCH.target.tolist()])
    logits = EXACT.apply({"params": params}, BATCH.source, inputs)
    assert isinstance(logits, jax.Array)
    exact = label_smoothed_cross_entropy(logits, jnp.asarray(BATCH.target), SMOOTHING, PAD)
    np.testing.assert_allclose(sums, exact, rtol=1e-5)
    dropped = loss_sums(MODEL, params, BATCH, BOS, SMOOTHING, jax.random.key(0))
    assert abs(float(dropped.nll) - float(sums.nll)) > 0.01


def test_rows_of_padding_and_longer_padding_change_no_loss(start):
    params = start[0].params
    evaluate = jax.jit(make_eval_step(EXACT, BOS, SMOOTHING))
    more = Batch(*(np.pad(side, ((0, 3), (0, 4))) for side in BATCH))
    np.testing.assert_allclose(evaluate(params, BATCH), evaluate(params, more), rtol=1e-5)
