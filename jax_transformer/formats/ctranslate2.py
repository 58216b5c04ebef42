"""A trained model for CTranslate2, in float32 or int8."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int8

from jax_transformer.config import ModelConfig
from jax_transformer.data.vocabularies.base import Vocabulary
from jax_transformer.data.vocabularies.sentencepiece import SentencePieceVocabulary
from jax_transformer.formats.arrays import (
    NEVER,
    Accepted,
    Arrays,
    check_settings,
    embeddings,
    flat_arrays,
    position_rows,
    reordered,
    sines_first,
    sines_then_cosines,
    torch_layout,
    torch_settings,
)
from jax_transformer.formats.exported import text_vocabularies, write_readme
from jax_transformer.runs.loading import TrainedModel
from jax_transformer.types import Params

LARGEST_INT8 = 64

_EMBEDDINGS = (
    "encoder/embeddings_0/weight",
    "decoder/embeddings/weight",
    "decoder/projection/weight",
)

_STOPS_EARLIER = """\
It
  stops as ours does with `decoding.patience=1`; this run goes on until nothing can change."""
_STOPS_ALIKE = """\
It
  stops when enough outputs have ended, as ours does."""


# Its linear maps of a layer, which may join several of ours with the same input, and its norms.
_MAPS = {
    "self_attention/linear_0": [f"self_attention/{name}" for name in ("query", "key", "value")],
    "self_attention/linear_1": ["self_attention/output"],
    "attention/linear_0": ["cross_attention/query"],
    "attention/linear_1": ["cross_attention/key", "cross_attention/value"],
    "attention/linear_2": ["cross_attention/output"],
    "ffn/linear_0": ["feed_forward/inner"],
    "ffn/linear_1": ["feed_forward/outer"],
}
_NORMS = {"self_attention": "self_attention", "attention": "cross_attention", "ffn": "feed_forward"}


def accepted_settings(model: ModelConfig) -> Accepted:
    """Return the settings of a model that CTranslate2 can express."""
    return {**torch_settings(model), "norm_epsilon": None, "norm_position": ["post", "pre"]}


def stack_names(stack: str, layers: int, pre_norm: bool) -> Iterator[tuple[str, list[str]]]:
    """Yield CTranslate2's name of each array of a stack, and those of ours that it joins."""
    norms = {f"{stack}/layer_norm": f"{stack}_norm"} if pre_norm else {}
    for i in range(layers):
        there, here = f"{stack}/layer_{i}", f"{stack}_{i}"
        for theirs, ours in _MAPS.items():
            if stack == "decoder" or not theirs.startswith("attention"):
                for leaf in ("weight", "bias"):
                    yield f"{there}/{theirs}/{leaf}", [f"{here}/{name}/{leaf}" for name in ours]
        for theirs, ours in _NORMS.items():
            if stack == "decoder" or theirs != "attention":
                norms[f"{there}/{theirs}/layer_norm"] = f"{here}/{ours}_norm/norm"
    for theirs, ours in norms.items():
        yield f"{theirs}/gamma", [f"{ours}/scale"]
        yield f"{theirs}/beta", [f"{ours}/bias"]


def write_ctranslate2(trained: TrainedModel, out: Path, quantization: str | None = None) -> None:
    """Write model, vocabulary and README.md into the folder `out`; quantization: None or int8.

    Raises InputError for a model that CTranslate2 cannot express.
    """
    config, vocabularies = trained.config, text_vocabularies(trained)
    check_settings(config.model, accepted_settings(config.model))
    arrays = ctranslate2_arrays(trained.params, config.model, position_rows(config))
    _write_model(arrays, config.model, vocabularies, out, quantization)
    names = _write_sentencepiece(*vocabularies, out)
    patience = config.decoding.patience
    facts = {
        "stopping": _STOPS_ALIKE if patience else _STOPS_EARLIER,
        "patience": f"{patience or 1:g}",
        "precision": "weights in int8" if quantization else "in float32",
    }
    write_readme(trained, out, "ctranslate2.md", **facts, **names)


def _write_sentencepiece(source: Vocabulary, target: Vocabulary, out: Path) -> dict[str, str]:
    """Write the models of sentencepiece; return their names for README.md."""
    plain = source is target and isinstance(source, SentencePieceVocabulary)
    names = ("vocabulary.model",) * 2 if plain else ("source.spm", "target.spm")
    for name, vocabulary in zip(names, (source, target), strict=True):
        (out / name).write_bytes(vocabulary.sentencepiece or b"")  # `text_vocabularies` checks it
    return {"source_model": names[0], "target_model": names[1]}


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
    """Put our own integers and scales in place of those that CTranslate2 has made."""
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
    ours = torch_layout(flat_arrays(params), config)
    if config.positions == "sinusoidal":
        ours = reordered(ours, sines_first(config.d_model))
    source, target, output = embeddings(ours, config)
    table = ours.get("position_table")
    if table is None:
        table = sines_then_cosines(positions, config.d_model)
    arrays = {
        "encoder/embeddings_0/weight": source,
        "decoder/embeddings/weight": target,
        "decoder/projection/weight": output,
        "encoder/position_encodings/encodings": table,
        "decoder/position_encodings/encodings": table,
    }
    if config.output_bias:
        arrays["decoder/projection/bias"] = ours["output_bias"]
    for stack, layers in (("encoder", config.num_layers), ("decoder", config.num_decoder_layers)):
        for theirs, names in stack_names(stack, layers, config.norm_position == "pre"):
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
