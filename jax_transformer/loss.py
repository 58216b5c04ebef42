"""§5.4 Label smoothing: cross-entropy as a sum and a count, never a mean.

Sums and counts add up over devices, batches and hosts; means of ragged batches do not.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


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
    """
    size = logits.shape[-1]
    off = label_smoothing / (size - 1)
    logits = logits.astype(jnp.float32)
    normalizer = jax.nn.logsumexp(logits, axis=-1)  # [B, T]
    of_target = jnp.take_along_axis(logits, targets[:, :, None], axis=-1)[:, :, 0]
    nll = normalizer - of_target
    smoothed = normalizer - (1 - label_smoothing - off) * of_target - off * logits.sum(axis=-1)
    smoothed = smoothed - smoothing_entropy(label_smoothing, size)
    real = (targets != pad_id).astype(jnp.float32)
    return LossSums((smoothed * real).sum(), (nll * real).sum(), real.sum())
