"""Write a trained model in each format: arrays, settings, vocabulary, and how to run it."""

import dataclasses
import importlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int8

from jax_transformer.config import ModelConfig
from jax_transformer.data.vocabulary import BOS, EOS, UNK
from jax_transformer.errors import InputError
from jax_transformer.export.arrays import (
    Format,
    ctranslate2_arrays,
    flat_arrays,
    marian_arrays,
    position_rows,
)
from jax_transformer.export.guides import guide
from jax_transformer.runs.loading import Trained
from jax_transformer.runs.run_dir import write_text

# What writing takes; reading takes more, which the README.md of the export names.
LIBRARIES = {
    "ctranslate2": "ctranslate2",
    "marian": "safetensors.numpy",
    "safetensors": "safetensors.numpy",
}
EPSILON = 1e-6  # of our layer normalisation
LARGEST_INT8 = 64


def need_library(target: Format) -> None:
    """Raises InputError, with the command that mends it, where the writing library is missing."""
    try:
        importlib.import_module(LIBRARIES[target])
    except ImportError as error:
        package = LIBRARIES[target].partition(".")[0]
        raise InputError(
            f"--format={target}: expected the package {package}, found none that loads "
            f"({error}); install it with pip install -e '.[export]'"
        ) from None


def write_safetensors(
    trained: Trained, vocabulary: Path, out: Path, quantization: str | None
) -> None:
    """Our own arrays, layouts and names, and a script that runs them on NumPy."""
    from safetensors.numpy import save_file

    assert quantization is None
    save_file(flat_arrays(trained.params), out / "model.safetensors")
    config, ids = trained.run.config, trained.vocabulary
    _write_json(
        out / "config.json",
        {
            "experiment": trained.run.experiment,
            "steps": trained.steps,
            "vocabulary_size": ids.size,
            "pad_id": ids.pad_id,
            "bos_id": ids.bos_id,
            "eos_id": ids.eos_id,
            "unk_id": ids.unk_id,
            "max_length": config.data.max_length,
            "max_extra_length": config.decoding.max_extra_length,
            "model": dataclasses.asdict(config.model),
        },
    )
    shutil.copyfile(vocabulary, out / "vocabulary.model")
    shutil.copyfile(Path(__file__).with_name("numpy_translate.py"), out / "translate.py")
    write_text(out / "README.md", guide("safetensors", trained))


def write_ctranslate2(
    trained: Trained, vocabulary: Path, out: Path, quantization: str | None
) -> None:
    """The model with the vocabulary, and how to run it."""
    config, ids = trained.run.config, trained.vocabulary
    pieces, rows = ids.pieces(range(ids.size)), position_rows(config)
    write_ctranslate2_model(trained.params, config.model, rows, pieces, out, quantization)
    shutil.copyfile(vocabulary, out / "vocabulary.model")
    write_text(out / "README.md", guide("ctranslate2", trained, quantization))


def write_ctranslate2_model(
    params: Any,
    model: ModelConfig,
    positions: int,
    pieces: list[str],
    out: Path,
    quantization: str | None = None,
) -> None:
    """model.bin, config.json and shared_vocabulary.json, by CTranslate2's own specification.

    positions: of a sentence, at most; pieces: all of them, by their ids; out: a folder.
    """
    from ctranslate2.specs import TransformerSpec
    from ctranslate2.specs.model_spec import NumpyVariable, index_spec

    spec: Any = TransformerSpec.from_config(model.num_layers, model.num_heads, pre_norm=False)
    arrays = ctranslate2_arrays(params, model, positions)
    for name, array in arrays.items():
        layer, _, attribute = name.rpartition("/")
        setattr(index_spec(spec, layer), attribute, array.copy())  # it rounds them in place
    spec.register_source_vocabulary(pieces)
    spec.register_target_vocabulary(pieces)
    spec.config.layer_norm_epsilon = EPSILON
    spec.config.bos_token = spec.config.decoder_start_token = pieces[BOS]
    spec.config.eos_token, spec.config.unk_token = pieces[EOS], pieces[UNK]
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


