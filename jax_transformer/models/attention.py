"""§3.2 Attention: masks, scaled dot-product attention and multi-head attention.

Axes: B batch, Q queries, K keys, H heads. Masks are boolean, True = may attend, and are
made only here. `dtype` is the type of activations and of the operands of matrix products;
parameters and the softmax are float32.
"""

from functools import partial
from typing import Any, Literal, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jax_transformer.checks import check_mask


class KeysValues(NamedTuple):
    """What queries attend to: keys [B, H, K, d_k] and values [B, H, K, d_v].

    >>> past = KeysValues(jnp.ones((1, 2, 3, 4)), jnp.ones((1, 2, 3, 5)))
    >>> past.keys.shape, past.values.shape
    ((1, 2, 3, 4), (1, 2, 3, 5))
    """

    keys: Float[Array, "B H K d_k"]
    values: Float[Array, "B H K d_v"]


def padding_mask(tokens: Int[Array, "B K"], pad_id: int) -> Bool[Array, "B 1 1 K"]:
    """Every position may attend to real tokens, none to padding.

    >>> padding_mask(jnp.array([[7, 8, 0]]), pad_id=0)[0, 0].astype(int).tolist()
    [[1, 1, 0]]
    """
    return (tokens != pad_id)[:, None, None, :]


def causal_mask(length: int) -> Bool[Array, "1 1 Q K"]:
    """A position may attend to itself and to earlier ones (§3.2.3, third use).

    >>> causal_mask(3)[0, 0].astype(int).tolist()
    [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    """
    positions = jnp.arange(length)
    return (positions[None, :] <= positions[:, None])[None, None]


def local_attention_mask(length: int, radius: int) -> Bool[Array, "1 1 Q K"]:
    """A position may attend to `radius` positions on either side: restricted attention (§4).

    Table 1's neighbourhood of size r is 2 radius + 1. In the decoder, combine it with the
    causal mask.

    >>> local_attention_mask(4, radius=1)[0, 0].astype(int).tolist()
    [[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1], [0, 0, 1, 1]]
    """
    positions = jnp.arange(length)
    return (jnp.abs(positions[None, :] - positions[:, None]) <= radius)[None, None]


def segment_mask(
    query_segments: Int[Array, "B Q"], key_segments: Int[Array, "B K"]
) -> Bool[Array, "B 1 Q K"]:
    """A position may attend within its own segment, in rows that hold several sentence pairs.

    Segment ids of the positions count from 1; 0 is padding, which attends to padding alone.

    >>> segments = jnp.array([[1, 1, 2, 0]])
    >>> segment_mask(segments, segments)[0, 0].astype(int).tolist()
    [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
    """
    return (query_segments[:, :, None] == key_segments[:, None, :])[:, None]


def cache_mask(
    length: int, position: Int[Array, ""], radius: int | None = None
) -> Bool[Array, "1 1 1 K"]:
    """The new token may attend to cache entries up to its own: one row of the causal mask.

    With a radius, combined with the same row of `local_attention_mask`.

    >>> cache_mask(4, jnp.array(2))[0, 0].astype(int).tolist()
    [[1, 1, 1, 0]]
    """
    entries = jnp.arange(length)
    visible = entries <= position
    if radius is not None:
        visible &= entries >= position - radius
    return visible[None, None, None, :]


def attention_weights(
    queries: Float[Array, "B H Q d_k"],
    keys: Float[Array, "B H K d_k"],
    mask: Bool[Array, "#B 1 #Q K"],
    precision: Any = "highest",
) -> Float[Array, "B H Q K"]:
    """softmax(Q K^T / sqrt(d_k)) with illegal positions masked before the softmax (§3.2.1).

    The softmax is taken in float32 over K. A row whose keys are all masked gets equal
    weights, finite in value and gradient: masked scores are the lowest finite number,
    not minus infinity. precision: of the product, as jnp.einsum takes it.
    Differs: tensor2tensor adds -1e9 to the scores instead.

    Queries equally similar to both keys; the mask hides the second key from the first query:

    >>> queries, keys = jnp.zeros((1, 1, 2, 4)), jnp.ones((1, 1, 2, 4))
    >>> attention_weights(queries, keys, causal_mask(2))[0, 0].tolist()
    [[1.0, 0.0], [0.5, 0.5]]
    """
    check_mask(mask, queries, keys)
    d_k = queries.shape[-1]
    scores = jnp.einsum("bhqd,bhkd->bhqk", queries, keys, precision=precision).astype(jnp.float32)
    scores = jnp.where(mask, scores * d_k**-0.5, jnp.finfo(jnp.float32).min)  # [B, H, Q, K]
    return jax.nn.softmax(scores, axis=-1)


