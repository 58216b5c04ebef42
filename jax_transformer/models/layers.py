"""§3.1, 3.3-3.5: feed-forward networks, embeddings, position encodings, Add & Norm.

Axes: B batch, T positions, V vocabulary. `dtype` is the type of activations and of the operands of
matrix products; `precision` is the argument of that name of `jnp.einsum`, and matters for float32.
Parameters, the statistics of the norm and embeddings are float32, and so are logits, after a
product that has been rounded to `dtype`.
"""

from functools import partial
from typing import Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jax_transformer.checks import check_known, check_positions, check_tokens
from jax_transformer.models.attention import Dropout, one_product
from jax_transformer.types import AnyArray, DTypeLike, PrecisionLike

# The paper's is relu. gelu is x Phi(x) itself, not its approximation by tanh.
ACTIVATIONS = {"relu": nn.relu, "swish": nn.swish, "gelu": partial(nn.gelu, approximate=False)}


def positional_encoding(
    positions: Int[AnyArray, "*T"] | int, d_model: int
) -> Float[Array, "*T {d_model}"]:
    """Return PE(pos, 2i) = sin(pos / 10000^(2i / d_model)), PE(pos, 2i+1) = cos(the same) (§3.5).

    positions: an array of them, counted from 0, or a number N for the first N. A number that `jit`
      traces is an array, of one position. Sines and cosines alternate, as in the formula.
    Differs: tensor2tensor, the paper's code, has all sines before all cosines, and the exponent
    i / (d_model/2 - 1) where the formula has i / (d_model/2).

    >>> print(positional_encoding(2, d_model=4).round(3))
    [[0.    1.    0.    1.   ]
     [0.841 0.54  0.01  1.   ]]
    """
    check_positions(positions, d_model)
    count = isinstance(positions, int | np.integer)
    positions = jnp.arange(positions) if count else jnp.asarray(positions)
    exponents = np.arange(0, d_model, 2) / d_model
    return sines_and_cosines(positions, 10000.0**-exponents)  # powers in float64


def sines_and_cosines(
    positions: Int[AnyArray, "*T"], frequencies: Float[np.ndarray, " F"]
) -> Float[Array, "*T D"]:
    """Return sin(position f) and cos(position f) for each frequency f, alternating; D = 2 F."""
    angles = jnp.multiply.outer(positions.astype(jnp.float32), frequencies.astype(np.float32))
    pairs = jnp.stack([jnp.sin(angles), jnp.cos(angles)], axis=-1)
    return pairs.reshape(*positions.shape, 2 * len(frequencies))


def segment_positions(segments: Int[AnyArray, "B T"]) -> Int[Array, "B T"]:
    """Return the position of each token within its own segment, from 0; 0 for padding.

    That is its column minus the column of the latest start of a segment.

    >>> segment_positions(jnp.array([[1, 1, 1, 2, 2, 0]])).tolist()
    [[0, 1, 2, 0, 1, 0]]
    """
    columns = jnp.arange(segments.shape[1])[None]
    previous = jnp.pad(segments, ((0, 0), (1, 0)), constant_values=-1)[:, :-1]
    starts = jnp.where(segments != previous, columns, 0)
    return jnp.where(segments > 0, columns - jax.lax.cummax(starts, axis=1), 0)


class AddNorm(nn.Module):
    """LayerNorm(x + Dropout(Sublayer(x))): the post-norm residual connection of §3.1 and §5.4.

    >>> x, sublayer = jnp.array([[[1.0, 1.0]]]), jnp.array([[[0.0, 2.0]]])
    >>> add_norm = AddNorm(dropout_rate=0.1)
    >>> variables = add_norm.init(jax.random.key(0), x, sublayer)
    >>> add_norm.apply(variables, x, sublayer).round(3).tolist()  # LayerNorm([1, 3])
    [[[-1.0, 1.0]]]
    """

    dropout_rate: float
    dtype: DTypeLike = jnp.float32
    epsilon: float = 1e-6

    @nn.compact
    def __call__(
        self, x: Float[AnyArray, "B T d_model"], sublayer_output: Float[AnyArray, "B T d_model"]
    ) -> Float[Array, "B T d_model"]:
        """Normalize the sum; biased variance, epsilon inside the root as in tensor2tensor.

        The variance is E[x^2] - E[x]^2 in float32, which loses digits where the mean of a position
        is a hundred times its deviation.
        """
        added = x + Dropout(self.dropout_rate)(sublayer_output)
        return nn.LayerNorm(epsilon=self.epsilon, dtype=self.dtype, name="norm")(added)

    def before(self, x: Float[AnyArray, "B T d_model"]) -> Float[AnyArray, "B T d_model"]:
        """Return the sub-layer's input, which is x."""
        return x


