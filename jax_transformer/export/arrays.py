"""Parameters under the names and in the layouts of other programs (paper §3): pure.

    arrays = marian_arrays(params, config)   # what Hugging Face's MarianMTModel loads

Everything is float32 NumPy, in copies that the caller may change. Nothing is written here,
and no other program is needed.
"""

from collections.abc import Mapping
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from jax_transformer.config import Config, ModelConfig
from jax_transformer.errors import InputError
from jax_transformer.models.layers import positional_encoding

Format = Literal["ctranslate2", "marian", "safetensors"]
Arrays = dict[str, np.ndarray]

# The axis of d_model in each kind of array; the others have none.
_D_MODEL_AXIS = {
    "embedding/matrix": 1,
    "position_table": 1,
    "query/kernel": 0,
    "key/kernel": 0,
    "value/kernel": 0,
    "output/kernel": 2,
    "output/bias": 0,
    "norm/scale": 0,
    "norm/bias": 0,
    "inner/kernel": 0,
    "outer/kernel": 1,
    "outer/bias": 0,
}
_ATTENTIONS = {"self_attention": "self_attn", "cross_attention": "encoder_attn"}


def flat_arrays(params: Any) -> Arrays:
    """Our own names with slashes, such as "encoder_0/self_attention/query/kernel"."""
    leaves = jax.tree_util.tree_leaves_with_path(params)
    return {
        "/".join(part.key for part in path): np.array(leaf, np.float32) for path, leaf in leaves
    }


def check_exportable(config: ModelConfig, target: Format) -> None:
    """Raises InputError that names the setting which `target` has no means to express.

    Heads narrower than d_model / h can be expressed: `padded_heads`. "safetensors" keeps our
    own names and layouts, so it takes every model.
    """
    reason = None if target == "safetensors" else inexpressible(config)
    if reason:
        raise InputError(f"--format={target}: {reason}; export with --format=safetensors")


def inexpressible(config: ModelConfig) -> str | None:
    """The first setting that CTranslate2 and Marian cannot express, and why; None if they can."""
    if config.attention_radius:
        return (
            f"model.attention_radius={config.attention_radius}: expected 0, because its "
            "self-attention always sees the whole sentence"
        )
    if config.d_model % config.num_heads:
        return (
            f"model.num_heads={config.num_heads}: expected a divisor of model.d_model="
            f"{config.d_model}, because its heads are d_model / h wide"
        )
    for name, width in (("d_k", config.d_k), ("d_v", config.d_v)):
        if width > config.d_model // config.num_heads:
            return (
                f"model.{name}={width}: expected at most d_model / h = "
                f"{config.d_model // config.num_heads}, the width of its heads"
            )
    return None


def position_rows(config: Config) -> int:
    """How many positions an exported model knows: those of a sentence as long as we decode.

    A table that was learned has the rows it has. Sinusoids get 1,024 at least, which is
    what the other programs take unless they are told otherwise.
    """
    if config.model.positions == "learned":
        return config.model.max_positions
    return max(1024, config.data.max_length + config.decoding.max_extra_length)


def marian_arrays(params: Any, config: ModelConfig) -> Arrays:
    """The tensors of Hugging Face's MarianMTModel, biases of attention as zeros if there are none.

    Marian makes sinusoids itself, all sines before all cosines, where the paper's alternate
    (§3.5). So even dimensions of d_model go before odd ones in every matrix that touches it,
    which is the same model in another basis. A learned table is written as it is.
    """
    flat = flat_arrays(params)
    if config.positions == "sinusoidal":
        flat = _reordered(flat, np.r_[0 : config.d_model : 2, 1 : config.d_model : 2])
    ours = _torch_layout(flat, config)
    arrays = _marian_embeddings(ours, config)
    for i in range(config.num_layers):
        for stack in ("encoder", "decoder"):
            layer = {
                name.removeprefix(f"{stack}_{i}/"): array
                for name, array in ours.items()
                if name.startswith(f"{stack}_{i}/")
            }
            for name, array in _marian_layer(layer, config.d_model).items():
                arrays[f"model.{stack}.layers.{i}.{name}"] = array
    return arrays


def ctranslate2_arrays(params: Any, config: ModelConfig, positions: int) -> Arrays:
    """The variables of CTranslate2's TransformerSpec, by their names in its file.

    positions: rows of the table of position encodings, ours rather than the formula of
    CTranslate2, which is tensor2tensor's.
    """
    ours = _torch_layout(flat_arrays(params), config)
    source, target, output = _embeddings(ours, config)
    table = ours.get("position_table", _sinusoids(positions, config.d_model))
    arrays = {
        "encoder/embeddings_0/weight": source,
        "decoder/embeddings/weight": target,
        "decoder/projection/weight": output,
        "encoder/position_encodings/encodings": table,
        "decoder/position_encodings/encodings": table,
    }
    for i in range(config.num_layers):
        for stack in ("encoder", "decoder"):
            here, there = f"{stack}_{i}/", f"{stack}/layer_{i}/"
            _join(arrays, there + "self_attention", ours, here + "self_attention", ["qkv", "o"])
            if stack == "decoder":
                _join(arrays, there + "attention", ours, here + "cross_attention", ["q", "kv", "o"])
            for number, name in enumerate(("inner", "outer")):
                for kind in ("weight", "bias"):
                    linear = ours[f"{here}feed_forward/{name}/{kind}"]
                    arrays[f"{there}ffn/linear_{number}/{kind}"] = linear
            _copy_norm(arrays, there + "ffn", ours, here + "feed_forward")
    return arrays