def rounded_to_int8(
    matrix: Float[np.ndarray, "n m"],
) -> tuple[Int8[np.ndarray, "n m"], Float[np.ndarray, " n"]]:
    """The matrix times its scale of each row, rounded to integers from -64 to 64.

    Not to 127, as CTranslate2 would: x86 processors without VNNI instructions multiply integers up
    to 255 with these and add two such products in 16 bits, which hold 255 x 64 x 2.
    """
    largest = np.abs(matrix).max(axis=1)
    # A row so small that its scale is no float32 becomes zeros.
    usual = largest > LARGEST_INT8 / np.finfo(np.float32).max
    scale = np.float32(LARGEST_INT8) / np.where(usual, largest, np.float32(LARGEST_INT8))
    return np.rint(matrix * scale[:, None]).astype(np.int8), scale


def write_marian(trained: Trained, vocabulary: Path, out: Path, quantization: str | None) -> None:
    """What MarianMTModel and MarianTokenizer read with from_pretrained."""
    from safetensors.numpy import save_file

    assert quantization is None
    # The metadata is what transformers asks for before it reads a file.
    arrays = marian_arrays(trained.params, trained.run.config.model)
    save_file(arrays, out / "model.safetensors", metadata={"format": "pt"})
    ids = trained.vocabulary
    _write_json(out / "config.json", marian_config(trained))
    _write_json(out / "generation_config.json", marian_generation(trained))
    pieces = ids.pieces(range(ids.size))
    _write_json(out / "vocab.json", {piece: index for index, piece in enumerate(pieces)})
    _write_json(
        out / "tokenizer_config.json",
        {
            "tokenizer_class": "MarianTokenizer",
            "source_lang": trained.run.config.data.source_language,
            "target_lang": trained.run.config.data.target_language,
            "pad_token": pieces[ids.pad_id],
            "eos_token": pieces[ids.eos_id],
            "unk_token": pieces[ids.unk_id],
            "model_max_length": trained.run.config.data.max_length,
            # Text that spells </s> is text, here as in training.
            "split_special_tokens": True,
        },
    )
    for name in ("source.spm", "target.spm"):
        shutil.copyfile(vocabulary, out / name)
    write_text(out / "README.md", guide("marian", trained))


def marian_config(trained: Trained) -> dict[str, Any]:
    """The settings of MarianConfig."""
    model, ids = trained.run.config.model, trained.vocabulary
    sizes: dict[str, Any] = {"vocab_size": ids.size, "decoder_vocab_size": ids.size}
    for stack in ("encoder", "decoder"):
        sizes[f"{stack}_layers"] = model.num_layers
        sizes[f"{stack}_attention_heads"] = model.num_heads
        sizes[f"{stack}_ffn_dim"] = model.d_ff
    return {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "dtype": "float32",
        "d_model": model.d_model,
        **sizes,
        "max_position_embeddings": position_rows(trained.run.config),
        "activation_function": "relu",
        "scale_embedding": True,
        "share_encoder_decoder_embeddings": model.tie_embeddings,
        "tie_word_embeddings": model.tie_embeddings,
        "dropout": model.dropout_rate,
        "attention_dropout": model.attention_dropout_rate,
        "activation_dropout": 0.0,
        "is_encoder_decoder": True,
        **_marian_ids(trained),
    }


def marian_generation(trained: Trained) -> dict[str, Any]:
    """How `generate` searches unless it is told otherwise."""
    decoding, data = trained.run.config.decoding, trained.run.config.data
    return {
        **_marian_ids(trained),
        "num_beams": decoding.beam_size,
        "length_penalty": decoding.alpha,
        "early_stopping": True if decoding.patience else "never",
        # Counted with BOS there.
        "max_length": data.max_length + decoding.max_extra_length + 1,
    }


def _marian_ids(trained: Trained) -> dict[str, Any]:
    ids = trained.vocabulary
    return {
        "pad_token_id": ids.pad_id,
        "bos_token_id": ids.bos_id,
        "eos_token_id": ids.eos_id,
        "decoder_start_token_id": ids.bos_id,
        "forced_eos_token_id": ids.eos_id,
    }


def _write_json(path: Path, content: dict[str, Any]) -> None:
    write_text(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


WRITERS = {
    "ctranslate2": write_ctranslate2,
    "marian": write_marian,
    "safetensors": write_safetensors,
}
