"""Model folders of CTranslate2: written in float32 or int8, and read without the package.

Most of its models were converted from another program's: OPUS-MT and Marian, fairseq, OpenNMT,
M2M-100 and NLLB.
"""

import logging
import re
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int8

from jax_transformer.config import DecodingConfig, ModelConfig
from jax_transformer.data.vocabularies.base import Vocabulary
from jax_transformer.data.vocabularies.piece_table import PieceTable
from jax_transformer.data.vocabularies.sentencepiece import SentencePieceVocabulary
from jax_transformer.errors import InputError, shown
from jax_transformer.formats import exported, layout
from jax_transformer.formats.ctranslate2_file import (
    ACTIVATIONS,
    HEADS,
    of_today,
    read_config,
    read_model_file,
    read_options,
)
from jax_transformer.formats.ctranslate2_vocabularies import Sides, read_sides
from jax_transformer.formats.hugging_face import Settings, read_settings
from jax_transformer.formats.imported import Accepted, ImportedModel, Unread
from jax_transformer.formats.layout import NEVER, STACKS, Arrays
from jax_transformer.runs.model import TrainedModel
from jax_transformer.types import Params

logger = logging.getLogger(__name__)

LARGEST_INT8 = 64
EPSILON = 1e-5  # CTranslate2's default
_REVISIONS = range(2, 8)  # of the specification
_LONGEST = 512  # tokens of a source; an output has half of it more, unless positions are fewer
_MADE_ROWS = 1024  # of the table of positions that CTranslate2 makes itself

_EMBEDDINGS = (
    "encoder/embeddings_0/weight",
    "decoder/embeddings/weight",
    "decoder/projection/weight",
)

_STOPS_EARLIER = """\
It
  stops as with `decoding.patience=1` here; this run goes on until nothing can change."""
_STOPS_ALIKE = """\
It
  stops when enough outputs have ended, as this run does."""
_STOPS_ALIKE_NARROWING = """\
It
  stops when enough outputs have ended, as this run does; but this run then searches one
  hypothesis fewer for each of them, so that some translations differ."""

_CUTTING = """\
# By their ids, so that a character without a piece is <unk> however it is spelled.
sources = [source.id_to_piece(ids) for ids in source.encode(lines)]
"""
# A table may have pieces that the model of sentencepiece lacks, such as those of the other side.
_CUTTING_FOR_TABLE = """\
sources = source.encode(lines, out_type=str)
"""
_CUTTING_AROUND = """\
import re

whole = re.compile({whole!r})  # what is a piece as it is, such as the tag of a language


def cut(line):
    parts = whole.split(line.strip())  # every other one is whole
    cut = source.encode(parts, out_type=str)
    return [p for i, part in enumerate(parts) for p in ([part] if i % 2 else cut[i])]


sources = [cut(line) for line in lines]
"""

_MAPS = {  # a linear map may join several of ours with the same input
    "self_attention/linear_0": [f"self_attention/{name}" for name in ("query", "key", "value")],
    "self_attention/linear_1": ["self_attention/output"],
    "attention/linear_0": ["cross_attention/query"],
    "attention/linear_1": ["cross_attention/key", "cross_attention/value"],
    "attention/linear_2": ["cross_attention/output"],
    "ffn/linear_0": ["feed_forward/inner"],
    "ffn/linear_1": ["feed_forward/outer"],
    "self_attention/layer_norm": ["self_attention_norm/norm"],
    "attention/layer_norm": ["cross_attention_norm/norm"],
    "ffn/layer_norm": ["feed_forward_norm/norm"],
}
_LAYERS = "{stack}/layer_{i}/"
_LAYER = {
    f"{theirs}/{leaf}": [layout.leaves(part)[i] for part in ours]
    for theirs, ours in _MAPS.items()
    for i, leaf in enumerate(("gamma", "beta") if "norm" in theirs else ("weight", "bias"))
}
_TOP_NORMS = {
    f"{stack}/layer_norm/{leaf}": [f"{stack}_norm/{ours}"]
    for stack in STACKS
    for leaf, ours in (("gamma", "scale"), ("beta", "bias"))
}


def accepted_settings(model: ModelConfig) -> Accepted:
    """Return the settings of a model that CTranslate2 can express."""
    return {
        **exported.torch_settings(model),
        "norm_epsilon": None,
        "norm_position": ["post", "pre"],
    }