def padded_heads(kernel: np.ndarray, axis: int, width: int, factor: float = 1.0) -> np.ndarray:
    """The kernel times `factor`, with zeros behind each head's own width up to `width`.

    Zeros in keys and values change no score and no sum. Scores are divided by the square
    root of the width, so wider queries take the `factor` sqrt(width / d_k).
    """
    missing = [(0, 0)] * kernel.ndim
    missing[axis] = (0, width - kernel.shape[axis])
    return np.pad(kernel * np.float32(factor), missing)


def _reordered(flat: Arrays, order: np.ndarray) -> Arrays:
    """The same model with the dimensions of d_model in another order."""
    result = {}
    for name, array in flat.items():
        kinds = [kind for kind in _D_MODEL_AXIS if name.endswith(kind)]
        result[name] = array.take(order, axis=_D_MODEL_AXIS[kinds[0]]) if kinds else array
    return result


def _torch_layout(flat: Arrays, config: ModelConfig) -> Arrays:
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


def _embeddings(ours: Arrays, config: ModelConfig) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The matrices [V, d_model] of source, target and pre-softmax."""
    if config.tie_embeddings:
        shared = ours["embedding/matrix"]
        return shared, shared, shared
    names = ("embedding", "target_embedding", "output_embedding")
    source, target, output = (ours[f"{name}/matrix"] for name in names)
    return source, target, output


def _sinusoids(rows: int, d_model: int) -> np.ndarray:
    return np.asarray(positional_encoding(jnp.arange(rows), d_model))


def _marian_embeddings(ours: Arrays, config: ModelConfig) -> Arrays:
    source, target, output = _embeddings(ours, config)
    arrays = {"final_logits_bias": np.zeros((1, len(output)), np.float32)}
    if config.tie_embeddings:
        arrays["model.shared.weight"] = source
    else:
        arrays["model.encoder.embed_tokens.weight"] = source
        arrays["model.decoder.embed_tokens.weight"] = target
        arrays["lm_head.weight"] = output
    if config.positions == "learned":
        for stack in ("encoder", "decoder"):
            arrays[f"model.{stack}.embed_positions.weight"] = ours["position_table"].copy()
    return arrays


def _marian_layer(layer: Mapping[str, np.ndarray], d_model: int) -> Arrays:
    """One layer's tensors under the names that they have inside of a Marian layer."""
    arrays = {}
    for ours, theirs in _ATTENTIONS.items():
        if f"{ours}/query/weight" not in layer:
            continue  # the encoder has no cross-attention
        for name, letter in (("query", "q"), ("key", "k"), ("value", "v"), ("output", "out")):
            arrays[f"{theirs}.{letter}_proj.weight"] = layer[f"{ours}/{name}/weight"]
            bias = layer.get(f"{ours}/{name}/bias", np.zeros(d_model, np.float32))
            arrays[f"{theirs}.{letter}_proj.bias"] = bias
    norms = {ours: f"{theirs}_layer_norm" for ours, theirs in _ATTENTIONS.items()}
    for ours, theirs in {**norms, "feed_forward": "final_layer_norm"}.items():
        if f"{ours}_norm/norm/scale" in layer:
            arrays[f"{theirs}.weight"] = layer[f"{ours}_norm/norm/scale"]
            arrays[f"{theirs}.bias"] = layer[f"{ours}_norm/norm/bias"]
    for ours, theirs in (("inner", "fc1"), ("outer", "fc2")):
        for kind in ("weight", "bias"):
            arrays[f"{theirs}.{kind}"] = layer[f"feed_forward/{ours}/{kind}"]
    return arrays


def _join(arrays: Arrays, there: str, ours: Arrays, here: str, groups: list[str]) -> None:
    """An attention with its norm, each group of matrices as one."""
    names = {"q": "query", "k": "key", "v": "value", "o": "output"}
    for number, group in enumerate(groups):
        for kind in ("weight", "bias"):
            parts = [f"{here}/{names[letter]}/{kind}" for letter in group]
            if parts[0] in ours:
                joined = np.concatenate([ours[part] for part in parts])
                arrays[f"{there}/linear_{number}/{kind}"] = joined
    _copy_norm(arrays, there, ours, here)


def _copy_norm(arrays: Arrays, there: str, ours: Arrays, here: str) -> None:
    arrays[f"{there}/layer_norm/gamma"] = ours[f"{here}_norm/norm/scale"]
    arrays[f"{there}/layer_norm/beta"] = ours[f"{here}_norm/norm/bias"]
