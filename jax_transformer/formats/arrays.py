"""Parameters as float32 NumPy arrays by name, in the layouts of other programs (§3): pure."""

import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jax_transformer.config import Config, ModelConfig
from jax_transformer.errors import InputError, shown
from jax_transformer.types import Params

Arrays = dict[str, np.ndarray]
Accepted = Mapping[str, Collection[Any] | None]  # setting -> its values, None for any

NEVER = np.finfo(np.float32).min  # the bias of a logit whose token is never written

# Settings that every format accepts: sizes, and those of training, because arrays are float32.
COMMON_SETTINGS: Accepted = {
    **dict.fromkeys(("num_layers", "decoder_layers", "d_model", "d_ff", "max_positions")),
    **dict.fromkeys(("dropout_rate", "attention_dropout_rate")),
    **dict.fromkeys(("attention_bias", "tie_embeddings", "fused_attention")),
    "positions": ["sinusoidal", "learned"],
    "compute_dtype": ["float32", "bfloat16"],
    "matmul_precision": ["highest", "high", "default"],
    "remat": ["none", "layers"],
}


def flat_arrays(params: Params) -> Arrays:
    """Return arrays by our own names, such as "encoder_0/self_attention/query/kernel"."""
    leaves = jax.tree_util.tree_leaves_with_path(params)
    return {
        "/".join(part.key for part in path): np.array(leaf, np.float32) for path, leaf in leaves
    }


def inexpressible(model: ModelConfig, accepted: Accepted) -> str | None:
    """Return the first setting whose value is not accepted, and the values that are, else None.

    A setting that is not listed must have its default. So every format refuses a setting or a
    choice that is added to ModelConfig until somebody lists it there.
    """
    for part in dataclasses.fields(model):
        value, values = getattr(model, part.name), accepted.get(part.name, [part.default])
        if values is not None and value not in values:
            return f"model.{part.name}={value}: expected {_listed(values)}"
    return None


def check_settings(model: ModelConfig, accepted: Accepted) -> None:
    """Raise InputError that names the first setting whose value is not accepted."""
    if reason := inexpressible(model, accepted):
        raise InputError(reason)


def check_options(path: Path, options: Mapping[str, Any], accepted: Accepted) -> None:
    """Raise InputError that names the first of another program's options that ours cannot express.

    An option that is not listed is not accepted.
    """
    for name, found in options.items():
        values = accepted.get(name, ())
        if values is not None and found not in values:
            raise InputError(
                f"{path}: {shown(name)[1:-1]}={shown(found)}: expected "
                f"{_listed(values) or 'no such option'}; this model cannot be expressed"
            )


def _listed(values: Collection[object]) -> str:
    """Return `1 to 8` for a range, else the values with commas between."""
    if isinstance(values, range):
        return f"{values.start} to {values.stop - 1}"
    texts = [str(value) or '""' for value in values]
    return f"{'one of ' if len(texts) > 1 else ''}{', '.join(texts)}"


