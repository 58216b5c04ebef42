"""Label smoothing against numbers worked out by hand and a float64 one-hot target."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_transformer.training.loss import label_smoothed_cross_entropy

PAD = 0


jitted = jax.jit(label_smoothed_cross_entropy, static_argnums=(2, 3))


def sums(logits, targets, label_smoothing: float):
    return jitted(jnp.asarray(logits, jnp.float32), jnp.asarray(targets), label_smoothing, PAD)


def softmax(logits) -> np.ndarray:
    logits = np.asarray(logits, np.float64)
    exponentials = np.exp(logits - logits.max(-1, keepdims=True))
    return exponentials / exponentials.sum(-1, keepdims=True)


def smoothed_target(targets, size: int, label_smoothing: float) -> np.ndarray:
    off = label_smoothing / (size - 1)
    return off + (1 - label_smoothing - off) * np.eye(size)[targets]


def loss_by_hand(logits, targets, label_smoothing: float) -> tuple[float, float, int]:
    """Kullback-Leibler divergence from the smoothed target, the NLL, and the tokens."""
    real = np.asarray(targets) != PAD
    target = smoothed_target(targets, logits.shape[-1], label_smoothing)[real]
    model = softmax(logits)[real]
    logs = np.log(np.where(target > 0, target, 1))
    nll = -np.log(model)[np.arange(real.sum()), np.asarray(targets)[real]]
    return (target * (logs - np.log(model))).sum(), nll.sum(), real.sum()


def test_three_tokens_worked_out_by_hand():
    # Probabilities 1/2, 1/4, 1/4; the target is token 1; eps 0.2 leaves 0.1, 0.8, 0.1.
    logits = [[[math.log(2), 0.0, 0.0]]]
    cross_entropy = 0.1 * math.log(2) + 0.8 * math.log(4) + 0.1 * math.log(4)
    entropy = -(0.8 * math.log(0.8) + 0.2 * math.log(0.1))
    found = sums(logits, [[1]], 0.2)
    assert float(found.smoothed) == pytest.approx(cross_entropy - entropy, rel=1e-6)
    assert float(found.nll) == pytest.approx(math.log(4), rel=1e-6)
    assert float(found.tokens) == 1


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
def test_the_loss_is_that_of_a_float64_one_hot_target_and_padding_counts_for_nothing(
    label_smoothing,
):
    random = np.random.default_rng(1)
    logits = random.normal(size=(3, 7, 50)).astype(np.float32) * 3
    targets = random.integers(1, 50, (3, 7))
    targets[1, 4:] = PAD
    logits[targets == PAD] = 1e4 * random.normal(size=(3, 50))
    found = sums(logits, targets, label_smoothing)
    smoothed, nll, tokens = loss_by_hand(logits, targets, label_smoothing)
    assert float(found.smoothed) == pytest.approx(smoothed, rel=1e-5)
    assert float(found.nll) == pytest.approx(nll, rel=1e-5)
    assert float(found.tokens) == tokens == 18
    nothing = sums(logits, np.zeros_like(targets), label_smoothing)
    assert [float(part) for part in nothing] == [0, 0, 0]


def test_a_token_that_is_never_written_has_no_part_in_the_loss():
    """An imported model's bias forbids it in every row."""
    random = np.random.default_rng(2)
    logits = random.normal(size=(2, 3, 6)).astype(np.float32)
    targets = np.array([[1, 2, 3], [3, 5, 2]])
    logits[..., 4] = np.finfo(np.float32).min

    def smoothed(logits):
        return label_smoothed_cross_entropy(logits, targets, 0.1, PAD).smoothed

    loss, gradient = jax.value_and_grad(smoothed)(logits)
    usual = np.delete(logits, 4, axis=-1)
    others = float(sums(usual, np.where(targets == 5, 4, targets), 0.1).smoothed)
    assert float(loss) == pytest.approx(others, rel=0.1)  # its share is 0.02, the others' too
    assert np.isfinite(gradient).all()
    assert not gradient[..., 4].any()
    assert np.abs(gradient[..., :4]).min() > 1e-3


def test_gradients_are_the_softmax_less_the_smoothed_target_and_less_the_target():
    random = np.random.default_rng(4)
    logits = random.normal(size=(2, 3, 6)).astype(np.float32)
    targets = np.array([[1, 2, PAD], [3, 5, 4]])
    for name, label_smoothing in (("smoothed", 0.1), ("nll", 0.0)):
        gradient = jax.grad(lambda logits, name=name: getattr(sums(logits, targets, 0.1), name))
        expected = softmax(logits) - smoothed_target(targets, 6, label_smoothing)
        expected[targets == PAD] = 0
        np.testing.assert_allclose(gradient(logits), expected, atol=1e-6)


@pytest.mark.parametrize("unknown", [-100, -1, 5])
def test_an_unknown_target_that_is_not_known_before_compiling_gives_nan(unknown):
    found = sums(np.zeros((1, 2, 5)), [[3, unknown]], 0.1)
    assert np.isnan([found.smoothed, found.nll]).all()
    assert float(found.tokens) == 2


def test_label_smoothing_may_be_traced():
    logits, targets = jnp.arange(6.0).reshape(1, 2, 3), jnp.array([[1, 2]])
    for share in (0.0, 0.1):
        traced = jax.jit(label_smoothed_cross_entropy, static_argnums=3)(
            logits, targets, share, PAD
        )
        assert float(traced.smoothed) == pytest.approx(float(sums(logits, targets, share).smoothed))


def test_nothing_is_nan_on_the_way_without_label_smoothing():
    with jax.debug_nans(True):
        found = label_smoothed_cross_entropy(jnp.zeros((1, 1, 4)), jnp.array([[1]]), 0.0, PAD)
    assert float(found.smoothed) == pytest.approx(math.log(4))


def test_logits_of_ten_thousand_do_not_overflow():
    random = np.random.default_rng(5)
    logits = (1e4 * random.normal(size=(2, 4, 8))).astype(np.float32)
    targets = random.integers(1, 8, (2, 4))

    def loss(logits):
        found = sums(logits, targets, 0.1)
        return found.smoothed, found

    (_, found), gradient = jax.value_and_grad(loss, has_aux=True)(jnp.asarray(logits))
    target = smoothed_target(targets, 8, 0.1)
    wide = logits.astype(np.float64)
    peak = wide.max(-1)
    normalizer = peak + np.log(np.exp(wide - peak[..., None]).sum(-1))
    cross_entropy = (normalizer - (target * wide).sum(-1)).sum()
    entropy = -(target * np.log(target)).sum()
    assert float(found.smoothed) == pytest.approx(cross_entropy - entropy, rel=1e-6)
    np.testing.assert_allclose(gradient, softmax(logits) - target, atol=1e-6)