def write_ctranslate2(trained: TrainedModel, out: Path, quantization: str | None = None) -> None:
    """Write model, vocabulary and README.md into the folder `out`; quantization: None or int8."""
    config, vocabularies = trained.config, exported.text_vocabularies(trained)
    arrays = ctranslate2_arrays(trained.params, config.model, exported.position_rows(config))
    _write_model(arrays, config.model, vocabularies, out, quantization)
    source, target = vocabularies
    plain = source is target and isinstance(source, SentencePieceVocabulary)
    names = ("vocabulary.model",) * 2 if plain else ("source.spm", "target.spm")
    for name, vocabulary in zip(names, vocabularies, strict=True):
        (out / name).write_bytes(vocabulary.sentencepiece or b"")  # `text_vocabularies` checks it
    patience = config.decoding.patience
    alike = _STOPS_ALIKE_NARROWING if config.decoding.narrowing else _STOPS_ALIKE
    facts = {
        "stopping": alike if patience else _STOPS_EARLIER,
        "patience": f"{patience or 1:g}",
        "cutting": _cutting(source),
        "precision": "weights in int8" if quantization else "in float32",
        "source_model": names[0],
        "target_model": names[1],
    }
    exported.write_readme(trained, out, "ctranslate2.md", **facts)


def _cutting(source: Vocabulary) -> str:
    """Return the code that makes `sources`, the pieces of each of `lines`."""
    if not isinstance(source, PieceTable):
        return _CUTTING
    whole = [*map(re.escape, sorted(source.whole, key=len, reverse=True))]
    whole = [r"^>>[^<>\s]+<<"] * bool(source.tags) + whole
    around = _CUTTING_AROUND.format(whole=f"({'|'.join(whole)})")
    return exported.normalizing(source) + (around if whole else _CUTTING_FOR_TABLE)


def _write_model(
    arrays: Arrays,
    model: ModelConfig,
    vocabularies: tuple[Vocabulary, Vocabulary],
    out: Path,
    quantization: str | None,
) -> None:
    """Write model.bin, config.json and the vocabularies by CTranslate2's own specification."""
    from ctranslate2.specs import TransformerSpec
    from ctranslate2.specs.common_spec import Activation
    from ctranslate2.specs.model_spec import index_spec

    spec: Any = TransformerSpec.from_config(
        (model.num_layers, model.num_decoder_layers),
        model.num_heads,
        pre_norm=model.norm_position == "pre",
        activation=getattr(Activation, model.activation.upper()),
    )
    source, target = (vocabulary.all_pieces for vocabulary in vocabularies)
    ids = vocabularies[1]
    start = target[ids.bos_id]
    if all(v.bos_id == v.pad_id == v.size - 1 for v in vocabularies) and _ends_with_zeros(arrays):
        # CTranslate2 has a setting instead of the row of zeros.
        for name in (*_EMBEDDINGS, "decoder/projection/bias"):
            arrays[name] = arrays[name][:-1]
        source, target, start = source[:-1], target[:-1], target[ids.eos_id]
        spec.decoder.start_from_zero_embedding = True
    for name, array in arrays.items():
        layer, _, attribute = name.rpartition("/")
        setattr(index_spec(spec, layer), attribute, array.copy())  # it rounds them in place
    spec.register_source_vocabulary(source)
    spec.register_target_vocabulary(target)
    spec.config.layer_norm_epsilon = model.norm_epsilon
    spec.config.bos_token = spec.config.decoder_start_token = start
    spec.config.eos_token, spec.config.unk_token = target[ids.eos_id], target[ids.unk_id]
    # Sources of an import from OpenNMT end with PAD, which stands for no end mark.
    spec.config.add_source_eos = vocabularies[0].eos_id != vocabularies[0].pad_id
    spec.validate()
    spec.optimize(quantization)
    if quantization:
        _round_to_int8(spec, arrays)
    spec.save(str(out))


def _round_to_int8(spec: Any, arrays: Arrays) -> None:
    """Put our own integers and scales in place of CTranslate2's."""
    from ctranslate2.specs.model_spec import NumpyVariable, index_spec

    for name, array in arrays.items():
        layer, _, attribute = name.rpartition("/")
        part = index_spec(spec, layer)
        if getattr(getattr(part, attribute), "dtype", None) == "int8":
            rounded, scale = rounded_to_int8(array)
            setattr(part, attribute, NumpyVariable(rounded))
            setattr(part, f"{attribute}_scale", NumpyVariable(scale))


