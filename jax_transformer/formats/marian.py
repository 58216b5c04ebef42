"""A trained model for Hugging Face's MarianMTModel and MarianTokenizer."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np

from jax_transformer.config import ModelConfig
from jax_transformer.files import write_json
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
from jax_transformer.runs.loading import TrainedModel
from jax_transformer.types import Params

_SINUSOIDS = """\
- Dimensions of d_model are in another order than in the run folder: even ones before odd ones, as
  Marian's sinusoids are.
"""
_LEARNED = """\
- Positions are learned. They are in `model.safetensors`, but `save_pretrained` leaves them out, so
  keep this folder.
"""

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
# What to replace in our name of a layer's array to get Marian's.
_LAYER_NAMES = {
    "self_attention_norm/norm/": "self_attn_layer_norm.",
    "cross_attention_norm/norm/": "encoder_attn_layer_norm.",
    "feed_forward_norm/norm/": "final_layer_norm.",
    "scale": "weight",
    "feed_forward/inner/": "fc1.",
    "feed_forward/outer/": "fc2.",
    "self_attention/": "self_attn.",
    "cross_attention/": "encoder_attn.",
    "query/": "q_proj.",
    "key/": "k_proj.",
    "value/": "v_proj.",
    "output/": "out_proj.",
}


def accepted_settings(model: ModelConfig) -> Accepted:
    """Return the settings of a model that MarianMTModel can express."""
    return {
        **COMMON_SETTINGS,
        **torch_settings(model),
        "attention_bias": [False, True],
        "attention_radius": [0],
        "positions": ["sinusoidal", "learned"],
        "tie_embeddings": [False, True],
    }


def write_marian(trained: TrainedModel, vocabulary: Path, out: Path) -> None:
    """Write the files that `from_pretrained` reads, and README.md, into the folder `out`.

    Raises InputError for a model that MarianMTModel cannot express.
    """
    from safetensors.numpy import save

    check_settings(trained.config.model, accepted_settings(trained.config.model))
    arrays = marian_arrays(trained.params, trained.config.model)
    # transformers requires this metadata before it reads a file. save_file would make a file that
    # its owner alone can read.
    (out / "model.safetensors").write_bytes(save(arrays, metadata={"format": "pt"}))
    ids, data = trained.vocabulary, trained.config.data
    pieces = ids.pieces(range(ids.size))
    write_json(out / "config.json", _model_settings(trained))
    write_json(out / "generation_config.json", _generation_settings(trained))
    write_json(out / "vocab.json", {piece: index for index, piece in enumerate(pieces)})
    write_json(
        out / "tokenizer_config.json",
        {
            "tokenizer_class": "MarianTokenizer",
            "source_lang": data.source_language,
            "target_lang": data.target_language,
            "pad_token": pieces[ids.pad_id],
            "eos_token": pieces[ids.eos_id],
            "unk_token": pieces[ids.unk_id],
            "model_max_length": data.max_length,
            # Text that spells </s> is text, here as in training.
            "split_special_tokens": True,
        },
    )
    for name in ("source.spm", "target.spm"):
        shutil.copyfile(vocabulary, out / name)
    learned = trained.config.model.positions == "learned"
    positions = _LEARNED if learned else _SINUSOIDS
    write_readme(trained, out, "marian.md", positions=positions)


def marian_arrays(params: Params, config: ModelConfig) -> Arrays:
    """Return the tensors of Hugging Face's MarianMTModel, with zeros for missing biases.

    Marian makes sinusoids itself, all sines before all cosines, while the paper's alternate
    (§3.5). So even dimensions of d_model go before odd ones in every matrix that touches it,
    which is the same model in another basis. A learned table is written as it is.
    """
    flat = flat_arrays(params)
    if config.positions == "sinusoidal":
        flat = _reordered(flat, np.r_[0 : config.d_model : 2, 1 : config.d_model : 2])
    ours = torch_layout(flat, config)
    arrays = _outer_arrays(ours, config)
    for name, array in ours.items():
        if name.startswith(("encoder_", "decoder_")):
            arrays[_layer_name(name)] = array
    for name in [name for name in arrays if name.endswith("_proj.weight")]:
        bias = name.removesuffix("weight") + "bias"
        arrays.setdefault(bias, np.zeros(config.d_model, np.float32))
    return arrays


def _layer_name(name: str) -> str:
    """Return model.encoder.layers.0.fc1.bias for encoder_0/feed_forward/inner/bias, and so on."""
    layer, _, rest = name.partition("/")
    for ours, theirs in _LAYER_NAMES.items():
        rest = rest.replace(ours, theirs)
    return f"model.{layer.replace('_', '.layers.')}.{rest}"


def _reordered(flat: Arrays, order: np.ndarray) -> Arrays:
    """Return the same model with the dimensions of d_model in another order."""
    result = {}
    for name, array in flat.items():
        kinds = [kind for kind in _D_MODEL_AXIS if name.endswith(kind)]
        result[name] = array.take(order, axis=_D_MODEL_AXIS[kinds[0]]) if kinds else array
    return result


def _outer_arrays(ours: Arrays, config: ModelConfig) -> Arrays:
    source, target, output = embeddings(ours, config)
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


def _model_settings(trained: TrainedModel) -> dict[str, Any]:
    """Return the settings of MarianConfig."""
    model, ids = trained.config.model, trained.vocabulary
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
        "max_position_embeddings": position_rows(trained.config),
        "activation_function": "relu",
        "scale_embedding": True,
        "share_encoder_decoder_embeddings": model.tie_embeddings,
        "tie_word_embeddings": model.tie_embeddings,
        "dropout": model.dropout_rate,
        "attention_dropout": model.attention_dropout_rate,
        "activation_dropout": 0.0,
        "is_encoder_decoder": True,
        **_special_ids(trained),
    }


def _generation_settings(trained: TrainedModel) -> dict[str, Any]:
    """Return the defaults of `generate`."""
    decoding, data = trained.config.decoding, trained.config.data
    return {
        **_special_ids(trained),
        "num_beams": decoding.beam_size,
        "length_penalty": decoding.alpha,
        "early_stopping": True if decoding.patience else "never",
        # `generate` counts BOS too.
        "max_length": data.max_length + decoding.max_extra_length + 1,
    }


def _special_ids(trained: TrainedModel) -> dict[str, Any]:
    ids = trained.vocabulary
    return {
        "pad_token_id": ids.pad_id,
        "bos_token_id": ids.bos_id,
        "eos_token_id": ids.eos_id,
        "decoder_start_token_id": ids.bos_id,
        "forced_eos_token_id": ids.eos_id,
    }
