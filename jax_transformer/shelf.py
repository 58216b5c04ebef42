"""The shelf: the pure functions and classes that a notebook needs, as `jax_transformer` gives them.

Loading it loads JAX and touches no file and no network; what reads and writes is imported from
its own module. The names in order are `jax_transformer.__all__`.
"""

# ruff: noqa: F401

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
