"""The training step against `jax.grad` of a mean and counts by hand."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import Mesh
from random_params import random_params, remember_gradients

from jax_transformer.config import ModelConfig
from jax_transformer.models.transformer import Transformer
from jax_transformer.parsing.word_positions import WordTransformer
from jax_transformer.training.loss import LossSums
from jax_transformer.training.train_step import (
    Batch,
    TrainState,
    gradients,
    make_loss,
    make_train_step,
    shift_right,
)

PAD, BOS, EOS, SIZE = 0, 1, 2, 13
CONFIG = ModelConfig(num_layers=1, d_model=16, d_ff=32, num_heads=2, d_k=8, d_v=8, dropout_rate=0.2)
MODEL = Transformer(CONFIG, SIZE, PAD)
EXACT = Transformer(dataclasses.replace(CONFIG, dropout_rate=0.0), SIZE, PAD)
SMOOTHING = 0.1


@jax.jit
def exact_gradients(params, batch):
    return gradients(make_loss(EXACT, BOS, SMOOTHING), params, batch)


def padded(rows, length):
    return np.array([[*row, *[PAD] * (length - len(row))] for row in rows], np.int32)


BATCH = Batch(
    padded([[3, 4, 5, EOS], [6, EOS], [7, 8, 9, 10, 11, EOS], []], 6),
    padded([[4, 3, EOS], [12, 12, 12, 12, EOS], [11, 10, 9, 8, 7, 6, EOS], []], 7),
)


@pytest.fixture(scope="module")
def start():
    """(fresh state, compiled step): one compilation for the whole file."""
    optimizer = optax.chain(remember_gradients(), optax.adam(0.01))
    params = jax.tree.map(jnp.asarray, random_params(MODEL))
    state = TrainState(jnp.int32(0), params, optimizer.init(params), jnp.uint32(0))
    return state, jax.jit(make_train_step(make_loss(MODEL, BOS, SMOOTHING), optimizer))


def assert_close(tree, other, rtol=1e-4, atol=1e-6):
    jax.tree.map(partial(np.testing.assert_allclose, rtol=rtol, atol=atol), tree, other)


def equal(tree, other):
    return jax.tree.all(jax.tree.map(np.array_equal, tree, other))


def test_the_decoder_sees_bos_and_then_all_but_the_last_token_of_each_pair():
    target = jnp.array([[5, 6, EOS], [7, EOS, PAD], [PAD, PAD, PAD]])
    assert shift_right(target, BOS).tolist() == [[BOS, 5, 6], [BOS, 7, EOS], [BOS, PAD, PAD]]
    packed_target = jnp.array([[5, 6, EOS, 7, EOS], [3, EOS, 4, EOS, 8]])
    segments = jnp.array([[1, 1, 1, 2, 2], [1, 1, 2, 2, 3]])
    expected = [[BOS, 5, 6, BOS, 7], [BOS, 3, BOS, 4, BOS]]
    assert shift_right(packed_target, BOS, segments).tolist() == expected


def test_the_gradient_is_that_of_the_mean_over_all_real_target_tokens(start):
    params, real = start[0].params, np.nonzero(BATCH.target != PAD)

    def mean(params):
        inputs = jnp.array([[BOS, *row[:-1]] for row in BATCH.target.tolist()])
        logits = EXACT.apply({"params": params}, BATCH.source, inputs)
        assert isinstance(logits, jax.Array)
        log_probs = jax.nn.log_softmax(logits)
        wanted = jax.nn.one_hot(BATCH.target, SIZE)
        smooth = wanted * (1 - SMOOTHING) + (1 - wanted) * SMOOTHING / (SIZE - 1)
        return -(smooth * log_probs).sum(-1)[real].mean()

    expected = jax.jit(jax.grad(mean))(params)
    found, sums = exact_gradients(params, BATCH)
    assert_close(found, expected)
    assert max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(expected)) > 0.01
    assert float(sums.tokens) == 15


def test_targets_have_their_own_padding():
    other_pad = SIZE
    same, other = (
        Transformer(EXACT.config, SIZE, PAD, SIZE + 1, target_pad_id=pad)
        for pad in (PAD, other_pad)
    )
    params = random_params(same)
    batch = BATCH._replace(target=np.where(BATCH.target == PAD, other_pad, BATCH.target))
    expected = jax.jit(partial(gradients, make_loss(same, BOS)))(params, BATCH)
    found = jax.jit(partial(gradients, make_loss(other, BOS)))(params, batch)
    assert_close(found, expected)
    assert float(found[1].tokens) == 15


@pytest.mark.parametrize("accumulate", [1, 2])
def test_the_gradient_is_the_same_in_shard_map(accumulate):
    params, loss = random_params(EXACT), make_loss(EXACT, BOS, SMOOTHING)
    mesh, rows = Mesh(jax.devices()[:2], ["devices"]), jax.P("devices")
    total = partial(jax.lax.psum, axis_name="devices")
    found = jax.jit(
        jax.shard_map(
            lambda params, batch: gradients(loss, params, batch, None, total, accumulate),
            mesh=mesh,
            in_specs=(jax.P(), rows),
            out_specs=jax.P(),
        )
    )(params, BATCH)
    assert_close(found, exact_gradients(params, BATCH))


def test_the_gradient_is_the_same_for_rows_spread_over_a_mesh():
    mesh = jax.make_mesh((2,), ("data",), (jax.sharding.AxisType.Auto,), devices=jax.devices()[:2])
    params = jax.device_put(random_params(EXACT), jax.NamedSharding(mesh, jax.P()))
    batch = jax.device_put(BATCH, jax.NamedSharding(mesh, jax.P("data")))
    assert_close(exact_gradients(params, batch), exact_gradients(random_params(EXACT), BATCH))


@pytest.mark.slow
def test_a_step_is_a_function_of_state_and_batch_with_dropout_and_evaluation_has_none(start):
    state, step = start
    after, metrics = step(state, BATCH)
    assert equal((after, metrics), step(state, BATCH))
    assert (int(after.step), int(after.seed)) == (1, 0)
    assert float(metrics.loss.tokens) == 15
    assert metrics.loss.nll > metrics.loss.smoothed > 0  # smoothed less its entropy, in sums
    gradient, _ = after.opt_state
    squares = sum(float((np.asarray(g, np.float64) ** 2).sum()) for g in jax.tree.leaves(gradient))
    np.testing.assert_allclose(metrics.gradient_norm, np.sqrt(squares), rtol=1e-5)
    # Another seed, or another step: other dropout. None: the loss of an evaluation.
    others = state._replace(seed=np.uint32(1)), state._replace(step=np.int32(1))
    losses = [float(each[1].loss.nll) for each in (step(other, BATCH) for other in others)]
    sums = jax.jit(make_loss(MODEL, BOS, SMOOTHING))(state.params, BATCH)
    assert len({float(metrics.loss.nll), float(sums.nll), *losses}) == 4
    np.testing.assert_allclose(sums, exact_gradients(state.params, BATCH)[1], rtol=1e-5)


def test_a_step_takes_any_loss_of_the_signature():
    """Least squares of a weight without a model: the step is that of gradient descent by hand."""

    def loss(params, batch, key=None):
        errors = params["w"] * batch.source[:, 0] - batch.target[:, 0]
        # Each row weighs an eighth, so the tokens of a batch are half a token.
        return LossSums((errors**2).sum() / 8, jnp.abs(errors).sum(), jnp.float32(len(errors) / 8))

    step = jax.jit(make_train_step(loss, optax.sgd(0.1), accumulate=2))
    params = {"w": jnp.float32(0.5)}
    state = TrainState(jnp.int32(0), params, optax.sgd(0.1).init(params), jnp.uint32(0))
    x, y = np.array([1, 2, 3, 4], np.int32), np.array([2, 5, 5, 9], np.int32)
    state, metrics = step(state, Batch(x[:, None], y[:, None]))
    gradient = (2 * (0.5 * x - y) * x).mean()
    np.testing.assert_allclose(state.params["w"], 0.5 - 0.1 * gradient, rtol=1e-6)
    np.testing.assert_allclose(metrics.gradient_norm, abs(gradient), rtol=1e-6)
    assert float(metrics.loss.smoothed) == ((0.5 * x - y) ** 2).sum() / 8


def test_parts_of_a_batch_have_dropout_of_their_own():
    def loss(params, batch, key):
        return LossSums(params * jax.random.normal(key), jnp.float32(0), jnp.float32(1))

    key, rows = jax.random.key(1), np.ones((2, 4), np.int32)
    found, _ = gradients(loss, jnp.float32(1), Batch(rows, rows), key, accumulate=2)
    expected = [float(jax.random.normal(jax.random.fold_in(key, part))) for part in (0, 1)]
    assert expected[0] != expected[1]
    np.testing.assert_allclose(found, np.mean(expected), rtol=1e-6)


# ---- Several pairs in a row ---------------------------------------------------------------

IDS = np.arange(SIZE)
MARKS = {
    "word_starts": np.isin(IDS, [EOS, 3, 4, 7]).tobytes(),
    "tags": np.isin(IDS, [8, 9, 10]).tobytes(),
}


def random_rows(seed=0, rows=3):
    """Rows of one to four pairs and an empty row; a pair is (source, target) with EOS."""
    random = np.random.default_rng(seed)

    def sentence():
        return [*random.integers(3, SIZE, random.integers(1, 6)).tolist(), EOS]

    return [
        *([(sentence(), sentence()) for _ in range(random.integers(1, 5))] for _ in range(rows)),
        [],
    ]


def packed(rows, source_length=24, target_length=25):
    """The pairs of each row one after the other, and their numbers, by hand."""
    sides = []
    for side, length in ((0, source_length), (1, target_length)):
        tokens = [[token for pair in row for token in pair[side]] for row in rows]
        numbers = [[n + 1 for n, pair in enumerate(row) for _ in pair[side]] for row in rows]
        sides += [padded(tokens, length), padded(numbers, length)]
    source, source_segments, target, target_segments = sides
    return Batch(source, target, source_segments, target_segments)


def one_a_row(rows):
    pairs = [pair for row in rows for pair in row]
    return Batch(padded([s for s, _ in pairs], 6), padded([t for _, t in pairs], 6))


# Models, and the parts in which the rows are summed.
PACKED = {
    "words": pytest.param(
        partial(WordTransformer, **MARKS),
        {"tie_embeddings": False, "attention_radius": 1},
        1,
        marks=pytest.mark.release,
    ),
    # Fewer positions than columns of a row.
    "learned": (Transformer, {"positions": "learned", "max_positions": 8}, 2),
}


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "changes", "parts"), PACKED.values(), ids=PACKED)
def test_pairs_that_share_a_row_have_the_loss_and_the_gradient_of_pairs_alone(kind, changes, parts):
    model = kind(dataclasses.replace(CONFIG, dropout_rate=0.0, **changes), SIZE, PAD)
    params = random_params(model)
    rows = random_rows()
    assert [len(row) for row in rows] != [1] * len(rows)
    loss = make_loss(model, BOS, SMOOTHING)
    of_batch = jax.jit(partial(gradients, loss), static_argnames="accumulate")
    found, sums = of_batch(params, packed(rows), accumulate=parts)
    expected, alone = of_batch(params, one_a_row(rows))
    np.testing.assert_allclose(sums, alone, rtol=1e-5)
    assert float(sums.tokens) == sum(len(target) for row in rows for _, target in row)
    assert_close(found, expected, atol=2e-6)
    assert all(np.asarray(leaf).any() for leaf in jax.tree.leaves(expected))