def weighted_values(
    weights: Float[Array, "B H Q K"],
    values: Float[Array, "B H K d_v"],
    precision: Any = "highest",
) -> Float[Array, "B H Q d_v"]:
    """The average of the values under the attention weights, in the type of the values."""
    weights = weights.astype(values.dtype)
    return jnp.einsum("bhqk,bhkd->bhqd", weights, values, precision=precision)


def scaled_dot_product_attention(
    queries: Float[Array, "B H Q d_k"],
    keys_values: KeysValues,
    mask: Bool[Array, "#B 1 #Q K"],
) -> Float[Array, "B H Q d_v"]:
    """Attention(Q, K, V) = softmax(Q K^T / sqrt(d_k)) V, equation (1) of §3.2.1.

    `MultiHeadAttention` calls `attention_weights` and `weighted_values`, with dropout between.

    A query equally similar to all keys gets the mean of the values that it may attend to:

    >>> queries = keys = jnp.ones((1, 1, 3, 2))
    >>> values = jnp.array([3.0, 5.0, 10.0]).reshape(1, 1, 3, 1)
    >>> attended = scaled_dot_product_attention(queries, KeysValues(keys, values), causal_mask(3))
    >>> attended.ravel().tolist()
    [3.0, 4.0, 6.0]
    """
    return weighted_values(attention_weights(queries, keys_values.keys, mask), keys_values.values)


def fused_attention(
    queries: Float[Array, "B H Q d_k"],
    keys_values: KeysValues,
    mask: Bool[Array, "#B 1 #Q K"],
    implementation: Literal["xla", "cudnn"] = "cudnn",
) -> Float[Array, "B H Q d_v"]:
    """`scaled_dot_product_attention` by `jax.nn.dot_product_attention`, for equal d_k and d_v.

    cudnn: an NVIDIA GPU's kernel for bfloat16, which never writes the weights to memory.
    xla: the same call on any device, for tests.
    """
    mask = jnp.broadcast_to(mask, (*mask.shape[:2], queries.shape[2], mask.shape[3]))
    operands = (_swap_heads(array) for array in (queries, *keys_values))
    attended: Any = jax.nn.dot_product_attention(
        *operands, mask=mask, implementation=implementation
    )
    return _swap_heads(attended)


def _swap_heads(x: Float[Array, "B Q H d"]) -> Float[Array, "B H Q d"]:
    """Heads before positions, or back."""
    return x.swapaxes(1, 2)


def _merge_heads(x: Float[Array, "B H Q d"]) -> Float[Array, "B Q H*d"]:
    """All heads of a position in one row."""
    return _swap_heads(x).reshape(x.shape[0], x.shape[2], -1)


