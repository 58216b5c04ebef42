"""Matrix products of every layer, in float32 or with operands rounded to a narrower type.

`compute_dtype` is the type that operands are rounded to. Results, and what flows between
products, stay float32: on a CPU bfloat16 results cost more than they save, and the
softmax, the norms and the loss need float32 anyway.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

# Up to so many vectors a CPU multiplies with a vocabulary's embeddings faster as E h^T than as
# h E^T, and what a search does with all logits is faster with tokens one below another.
FEW_ROWS = 64

# Any, because pyright loses the types of what custom_vjp decorates through `partial`.
custom_vjp: Any = partial(partial, jax.custom_vjp)


@custom_vjp(nondiff_argnums=(0, 3))
def product(
    letters: str, left: Float[Array, "..."], right: Float[Array, "..."], compute_dtype: Any
) -> Float[Array, "..."]:
    """`einsum(letters, left, right)` of operands in `compute_dtype`, with a float32 result.

    Each letter must stand in two of the three terms, as in a matrix product. Products of
    the backward pass round their operands likewise; gradients come out in float32.
    """
    operands = left.astype(compute_dtype), right.astype(compute_dtype)
    return jnp.einsum(letters, *operands, preferred_element_type=jnp.float32)


def _forward(letters: str, left: Array, right: Array, compute_dtype: Any) -> Any:
    return product(letters, left, right, compute_dtype), (left, right)


def _backward(letters: str, compute_dtype: Any, operands: Any, gradient: Array) -> Any:
    left, right = operands
    inputs, output = letters.split("->")
    of_left, of_right = inputs.split(",")
    return (
        _ordered((output, gradient), (of_right, right), of_left, compute_dtype),
        _ordered((of_left, left), (output, gradient), of_right, compute_dtype),
    )


def _ordered(
    one: tuple[str, Array], other: tuple[str, Array], result: str, compute_dtype: Any
) -> Array:
    """The product with that operand first whose own letters come first in the result.

    XLA's CPU backend has no product of bfloat16 operands that transposes its result.
    """
    first = next((x for x in result if (x in one[0]) != (x in other[0])), None)
    if first is not None and first not in one[0]:
        one, other = other, one
    if _is_turned(one[0], other[0], result) and one[1].size > other[1].size:
        # The first is transposed before it is multiplied: rather the smaller one, and the result.
        own = len([x for x in result if x in one[0]])
        turned = result[own:] + result[:own]
        found = product(f"{other[0]},{one[0]}->{turned}", other[1], one[1], compute_dtype)
        # Without the barrier XLA turns the product round to save the small transposition.
        found = jax.lax.optimization_barrier(found)
        return found.transpose([turned.index(x) for x in result])
    return product(f"{one[0]},{other[0]}->{result}", one[1], other[1], compute_dtype)


def _is_turned(one: str, other: str, result: str) -> bool:
    """Whether the letters of both begin with those that are summed, as in A^T B."""
    own, others = ("".join(x for x in term if x in result) for term in (one, other))
    summed = one[: len(one) - len(own)]
    return bool(summed) and (one, other, result) == (summed + own, summed + others, own + others)


product.defvjp(_forward, _backward)


def dense_product(compute_dtype: Any) -> Any:
    """What flax's Dense and DenseGeneral take as `dot_general`: the last axes of the input
    with the first of the kernel."""

    def dot_general(left: Array, right: Array, dimensions: Any, precision: Any = None) -> Array:
        (over_left, over_right), batch = dimensions
        count = len(over_left)
        assert batch == ((), ())
        assert precision is None
        assert tuple(over_left) == tuple(range(left.ndim - count, left.ndim))
        assert tuple(over_right) == tuple(range(count))
        rows, summed = _letters(left.ndim - count, "a"), _letters(count, "k")
        columns = _letters(right.ndim - count, "p")
        letters = f"{rows}{summed},{summed}{columns}->{rows}{columns}"
        return product(letters, left, right, compute_dtype)

    return dot_general


def _letters(count: int, first: str) -> str:
    return "".join(chr(ord(first) + i) for i in range(count))
