"""Parameters as float32 NumPy arrays by name, in the layouts of other programs (§3): pure."""

from typing import Any

import jax
import numpy as np

from jax_transformer.config import Config, ModelConfig

Arrays = dict[str, np.ndarray]


def flat_arrays(params: Any) -> Arrays:
    """Our own names with slashes, such as "encoder_0/self_attention/query/kernel"."""
    leaves = jax.tree_util.tree_leaves_with_path(params)
    return {
        "/".join(part.key for part in path): np.array(leaf, np.float32) for path, leaf in leaves
    }


def inexpressible(config: ModelConfig) -> str | None:
    """The first setting that CTranslate2 and Marian cannot express, and why; None if they can."""
    if config.attention_radius:
        return (
            f"model.attention_radius={config.attention_radius}: expected 0, because "
            "self-attention there always sees the whole sentence"
        )
    if config.d_model % config.num_heads:
        return (
            f"model.num_heads={config.num_heads}: expected a divisor of model.d_model="
            f"{config.d_model}, because heads there are d_model / h wide"
        )
    for name, width in (("d_k", config.d_k), ("d_v", config.d_v)):
        if width > config.d_model // config.num_heads:
            return (
                f"model.{name}={width}: expected at most d_model / h = "
                f"{config.d_model // config.num_heads}, the width of a head there"
            )
    return None


def position_rows(config: Config) -> int:
    """How many positions an exported model knows: those of a sentence as long as we decode.

    A table that was learned has the rows it has. Sinusoids get 1,024 at least, which is
    the default of the other programs.
    """
    if config.model.positions == "learned":
        return config.model.max_positions
    return max(1024, config.data.max_length + config.decoding.max_extra_length)


def torch_layout(flat: Arrays, config: ModelConfig) -> Arrays:
    """Every linear map as `weight` [outputs, inputs] and `bias` [outputs], heads side by side."""
    width = config.d_model // config.num_heads
    result = {}
    for name, array in flat.items():
        path, _, leaf = name.rpartition("/")
        map_name = path.rpartition("/")[2]
        if map_name in ("query", "key", "value"):
            factor = (width / config.d_k) ** 0.5 if map_name == "query" else 1.0
            array = padded_heads(array, -1, width, factor)
            array = array.reshape(*array.shape[:-2], -1)  # [d_model, H width], or [H width]
        elif map_name == "output" and leaf == "kernel":
            array = padded_heads(array, 1, width).reshape(-1, config.d_model)
        if leaf == "kernel":
            array, name = array.T, f"{path}/weight"
        result[name] = np.ascontiguousarray(array)
    return result


def embeddings(ours: Arrays, config: ModelConfig) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The matrices [V, d_model] of source, target and pre-softmax."""
    if config.tie_embeddings:
        shared = ours["embedding/matrix"]
        return shared, shared, shared
    names = ("embedding", "target_embedding", "output_embedding")
    source, target, output = (ours[f"{name}/matrix"] for name in names)
    return source, target, output


def padded_heads(kernel: np.ndarray, axis: int, width: int, factor: float = 1.0) -> np.ndarray:
    """The kernel times `factor`, with zeros after each head's own width up to `width`.

    Zeros in keys and values change no score and no sum. Scores are divided by the square
    root of the width, so wider queries take the `factor` sqrt(width / d_k).
    """
    missing = [(0, 0)] * kernel.ndim
    missing[axis] = (0, width - kernel.shape[axis])
    return np.pad(kernel * np.float32(factor), missing)
