"""Types that annotations share."""

import jax
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Float, PyTree

__all__ = ["AnyArray", "DTypeLike", "Params", "PrecisionLike"]

AnyArray = jax.Array | np.ndarray  # JAX takes arrays of its own and NumPy's
PrecisionLike = str | jax.lax.Precision | None  # as `jnp.einsum` and Flax take it

# The parameters of a model: a tree of dictionaries with arrays as leaves, as Flax makes it.
Params = PyTree[Float[AnyArray, "..."]]
