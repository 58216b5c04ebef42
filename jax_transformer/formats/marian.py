"""A trained model for Hugging Face's MarianMTModel and MarianTokenizer."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from jax_transformer.config import ModelConfig
from jax_transformer.data.vocabularies.base import Vocabulary
from jax_transformer.data.vocabularies.piece_table import PieceTable, unused
from jax_transformer.errors import InputError
from jax_transformer.files import write_json
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
    torch_layout,
    torch_settings,
)
from jax_transformer.formats.exported import text_vocabularies, write_readme
from jax_transformer.runs.loading import TrainedModel
from jax_transformer.types import Params

EPSILON = 1e-5  # of torch's LayerNorm; MarianConfig has no setting for it

_SINUSOIDS = """\
- Dimensions of d_model are in another order than in the run folder: even ones before odd ones, as
  Marian's sinusoids are.
"""
_LEARNED = """\
- Positions are learned. They are in `model.safetensors`, but `save_pretrained` leaves them out, so
  keep this folder.
"""

_NORMALIZE = """\
lines = [tokenizer.normalize(line) for line in lines]  # Moses' punctuation; it needs sacremoses
"""

_LAYER = {  # by our names
    "self_attention/query": "self_attn.q_proj",
    "self_attention/key": "self_attn.k_proj",
    "self_attention/value": "self_attn.v_proj",
    "self_attention/output": "self_attn.out_proj",
    "self_attention_norm/norm": "self_attn_layer_norm",
    "cross_attention/query": "encoder_attn.q_proj",
    "cross_attention/key": "encoder_attn.k_proj",
    "cross_attention/value": "encoder_attn.v_proj",
    "cross_attention/output": "encoder_attn.out_proj",
    "cross_attention_norm/norm": "encoder_attn_layer_norm",
    "feed_forward/inner": "fc1",
    "feed_forward/outer": "fc2",
    "feed_forward_norm/norm": "final_layer_norm",
}


def accepted_settings(model: ModelConfig) -> Accepted:
    """Return the settings of a model that MarianMTModel can express."""
    return {**torch_settings(model), "norm_epsilon": [1e-5, 1e-6]}  # transformers has 1e-5 always


def write_marian(trained: TrainedModel, out: Path) -> None:
    """Write the files that `from_pretrained` reads, and README.md, into the folder `out`.

    Raises InputError for a model that MarianMTModel cannot express.
    """
    from safetensors.numpy import save

    source, target = text_vocabularies(trained)
    if source.eos_id == source.pad_id:
        raise InputError(
            "--format=marian: expected a model whose sources end with an end mark, found an import "
            "from OpenNMT, whose sources have none; export it with --format=ctranslate2"
        )
    check_settings(trained.config.model, accepted_settings(trained.config.model))
    arrays = marian_arrays(trained.params, trained.config.model)
    # transformers requires this metadata before it reads a file. save_file would make a file that
    # its owner alone can read.
    (out / "model.safetensors").write_bytes(save(arrays, metadata={"format": "pt"}))
    write_json(out / "config.json", _model_settings(trained, source, target))
    write_json(out / "generation_config.json", _generation_settings(trained, target))
    _write_tokenizer(trained, source, target, out)
    learned = trained.config.model.positions == "learned"
    normalize = _NORMALIZE if isinstance(source, PieceTable) and source.normalize else ""
    positions = _LEARNED if learned else _SINUSOIDS
    write_readme(trained, out, "marian.md", positions=positions, normalize=normalize)


def _write_tokenizer(
    trained: TrainedModel, source: Vocabulary, target: Vocabulary, out: Path
) -> None:
    """Write the files of MarianTokenizer."""
    pieces = source.all_pieces
    separate = target.all_pieces != pieces
    tables = {"vocab.json": source} | ({"target_vocab.json": target} if separate else {})
    for name, vocabulary in tables.items():
        pieces_by_id = enumerate(vocabulary.all_pieces)
        write_json(out / name, {p: index for index, p in pieces_by_id if p != unused(index)})
    data = trained.config.data
    languages = {"source_lang": data.source_language, "target_lang": data.target_language}
    settings = {
        "tokenizer_class": "MarianTokenizer",
        **{name: code for name, code in languages.items() if code},
        "pad_token": pieces[source.pad_id],
        "eos_token": pieces[source.eos_id],
        "unk_token": pieces[source.unk_id],
        "separate_vocabs": separate,
        "model_max_length": trained.config.data.max_length,
        "split_special_tokens": True,  # text that spells </s> is text, here as in training
    }
    write_json(out / "tokenizer_config.json", settings)
    for name, vocabulary in (("source.spm", source), ("target.spm", target)):
        (out / name).write_bytes(vocabulary.sentencepiece or b"")  # `text_vocabularies` checks it


def marian_arrays(params: Params, config: ModelConfig) -> Arrays:
    """Return the tensors of Hugging Face's MarianMTModel, with zeros for missing biases.

    Marian makes sinusoids itself, all sines before all cosines, while the paper's alternate
    (§3.5). So even dimensions of d_model go before odd ones in every matrix that touches it,
    which is the same model in another basis. A learned table is written as it is.
    """
    ours = torch_layout(flat_arrays(params), config)
    if config.positions == "sinusoidal":
        ours = reordered(ours, sines_first(config.d_model))
    arrays = _outer_arrays(ours, config)
    zeros = np.zeros(config.d_model, np.float32)  # biases of attention may be missing
    for name, theirs in layer_names(config):
        arrays[theirs] = ours.get(name, zeros)
    return arrays


def layer_names(config: ModelConfig) -> Iterator[tuple[str, str]]:
    """Yield our name and Marian's of each array in the layers of encoder and decoder."""
    for stack, layers in (("encoder", config.num_layers), ("decoder", config.num_decoder_layers)):
        names = {
            ours: theirs
            for ours, theirs in _LAYER.items()
            if stack == "decoder" or not ours.startswith("cross_attention")
        }
        for number in range(layers):
            for ours, theirs in names.items():
                here, there = f"{stack}_{number}/{ours}", f"model.{stack}.layers.{number}.{theirs}"
                yield f"{here}/{'scale' if 'norm' in ours else 'weight'}", f"{there}.weight"
                yield f"{here}/bias", f"{there}.bias"


