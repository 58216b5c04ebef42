"""The Transformer of "Attention Is All You Need" (Vaswani et al. 2017), section by section.

Its names are those of `jax_transformer.shelf`, loaded when the first of them is asked for: doors
parse flags, score trees and explain themselves without JAX, which takes a second to load.
"""

# ruff: noqa: F403, F405

from importlib import import_module
from importlib.util import find_spec
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
    return sorted({name for name in globals() if name.startswith("__")} | set(__all__))


def __getattr__(name: str) -> Any:
    if name in __all__:
        shelf = import_module(f"{__name__}.shelf")
        globals().update({each: getattr(shelf, each) for each in __all__})
        return globals()[name]
    if name.startswith("_") or find_spec(f"{__name__}.{name}") is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")
