"""The Transformer of "Attention Is All You Need" (Vaswani et al. 2017), section by section.

Its names are those of `jax_transformer.shelf`, loaded when the first of them is asked for: doors
check flags, score trees and explain themselves without JAX, which takes a second to load.
"""

# ruff: noqa: F403, F405

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jax_transformer.shelf import *

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


def __dir__() -> list[str]:
    return [*globals(), *__all__]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from jax_transformer import shelf

    globals().update({each: getattr(shelf, each) for each in __all__})
    return globals()[name]
