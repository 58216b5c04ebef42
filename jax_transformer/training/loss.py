"""§5.4 Label smoothing: cross-entropy as a sum and a count, never a mean.

Sums and counts add up over devices, batches and hosts; means of ragged batches do not.
"""

import math
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


class LossSums(NamedTuple):
    """Sums over the real target tokens, in nats."""

    smoothed: Float[Array, ""]  # label-smoothed cross-entropy minus its minimum
    nll: Float[Array, ""]  # negative log-likelihood
    tokens: Float[Array, ""]


def smoothing_entropy(label_smoothing: float, vocabulary_size: int) -> float:
    """Entropy in nats of the smoothed distribution: the lowest cross-entropy there can be."""
    off = label_smoothing / (vocabulary_size - 1)
    terms = [(1, 1 - label_smoothing), (vocabulary_size - 1, off)]
    return -sum(count * mass * math.log(mass) for count, mass in terms if mass > 0)


def label_smoothed_cross_entropy(
    logits: Float[Array, "B T V"],
    targets: Int[Array, "B T"],
    label_smoothing: float,
    pad_id: int,
) -> LossSums:
    """Cross-entropy against 1 - eps on the target and eps / (V - 1) on every other token (§5.4).

    eps is label_smoothing, off = eps / (V - 1).

    The entropy of that distribution is subtracted, as tensor2tensor does, so that a
    perfect model scores 0. Padding counts for nothing. Computed in float32 without a
    [B, T, V] target: logsumexp - (1 - eps - off) l_target - off * sum(l).

    A model that is sure of the right token has zero NLL, but a positive smoothed loss:

    >>> logits, targets = jnp.array([[[0.0, 30.0, 0.0], [0.0, 0.0, 0.0]]]), jnp.array([[1, 0]])
    >>> loss = label_smoothed_cross_entropy(logits, targets, label_smoothing=0.1, pad_id=0)
    >>> round(float(loss.smoothed), 3), round(float(loss.nll), 3), float(loss.tokens)
    (2.606, 0.0, 1.0)
    """
    smoothed, nll = _token_losses(logits, targets, label_smoothing)
    smoothed = smoothed - smoothing_entropy(label_smoothing, logits.shape[-1])
    real = (targets != pad_id).astype(jnp.float32)
    return LossSums((smoothed * real).sum(), (nll * real).sum(), real.sum())


# Only the logits are saved for the backward pass, which recomputes the softmax.
@partial(jax.checkpoint, static_argnums=2)
def _token_losses(
    logits: Float[Array, "B T V"], targets: Int[Array, "B T"], label_smoothing: float
) -> tuple[Float[Array, "B T"], Float[Array, "B T"]]:
    """(smoothed cross-entropy, negative log-likelihood) of each token, in nats."""
    logits = logits.astype(jnp.float32)
    vocabulary_size = logits.shape[-1]
    off = label_smoothing / (vocabulary_size - 1)
    normalizer = jax.nn.logsumexp(logits, axis=-1)  # [B, T]
    # Not a gather: its gradient is a scatter, where this one fuses into that of the softmax.
    at_target = jnp.arange(vocabulary_size)[None, None] == targets[:, :, None]
    target_logits = jnp.where(at_target, logits, 0.0).sum(axis=-1)
    smoothed = normalizer - (1 - label_smoothing - off) * target_logits - off * logits.sum(axis=-1)
    return smoothed, normalizer - target_logits