def _outer_arrays(ours: Arrays, config: ModelConfig) -> Arrays:
    source, target, output = embeddings(ours, config)
    bias = ours.get("output_bias", np.zeros(len(output), np.float32))
    bias = np.where(bias == NEVER, np.float32(0), bias)  # generation_config.json has those ids
    arrays = {"final_logits_bias": bias[None]}
    if source is output:
        arrays["model.shared.weight"] = source
    else:
        arrays["model.encoder.embed_tokens.weight"] = source
        arrays["model.decoder.embed_tokens.weight"] = target
    if output is not target:
        arrays["lm_head.weight"] = output
    if config.positions == "learned":
        for stack in ("encoder", "decoder"):
            arrays[f"model.{stack}.embed_positions.weight"] = ours["position_table"].copy()
    return arrays


def _model_settings(
    trained: TrainedModel, source: Vocabulary, target: Vocabulary
) -> dict[str, Any]:
    """Return the settings of MarianConfig."""
    model = trained.config.model
    one_table = target.all_pieces == source.all_pieces
    sizes: dict[str, Any] = {"vocab_size": source.size, "decoder_vocab_size": target.size}
    for stack, layers in (("encoder", model.num_layers), ("decoder", model.num_decoder_layers)):
        sizes[f"{stack}_layers"] = layers
        sizes[f"{stack}_attention_heads"] = model.num_heads
        sizes[f"{stack}_ffn_dim"] = model.d_ff
    return {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "dtype": "float32",
        "d_model": model.d_model,
        **sizes,
        "max_position_embeddings": position_rows(trained.config),
        "activation_function": model.activation,
        "scale_embedding": True,
        "share_encoder_decoder_embeddings": model.tie_embeddings and model.tie_source and one_table,
        "tie_word_embeddings": model.tie_embeddings,
        "dropout": model.dropout_rate,
        "attention_dropout": model.attention_dropout_rate,
        "activation_dropout": 0.0,
        "is_encoder_decoder": True,
        **_special_ids(target),
    }


def _generation_settings(trained: TrainedModel, target: Vocabulary) -> dict[str, Any]:
    """Return the defaults of `generate`."""
    decoding, data = trained.config.decoding, trained.config.data
    bias = np.asarray(trained.params.get("output_bias", ()))
    never = [[index] for index in np.flatnonzero(bias == NEVER).tolist()]
    return {
        **_special_ids(target),
        # Here the bias of such a token takes it out of the softmax too.
        **({"bad_words_ids": never, "renormalize_logits": True} if never else {}),
        "num_beams": decoding.beam_size,
        "length_penalty": decoding.alpha,
        "early_stopping": True if decoding.patience else "never",
        # `generate` counts BOS too.
        "max_length": data.max_length + decoding.max_extra_length + 1,
    }


def _special_ids(ids: Vocabulary) -> dict[str, Any]:
    return {
        "pad_token_id": ids.pad_id,
        "bos_token_id": ids.bos_id,
        "eos_token_id": ids.eos_id,
        "decoder_start_token_id": ids.bos_id,
        "forced_eos_token_id": ids.eos_id,
    }