def ctranslate2_arrays(params: Params, config: ModelConfig, positions: int) -> Arrays:
    """Return the variables of CTranslate2's TransformerSpec, by their names in its file.

    positions: the number of rows of the table of position encodings. CTranslate2's own formula is
    tensor2tensor's, so the table has the paper's, in the order of what its converters make of
    Marian's models: all sines first, and d_model of all arrays in that order too.
    """
    ours = layout.torch_layout(layout.flat_arrays(params), config)
    if config.positions == "sinusoidal":
        ours = layout.reordered(ours, layout.sines_first(config.d_model))
    source, target, output = layout.embeddings(ours, config)
    table = ours.get("position_table")
    if table is None:
        table = layout.sines_then_cosines(positions, config.d_model)
    arrays = {
        "encoder/embeddings_0/weight": source,
        "decoder/embeddings/weight": target,
        "decoder/projection/weight": output,
        "encoder/position_encodings/encodings": table,
        "decoder/position_encodings/encodings": table,
    }
    if config.output_bias:
        arrays["decoder/projection/bias"] = ours["output_bias"]
    layers = config.num_layers, config.num_decoder_layers
    for theirs, names in [*layout.layer_names(layers, _LAYERS, _LAYER), *_TOP_NORMS.items()]:
        if names[0] in ours:
            arrays[theirs] = np.concatenate([ours[name] for name in names])
    return arrays


def _ends_with_zeros(arrays: Arrays) -> bool:
    """Return True if the last row of every embedding is zeros, and is never written."""
    bias = arrays.get("decoder/projection/bias", np.zeros(1))
    return bias[-1] == NEVER and not any(arrays[name][-1].any() for name in _EMBEDDINGS)


def rounded_to_int8(
    matrix: Float[np.ndarray, "n m"],
) -> tuple[Int8[np.ndarray, "n m"], Float[np.ndarray, " n"]]:
    """Return the matrix, scaled row by row and rounded to integers from -64 to 64, and the scales.

    CTranslate2 itself would go up to 127. But x86 processors without VNNI instructions multiply
    integers up to 255 with these and add two such products in 16 bits, which hold 255 x 64 x 2.
    """
    largest = np.abs(matrix).max(axis=1)
    # A row so small that float32 cannot hold its scale becomes zeros.
    usual = largest > LARGEST_INT8 / np.finfo(np.float32).max
    scale = np.float32(LARGEST_INT8) / np.where(usual, largest, np.float32(LARGEST_INT8))
    return np.rint(matrix * scale[:, None]).astype(np.int8), scale


def read_ctranslate2(folder: Path) -> ImportedModel:
    """Return the model and the vocabularies of a folder that CTranslate2 translates with.

    folder: one with model.bin, or Argos Translate's, where that is in the folder `model`.

    Raises InputError for a file that is missing or damaged, and an option that we cannot express.
    """
    inner = folder / "model" if (folder / "model" / "model.bin").exists() else folder
    path = inner / "model.bin"
    file = read_model_file(path)
    if file.name not in HEADS or file.revision not in _REVISIONS:
        raise InputError(
            f"{path}: expected {' or '.join(HEADS)}, a model that translates, of revision "
            f"{_REVISIONS[0]} to {_REVISIONS[-1]}, found {shown(file.name)} of revision "
            f"{file.revision}; convert the model again with a newer ctranslate2"
        )
    variables = of_today(file)
    settings = read_config(inner / "config.json", variables, file.version)
    options = read_options(path, variables)
    variables = Unread(variables, path)
    rows = [len(variables.left.get(name, ())) for name in _EMBEDDINGS[:2]]
    zero_start = bool(options.get("decoder/start_from_zero_embedding"))
    sides = read_sides(folder, inner, settings, zero_start, rows)
    arrays, model = _embeddings(variables, options, sides)
    pre_norm = bool(options.get("encoder/pre_norm", 1))
    table, positions, order = _positions(variables, model["d_model"])
    layers, sizes = _layers(variables, pre_norm)
    variables.refuse_rest()
    arrays |= table | layers
    if order is not None:
        arrays = layout.reordered(arrays, order)
    config = ModelConfig(
        **model,
        **positions,
        **sizes,
        num_heads=options.get("encoder/num_heads", 8),
        activation=ACTIVATIONS[options.get("encoder/activation", 0)],  # pyright: ignore[reportArgumentType]
        norm_position="pre" if pre_norm else "post",
        norm_epsilon=settings.get("layer_norm_epsilon", float, EPSILON),
    )
    argos = read_settings(folder / "metadata.json", missing=Settings(folder, {}))
    if prefix := argos.get("target_prefix", str, ""):
        logger.warning(
            f"{argos.path}: its translations should begin with {shown(prefix)}; no such prefix can "
            "be set here, so they begin without it"
        )
    decoding, max_length = _decoding(positions.get("max_positions", _MADE_ROWS), bool(argos.values))
    languages = argos.get("from_code", str, ""), argos.get("to_code", str, "")
    vocabularies = sides.source, sides.target
    return ImportedModel(config, decoding, arrays, *vocabularies, max_length, languages)


