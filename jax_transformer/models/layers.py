"""§3.3-3.5, 5.4: feed-forward networks, embeddings, position encodings, dropout, Add & Norm."""

from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.random import threefry_2x32
from jaxtyping import Array, Bool, Float, Int, Key

from jax_transformer.models.products import FEW_ROWS, dense_product, product


def positional_encoding(positions: Int[Array, " T"], d_model: int) -> Float[Array, "T d_model"]:
    """PE(pos, 2i) = sin(pos / 10000^(2i / d_model)), PE(pos, 2i+1) = cos(the same) (§3.5).

    Positions count from 0. Sines and cosines alternate, as printed.
    Differs: tensor2tensor has all sines before all cosines and divides the exponent by
    d_model/2 - 1.

    >>> print(positional_encoding(jnp.arange(2), d_model=4).round(3))
    [[0.    1.    0.    1.   ]
     [0.841 0.54  0.01  1.   ]]
    """
    exponents = np.arange(0, d_model, 2) / d_model
    return _waves(positions, 10000.0**-exponents)  # rates computed in float64 first


def segment_positions(segments: Int[Array, "B T"]) -> Int[Array, "B T"]:
    """Each token's place in its own pair, from 0, where a row holds several pairs.

    segments: the number of each token's pair in its row.
    """
    columns = jnp.arange(segments.shape[1])[None]
    before = jnp.pad(segments, ((0, 0), (1, 0)), constant_values=-1)[:, :-1]
    first = jnp.where(segments != before, columns, 0)
    return columns - jax.lax.cummax(first, axis=1)


