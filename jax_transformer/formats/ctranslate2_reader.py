"""A model folder of CTranslate2 as our model; the package itself is not needed.

Most of its models were converted from another program's: OPUS-MT and Marian, fairseq, OpenNMT,
M2M-100 and NLLB.
"""

import re
from pathlib import Path
from typing import Any

import numpy as np

from jax_transformer.config import DecodingConfig, ModelConfig
from jax_transformer.errors import InputError
from jax_transformer.formats.arrays import (
    NEVER,
    Accepted,
    Arrays,
    alternating,
    are_sines_then_cosines,
    check_options,
    reordered,
    sines_first,
    tensor2tensor_positions,
)
from jax_transformer.formats.ctranslate2 import stack_names
from jax_transformer.formats.ctranslate2_file import read_model_file
from jax_transformer.formats.ctranslate2_vocabulary import Sides, read_sides
from jax_transformer.formats.hugging_face import read_settings
from jax_transformer.formats.imported import ImportedModel, Unread, embedding_arrays

REVISIONS = range(5, 8)  # of TransformerSpec, since CTranslate2 3.0
EPSILON = 1e-5  # CTranslate2's default
LONGEST = 512  # tokens of a source; an output has half of it more, unless positions are fewer
MADE_ROWS = 1024  # of the table of positions that CTranslate2 makes itself, as long as it needs it

_ACTIVATIONS = {0: "relu", 2: "swish", 3: "gelu"}  # the others are approximations of gelu, and tanh
_OPTIONS: Accepted = {
    **dict.fromkeys(("encoder/num_heads", "encoder/scale_embeddings", "decoder/scale_embeddings")),
    "encoder/pre_norm": [0, 1],
    "encoder/activation": _ACTIVATIONS,
    "encoder/multi_query_attention": [0],
    "decoder/alibi": [0],
    "decoder/scale_alibi": [0],
    "decoder/start_from_zero_embedding": [0, 1],
    # These change nothing without several embeddings, ALiBi, and alignments.
    **dict.fromkeys(("encoder/embeddings_merge", "decoder/alibi_use_positive_positions")),
    **dict.fromkeys(("decoder/alignment_layer", "decoder/alignment_heads")),
}


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
            f"{REVISIONS[0]} to {REVISIONS[-1]}, found {file.name!r} of revision {file.revision}; "
            "convert the model again with a newer ctranslate2"
        )
    variables, settings = Unread(file.variables, path), read_settings(folder / "config.json")
    options = _options(variables)
    sides = read_sides(folder, settings, bool(options.get("decoder/start_from_zero_embedding")))
    arrays, model = _embeddings(variables, options, sides)
    pre_norm = bool(options.get("encoder/pre_norm", 1))
    table, positions, order = _positions(variables, model["d_model"])
    layers, sizes = _layers(variables, pre_norm)
    variables.refuse_rest()
    arrays |= table | layers
    if order is not None:
        arrays = reordered(arrays, order)
    config = ModelConfig(
        **model,
        **positions,
        **sizes,
        num_heads=options.get("encoder/num_heads", 8),
        activation=_ACTIVATIONS[options.get("encoder/activation", 0)],  # pyright: ignore[reportArgumentType]
        norm_position="pre" if pre_norm else "post",
        norm_epsilon=settings.get("layer_norm_epsilon", float, EPSILON),
    )
    decoding, max_length = _decoding(positions.get("max_positions"))
    return ImportedModel(config, decoding, arrays, sides.source, sides.target, max_length)


def _options(variables: Unread) -> dict[str, Any]:
    """Return the variables of one number. Raises InputError for one that ours cannot express."""
    names = [name for name, array in variables.left.items() if array.size == 1]
    options = {name: variables.left.pop(name).item() for name in names}
    as_encoder = {
        f"decoder/{name}": [options.get(f"encoder/{name}")]
        for name in ("num_heads", "pre_norm", "activation")
    }
    check_options(variables.path, options, {**_OPTIONS, **as_encoder})
    return options


