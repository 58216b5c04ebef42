"""Parameters and an optimizer for tests of what a model computes and how it learns."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jax_transformer.models.transformer import Transformer
from jax_transformer.training.train_step import abstract_params


def random_params(
    model: Transformer, dtype: Any = np.float32, *, seed: int = 0, deviation: float = 0.3
) -> Any:
    """Every parameter drawn at random, biases and norms too, so that none goes unnoticed."""
    random = np.random.default_rng(seed)

    def drawn(path, leaf):
        mean = 1.0 if path[-1].key == "scale" else 0.0
        return (mean + deviation * random.normal(size=leaf.shape)).astype(dtype)

    return jax.tree_util.tree_map_with_path(drawn, abstract_params(model))


def remember_gradients() -> optax.GradientTransformation:
    """A gradient transformation whose state is the last gradient."""
    return optax.GradientTransformation(
        lambda params: jax.tree.map(jnp.zeros_like, params),
        lambda updates, state, params=None: (updates, updates),
    )
