"""§5.4 Label smoothing: cross-entropy as a sum and a count, never a mean.

Sums and counts add up over devices, batches and hosts; means of ragged batches do not.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jax_transformer.models.products import custom_vjp


class LossSums(NamedTuple):
    """Sums over the real target tokens, in nats."""

    smoothed: Float[Array, ""]  # label-smoothed cross-entropy, 0 for a perfect model
    nll: Float[Array, ""]  # negative log-likelihood
    tokens: Float[Array, ""]


def smoothing_entropy(label_smoothing: float, vocabulary_size: int) -> float:
    """Entropy in nats of the smoothed distribution: what a perfect model would still pay."""
    off = label_smoothing / (vocabulary_size - 1)
    terms = [(1, 1 - label_smoothing), (vocabulary_size - 1, off)]
    return -sum(count * mass * math.log(mass) for count, mass in terms if mass > 0)


def label_smoothed_cross_entropy(
    logits: Float[Array, "B T V"],
    targets: Int[Array, "B T"],
    label_smoothing: float,
    pad_id: int,
) -> LossSums:
    """Cross-entropy against 1 - eps on the target and eps / (V - 1) on every other token.

    The entropy of that distribution is taken off, as tensor2tensor does, so that a
    perfect model scores 0. Padding counts for nothing. Computed in float32 without a
    [B, T, V] target: logsumexp - (1 - eps - off) l_target - off * sum(l).

    A model that is sure of the right token pays nothing in NLL, but does under smoothing:

    >>> logits, targets = jnp.array([[[0.0, 30.0, 0.0], [0.0, 0.0, 0.0]]]), jnp.array([[1, 0]])
    >>> loss = label_smoothed_cross_entropy(logits, targets, label_smoothing=0.1, pad_id=0)
    >>> round(float(loss.smoothed), 3), round(float(loss.nll), 3), float(loss.tokens)
    (2.606, 0.0, 1.0)
    """
    smoothed, nll = _token_losses(logits.astype(jnp.float32), targets, label_smoothing)
    smoothed = smoothed - smoothing_entropy(label_smoothing, logits.shape[-1])
    real = (targets != pad_id).astype(jnp.float32)
    return LossSums((smoothed * real).sum(), (nll * real).sum(), real.sum())


@custom_vjp(nondiff_argnums=(2,))
def _token_losses(
    logits: Float[Array, "B T V"], targets: Int[Array, "B T"], label_smoothing: float
) -> tuple[Float[Array, "B T"], Float[Array, "B T"]]:
    """(smoothed cross-entropy, negative log-likelihood) of each token, in nats."""
    return _token_losses_forward(logits, targets, label_smoothing)[0]


def _token_losses_forward(
    logits: Float[Array, "B T V"], targets: Int[Array, "B T"], label_smoothing: float
) -> tuple[Any, Any]:
    off = label_smoothing / (logits.shape[-1] - 1)
    normalizer = jax.nn.logsumexp(logits, axis=-1)  # [B, T]
    of_target = jnp.take_along_axis(logits, targets[:, :, None], axis=-1)[:, :, 0]
    smoothed = normalizer - (1 - label_smoothing - off) * of_target - off * logits.sum(axis=-1)
    return (smoothed, normalizer - of_target), (logits, targets, normalizer)


def _token_losses_backward(label_smoothing: float, residuals: Any, cotangents: Any) -> Any:
    """softmax - target distribution, in one pass over the logits.

    By hand because automatic differentiation keeps exp(logits) beside the logits, and
    scatters the target's part into a third array of their size.
    """
    logits, targets, normalizer = residuals
    of_smoothed, of_nll = (cotangent[:, :, None] for cotangent in cotangents)
    off = label_smoothing / (logits.shape[-1] - 1)
    at_target = jnp.arange(logits.shape[-1])[None, None] == targets[:, :, None]  # [B, T, V]
    gradient = (of_smoothed + of_nll) * jnp.exp(logits - normalizer[:, :, None])
    gradient -= off * of_smoothed
    on_target = (1 - label_smoothing - off) * of_smoothed + of_nll
    return gradient - jnp.where(at_target, on_target, 0.0), None


_token_losses.defvjp(_token_losses_forward, _token_losses_backward)
