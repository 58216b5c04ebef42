"""A translator that nothing trained, small enough to be compiled in a moment."""

import dataclasses
from typing import Any

import jax
import numpy as np

from jax_transformer.config import ModelConfig
from jax_transformer.models.transformer import Transformer

TEXT = ["the cat sat on the mat", "die katze sitzt auf der matte", "a cat and a mat"] * 4
CONFIG = ModelConfig(num_layers=1, d_model=8, d_ff=16, num_heads=2, d_k=4, d_v=4)


def model_of(vocabulary: Any, **changes: Any) -> Transformer:
    config = dataclasses.replace(CONFIG, **changes)
    return Transformer(config, vocabulary.size, vocabulary.pad_id)


def params_of(model: Transformer, seed: int = 1, scale: float = 1.7) -> Any:
    """Larger than initialised, so that the logits differ clearly and depend on the source."""
    token = np.zeros((1, 2), np.int32)
    drawn = jax.jit(lambda key: model.init(key, token, token)["params"])(jax.random.key(seed))
    return jax.device_get(jax.tree.map(lambda leaf: scale * leaf, drawn))
