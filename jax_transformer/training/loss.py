"""§5.4 Label smoothing: cross-entropy as a sum and a count, never a mean.

Sums and counts add up over devices, batches and hosts; means of ragged batches do not.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jax_transformer.checks import check_loss
from jax_transformer.types import AnyArray

NEVER = -1e30  # a logit that an imported model gives to what it never writes is far below


class LossSums(NamedTuple):
    """Sums over the real target tokens, in nats."""

    smoothed: Float[Array, ""]  # label-smoothed cross-entropy minus its minimum
    nll: Float[Array, ""]  # negative log-likelihood
    tokens: Float[Array, ""]  # their number, EOS included


def smoothing_entropy(
    label_smoothing: float | Float[AnyArray, ""], vocabulary_size: int
) -> Float[Array, ""]:
    """Return the entropy of the smoothed distribution, the lowest cross-entropy, in nats."""
    on, others = jnp.float32(1 - label_smoothing), vocabulary_size - 1
    off = jnp.float32(label_smoothing / others)

    def entropy(p: Float[Array, ""]) -> Float[Array, ""]:
        return -(p * jnp.log(jnp.where(p > 0, p, 1.0)))  # 0 if p is 0, and no NaN before that

    return entropy(on) + others * entropy(off)


def label_smoothed_cross_entropy(
    logits: Float[AnyArray, "B T V"],
    targets: Int[AnyArray, "B T"],
    label_smoothing: float | Float[AnyArray, ""],
    pad_id: int,
) -> LossSums:
    """Return the label-smoothed cross-entropy minus its minimum (§5.4), summed over real tokens.

    The smoothed distribution has 1 - eps on the right token and off = eps / (V - 1) on each
    other one, where eps is label_smoothing. Its entropy is subtracted, so a model that predicts
    exactly this distribution scores 0. The paper gives only eps; the distribution and the
    subtraction are as in tensor2tensor, its code. Padding counts for nothing. A target that is not
    an id gives NaN, or is refused if it is known before anything is compiled. Symbols whose
    logits are below -1e30 have no share of the smoothing; they must be the same for all tokens.
    The cross-entropy is computed in float32 from shifted logits s = l - max(l), as
    log(sum(exp(s))) - (1 - eps) s_target - off * (the sum of the other s).

    A model that is sure of the right token has zero NLL, but a positive smoothed loss (the second
    target is padding):

    >>> logits, targets = jnp.array([[[0.0, 30.0, 0.0], [0.0, 0.0, 0.0]]]), jnp.array([[1, 0]])
    >>> loss = label_smoothed_cross_entropy(logits, targets, label_smoothing=0.1, pad_id=0)
    >>> round(float(loss.smoothed), 3), round(float(loss.nll), 3), float(loss.tokens)
    (2.606, 0.0, 1.0)
    """
    check_loss(logits, targets, label_smoothing)
    vocabulary_size = logits.shape[-1]
    logits = logits.astype(jnp.float32).reshape(-1, vocabulary_size)  # [N, V]
    targets = targets.reshape(-1).astype(int)  # the type of arange, with 64 bits too
    shifted = logits - jax.lax.stop_gradient(logits.max(axis=-1, keepdims=True))
    normalizer = jnp.log(jnp.exp(shifted).sum(axis=-1))  # [N]
    is_target = jnp.arange(vocabulary_size)[None] == targets[:, None]
    off = label_smoothing / (vocabulary_size - 1)
    # What is never written has no share. One row shows it: a mask of all of [N, V] would be kept
    # for the backward pass.
    possible = jnp.where(logits[:1] > NEVER, shifted, 0.0)
    expected = (jnp.where(is_target, 1 - label_smoothing, off) * possible).sum(axis=-1)
    at_target = jnp.take_along_axis(shifted, targets[:, None], axis=-1)[:, 0]

    smoothed = normalizer - expected - smoothing_entropy(label_smoothing, vocabulary_size)
    real = targets != pad_id
    is_id = (targets >= 0) & (targets < vocabulary_size)  # by default, JAX takes -1 for the last
    tokens = real.astype(jnp.float32)
    weight = jnp.where(real & ~is_id, jnp.nan, tokens)
    nll = normalizer - at_target
    return LossSums((smoothed * weight).sum(), (nll * weight).sum(), tokens.sum())
