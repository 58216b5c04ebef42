"""Parameters for tests of what a model computes."""

from typing import Any

import jax
import numpy as np

from jax_transformer.models.transformer import Transformer
from jax_transformer.training.train_step import abstract_params


def random_params(model: Transformer, dtype: Any = np.float32) -> Any:
    """Every parameter drawn at random, biases and norms too, so that none goes unnoticed."""
    random = np.random.default_rng(0)

    def drawn(path, leaf):
        mean = 1.0 if path[-1].key == "scale" else 0.0
        return (mean + 0.3 * random.normal(size=leaf.shape)).astype(dtype)

    return jax.tree_util.tree_map_with_path(drawn, abstract_params(model))