def torch_settings(model: ModelConfig) -> Accepted:
    """Return the settings that Marian and CTranslate2 accept: those of `torch_layout` and more.

    Heads are d_model / h wide, and padded if ours are narrower.
    """
    widths = range(1, model.d_model // model.num_heads + 1)
    small = [h for h in range(1, math.isqrt(model.d_model) + 1) if model.d_model % h == 0]
    divisors = {*small, *(model.d_model // h for h in small)}
    return {
        **COMMON_SETTINGS,
        **dict.fromkeys(("output_bias", "tie_source")),
        "activation": ["relu", "swish", "gelu"],
        "num_heads": sorted(divisors),
        "d_k": widths,
        "d_v": widths,
    }


def position_rows(config: Config) -> int:
    """Return the number of positions of an exported model, enough for the longest output.

    A learned table keeps its rows. Sinusoids get 1,024 at least, the default of the other programs.
    """
    if config.model.positions == "learned":
        return config.model.max_positions
    return max(1024, config.data.max_length + config.decoding.max_extra_length)


def torch_layout(flat: Arrays, config: ModelConfig) -> Arrays:
    """Return linear maps as `weight` [outputs, inputs] and `bias` [outputs], heads side by side."""
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


# The axis of d_model in each kind of array of `torch_layout`; the others have none.
_D_MODEL_AXIS = {
    "embedding/matrix": 1,
    "position_table": 1,
    "query/weight": 1,
    "key/weight": 1,
    "value/weight": 1,
    "output/weight": 0,
    "output/bias": 0,
    "norm/scale": 0,
    "norm/bias": 0,
    "inner/weight": 1,
    "outer/weight": 0,
    "outer/bias": 0,
}


def reordered(arrays: Arrays, order: Sequence[int] | np.ndarray) -> Arrays:
    """Return the same model, in `torch_layout`, with the dimensions of d_model in another order."""
    result = {}
    for name, array in arrays.items():
        axes = [axis for kind, axis in _D_MODEL_AXIS.items() if name.endswith(kind)]
        if axes:
            _check_size(name, array, axes[0], len(order))
            array = array.take(order, axis=axes[0])
        result[name] = array
    return result


def _check_size(name: str, array: np.ndarray, axis: int, size: int) -> None:
    if array.ndim <= axis or array.shape[axis] != size:
        raise InputError(
            f"{name}: expected an array with {size:,} numbers on axis {axis}, found one of shape "
            f"{array.shape}; give the files of one model"
        )


def sines_first(d_model: int) -> np.ndarray:
    """Return the order of the paper's dimensions that puts all sines before all cosines."""
    return np.r_[0:d_model:2, 1:d_model:2]


def alternating(d_model: int) -> np.ndarray:
    """Return the order that inverts `sines_first`: sines and cosines alternate, as in §3.5."""
    return np.argsort(sines_first(d_model))


def sines_then_cosines(rows: int, d_model: int) -> np.ndarray:
    """Return the paper's position encodings in the order of `sines_first`, as other programs do."""
    frequencies = np.power(10000, np.arange(0, d_model, 2) / d_model)
    angles = np.arange(rows)[:, None] / frequencies
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)


def are_sines_then_cosines(table: np.ndarray) -> bool:
    """Return True for `sines_then_cosines`, also if rounded to 16 bits.

    Tables in float32 and float64 differ by 1e-4 at position 1,000, and float16 and bfloat16 round
    numbers below one by 2e-4 and 2e-3. Another formula differs by more within eight rows.
    """
    if table.ndim != 2 or table.shape[1] % 2:
        return False
    return np.allclose(table, sines_then_cosines(*table.shape), rtol=0, atol=3e-3)


def tensor2tensor_positions(rows: int, d_model: int, first: int) -> np.ndarray:
    """Return the sinusoids of Marian, fairseq and CTranslate2 for positions from `first` on.

    All sines come before all cosines, and the exponent is i / (d_model/2 - 1), as in tensor2tensor.
    Computed in float32, as there. An odd d_model has zeros in the last column.
    """
    half = d_model // 2
    step = np.log(np.float32(10000)) / np.float32(max(half - 1, 1))
    frequencies = np.exp(-step * np.arange(half, dtype=np.float32))
    angles = np.outer(np.arange(first, first + rows, dtype=np.float32), frequencies)
    table = np.zeros((rows, d_model), np.float32)
    table[:, :half], table[:, half : 2 * half] = np.sin(angles), np.cos(angles)
    return table


def our_layout(arrays: Arrays, config: ModelConfig) -> Params:
    """Invert `torch_layout` for heads d_model / h wide, and return the tree of parameters.

    Raises InputError for a projection that cannot be split into heads.
    """
    heads = {"query": config.d_k, "key": config.d_k, "value": config.d_v}
    tree: dict[str, Any] = {}
    for name, array in arrays.items():
        path, _, leaf = name.rpartition("/")
        map_name = path.rpartition("/")[2]
        if leaf == "weight":
            array, leaf = array.T, "kernel"
        if map_name in heads:
            _check_size(name, array, max(array.ndim - 1, 0), config.num_heads * heads[map_name])
            array = array.reshape(*array.shape[:-1], config.num_heads, heads[map_name])
        elif map_name == "output" and leaf == "kernel":
            _check_size(name, array, 0, config.num_heads * config.d_v)
            array = array.reshape(config.num_heads, config.d_v, -1)
        branch = tree
        for part in path.split("/") if path else []:
            branch = branch.setdefault(part, {})
        branch[leaf] = np.ascontiguousarray(array, np.float32)
    return tree


def embeddings(ours: Arrays, config: ModelConfig) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the matrices [V, d_model] of source, target and pre-softmax."""
    source = ours["embedding/matrix"]
    target = ours.get("target_embedding/matrix", source)
    return source, target, target if config.tie_embeddings else ours["output_embedding/matrix"]


def padded_heads(kernel: np.ndarray, axis: int, width: int, factor: float = 1.0) -> np.ndarray:
    """Return the kernel times `factor`, with zeros after each head's own width up to `width`.

    Zeros in keys and values change neither scores nor sums. Scores are divided by the square
    root of the width, so wider queries take the `factor` sqrt(width / d_k).
    """
    missing = [(0, 0)] * kernel.ndim
    missing[axis] = (0, width - kernel.shape[axis])
    return np.pad(kernel * np.float32(factor), missing)
