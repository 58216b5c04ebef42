"""§3.2 Attention: masks, scaled dot-product attention and multi-head attention.

Axes: B batch, Q queries, K keys, H heads. Masks are boolean, True = may attend, and are
made only here.
"""

from typing import Any, Literal, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jax_transformer.models.layers import Dropout
from jax_transformer.models.products import dense_product, product


class KeysValues(NamedTuple):
    """What queries attend to: keys [B, K, H, d_k] and values [B, K, H, d_v].

    >>> past = KeysValues(jnp.ones((1, 3, 2, 4)), jnp.ones((1, 3, 2, 5)))
    >>> past.keys.shape, past.values.shape
    ((1, 3, 2, 4), (1, 3, 2, 5))
    """

    keys: Float[Array, "B K H d_k"]
    values: Float[Array, "B K H d_v"]


def padding_mask(tokens: Int[Array, "B K"], pad_id: int) -> Bool[Array, "B 1 1 K"]:
    """May attend to real tokens, not to padding.

    >>> padding_mask(jnp.array([[7, 8, 0]]), pad_id=0)[0, 0].astype(int).tolist()
    [[1, 1, 0]]
    """
    return (tokens != pad_id)[:, None, None, :]


def causal_mask(length: int) -> Bool[Array, "1 1 Q K"]:
    """May attend to oneself and to what came before (§3.2.3, third use).

    >>> causal_mask(3)[0, 0].astype(int).tolist()
    [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    """
    positions = jnp.arange(length)
    return (positions[None, :] <= positions[:, None])[None, None]


def neighbourhood_mask(length: int, radius: int) -> Bool[Array, "1 1 Q K"]:
    """May attend to at most `radius` positions on either side: restricted self-attention.

    Table 1's neighbourhood of size r is 2 radius + 1. The decoder's is what the causal
    mask leaves of it.

    >>> neighbourhood_mask(4, radius=1)[0, 0].astype(int).tolist()
    [[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1], [0, 0, 1, 1]]
    """
    positions = jnp.arange(length)
    return (jnp.abs(positions[None, :] - positions[:, None]) <= radius)[None, None]


def segment_mask(queries: Int[Array, "B Q"], keys: Int[Array, "B K"]) -> Bool[Array, "B 1 Q K"]:
    """May attend within one's own pair, where a row holds several.

    queries, keys: the number of each position's pair in its row from 1 on, 0 for padding,
    which sees padding alone.

    >>> numbers = jnp.array([[1, 1, 2, 0]])
    >>> segment_mask(numbers, numbers)[0, 0].astype(int).tolist()
    [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
    """
    return (queries[:, :, None] == keys[:, None, :])[:, None]


def written_mask(
    length: int, position: Int[Array, ""], radius: int | None = None
) -> Bool[Array, "1 1 1 K"]:
    """May attend to the cache entries written so far, `position` included.

    With a radius, to the last of them only, as `neighbourhood_mask` says.
    """
    entries = jnp.arange(length)
    seen = entries <= position
    if radius is not None:
        seen &= entries >= position - radius
    return seen[None, None, None, :]


def attention_weights(
    queries: Float[Array, "B Q H d_k"],
    keys: Float[Array, "B K H d_k"],
    mask: Bool[Array, "#B 1 #Q K"],
    compute_dtype: Any = jnp.float32,
) -> Float[Array, "B H Q K"]:
    """softmax(Q K^T / sqrt(d_k)) with illegal positions masked before the softmax (§3.2.1).

    The softmax is taken in float32 over K. A row whose keys are all masked gets equal
    weights, finite in value and gradient: masked scores are the lowest finite number,
    not minus infinity.
    Differs: tensor2tensor adds -1e9, which leaves a little of the score behind.

    Two queries, one like each key, and a mask that hides the second key from the first:

    >>> queries = keys = 4 * jnp.eye(2)[None, :, None, :]
    >>> attention_weights(queries, keys, causal_mask(2))[0, 0].round(3).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    >>> attention_weights(0 * queries, keys, causal_mask(2))[0, 0].tolist()
    [[1.0, 0.0], [0.5, 0.5]]
    """
    d_k = queries.shape[-1]
    scores = product("bqhd,bkhd->bhqk", queries, keys, compute_dtype) * d_k**-0.5
    scores = jnp.where(mask, scores, jnp.finfo(jnp.float32).min)  # [B, H, Q, K]
    return jax.nn.softmax(scores, axis=-1)


def scaled_dot_product_attention(
    queries: Float[Array, "B Q H d_k"],
    keys_values: KeysValues,
    mask: Bool[Array, "#B 1 #Q K"],
) -> Float[Array, "B Q H d_v"]:
    """Attention(Q, K, V) = softmax(Q K^T / sqrt(d_k)) V, equation (1) of §3.2.1.

    A query that likes all keys alike gets the mean of the values that it may see:

    >>> keys, values = jnp.ones((1, 3, 1, 2)), jnp.array([3.0, 5.0, 10.0]).reshape(1, 3, 1, 1)
    >>> queries = jnp.ones((1, 3, 1, 2))
    >>> attended = scaled_dot_product_attention(queries, KeysValues(keys, values), causal_mask(3))
    >>> attended.ravel().tolist()
    [3.0, 4.0, 6.0]
    """
    return weighted_values(attention_weights(queries, keys_values.keys, mask), keys_values.values)


