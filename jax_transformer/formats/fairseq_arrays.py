"""The arrays of fairseq's Transformer, and of Hugging Face's FSMT, which has the same names."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from jax_transformer.errors import InputError, shown
from jax_transformer.formats.layout import Arrays, embedding_arrays, tensor2tensor_positions

SIDES = ("encoder", "decoder")
# Names of old files, and those of today.
_RENAMED = [
    (re.compile(r"^(encoder\.layers\.\d+)\.layer_norms\.0\."), r"\1.self_attn_layer_norm."),
    (re.compile(r"^(encoder\.layers\.\d+)\.layer_norms\.1\."), r"\1.final_layer_norm."),
    (re.compile(r"^(decoder\.layers\.\d+)\.layer_norms\.0\."), r"\1.self_attn_layer_norm."),
    (re.compile(r"^(decoder\.layers\.\d+)\.layer_norms\.1\."), r"\1.encoder_attn_layer_norm."),
    (re.compile(r"^(decoder\.layers\.\d+)\.layer_norms\.2\."), r"\1.final_layer_norm."),
    (re.compile(r"^decoder\.embed_out$"), "decoder.output_projection.weight"),
]
# Neither parameters nor of use: the number of the layout, a mark of the device, sinusoids.
_IDLE = re.compile(
    r"^(en|de)coder\.(version|_float_tensor|embed_positions\.(_float_tensor|weights))$"
)
_LAYER = re.compile(r"^(encoder|decoder)\.layers\.(\d+)\.(.+)\.(weight|bias)$")
_PARTS = {
    "fc1": "feed_forward/inner",
    "fc2": "feed_forward/outer",
    "self_attn_layer_norm": "self_attention_norm/norm",
    "encoder_attn_layer_norm": "cross_attention_norm/norm",
    "final_layer_norm": "feed_forward_norm/norm",
    **{
        f"{theirs}_attn.{their_map}": f"{ours}_attention/{our_map}"
        for theirs, ours in (("self", "self"), ("encoder", "cross"))
        for their_map, our_map in (
            ("q_proj", "query"),
            ("k_proj", "key"),
            ("v_proj", "value"),
            ("out_proj", "output"),
        )
    },
}


@dataclass(frozen=True)
class FairseqArrays:
    """A model's arrays by our names, and the settings of ModelConfig that they show."""

    arrays: Arrays
    settings: dict[str, Any]
    vocabulary_sizes: tuple[int, int]


def read_arrays(
    found: Arrays,
    *,
    learned: Collection[str] = (),
    rows: int,
    pad_id: int,
    scaled: bool,
    one_vocabulary: bool,
) -> FairseqArrays:
    """Return the arrays by the names of `torch_layout`.

    learned: the SIDES whose positions are learned; the others have sinusoids.
    rows: the number of rows for sinusoids. The first token has the row after PAD's.
    scaled: False if the model does not multiply embeddings by sqrt(d_model); ours does, so they
      are divided by it.

    Raises InputError that names an array that is missing or has no place in our model.
    """
    theirs = _tidied(found)
    embeddings = _embeddings(theirs, scaled)
    source, target, _ = embeddings
    arrays, settings = embedding_arrays(embeddings, one_vocabulary)
    sinusoids = tensor2tensor_positions(rows, target.shape[1], first=pad_id + 1)
    table = arrays["position_table"] = _position_table(theirs, sinusoids, learned, pad_id)
    for name in list(theirs):
        if ours := _our_name(name):
            arrays[ours] = theirs.pop(name)
    if theirs:
        raise InputError(
            f"{shown(min(theirs))}: expected the arrays of the Transformer alone, found this one, "
            "which has no place in our model; give another model"
        )
    encoder, decoder = (_depth(arrays, side) for side in SIDES)
    settings |= {
        "num_layers": encoder,
        "decoder_layers": decoder if decoder != encoder else 0,
        "d_model": target.shape[1],
        "d_ff": _widen_feed_forward(arrays),
        "attention_bias": any(name.endswith("query/bias") for name in arrays),
        "norm_position": "pre" if "encoder_norm/scale" in arrays else "post",
        "positions": "learned",
        "max_positions": len(table),
    }
    return FairseqArrays(arrays, settings, (len(source), len(target)))