class MultiHeadAttention(nn.Module):
    """MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W^O (§3.2.2).

    Keys and values are made by `keys_values` and handed in, so that the same call serves
    self-attention, attention over the encoder, and cached decoding. `dropout_rate` drops
    attention weights, as the paper's code does; the paper mentions it only for parsing (§6.3).
    Differs: the paper's code has biases on all four matrices; the equations have none, and
    `use_bias` adds them.

    `fused` takes cuDNN's kernel, which needs bfloat16 and an NVIDIA GPU, in training (where a
    dropout key is given) if dropout_rate, that of the attention weights, is 0. Otherwise the
    plain path runs, because the kernel never shows the weights, neither to drop some nor to sow
    them. The caller makes sure of the device: `runs.loading.build_model` clears the setting on
    others.

    >>> attention = MultiHeadAttention(num_heads=8, d_model=512, d_k=64, d_v=64)
    >>> x, mask = jnp.ones((1, 5, 512)), causal_mask(5)
    >>> def attend(layer, x):
    ...     return layer(x, layer.keys_values(x), mask)
    >>> variables = attention.init(jax.random.key(0), x, method=attend)
    >>> variables["params"]["query"]["kernel"].shape  # W^Q of all heads
    (512, 8, 64)
    >>> attention.apply(variables, x, method=attend).shape
    (1, 5, 512)
    """

    num_heads: int
    d_model: int
    d_k: int
    d_v: int
    dropout_rate: float = 0.0
    use_bias: bool = False
    dtype: Any = jnp.float32
    precision: Any = "highest"
    fused: bool = False

    def setup(self) -> None:
        """W^Q, W^K [d_model, H, d_k], W^V [d_model, H, d_v] and W^O [H, d_v, d_model]."""
        # Glorot uniform with half the variance, which is what Glorot gives to one joint
        # [d_model, 3 d_model] matrix, as in tensor2tensor's self-attention. With the full
        # variance, attention weights are too sharp at the start of training.
        in_projection = partial(
            nn.DenseGeneral,
            use_bias=self.use_bias,
            dtype=self.dtype,
            precision=self.precision,
            kernel_init=nn.initializers.variance_scaling(0.5, "fan_avg", "uniform"),
        )
        self.query = in_projection((self.num_heads, self.d_k))
        self.key = in_projection((self.num_heads, self.d_k))
        self.value = in_projection((self.num_heads, self.d_v))
        self.output = nn.DenseGeneral(
            self.d_model,
            axis=(-2, -1),
            use_bias=self.use_bias,
            dtype=self.dtype,
            precision=self.precision,
            kernel_init=nn.initializers.glorot_uniform(),
        )
        self.dropout = nn.Dropout(self.dropout_rate)

    def keys_values(self, x: Float[Array, "B K d_model"]) -> KeysValues:
        """x W^K and x W^V, split into heads."""
        return KeysValues(_swap_heads(self.key(x)), _swap_heads(self.value(x)))

    def __call__(
        self,
        x: Float[Array, "B Q d_model"],
        keys_values: KeysValues,
        mask: Bool[Array, "#B 1 #Q K"],
    ) -> Float[Array, "B Q d_model"]:
        """Each position of x attends to `keys_values` where `mask` lets it."""
        queries = self.query(x)  # [B, Q, H, d_k]
        if self.fused and self.has_rng("dropout") and self.dropout_rate == 0:
            heads = fused_attention(_swap_heads(queries), keys_values, mask)
        else:
            keys, values = map(_merge_heads, keys_values)  # [B, K, H d]
            heads = self._attend(queries.reshape(*x.shape[:2], -1), keys, values, mask)
        return self.output(_swap_heads(heads))

    # Rematerialized: the backward pass computes the attention weights again, from queries, keys and
    # values, because the weights are the largest thing that it would store. It stores those with
    # heads merged, because a TPU pads the last axis to 128.
    @nn.remat
    def _attend(
        self,
        queries: Float[Array, "B Q H*d_k"],
        keys: Float[Array, "B K H*d_k"],
        values: Float[Array, "B K H*d_v"],
        mask: Bool[Array, "#B 1 #Q K"],
    ) -> Float[Array, "B H Q d_v"]:
        """`scaled_dot_product_attention` with dropout on the weights, which are sown."""
        queries, keys, values = (self._split_heads(x) for x in (queries, keys, values))
        weights = attention_weights(queries, keys, mask, self.precision)
        self.sow("intermediates", "attention_weights", weights)
        weights = self.dropout(weights, deterministic=not self.has_rng("dropout"))
        return weighted_values(weights, values, self.precision)

    def _split_heads(self, x: Float[Array, "B K H*d"]) -> Float[Array, "B H K d"]:
        """The opposite of `_merge_heads`."""
        return _swap_heads(x.reshape(*x.shape[:2], self.num_heads, -1))
