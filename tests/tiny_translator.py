"""A translator that nothing trained, small enough to be compiled in a moment."""

import dataclasses
from typing import Any

from random_params import random_params

from jax_transformer.config import ModelConfig
from jax_transformer.models.transformer import Transformer

TEXT = ["the cat sat on the mat", "die katze sitzt auf der matte", "a cat and a mat"] * 4
CONFIG = ModelConfig(num_layers=1, d_model=8, d_ff=16, num_heads=2, d_k=4, d_v=4)


def model_of(vocabulary: Any, **changes: Any) -> Transformer:
    config = dataclasses.replace(CONFIG, **changes)
    return Transformer(config, vocabulary.size, vocabulary.pad_id)


def params_of(model: Transformer, seed: int = 1) -> Any:
    """So large that the logits depend on the source."""
    return random_params(model, seed=seed, deviation=0.6)