def _position_table(
    theirs: Arrays, sinusoids: np.ndarray, learned: Collection[str], pad_id: int
) -> np.ndarray:
    """Return the table that our encoder and decoder share; take its arrays out of `theirs`."""
    tables = []
    for side in SIDES:
        name = f"{side}.embed_positions.weight"
        table = theirs.pop(name, None)
        if side not in learned:
            tables.append(sinusoids)
        elif table is None:
            raise _missing(name)
        else:
            tables.append(table[pad_id + 1 :])
    if not np.array_equal(*tables):
        raise InputError(
            "decoder.embed_positions.weight: expected the positions of the encoder, found others; "
            "our model has one table for both sides, so give a model without learned positions"
        )
    return tables[0]


def _tidied(found: Arrays) -> Arrays:
    """Return the arrays by the names of today."""
    renamed = {_today(name): array for name, array in found.items()}
    return {
        name: array
        for whole, joined in renamed.items()
        if not _IDLE.match(whole)
        for name, array in _split(whole, joined).items()
    }


def _today(name: str) -> str:
    for pattern, replacement in _RENAMED:
        name = pattern.sub(replacement, name)
    return name


def _split(name: str, array: np.ndarray) -> Arrays:
    """Return the matrices of queries, keys and values, which old files join to one."""
    found = re.fullmatch(r"(.*)\.in_proj_(weight|bias)", name)
    if not found or len(array) % 3:
        return {name: array}
    parts = zip(("q_proj", "k_proj", "v_proj"), np.split(array, 3), strict=True)
    return {f"{found[1]}.{part}.{found[2]}": third for part, third in parts}


def _our_name(name: str) -> str | None:
    """Return our name of an array that is neither an embedding nor a table; None if it has none."""
    norm = re.fullmatch(r"(encoder|decoder)\.layer_norm\.(weight|bias)", name)
    if norm:
        return f"{norm[1]}_norm/{'scale' if norm[2] == 'weight' else 'bias'}"
    found = _LAYER.match(name)
    if not found or found[3] not in _PARTS:
        return None
    stack, number, part, leaf = found.groups()
    leaf = "scale" if "norm" in part and leaf == "weight" else leaf
    return f"{stack}_{number}/{_PARTS[part]}/{leaf}"


def _embeddings(theirs: Arrays, scaled: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Take the matrices of source, target and output out of `theirs`; those that are tied may lack.

    In files of fairseq a tied matrix stands two or three times, in those of FSMT once.
    """
    target = theirs.pop("decoder.embed_tokens.weight", None)
    source = theirs.pop("encoder.embed_tokens.weight", target)
    if target is None:
        target = source
    if source is None or target is None:
        raise _missing("encoder.embed_tokens.weight")
    output = theirs.pop("decoder.output_projection.weight", target)
    if {source.ndim, target.ndim, output.ndim} != {2} or source.shape[1] != target.shape[1]:
        raise InputError(
            "expected embeddings [V, d_model] of one width for source, target and output, found "
            f"{source.shape}, {target.shape} and {output.shape}; give another model"
        )
    if not scaled:
        factor = np.float32(source.shape[1] ** -0.5)
        source, target = source * factor, target * factor
    return source, target, output


def _depth(arrays: Arrays, stack: str) -> int:
    """Return the number of layers, which count from 0."""
    found = (re.match(rf"{stack}_(\d+)/", name) for name in arrays)
    numbers = {int(match[1]) for match in found if match}
    lacking = set(range(len(numbers) or 1)) - numbers
    if lacking:
        raise _missing(f"{stack}.layers.{min(lacking)}")
    return len(numbers)


def _widen_feed_forward(arrays: Arrays) -> int:
    """Return d_ff; a stack whose inner layers are narrower gets units that compute zero."""
    inner = {name: array for name, array in arrays.items() if "/feed_forward/inner/" in name}
    width = max((len(array) for array in inner.values()), default=1)
    for name, array in inner.items():
        arrays[name] = _padded(array, 0, width)
    for name, array in arrays.items():
        if name.endswith("/feed_forward/outer/weight"):
            arrays[name] = _padded(array, 1, width)
    return width


def _padded(array: np.ndarray, axis: int, width: int) -> np.ndarray:
    if array.shape[axis] == width:
        return array
    missing = [(0, 0)] * array.ndim
    missing[axis] = (0, width - array.shape[axis])
    return np.pad(array, missing)


def _missing(name: str) -> InputError:
    return InputError(f"{name}: expected this array in the model, found none; fetch the file again")
