"""The Transformer of "Attention Is All You Need" (Vaswani et al. 2017), section by section."""

from jax_transformer.config import Config, DecodingConfig, ModelConfig, TrainingConfig, override
from jax_transformer.decoding.beam_search import beam_search, length_penalty
from jax_transformer.decoding.generate import attention_maps, translate
from jax_transformer.models.attention import (
    KeysValues,
    MultiHeadAttention,
    attention_weights,
    causal_mask,
    local_attention_mask,
    padding_mask,
    scaled_dot_product_attention,
    segment_mask,
)
from jax_transformer.models.layers import AddNorm, Embedding, FeedForward, positional_encoding
from jax_transformer.models.transformer import Transformer
from jax_transformer.runs.loading import AttentionMap, TrainedModel, load
from jax_transformer.training.loss import LossSums, label_smoothed_cross_entropy
from jax_transformer.training.optimizer import adam_with_warmup, learning_rate
from jax_transformer.training.train_step import (
    Batch,
    gradients,
    initial_state,
    make_loss,
    make_train_step,
    shift_right,
)

__all__ = [
    "AddNorm",
    "AttentionMap",
    "Batch",
    "Config",
    "DecodingConfig",
    "Embedding",
    "FeedForward",
    "KeysValues",
    "LossSums",
    "ModelConfig",
    "MultiHeadAttention",
    "TrainedModel",
    "TrainingConfig",
    "Transformer",
    "adam_with_warmup",
    "attention_maps",
    "attention_weights",
    "beam_search",
    "causal_mask",
    "gradients",
    "initial_state",
    "label_smoothed_cross_entropy",
    "learning_rate",
    "length_penalty",
    "load",
    "local_attention_mask",
    "make_loss",
    "make_train_step",
    "override",
    "padding_mask",
    "positional_encoding",
    "scaled_dot_product_attention",
    "segment_mask",
    "shift_right",
    "translate",
]