def word_encoding(
    positions: Int[Array, "*#B T"], words: Int[Array, "B T"], d_model: int
) -> Float[Array, "B T d_model"]:
    """PE of §3.5 twice, each of half the width: of the token's position and of its word's.

    For tasks whose target says where in the source it stands, as a tree does: each tag ends a
    word. Source and target then have the same encoding of the same word, so that attention
    finds it without having to count.
    Differs: not in the paper. The rates of words go from pi to pi / 100 and not from 1 to
    1 / 10000, for then neighbours have nearly orthogonal encodings; with the paper's rates they
    are nearly the same, and attention takes thousands of steps to tell them apart.
    """
    of_tokens = positional_encoding(positions, d_model // 2)
    rates = np.geomspace(np.pi, np.pi / 100, d_model // 4)
    of_words = _waves(words, rates)
    of_tokens = jnp.broadcast_to(of_tokens, of_words.shape)
    return jnp.concatenate([of_tokens, of_words], axis=-1)


def _waves(positions: Int[Array, "*T"], rates: np.ndarray) -> Float[Array, "*T d"]:
    """Sine and cosine of each position, in turn, for each rate."""
    over = jnp.expand_dims(jnp.asarray(rates, jnp.float32), tuple(range(positions.ndim)))
    angles = positions.astype(jnp.float32)[..., None] * over
    waves = jnp.stack([jnp.sin(angles), jnp.cos(angles)], axis=-1)
    return waves.reshape(*positions.shape, -1)


def dropout_mask(key: Key[Array, ""], rate: float, shape: tuple[int, ...]) -> Bool[Array, "..."]:
    """True where a value is kept: independently, with probability 1 - rate.

    Sixteen threefry bits decide each value, a quarter of what `jax.random.bernoulli`
    draws, so the probability is right to 1/131072.
    """
    size = int(np.prod(shape))
    words = threefry_2x32(jax.random.key_data(key), jnp.arange((size + 1) // 2, dtype=jnp.uint32))
    bits = jax.lax.bitcast_convert_type(words, jnp.uint16).reshape(-1)[:size]
    return (bits >= kept_from(rate)).reshape(shape)


def kept_from(rate: float) -> int:
    """The smallest of the 65,536 values of 16 random bits that keeps a value."""
    return min(round(rate * 65536), 65535)


class Dropout(nn.Module):
    """Residual dropout (§5.4): zero with probability `rate`, divide the rest by 1 - rate.

    Random when the caller gives a key (`rngs={"dropout": key}`), the identity when not.
    """

    rate: float

    @nn.compact
    def __call__(self, x: Float[Array, "..."]) -> Float[Array, "..."]:
        """x with some entries zeroed, its expectation unchanged."""
        if self.rate == 0.0 or not self.has_rng("dropout"):
            return x
        mask = dropout_mask(self.make_rng("dropout"), self.rate, x.shape)
        kept = 1.0 - kept_from(self.rate) / 65536
        return jnp.where(mask, x * (1.0 / kept), jnp.zeros((), x.dtype))


class AddNorm(nn.Module):
    """LayerNorm(x + Dropout(Sublayer(x))): the post-norm residual connection of §3.1 and §5.4.

    >>> x, sublayer = jnp.array([[[1.0, 1.0]]]), jnp.array([[[0.0, 2.0]]])
    >>> add_norm = AddNorm(dropout_rate=0.1)
    >>> variables = add_norm.init(jax.random.key(0), x, sublayer)
    >>> add_norm.apply(variables, x, sublayer).round(3).tolist()  # of 1 and 3
    [[[-1.0, 1.0]]]
    """

    dropout_rate: float

    @nn.compact
    def __call__(
        self, x: Float[Array, "B T d_model"], sublayer: Float[Array, "B T d_model"]
    ) -> Float[Array, "B T d_model"]:
        """Statistics in float32, biased variance, epsilon 1e-6 inside the root."""
        added = x + Dropout(self.dropout_rate, name="dropout")(sublayer)
        return nn.LayerNorm(epsilon=1e-6, name="norm")(added)


class FeedForward(nn.Module):
    """FFN(x) = max(0, x W_1 + b_1) W_2 + b_2, at each position alike (§3.3).

    >>> feed_forward = FeedForward(d_ff=2048, d_model=512)
    >>> variables = feed_forward.init(jax.random.key(0), jnp.ones((1, 1, 512)))
    >>> sum(leaf.size for leaf in jax.tree.leaves(variables))  # 2 x 512 x 2048 + 2048 + 512
    2099712
    """

    d_ff: int
    d_model: int
    compute_dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, x: Float[Array, "B T d_model"]) -> Float[Array, "B T d_model"]:
        """Two linear maps with a ReLU between."""
        dense = partial(
            nn.Dense,
            kernel_init=nn.initializers.glorot_uniform(),
            dot_general=dense_product(self.compute_dtype),
        )
        inner = nn.relu(dense(self.d_ff, name="inner")(x))  # [B, T, d_ff]
        return dense(self.d_model, name="outer")(inner)


class Embedding(nn.Module):
    """One matrix E [V, d_model]: token -> E[token] sqrt(d_model), and h -> h E^T (§3.4).

    Drawn from N(0, 1/d_model), as tensor2tensor does, so that scaled rows have unit
    variance and logits start near it too.

    >>> embedding = Embedding(vocabulary_size=100, d_model=16)
    >>> tokens = jnp.array([[7, 8, 7]])
    >>> variables = embedding.init(jax.random.key(0), tokens)
    >>> embedded = embedding.apply(variables, tokens)
    >>> embedded.shape, bool((embedded[0, 0] == embedded[0, 2]).all())
    ((1, 3, 16), True)
    >>> embedding.apply(variables, embedded, method="logits").argmax(axis=-1).tolist()
    [[7, 8, 7]]
    """

    vocabulary_size: int
    d_model: int
    compute_dtype: Any = jnp.float32

    def setup(self) -> None:
        """The shared matrix."""
        self.matrix = self.param(
            "matrix",
            nn.initializers.normal(self.d_model**-0.5),
            (self.vocabulary_size, self.d_model),
        )

    def __call__(self, tokens: Int[Array, "B T"]) -> Float[Array, "B T d_model"]:
        """Embeddings of the tokens, times sqrt(d_model)."""
        return jnp.take(self.matrix, tokens, axis=0) * self.d_model**0.5

    def logits(self, hidden: Float[Array, "B T d_model"]) -> Float[Array, "B T V"]:
        """The pre-softmax linear transformation: no bias, no scaling, float32."""
        return product("btd,vd->btv", hidden, self.matrix, self.compute_dtype)

    def next_logits(self, hidden: Float[Array, "N d_model"]) -> Float[Array, "N V"]:
        """The same for one position of each hypothesis; of few made as E h^T, see `FEW_ROWS`."""
        if len(hidden) > FEW_ROWS:
            return product("nd,vd->nv", hidden, self.matrix, self.compute_dtype)
        return product("vd,nd->vn", self.matrix, hidden, self.compute_dtype).T
