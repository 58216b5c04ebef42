"""The Transformer of "Attention Is All You Need" (Vaswani et al. 2017), section by section.

The shelf: the pure functions and classes that a notebook needs. Loading it touches no
file and no network; what reads and writes is imported from its own module.
"""

from jax_transformer.attention import (
    KeysValues,
    MultiHeadAttention,
    attention_weights,
    causal_mask,
    neighbourhood_mask,
    padding_mask,
    scaled_dot_product_attention,
    segment_mask,
)
from jax_transformer.config import Config, DecodingConfig, ModelConfig, TrainingConfig, override
from jax_transformer.layers import AddNorm, Embedding, FeedForward, positional_encoding
from jax_transformer.loss import label_smoothed_cross_entropy
from jax_transformer.model import Transformer, empty_cache
from jax_transformer.optimizer import adam_with_warmup, learning_rate
from jax_transformer.search import beam_search, length_penalty
from jax_transformer.training import Batch, initial_state, make_train_step
from jax_transformer.translation import attention_maps, translate

__all__ = [
    "AddNorm",
    "Batch",
    "Config",
    "DecodingConfig",
    "Embedding",
    "FeedForward",
    "KeysValues",
    "ModelConfig",
    "MultiHeadAttention",
    "TrainingConfig",
    "Transformer",
    "adam_with_warmup",
    "attention_maps",
    "attention_weights",
    "beam_search",
    "causal_mask",
    "empty_cache",
    "initial_state",
    "label_smoothed_cross_entropy",
    "learning_rate",
    "length_penalty",
    "make_train_step",
    "neighbourhood_mask",
    "override",
    "padding_mask",
    "positional_encoding",
    "scaled_dot_product_attention",
    "segment_mask",
    "translate",
]
