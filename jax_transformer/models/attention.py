"""§3.2 Attention: scaled dot-product attention, multi-head attention, and the masks.

Axes: B batch, Q queries, K keys, H heads, T positions; `#B` is B or 1. Heads stand before
positions, [B, H, Q, d_k], because both products are then plain batched matrix products.
Masks are boolean, True = may attend, and are made only here. `dtype` is the type of activations and
of the operands of matrix products; parameters and the softmax are float32.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jax_transformer.checks import (
    check_attention,
    check_axes,
    check_floats,
    check_range,
    check_tokens,
    fitted_mask,
)
from jax_transformer.errors import InputError
from jax_transformer.types import AnyArray, DTypeLike, PrecisionLike


def scaled_dot_product_attention(
    queries: Float[AnyArray, "*#B Q d_k"],
    keys: Float[AnyArray, "*#B K d_k"],
    values: Float[AnyArray, "*#B K d_v"],
    mask: Bool[AnyArray, "... #Q #K"] | None = None,
    *,
    dropout: Callable[[Array], Array] | None = None,
    precision: PrecisionLike = "highest",
) -> Float[Array, "*B Q d_v"]:
    """Return Attention(Q, K, V) = softmax(Q K^T / sqrt(d_k)) V, equation (1) of §3.2.1.

    queries, keys, values: the matrices Q, K and V, perhaps with leading axes that broadcast, such
      as [B, H].
    mask: an array [Q, K], or one with the axes of Q K^T, each of that length or 1; True if a query
      may attend to a key.
    dropout: a function that is applied to the weights before they weigh the values.
    precision: the precision of both products, as `jnp.einsum` takes it.

    For another scale s instead of 1 / sqrt(d_k), multiply the queries by s sqrt(d_k).

    A query equally similar to all keys gets the mean of the values that it may attend to:

    >>> queries = keys = jnp.ones((3, 2))
    >>> values = jnp.array([[3.0], [5.0], [10.0]])
    >>> scaled_dot_product_attention(queries, keys, values).ravel().tolist()
    [6.0, 6.0, 6.0]
    >>> scaled_dot_product_attention(queries, keys, values, causal_mask(3)).ravel().tolist()
    [3.0, 4.0, 6.0]
    """
    check_attention(queries, keys, values)
    if dropout is not None and not callable(dropout):
        raise InputError(f"dropout: expected a function of the weights, found {dropout!r}")
    weights = attention_weights(queries, keys, mask, precision)
    return weighted_values(dropout(weights) if dropout else weights, values, precision)


def attention_weights(
    queries: Float[AnyArray, "*#B Q d_k"],
    keys: Float[AnyArray, "*#B K d_k"],
    mask: Bool[AnyArray, "... #Q #K"] | None = None,
    precision: PrecisionLike = "highest",
) -> Float[Array, "*B Q K"]:
    """Return softmax(Q K^T / sqrt(d_k)), with illegal positions masked before the softmax (§3.2.1).

    The softmax is taken in float32 over K, of products rounded to the type of Q and K; float16 and
    whole numbers, in which they would overflow, become float32 first. A row whose
    keys are all masked gets equal weights, finite in value and gradient: masked scores are the
    lowest finite number, not minus infinity. precision: the precision of the product, as
    `jnp.einsum` takes it.
    Differs: tensor2tensor, the paper's code, adds -1e9 to the scores instead.

    Queries equally similar to both keys; the mask hides the second key from the first query:

    >>> queries, keys = jnp.zeros((1, 1, 2, 4)), jnp.ones((1, 1, 2, 4))
    >>> attention_weights(queries, keys, causal_mask(2))[0, 0].tolist()
    [[1.0, 0.0], [0.5, 0.5]]
    """
    check_attention(queries, keys)
    d_k = queries.shape[-1]
    if jnp.result_type(queries, keys) not in (jnp.bfloat16, jnp.float32, jnp.float64):
        queries, keys = (jnp.asarray(y, jnp.float32) for y in (queries, keys))
    scores = jnp.einsum("...qd,...kd->...qk", queries, keys, precision=precision)
    scores = scores.astype(jnp.float32) * d_k**-0.5
    if mask is not None:
        scores = jnp.where(fitted_mask(mask, scores.shape), scores, jnp.finfo(jnp.float32).min)
    return jax.nn.softmax(scores, axis=-1)


def weighted_values(
    weights: Float[AnyArray, "*#B Q K"],
    values: Float[AnyArray, "*#B K d_v"],
    precision: PrecisionLike = "highest",
) -> Float[Array, "*B Q d_v"]:
    """Return the mean of the values under the attention weights, in the type of the values."""
    check_floats(values=values)
    values = jnp.asarray(values)  # NumPy's float64 becomes JAX's float32
    weights = weights.astype(values.dtype)
    return jnp.einsum("...qk,...kd->...qd", weights, values, precision=precision)


class KeysValues(NamedTuple):
    """The keys and values of every head, which queries attend to."""

    keys: Float[AnyArray, "B H K d_k"]
    values: Float[AnyArray, "B H K d_v"]


class MultiHeadAttention(nn.Module):
    """MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W^O (§3.2.2).

    dropout_rate: the share of attention weights that is dropped. The paper and its code drop some
      in parsing alone (§6.3).
    fused: True to compute the heads with cuDNN's kernel in training, that is, if a dropout key is
      given. With a dropout_rate above 0 it changes nothing, because that kernel gives no access to
      the weights, to drop or to inspect them. It fails unless the device is an NVIDIA GPU, dtype is
      bfloat16 and d_k equals d_v.
    Differs: the paper's code has biases on all four matrices; the equations have none, and
    `use_bias` adds them.

    With the causal mask, another last position changes nothing before it:

    >>> attention = MultiHeadAttention(num_heads=2, d_model=4, d_k=2, d_v=2)
    >>> x = jnp.eye(4)[None, :3]  # [B, Q, d_model]
    >>> variables = attention.init(jax.random.key(0), x)
    >>> variables["params"]["query"]["kernel"].shape  # W^Q of both heads
    (4, 2, 2)
    >>> y = attention.apply(variables, x, mask=causal_mask(3))
    >>> other = attention.apply(variables, x.at[0, 2].set(1), mask=causal_mask(3))
    >>> (y == other).all(axis=-1).tolist()
    [[True, True, False]]
    """

    num_heads: int
    d_model: int
    d_k: int
    d_v: int
    dropout_rate: float = 0.0
    use_bias: bool = False
    dtype: DTypeLike = jnp.float32
    precision: PrecisionLike = "highest"
    fused: bool = False

    def setup(self) -> None:
        """Define W^Q, W^K [d_model, H, d_k], W^V [d_model, H, d_v] and W^O [H, d_v, d_model]."""
        matrix = partial(
            nn.DenseGeneral,
            use_bias=self.use_bias,
            dtype=self.dtype,
            precision=self.precision,
            dot_general=one_product,
        )
        # Glorot uniform with half the variance, which is what Glorot gives to one joint
        # [d_model, 3 d_model] matrix, as in tensor2tensor's self-attention if d_k = d_v. With the
        # full variance, attention weights are too sharp at the start of training.
        half_glorot = nn.initializers.variance_scaling(0.5, "fan_avg", "uniform")
        self.query = matrix((self.num_heads, self.d_k), kernel_init=half_glorot)
        self.key = matrix((self.num_heads, self.d_k), kernel_init=half_glorot)
        self.value = matrix((self.num_heads, self.d_v), kernel_init=half_glorot)
        glorot = nn.initializers.glorot_uniform()
        self.output = matrix(self.d_model, axis=(-2, -1), kernel_init=glorot)
        self.dropout = Dropout(self.dropout_rate)

    def __call__(
        self,
        x: Float[AnyArray, "B Q d_model"],
        attended: Float[AnyArray, "B K d_model"] | KeysValues | None = None,
        mask: Bool[AnyArray, "... #Q #K"] | None = None,
    ) -> Float[Array, "B Q d_model"]:
        """Let each position of x attend to `attended`, or to x itself, where `mask` is True.

        attended: other positions, or their `keys_values` if these were computed before, as cached
          decoding does.
        """
        check_axes(self.d_model, x=x)
        if not isinstance(attended, KeysValues):
            check_axes(self.d_model, attended=x if attended is None else attended)
            attended = self.keys_values(x if attended is None else attended)
        queries = self.query(x).swapaxes(1, 2)  # [B, H, Q, d_k]
        if self.fused and self.dropout_rate == 0 and dropout_is_on(self):
            heads = fused_attention(queries, *attended, mask)
        else:
            heads = self._attend_rematerialized(queries, *attended, mask)
        return self.output(heads.swapaxes(1, 2))

    def keys_values(self, x: Float[AnyArray, "B K d_model"]) -> KeysValues:
        """Return x W^K and x W^V of every head."""
        return KeysValues(self.key(x).swapaxes(1, 2), self.value(x).swapaxes(1, 2))

    def _attend(
        self,
        queries: Float[AnyArray, "B H Q d_k"],
        keys: Float[AnyArray, "B H K d_k"],
        values: Float[AnyArray, "B H K d_v"],
        mask: Bool[AnyArray, "... #Q #K"] | None,
    ) -> Float[Array, "B H Q d_v"]:
        """Return equation (1) with dropout on the weights, which are sown."""

        def dropout(weights: Array) -> Array:
            self.sow("intermediates", "attention_weights", weights)
            return self.dropout(weights)

        return scaled_dot_product_attention(
            queries, keys, values, mask, dropout=dropout, precision=self.precision
        )

    def _attend_rematerialized(
        self,
        queries: Float[AnyArray, "B H Q d_k"],
        keys: Float[AnyArray, "B H K d_k"],
        values: Float[AnyArray, "B H K d_v"],
        mask: Bool[AnyArray, "... #Q #K"] | None,
    ) -> Float[Array, "B H Q d_v"]:
        """Call `_attend`, and again in the backward pass instead of storing the weights.

        The weights would be the largest thing stored. What is stored has the heads side by side,
        [B, T, H d], because XLA pads a last axis as short as d_k to 128 on a TPU.
        """

        def merge(heads: AnyArray) -> AnyArray:
            batch, _, length, width = heads.shape
            return heads.swapaxes(1, 2).reshape(batch, length, self.num_heads * width)

        def split(merged: AnyArray) -> AnyArray:
            shape = self.num_heads, merged.shape[2] // self.num_heads
            return merged.reshape(*merged.shape[:2], *shape).swapaxes(1, 2)

        @nn.remat
        def attend(module: "MultiHeadAttention", q: AnyArray, k: AnyArray, v: AnyArray) -> Array:
            return module._attend(split(q), split(k), split(v), mask)

        return attend(self, merge(queries), merge(keys), merge(values))


def one_product(
    x: AnyArray, matrix: AnyArray, dimension_numbers: Any, precision: PrecisionLike = None
) -> Array:
    """Contract the last axes of x with the first of `matrix`, as a product of two matrices.

    For the argument `dot_general` of flax's linear layers. With all leading axes of x as one, the
    gradients are products of two matrices too, and XLA need not copy x for them on a CPU.
    """
    contracted = len(dimension_numbers[0][0])
    inner = math.prod(matrix.shape[:contracted])
    product = jnp.dot(x.reshape(-1, inner), matrix.reshape(inner, -1), precision=precision)
    return product.reshape(*x.shape[:-contracted], *matrix.shape[contracted:])


class Dropout(nn.Module):
    """Set elements to 0 at random, and scale the others to keep the mean (§5.4).

    rate: the probability that an element is dropped, rounded to 16 bits. Each random word of 32
      bits serves two elements, because drawing them takes much of a training step.

    >>> dropped = Dropout(0.5).apply({}, jnp.ones((2, 100)), rngs=jax.random.key(1))
    >>> sorted({*dropped.ravel().tolist()}), Dropout(0.5).apply({}, jnp.ones(3)).tolist()
    ([0.0, 2.0], [1.0, 1.0, 1.0])
    """

    rate: float

    @nn.compact
    def __call__(self, x: Float[AnyArray, "... d"]) -> Float[Array, "... d"]:
        """Return x itself unless `apply` was given a dropout key."""
        check_range(0, 1, rate=self.rate)
        limit = round(self.rate * 2**16)
        if limit == 0 or not dropout_is_on(self):
            return jnp.asarray(x)
        if limit == 2**16:  # whose scale is infinite
            return jnp.zeros_like(x)
        *axes, width = x.shape
        words = jax.random.bits(self.make_rng("dropout"), (*axes, -(-width // 2)), jnp.uint32)
        kept = jnp.concatenate([words & 0xFFFF >= limit, words >> 16 >= limit], axis=-1)
        return jnp.where(kept[..., :width], x / (1 - limit / 2**16), 0.0)


def dropout_is_on(module: nn.Module) -> bool:
    """Return whether `apply` was given a dropout key: `rngs={"dropout": key}`, or `rngs=key`."""
    named = module.has_rng("dropout")
    # Flax calls a bare key "params", the name of the key that `init` has.
    return named or (module.has_rng("params") and not module.is_initializing())


def fused_attention(
    queries: Float[AnyArray, "B H Q d"],
    keys: Float[AnyArray, "B H K d"],
    values: Float[AnyArray, "B H K d"],
    mask: Bool[AnyArray, "... #Q #K"] | None = None,
    implementation: Literal["xla", "cudnn"] = "cudnn",
) -> Float[Array, "B H Q d"]:
    """Compute `scaled_dot_product_attention` by `jax.nn.dot_product_attention`.

    cudnn: an NVIDIA GPU's kernel for bfloat16, which never writes the weights to memory. With a
      mask it needs even numbers of queries and keys: odd ones get one more, which is masked. Only
      a query whose keys are all masked sees it, and gets another mean.
    xla: the same call on any device, for tests.
    """
    length, keys_length = queries.shape[2], keys.shape[2]
    if mask is not None:
        mask = fitted_mask(mask, (*queries.shape[:-1], keys_length))
        mask = jnp.broadcast_to(mask, (*mask.shape[:2], length, keys_length))
        more_queries, more_keys = (0, length % 2), (0, keys_length % 2)
        none = (0, 0)
        mask = jnp.pad(mask, (none, none, more_queries, more_keys))
        queries = jnp.pad(queries, (none, none, more_queries, none))
        keys, values = (jnp.pad(y, (none, none, more_keys, none)) for y in (keys, values))
    queries, keys, values = (jnp.swapaxes(y, 1, 2) for y in (queries, keys, values))
    attended = jax.nn.dot_product_attention(
        queries, keys, values, mask=mask, implementation=implementation
    )
    return jnp.swapaxes(attended, 1, 2)[:, :, :length]


def padding_mask(tokens: Int[AnyArray, "B K"], pad_id: int) -> Bool[AnyArray, "B 1 1 K"]:
    """Return the mask that lets every position attend to real tokens, and none to padding.

    >>> padding_mask(jnp.array([[7, 8, 0]]), pad_id=0)[0, 0].astype(int).tolist()
    [[1, 1, 0]]
    """
    check_tokens(2**31, 2, tokens=tokens)
    return (tokens != pad_id)[:, None, None, :]


def causal_mask(length: int) -> Bool[Array, "1 1 Q Q"]:
    """Return the mask that lets a position attend to itself and earlier ones (§3.2.3, third use).

    >>> causal_mask(3)[0, 0].astype(int).tolist()
    [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    """
    positions = jnp.arange(length)
    return (positions[None, :] <= positions[:, None])[None, None]


def local_attention_mask(length: int, radius: int) -> Bool[Array, "1 1 Q Q"]:
    """Return the mask of restricted attention, to `radius` positions on either side (§4).

    Table 1's neighbourhood of size r is 2 radius + 1. In the decoder, combine it with the
    causal mask.

    >>> local_attention_mask(4, radius=1)[0, 0].astype(int).tolist()
    [[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1], [0, 0, 1, 1]]
    """
    check_range(0, 2**31 - 1, radius=radius)
    positions = jnp.arange(length)
    return (jnp.abs(positions[None, :] - positions[:, None]) <= radius)[None, None]


def segment_mask(
    query_segments: Int[AnyArray, "#B Q"], key_segments: Int[AnyArray, "#B K"]
) -> Bool[AnyArray, "B 1 Q K"]:
    """Return the mask that lets a position attend within its own segment, in rows of several pairs.

    Segment ids of the positions count from 1; 0 is padding, which attends to padding alone.

    >>> segments = jnp.array([[1, 1, 2, 0]])
    >>> segment_mask(segments, segments)[0, 0].astype(int).tolist()
    [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
    """
    check_tokens(2**31, 2, query_segments=query_segments, key_segments=key_segments)
    return (query_segments[:, :, None] == key_segments[:, None, :])[:, None]