def weighted_values(
    weights: Float[Array, "B H Q K"],
    values: Float[Array, "B K H d_v"],
    compute_dtype: Any = jnp.float32,
) -> Float[Array, "B Q H d_v"]:
    """The average of the values under the attention weights."""
    # Heads first, then swapped: of bfloat16 operands XLA's CPU backend has no product that
    # transposes its result.
    return product("bhqk,bkhd->bhqd", weights, values, compute_dtype).swapaxes(1, 2)


def fused_attention(
    queries: Float[Array, "B Q H d_k"],
    keys_values: KeysValues,
    mask: Bool[Array, "#B 1 #Q K"],
    compute_dtype: Any = jnp.float32,
    implementation: Literal["xla", "cudnn"] = "cudnn",
) -> Float[Array, "B Q H d_v"]:
    """Attention without weights in memory, by one kernel of an accelerator.

    mask: `padding_mask` of rows whose padding stands behind their end, or `causal_mask`; the
    kernel is told the lengths, or that it is causal, and never reads it. Keys and values
    are of one width. A row of nothing but padding attends to its first key. Operands and
    result are rounded to `compute_dtype`.
    """
    count = queries.shape[1]

    def even(x: Array) -> Array:  # as cuDNN wants lengths; what is added stands behind the end
        return jnp.pad(x, ((0, 0), (0, x.shape[1] % 2), (0, 0), (0, 0)))

    operands = [even(x.astype(compute_dtype)) for x in (queries, *keys_values)]
    if mask.shape[2] == 1:
        lengths = jnp.maximum(mask.sum(axis=(1, 2, 3), dtype=jnp.int32), 1)
        lengths = jnp.broadcast_to(lengths, queries.shape[:1])  # a causal mask of one position
        shape: dict[str, Any] = {"key_value_seq_lengths": lengths}
        if implementation == "cudnn":  # wants both
            shape["query_seq_lengths"] = jnp.full_like(lengths, count)
    else:
        shape = {"is_causal": True}
    attended: Any = jax.nn.dot_product_attention(*operands, **shape, implementation=implementation)
    return attended[:, :count].astype(jnp.float32)


def _on_nvidia_gpu() -> bool:
    return jax.default_backend() == "gpu" and "NVIDIA" in jax.devices()[0].device_kind


class MultiHeadAttention(nn.Module):
    """MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W^O (§3.2.2).

    Keys and values are made by `keys_values` and handed in, so that the same call serves
    self-attention, attention over the encoder, and cached decoding: attention never asks
    where its keys came from.
    Differs: tensor2tensor has biases on all four matrices; the equations have none
    (`use_bias` brings them). As there, W^Q, W^K and W^V start as if drawn as one Glorot
    uniform matrix; W^O is Glorot uniform by itself.

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
    compute_dtype: Any = jnp.float32
    fused: bool = False

    def setup(self) -> None:
        """W^Q, W^K [d_model, H, d_k], W^V [d_model, H, d_v] and W^O [H, d_v, d_model]."""
        self.query = self._projection(self.d_k)
        self.key = self._projection(self.d_k)
        self.value = self._projection(self.d_v)
        self.output = nn.DenseGeneral(
            self.d_model,
            axis=(-2, -1),
            use_bias=self.use_bias,
            kernel_init=nn.initializers.glorot_uniform(),
            dot_general=dense_product(self.compute_dtype),
        )
        self.dropout = Dropout(self.dropout_rate)

    def _projection(self, width: int) -> nn.DenseGeneral:
        return nn.DenseGeneral(
            (self.num_heads, width),
            use_bias=self.use_bias,
            # Half of Glorot's variance: its bound for the three matrices drawn as one,
            # [d_model, 3 H d_k]. The whole of it makes first attention weights too sharp.
            kernel_init=nn.initializers.variance_scaling(0.5, "fan_avg", "uniform"),
            dot_general=dense_product(self.compute_dtype),
        )

    def keys_values(self, x: Float[Array, "B K d_model"]) -> KeysValues:
        """K W^K and V W^V of the positions in x."""
        return KeysValues(self.key(x), self.value(x))

    def __call__(
        self,
        x: Float[Array, "B Q d_model"],
        keys_values: KeysValues,
        mask: Bool[Array, "#B 1 #Q K"],
        *,
        fusible: bool = False,
    ) -> Float[Array, "B Q d_model"]:
        """Each position of x attends to `keys_values` where `mask` lets it.

        fusible: the mask is one that `fused_attention` takes. It is used where `self.fused` says
        so, on an NVIDIA GPU, unless somebody wants to see the weights.
        """
        watched = self.is_mutable_collection("intermediates")
        possible = fusible and not watched and self.dropout_rate == 0
        if self.fused and possible and _on_nvidia_gpu():
            attended = fused_attention(self.query(x), keys_values, mask, self.compute_dtype)
            return self.output(attended)
        weights = attention_weights(self.query(x), keys_values.keys, mask, self.compute_dtype)
        self.sow("intermediates", "attention_weights", weights)
        attended = weighted_values(self.dropout(weights), keys_values.values, self.compute_dtype)
        return self.output(attended)
