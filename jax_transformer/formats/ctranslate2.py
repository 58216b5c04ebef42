"""A trained model for CTranslate2, in float32 or int8."""

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int8

from jax_transformer.config import ModelConfig
from jax_transformer.data.vocabulary import Vocabulary
from jax_transformer.formats.arrays import (
    COMMON_SETTINGS,
    Accepted,
    Arrays,
    check_settings,
    embeddings,
    flat_arrays,
    position_rows,
    torch_layout,
    torch_settings,
)
from jax_transformer.formats.model_readme import write_readme
from jax_transformer.formats.vocabularies import shared_vocabulary
from jax_transformer.models.layers import positional_encoding
from jax_transformer.runs.loading import TrainedModel
from jax_transformer.types import Params

EPSILON = 1e-6  # of our layer normalization
LARGEST_INT8 = 64

_STOPS_EARLIER = """\
It also
  stops as ours does with `decoding.patience=1`; this run goes on until nothing can change."""
_STOPS_ALIKE = """\
It stops
  when enough outputs have ended, as ours does: `patience=$patience`."""


def accepted_settings(model: ModelConfig) -> Accepted:
    """Return the settings of a model that CTranslate2 can express."""
    return {
        **COMMON_SETTINGS,
        **torch_settings(model),
        "attention_bias": [False, True],
        "attention_radius": [0],
        "positions": ["sinusoidal", "learned"],
        "tie_embeddings": [False, True],
    }


def write_ctranslate2(trained: TrainedModel, out: Path, quantization: str | None = None) -> None:
    """Write model, vocabulary and README.md into the folder `out`; quantization: None or int8.

    Raises InputError for a model that CTranslate2 cannot express.
    """
    config, ids = trained.config, shared_vocabulary(trained)
    check_settings(config.model, accepted_settings(config.model))
    arrays = ctranslate2_arrays(trained.params, config.model, position_rows(config))
    _write_model(arrays, config.model, ids, out, quantization)
    (out / "vocabulary.model").write_bytes(ids.sentencepiece or b"")
    patience = config.decoding.patience
    stopping = _STOPS_ALIKE.replace("$patience", f"{patience:g}") if patience else _STOPS_EARLIER
    precision = "weights in int8" if quantization else "in float32"
    write_readme(trained, out, "ctranslate2.md", stopping=stopping, precision=precision)


def _write_model(
    arrays: Arrays, model: ModelConfig, ids: Vocabulary, out: Path, quantization: str | None
) -> None:
    """Write model.bin, config.json and shared_vocabulary.json by CTranslate2's specification."""
    from ctranslate2.specs import TransformerSpec
    from ctranslate2.specs.model_spec import NumpyVariable, index_spec

    pieces = ids.all_pieces
    spec: Any = TransformerSpec.from_config(model.num_layers, model.num_heads, pre_norm=False)
    for name, array in arrays.items():
        layer, _, attribute = name.rpartition("/")
        setattr(index_spec(spec, layer), attribute, array.copy())  # it rounds them in place
    spec.register_source_vocabulary(pieces)
    spec.register_target_vocabulary(pieces)
    spec.config.layer_norm_epsilon = EPSILON
    spec.config.bos_token = spec.config.decoder_start_token = pieces[ids.bos_id]
    spec.config.eos_token, spec.config.unk_token = pieces[ids.eos_id], pieces[ids.unk_id]
    spec.config.add_source_eos = True
    spec.validate()
    spec.optimize(quantization)
    for name, array in arrays.items():
        layer, _, attribute = name.rpartition("/")
        part = index_spec(spec, layer)
        if getattr(getattr(part, attribute), "dtype", None) == "int8":
            rounded, scale = rounded_to_int8(array)
            setattr(part, attribute, NumpyVariable(rounded))
            setattr(part, f"{attribute}_scale", NumpyVariable(scale))
    spec.save(str(out))


def ctranslate2_arrays(params: Params, config: ModelConfig, positions: int) -> Arrays:
    """Return the variables of CTranslate2's TransformerSpec, by their names in its file.

    positions: the number of rows of the table of position encodings. The table has our encodings,
    because CTranslate2's own formula is tensor2tensor's.
    """
    ours = torch_layout(flat_arrays(params), config)
    source, target, output = embeddings(ours, config)
    sinusoids = np.asarray(positional_encoding(jnp.arange(positions), config.d_model))
    table = ours.get("position_table", sinusoids)
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


def _join(arrays: Arrays, there: str, ours: Arrays, here: str, groups: list[str]) -> None:
    """Copy an attention and its norm, with each group of matrices joined into one."""
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
