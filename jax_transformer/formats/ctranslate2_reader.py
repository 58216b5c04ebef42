"""A model folder of CTranslate2 as our model; the package itself is not needed.

Most of its models were converted from another program's: OPUS-MT and Marian, fairseq, OpenNMT,
M2M-100 and NLLB.
"""

import logging
from pathlib import Path
from typing import Any

import numpy as np

from jax_transformer.config import DecodingConfig, ModelConfig
from jax_transformer.errors import InputError
from jax_transformer.formats.arrays import Arrays, reordered
from jax_transformer.formats.ctranslate2_file import read_model_file
from jax_transformer.formats.ctranslate2_positions import read_positions
from jax_transformer.formats.ctranslate2_variables import STACKS, Variables, read_settings
from jax_transformer.formats.ctranslate2_vocabulary import Sides, read_sides
from jax_transformer.formats.imported import ImportedModel
from jax_transformer.formats.marian import NEVER

logger = logging.getLogger(__name__)

REVISIONS = range(3, 8)  # of TransformerSpec
ACTIVATIONS = {0: "relu", 2: "swish", 3: "gelu"}  # gelu is x Phi(x) itself
_INEXACT = {1: "gelu by tanh", 4: "gelu by a sigmoid", 5: "tanh", 6: "sigmoid"}
DEFAULT_EPSILON = 1e-5  # CTranslate2's
LONGEST = 512  # tokens of a source; an output has half of it more, unless positions are fewer

_LETTERS = {"q": "query", "k": "key", "v": "value", "o": "output"}
_ATTENTIONS = {"self_attention": ["qkv", "o"], "attention": ["q", "kv", "o"]}


def read_ctranslate2(folder: Path) -> ImportedModel:
    """Return the model and the vocabularies of a folder that CTranslate2 translates with.

    Raises InputError if a file is missing or damaged, or if the model has an option that our
    settings do not express.
    """
    path = folder / "model.bin"
    file = read_model_file(path)
    if file.name != "TransformerSpec" or file.revision not in REVISIONS:
        raise InputError(
            f"{path}: expected TransformerSpec, a model that translates, of revision "
            f"{REVISIONS[0]} to {REVISIONS[-1]}, found {file.name!r} of revision {file.revision}"
        )
    settings, variables = read_settings(folder, file), Variables(file, path)
    zero_start = variables.number("decoder/start_from_zero_embedding", 0) != 0
    sides = read_sides(folder, settings, zero_start)
    arrays, model = _embeddings(variables, sides)
    model |= _options(variables, model["d_model"])
    tables = (
        variables.optional(f"{stack}/position_encodings/encodings", -1, -1) for stack in STACKS
    )
    positions = read_positions(path, *tables, d_model=model["d_model"])
    layers, sizes = _stacks(variables, model["d_model"], model["norm_position"] == "pre")
    if variables.left:
        raise variables.refused(next(iter(variables.left)))
    if (folder / "vmap.txt").exists():
        logger.warning(
            f"{folder}: vmap.txt, a vocabulary map, is ignored; outputs may be any piece"
        )
    arrays |= layers
    if positions.order is not None:
        arrays = reordered(arrays, positions.order)
    epsilon = settings.layer_norm_epsilon
    model |= {"norm_epsilon": DEFAULT_EPSILON if epsilon is None else epsilon}
    decoding, max_length = _decoding(positions.settings.get("max_positions"))
    return ImportedModel(
        model=ModelConfig(**model, **sizes, **positions.settings),
        decoding=decoding,
        arrays=arrays | positions.table,
        source=sides.source,
        target=sides.target,
        max_length=max_length,
    )


def _decoding(rows: int | None) -> tuple[DecodingConfig, int]:
    """Return the search, and the longest source; rows: of the table of positions, if there is one.

    The search is CTranslate2's by default, but |y| counts the end mark.
    """
    extra = LONGEST // 2 if rows is None else min(LONGEST // 2, rows // 2)
    longest = LONGEST if rows is None else min(LONGEST, rows - extra)
    search: dict[str, Any] = {"beam_size": 2, "alpha": 1.0, "length_penalty": "length"}
    return DecodingConfig(**search, patience=1.0, max_extra_length=extra), longest


def _options(variables: Variables, d_model: int) -> dict[str, Any]:
    """Return what the flags of both stacks say."""
    number = variables.of_both("activation", 0)
    if number not in ACTIVATIONS:
        raise variables.refused(f"activation {number}, {_INEXACT.get(number, 'unknown')}")
    num_heads = variables.of_both("num_heads", 8)
    if num_heads < 1 or d_model % num_heads:
        raise variables.refused(f"num_heads {num_heads} for d_model {d_model}")
    pre_norm = variables.of_both("pre_norm", 1)
    return {
        "activation": ACTIVATIONS[number],
        "num_heads": num_heads,
        "norm_position": "pre" if pre_norm else "post",
    }


# ---- Embeddings ---------------------------------------------------------------------------


def _embeddings(variables: Variables, sides: Sides) -> tuple[Arrays, dict[str, Any]]:
    """Return the matrices of source, target and logits, and the bias, with our settings.

    One matrix in several places becomes one array. Rows of zeros are those of appended pieces.
    """
    source = variables.take("encoder/embeddings_0/weight", sides.stored[0], -1)
    d_model = source.shape[1]
    target = variables.take("decoder/embeddings/weight", sides.stored[1], d_model)
    output = variables.take("decoder/projection/weight", sides.stored[1], d_model)
    bias = variables.optional("decoder/projection/bias", sides.stored[1])
    source, target = (
        _scaled(variables, stack, matrix)
        for stack, matrix in zip(STACKS, (source, target), strict=True)
    )
    tied = _same(target, output)
    tie_source = tied and sides.one_table and _same(source, target)
    appended = sides.target.size - len(target)
    arrays = {"embedding/matrix": _with_zeros(source, sides.source.size)}
    if not tie_source:
        arrays["target_embedding/matrix"] = _with_zeros(target, sides.target.size)
    if not tied:
        arrays["output_embedding/matrix"] = _with_zeros(output, sides.target.size)
    if bias is not None or appended:
        bias = np.zeros(len(target), np.float32) if bias is None else bias
        never = np.full(appended, NEVER)  # an appended piece is not written
        arrays["output_bias"] = np.concatenate([bias, never])
    return arrays, {
        "d_model": d_model,
        "tie_embeddings": tied,
        "tie_source": tie_source or not (tied and sides.one_table),
        "output_bias": "output_bias" in arrays,
    }