def _embeddings(
    variables: Unread, options: dict[str, Any], sides: Sides
) -> tuple[Arrays, dict[str, Any]]:
    """Return the matrices of source, target and logits, and the bias, with our settings.

    Pieces that are appended have rows of zeros, and are never written.
    """
    source = variables.take("encoder/embeddings_0/weight", 2)
    target = variables.take("decoder/embeddings/weight", 2)
    output = variables.take("decoder/projection/weight", 2)
    source = _scaled(source, options.get("encoder/scale_embeddings", 1))
    target = _scaled(target, options.get("decoder/scale_embeddings", 1))
    more_source, more_target = sides.appended
    source = np.pad(source, [(0, more_source), (0, 0)])
    target, output = (np.pad(rows, [(0, more_target), (0, 0)]) for rows in (target, output))
    one_vocabulary = sides.source.all_pieces == sides.target.all_pieces
    arrays, settings = embedding_arrays([source, target, output], one_vocabulary)
    if "decoder/projection/bias" in variables:
        arrays["output_bias"] = variables.take("decoder/projection/bias", 1)
    if more_target:
        bias = arrays.get("output_bias", np.zeros(len(target) - more_target, np.float32))
        arrays["output_bias"] = np.append(bias, np.full(more_target, NEVER))
    d_model, output_bias = source.shape[1], "output_bias" in arrays
    return arrays, {**settings, "d_model": d_model, "output_bias": output_bias}


def _scaled(matrix: np.ndarray, scale: float) -> np.ndarray:
    """Return the matrix that gives the same embeddings when it is multiplied by sqrt(d_model).

    scale: the factor, or an int: 1 for sqrt(d_model), 0 for none.
    """
    usual = matrix.shape[1] ** 0.5
    factor = (usual if scale else 1.0) if isinstance(scale, int) else scale
    rounded = abs(factor - usual) < 1e-6 * usual
    return matrix if rounded else matrix * np.float32(factor / usual)


def _positions(variables: Unread, d_model: int) -> tuple[Arrays, dict[str, Any], np.ndarray | None]:
    """Return the table of positions with its settings, or nothing for the paper's sinusoids.

    And the order of d_model's dimensions that makes the sinusoids the paper's, if they are not.

    Raises InputError for tables of encoder and decoder that differ.
    """
    names = [f"{stack}/position_encodings/encodings" for stack in ("encoder", "decoder")]
    made = tensor2tensor_positions(MADE_ROWS, d_model, first=1)
    table, other = (variables.take(name, 2) if name in variables else made for name in names)
    if not np.array_equal(table, other):
        raise InputError(
            f"{variables.path}: expected the same {names[0]} in the decoder, found others; our "
            "stacks share them"
        )
    if are_sines_then_cosines(table):
        return {}, {}, alternating(d_model)
    if are_sines_then_cosines(table[:, sines_first(table.shape[1])]):
        return {}, {}, None
    settings = {"positions": "learned", "max_positions": len(table)}
    return {"position_table": table}, settings, None


def _layers(variables: Unread, pre_norm: bool) -> tuple[Arrays, dict[str, Any]]:
    """Return the arrays of all layers in `torch_layout`, and the settings of their sizes."""
    arrays: Arrays = {}
    counts = []
    for stack in ("encoder", "decoder"):
        pattern = re.compile(rf"{stack}/layer_(\d{{1,4}})/")
        numbers = [int(match[1]) for match in map(pattern.match, variables.left) if match]
        counts.append(max(numbers, default=-1) + 1)
        for theirs, ours in stack_names(stack, counts[-1], pre_norm):
            if theirs in variables or not theirs.endswith("bias"):
                array = variables.take(theirs, 2 if theirs.endswith("weight") else 1)
                arrays |= zip(ours, np.array_split(array, len(ours)), strict=True)
    biased = any("_attention/" in name and name.endswith("bias") for name in arrays)
    for name in [name for name in arrays if name.endswith("weight")]:
        if biased or "_attention/" not in name:  # some converters leave out biases that are zero
            bias = np.zeros(len(arrays[name]), np.float32)
            arrays.setdefault(name.removesuffix("weight") + "bias", bias)
    return arrays, {
        "num_layers": counts[0],
        "decoder_layers": counts[1] if counts[1] != counts[0] else 0,
        "d_ff": len(arrays.get("encoder_0/feed_forward/inner/weight", ())),
        "attention_bias": biased,
    }


def _decoding(rows: int | None) -> tuple[DecodingConfig, int]:
    """Return the search, and the longest source; rows: of the table of positions, if there is one.

    The search is CTranslate2's by default, but |y| counts the end mark.
    """
    extra = LONGEST // 2 if rows is None else min(LONGEST // 2, rows // 2)
    longest = LONGEST if rows is None else min(LONGEST, rows - extra)
    search: dict[str, Any] = {"beam_size": 2, "alpha": 1.0, "length_penalty": "length"}
    return DecodingConfig(**search, patience=1.0, max_extra_length=extra), longest