def _embeddings(
    variables: Unread, options: dict[str, Any], sides: Sides
) -> tuple[Arrays, dict[str, Any]]:
    """Return the matrices of source, target and logits, and the bias, with our settings."""
    source, target = (variables.take(name, 2) for name in _EMBEDDINGS[:2])
    output = variables.take("decoder/projection/weight", 2)
    source = _scaled(source, options.get("encoder/scale_embeddings", 1))
    target = _scaled(target, options.get("decoder/scale_embeddings", 1))
    more_source, more_target = sides.appended  # their rows are zeros, and they are never written
    source = np.pad(source, [(0, more_source), (0, 0)])
    target, output = (np.pad(rows, [(0, more_target), (0, 0)]) for rows in (target, output))
    one_vocabulary = sides.source.all_pieces == sides.target.all_pieces
    arrays, settings = layout.embedding_arrays([source, target, output], one_vocabulary)
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
    """
    names = [f"{stack}/position_encodings/encodings" for stack in STACKS]
    made = layout.tensor2tensor_positions(_MADE_ROWS, d_model, first=1)
    table = layout.shared_table(variables.path, [variables.take(name, 2, made) for name in names])
    if layout.are_sines_then_cosines(table):
        return {}, {}, layout.alternating(d_model)
    if layout.are_sines_then_cosines(table[:, layout.sines_first(table.shape[1])]):
        return {}, {}, None
    settings = {"positions": "learned", "max_positions": len(table)}
    return {"position_table": table}, settings, None


def _layers(variables: Unread, pre_norm: bool) -> tuple[Arrays, dict[str, Any]]:
    """Return the arrays of all layers in `torch_layout`, and the settings of their sizes."""
    arrays: Arrays = {}
    counts = layout.layer_counts(variables.left, _LAYERS)
    top_norms = _TOP_NORMS.items() if pre_norm else ()
    for theirs, ours in [*layout.layer_names(counts, _LAYERS, _LAYER), *top_norms]:
        if theirs in variables or not theirs.endswith("bias"):
            array = variables.take(theirs, 2 if theirs.endswith("weight") else 1)
            arrays |= zip(ours, np.array_split(array, len(ours)), strict=True)
    biased = any("_attention/" in name and name.endswith("bias") for name in arrays)
    for name in [name for name in arrays if name.endswith("weight")]:
        if biased or "_attention/" not in name:  # some converters leave out biases that are zero
            bias = np.zeros(len(arrays[name]), np.float32)
            arrays.setdefault(name.removesuffix("weight") + "bias", bias)
    return arrays, {
        **layout.depths(counts),
        "d_ff": len(arrays.get("encoder_0/feed_forward/inner/weight", ())),
        "attention_bias": biased,
    }


def _decoding(rows: int, argos: bool) -> tuple[DecodingConfig, int]:
    """Return the search, and the longest source. rows: of the table of positions."""
    extra = min(_LONGEST, rows) // 2
    longest = min(_LONGEST, rows - extra)
    beam_size, alpha = (4, 0.2) if argos else (2, 1.0)  # their defaults; here |y| counts EOS
    search: dict[str, Any] = {"beam_size": beam_size, "alpha": alpha, "length_penalty": "length"}
    return DecodingConfig(**search, patience=1.0, max_extra_length=extra), longest
