"""Arrays by name, in our layout (§3) and in that of other programs."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jax_transformer.config import ModelConfig
from jax_transformer.errors import InputError
from jax_transformer.types import Params

Arrays = dict[str, np.ndarray]
LayerNames = Mapping[str, Sequence[str]]  # another program's name -> ours, which it joins

NEVER = np.finfo(np.float32).min  # the bias of a logit whose token is never written
STACKS = ("encoder", "decoder")


def flat_arrays(params: Params) -> Arrays:
    """Return arrays by our own names, such as "encoder_0/self_attention/query/kernel"."""
    return {name: np.array(leaf, np.float32) for name, leaf in named_leaves(params).items()}


def named_leaves(tree: Any) -> dict[str, Any]:
    """Return the leaves of nested dictionaries by their paths, with slashes."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {"/".join(part.key for part in path): leaf for path, leaf in leaves}


def torch_layout(flat: Arrays, config: ModelConfig) -> Arrays:
    """Return linear maps as `weight` [outputs, inputs] and `bias` [outputs], heads side by side."""
    width = config.d_model // config.num_heads
    result = {}
    for name, array in flat.items():
        path, _, leaf = name.rpartition("/")
        map_name = path.rpartition("/")[2]
        if map_name in ("query", "key", "value"):
            factor = (width / config.d_k) ** 0.5 if map_name == "query" else 1.0
            array = padded(array, -1, width, factor)
            array = array.reshape(*array.shape[:-2], -1)  # [d_model, H width], or [H width]
        elif map_name == "output" and leaf == "kernel":
            array = padded(array, 1, width).reshape(-1, config.d_model)
        if leaf == "kernel":
            array, name = array.T, f"{path}/weight"
        result[name] = np.ascontiguousarray(array)
    return result


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


def _check_size(name: str, array: np.ndarray, axis: int, size: int) -> None:
    if array.ndim <= axis or array.shape[axis] != size:
        raise InputError(
            f"{name}: expected an array with {size:,} numbers on axis {axis}, found one of shape "
            f"{array.shape}; give the files of one model"
        )


def padded(array: np.ndarray, axis: int, width: int, factor: float = 1.0) -> np.ndarray:
    """Return the array times `factor`, with zeros at the end of an axis up to `width`.

    Zeros in keys and values change neither scores nor sums. Scores are divided by the square
    root of the width, so wider queries take the `factor` sqrt(width / d_k).
    """
    missing = [(0, 0)] * array.ndim
    missing[axis] = (0, width - array.shape[axis])
    return np.pad(array * np.float32(factor), missing)


# The kinds of arrays in `torch_layout` whose axis 0 or 1 is d_model; the others have none.
_D_MODEL_AXIS = {
    0: ("output/weight", "output/bias", "outer/weight", "outer/bias", "norm/scale", "norm/bias"),
    1: (
        *("embedding/matrix", "position_table"),
        *("query/weight", "key/weight", "value/weight", "inner/weight"),
    ),
}


def reordered(arrays: Arrays, order: Sequence[int] | np.ndarray) -> Arrays:
    """Return the same model, in `torch_layout`, with the dimensions of d_model in another order."""
    result = dict(arrays)
    for name, array in arrays.items():
        for axis, kinds in _D_MODEL_AXIS.items():
            if name.endswith(kinds):
                _check_size(name, array, axis, len(order))
                result[name] = array.take(order, axis=axis)
    return result


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


def shared_table(path: Path, tables: Sequence[np.ndarray]) -> np.ndarray:
    """Return the table of positions of encoder and decoder. Raises InputError if they differ."""
    if not all(np.array_equal(tables[0], other) for other in tables[1:]):
        raise InputError(
            f"{path}: expected the same position encodings in encoder and decoder, found others; "
            "this model cannot be imported"
        )
    return tables[0]


def embeddings(ours: Arrays, config: ModelConfig) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the matrices [V, d_model] of source, target and pre-softmax."""
    source = ours["embedding/matrix"]
    target = ours.get("target_embedding/matrix", source)
    return source, target, target if config.tie_embeddings else ours["output_embedding/matrix"]


def embedding_arrays(
    matrices: Sequence[np.ndarray], one_vocabulary: bool
) -> tuple[Arrays, dict[str, Any]]:
    """Invert `embeddings`; return arrays by our names, and the settings for those that are shared.

    one_vocabulary: True if source and target have the same pieces.
    """
    source, target, output = matrices
    tied = np.array_equal(target, output)
    one_matrix = tied and one_vocabulary and np.array_equal(source, target)
    arrays = {"embedding/matrix": source}
    if not one_matrix:
        arrays["target_embedding/matrix"] = target
    if not tied:
        arrays["output_embedding/matrix"] = output
    tie_source = one_matrix or not (tied and one_vocabulary)  # true where it means nothing
    return arrays, {"tie_embeddings": tied, "tie_source": tie_source}


def layer_names(
    layers: Sequence[int], place: str, table: LayerNames
) -> Iterator[tuple[str, list[str]]]:
    """Yield another program's name of each array of the layers, and those of ours that it joins.

    layers: the numbers of layers of encoder and decoder.
    place: the beginning of a layer's names, with {stack} and with {i} from 0 or {number} from 1.
    table: the rest of the names, and our names in a layer, such as "self_attention/query/weight".
    """
    for stack, count in zip(STACKS, layers, strict=True):
        for i in range(count):
            there = place.format(stack=stack, i=i, number=i + 1)
            for theirs, ours in table.items():
                if stack == "decoder" or not ours[0].startswith("cross_attention"):
                    yield f"{there}{theirs}", [f"{stack}_{i}/{name}" for name in ours]


def leaves(part: str) -> tuple[str, str]:
    """Return our names of the weight and the bias of a linear map, or of a norm."""
    return f"{part}/{'scale' if part.endswith('norm') else 'weight'}", f"{part}/bias"


def layer_counts(names: Collection[str], place: str) -> list[int]:
    """Return the numbers of layers of encoder and decoder. place: as in `layer_names`."""
    counts = []
    for stack in STACKS:
        pattern = re.escape(place.replace("{stack}", stack)).replace(r"\{i\}", r"(\d{1,4})")
        found = [match for match in map(re.compile(pattern).match, names) if match]
        counts.append(max((int(match[1]) + 1 for match in found), default=0))
    return counts


def depths(layers: Sequence[Any]) -> dict[str, Any]:
    """Return num_layers and decoder_layers, which is 0 if the stacks are equally deep."""
    encoder, decoder = layers
    return {"num_layers": encoder, "decoder_layers": 0 if decoder == encoder else decoder}