def _same(matrix: np.ndarray, other: np.ndarray) -> bool:
    return matrix is other or np.array_equal(matrix, other)


def _with_zeros(matrix: np.ndarray, rows: int) -> np.ndarray:
    return np.pad(matrix, [(0, rows - len(matrix)), (0, 0)]) if rows > len(matrix) else matrix


def _scaled(variables: Variables, stack: str, matrix: np.ndarray) -> np.ndarray:
    """Return the matrix that gives the same embeddings when it is multiplied by sqrt(d_model).

    The flag is an int8, or the factor itself.
    """
    flag = variables.left.get(f"{stack}/scale_embeddings", np.array(1, np.int8))
    factor = variables.number(f"{stack}/scale_embeddings", 1)
    usual = matrix.shape[1] ** 0.5
    if flag.dtype == np.int8:
        factor = usual if factor else 1.0
    if abs(factor - usual) < 1e-6 * usual:  # rounded to float32
        return matrix
    logger.info(f"the embeddings of the {stack} are scaled by {factor:g}; folded into the matrix")
    return matrix * np.float32(factor / usual)


# ---- Layers -------------------------------------------------------------------------------


def _stacks(variables: Variables, d_model: int, pre_norm: bool) -> tuple[Arrays, dict[str, Any]]:
    """Return the arrays of all layers in the torch layout, and the settings of their sizes."""
    counts = {stack: variables.layers(stack) for stack in STACKS}
    d_ff = len(variables.left.get("encoder/layer_0/ffn/linear_0/weight", [0]))
    arrays: Arrays = {}
    for stack, count in counts.items():
        for i in range(count):
            there, here = f"{stack}/layer_{i}", f"{stack}_{i}"
            arrays |= _attention(variables, there, here, "self_attention", d_model)
            if stack == "decoder":
                arrays |= _attention(variables, there, here, "attention", d_model)
            arrays |= _feed_forward(variables, there, here, d_model, d_ff)
        if pre_norm:
            norm = _norm(variables, f"{stack}/layer_norm", d_model)
            arrays |= {f"{stack}_norm/{name}": array for name, array in norm.items()}
    attention_bias = any(_is_attention_bias(name) for name in arrays)
    if attention_bias:
        for name in [name for name in arrays if name.endswith("/weight")]:
            bias = name.removesuffix("weight") + "bias"
            if _is_attention_bias(bias):
                arrays.setdefault(bias, np.zeros(d_model, np.float32))
    return arrays, {
        "num_layers": counts["encoder"],
        "decoder_layers": counts["decoder"] if counts["decoder"] != counts["encoder"] else 0,
        "d_ff": d_ff,
        "attention_bias": attention_bias,
    }


def _is_attention_bias(name: str) -> bool:
    return name.endswith(tuple(f"_attention/{map_name}/bias" for map_name in _LETTERS.values()))


def _attention(variables: Variables, there: str, here: str, kind: str, d_model: int) -> Arrays:
    """Return an attention and its norm; matrices with the same input are joined in the file."""
    name = "self_attention" if kind == "self_attention" else "cross_attention"
    arrays: Arrays = {}
    for number, group in enumerate(_ATTENTIONS[kind]):
        joined, width = f"{there}/{kind}/linear_{number}", len(group) * d_model
        parts = {"weight": variables.take(f"{joined}/weight", width, d_model)}
        bias = variables.optional(f"{joined}/bias", width)
        if bias is not None:
            parts["bias"] = bias
        for leaf, array in parts.items():
            for letter, part in zip(group, np.split(array, len(group)), strict=True):
                arrays[f"{here}/{name}/{_LETTERS[letter]}/{leaf}"] = part
    norm = _norm(variables, f"{there}/{kind}/layer_norm", d_model)
    return arrays | {f"{here}/{name}_norm/norm/{leaf}": array for leaf, array in norm.items()}


def _feed_forward(variables: Variables, there: str, here: str, d_model: int, d_ff: int) -> Arrays:
    """Return a feed-forward network and its norm, with zeros for missing biases."""
    arrays: Arrays = {}
    for number, name, outputs, inputs in [(0, "inner", d_ff, d_model), (1, "outer", d_model, d_ff)]:
        linear, ours = f"{there}/ffn/linear_{number}", f"{here}/feed_forward/{name}"
        arrays[f"{ours}/weight"] = variables.take(f"{linear}/weight", outputs, inputs)
        bias = variables.optional(f"{linear}/bias", outputs)
        arrays[f"{ours}/bias"] = np.zeros(outputs, np.float32) if bias is None else bias
    norm = _norm(variables, f"{there}/ffn/layer_norm", d_model)
    return arrays | {f"{here}/feed_forward_norm/norm/{name}": norm[name] for name in norm}


def _norm(variables: Variables, there: str, d_model: int) -> Arrays:
    names = {"scale": "gamma", "bias": "beta"}
    return {ours: variables.take(f"{there}/{name}", d_model) for ours, name in names.items()}
