"""The k largest of long rows, such as the scores of a vocabulary, sooner than by sorting them."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jax_transformer.types import AnyArray


def top_k(
    values: Float[AnyArray, "B n"], k: int, chunk: int = 128
) -> tuple[Float[Array, "B k"], Int[Array, "B k"]]:
    """Return (values, indices) of the k largest of each row, largest first, as `jax.lax.top_k`.

    Each of the k largest is in one of the k chunks with the largest maxima, so only those chunks
    are sorted: a vocabulary is long, and k small. Equal values come in the order of their indices.

    >>> top_k(jnp.array([[3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0]]), k=1, chunk=2)[1].tolist()
    [[5]]
    """
    batch, size = values.shape
    whole = size - size % chunk
    if whole <= 2 * k * chunk:
        found, place = jax.lax.top_k(values, k)
        return found, place
    maxima = values[:, :whole].reshape(batch, -1, chunk).max(axis=2)
    best = jnp.sort(jax.lax.top_k(maxima, k)[1], axis=1)  # in order, for ties
    index = (best[:, :, None] * chunk + jnp.arange(chunk)[None, None]).reshape(batch, -1)
    rest = jnp.broadcast_to(jnp.arange(whole, size)[None], (batch, size - whole))
    index = jnp.concatenate([index, rest], axis=1)
    found, place = jax.lax.top_k(jnp.take_along_axis(values, index, axis=1), k)
    return found, jnp.take_along_axis(index, place, axis=1).astype(jnp.int32)