class PreNorm(AddNorm):
    """x + Dropout(Sublayer(LayerNorm(x))): the pre-norm residual connection.

    Differs: not in the paper; later tensor2tensor, OpenNMT, M2M-100 and others have it.
    """

    def setup(self) -> None:
        """Define the norm and the dropout."""
        self.norm = nn.LayerNorm(epsilon=self.epsilon, dtype=self.dtype)
        self.dropout = Dropout(self.dropout_rate)

    def before(self, x: Float[AnyArray, "B T d_model"]) -> Float[Array, "B T d_model"]:
        """Return the sub-layer's input, LayerNorm(x)."""
        return self.norm(x)

    def __call__(
        self, x: Float[AnyArray, "B T d_model"], sublayer_output: Float[AnyArray, "B T d_model"]
    ) -> Float[Array, "B T d_model"]:
        """Add the sub-layer's output."""
        return jnp.add(x, self.dropout(sublayer_output))


class FeedForward(nn.Module):
    """FFN(x) = max(0, x W_1 + b_1) W_2 + b_2, at each position alike (§3.3).

    >>> feed_forward, x = FeedForward(d_ff=8, d_model=2), jnp.array([[[1.0, -2.0]]])
    >>> variables = feed_forward.init(jax.random.key(0), x)
    >>> first, second = variables["params"]["inner"], variables["params"]["outer"]  # W_1, W_2
    >>> hidden = jnp.maximum(0, x[0, 0] @ first["kernel"] + first["bias"])
    >>> by_hand = hidden @ second["kernel"] + second["bias"]
    >>> bool(jnp.allclose(feed_forward.apply(variables, x)[0, 0], by_hand, atol=1e-5))
    True
    """

    d_ff: int
    d_model: int
    dtype: DTypeLike = jnp.float32
    precision: PrecisionLike = "highest"
    activation: Literal["relu", "swish", "gelu"] = "relu"

    @nn.compact
    def __call__(self, x: Float[AnyArray, "B T d_model"]) -> Float[Array, "B T d_model"]:
        """Apply two linear maps with a ReLU, or another activation, between."""
        check_known(ACTIVATIONS, activation=self.activation)
        glorot = nn.initializers.glorot_uniform()
        dense = partial(
            nn.Dense,
            kernel_init=glorot,
            dtype=self.dtype,
            precision=self.precision,
            dot_general=one_product,
        )
        inner = ACTIVATIONS[self.activation](dense(self.d_ff, name="inner")(x))  # [B, T, d_ff]
        return dense(self.d_model, name="outer")(inner)


class Embedding(nn.Module):
    """One matrix E [V, d_model]: token -> E[token] sqrt(d_model), and h -> h E^T (§3.4).

    Drawn from N(0, 1/d_model), as tensor2tensor does, so that scaled rows have unit
    variance, and initial logits have a variance near 1 too.

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
    dtype: DTypeLike = jnp.float32
    precision: PrecisionLike = "highest"

    def setup(self) -> None:
        """Define E."""
        shape = (self.vocabulary_size, self.d_model)
        initializer = nn.initializers.normal(self.d_model**-0.5)
        self.matrix = self.param("matrix", initializer, shape, jnp.float32)

    def __call__(self, tokens: Int[AnyArray, "B T"]) -> Float[Array, "B T d_model"]:
        """Return the tokens' embeddings times sqrt(d_model), in float32; NaN for unknown ids.

        Ids that are known before anything is compiled are refused instead.
        """
        check_tokens(self.vocabulary_size, tokens=tokens)
        # By default, JAX would take -1 for the last row.
        rows = jnp.asarray(self.matrix).at[tokens].get(mode="fill", wrap_negative_indices=False)
        return rows.astype(jnp.float32) * self.d_model**0.5

    def logits(self, hidden: Float[AnyArray, "*B d_model"]) -> Float[Array, "*B V"]:
        """Apply the pre-softmax linear transformation in `dtype`: no bias, no scaling."""
        # One axis for all tokens: with several, XLA copies the product to pad it to whole tiles.
        rows = hidden.astype(self.dtype).reshape(-1, self.d_model)
        matrix: Any = self.matrix.astype(self.dtype).T
        matrix = self.get_variable("params", "transposed", matrix)
        logits = jnp.dot(rows, matrix.astype(self.dtype), precision=self.precision)
        return logits.astype(jnp.float32).reshape(*hidden.shape[:-1], self.vocabulary_size)
