"""Hugging Face's MarianMTModel folders, as OPUS-MT publishes them: reading."""

import itertools
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from jax_transformer.config import DecodingConfig, ModelConfig
from jax_transformer.errors import InputError
from jax_transformer.formats.arrays import NEVER, Arrays, alternating, reordered, sines_then_cosines
from jax_transformer.formats.hugging_face import (
    Settings,
    read_settings,
    read_weights,
    search_settings,
)
from jax_transformer.formats.imported import ImportedModel
from jax_transformer.formats.marian import EPSILON, layer_names
from jax_transformer.formats.marian_vocabularies import languages, read_vocabularies

ACTIVATIONS = {"relu": "relu", "swish": "swish", "silu": "swish", "gelu": "gelu"}
SHARED = "model.shared.weight"
ENCODER, DECODER = "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"
HEAD = "lm_head.weight"
POSITIONS = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")
BIAS = "final_logits_bias"
EXTRA_LENGTH = DecodingConfig().max_extra_length


def read_marian(folder: Path) -> ImportedModel:
    """Read config.json, vocab.json, source.spm, target.spm and the weights of a folder.

    A name in config.json that MarianConfig lacks is ignored, as transformers does.

    Raises InputError that names what is missing, damaged or not expressible.
    """
    config = read_settings(folder / "config.json")
    config.expect("model_type", ["marian"], "give the folder of a MarianMTModel")
    config.expect("scale_embedding", [True], "only scaled embeddings can be expressed")
    tokenizer = read_settings(folder / "tokenizer_config.json", missing=Settings(folder, {}))
    search = read_settings(folder / "generation_config.json", missing=config)
    for name in ("eos_token_id", "decoder_start_token_id"):
        search.expect(name, [None, config.values.get(name)], "as config.json has")
    model = _model_settings(config)
    source, target = read_vocabularies(folder, config, tokenizer)
    arrays, facts = _read_arrays(read_weights(folder), config, model)
    model = replace(model, **facts)
    if model.positions == "sinusoidal":
        arrays = reordered(arrays, alternating(model.d_model))
    forbidden = search.get("bad_words_ids", list, None) or []
    _forbid(arrays["output_bias"], forbidden, target.eos_id)
    max_length, extra = _lengths(config, tokenizer, search, model)
    decoding = DecodingConfig(**search_settings(search, config), max_extra_length=extra)
    return ImportedModel(
        model, decoding, arrays, source, target, max_length, languages=languages(tokenizer)
    )


def _model_settings(config: Settings) -> ModelConfig:
    """Return what config.json describes; what the arrays decide is still to come."""
    d_model, layers = config.whole("d_model"), config.whole("encoder_layers")
    heads, width = config.whole("encoder_attention_heads"), config.whole("encoder_ffn_dim")
    config.expect("decoder_attention_heads", [heads], "both stacks need the same number")
    config.expect("decoder_ffn_dim", [width], "both stacks need the same width")
    activation = config.get("activation_function", str)
    if activation not in ACTIVATIONS:
        raise config.refusal("activation_function", f"one of {', '.join(ACTIVATIONS)}")
    if d_model % 2 or d_model % heads:
        raise config.refusal("d_model", f"an even multiple of {heads} heads")
    decoder_layers = config.whole("decoder_layers")
    rates = {"dropout_rate": ("dropout", 0.1), "attention_dropout_rate": ("attention_dropout", 0.0)}
    changes: dict[str, Any] = {
        ours: config.rate(theirs, default) for ours, (theirs, default) in rates.items()
    }
    return ModelConfig(
        num_layers=layers,
        decoder_layers=0 if decoder_layers == layers else decoder_layers,
        d_model=d_model,
        d_ff=width,
        num_heads=heads,
        activation=ACTIVATIONS[activation],  # pyright: ignore[reportArgumentType]
        attention_bias=True,
        norm_epsilon=EPSILON,
        output_bias=True,
        **changes,
    )


def _read_arrays(
    tensors: Arrays, config: Settings, model: ModelConfig
) -> tuple[Arrays, dict[str, Any]]:
    """Return the arrays in `torch_layout`, and the settings that they decide."""
    arrays, facts, names = _read_embeddings(tensors, config)
    stacks = {"encoder": model.num_layers, "decoder": model.num_decoder_layers}
    for stack, layers in stacks.items():
        found = {match[1] for name in tensors if (match := _layer(stack, name))}
        if len(found) != layers:
            raise config.refusal(f"{stack}_layers", f"{len(found)}, as the arrays have,")
    for ours, theirs in itertools.chain.from_iterable(
        itertools.starmap(layer_names, stacks.items())
    ):
        if theirs not in tensors:
            raise _missing(config, theirs)
        arrays[ours] = tensors[theirs]
        names.add(theirs)
    if unexpected := sorted(tensors.keys() - names - {*POSITIONS, BIAS}):
        raise InputError(
            f"{config.folder}: expected the arrays of a MarianMTModel alone, found "
            f"{unexpected[0]} among them; no other can be expressed"
        )
    bias = tensors.get(BIAS, np.zeros(len(arrays["embedding/matrix"]), np.float32))
    arrays["output_bias"] = np.array(bias, np.float32).reshape(-1)
    table = _position_table(tensors, config, model)
    if table is not None:
        arrays["position_table"] = table
        facts |= {"positions": "learned", "max_positions": len(table)}
    return arrays, facts


def _layer(stack: str, name: str) -> re.Match[str] | None:
    return re.match(rf"model\.{stack}\.layers\.(\d+)\.", name)


def _missing(config: Settings, name: str) -> InputError:
    return InputError(
        f"{config.folder}: expected {name} among the arrays, found none; fetch the weights again"
    )


def _read_embeddings(tensors: Arrays, config: Settings) -> tuple[Arrays, dict[str, Any], set[str]]:
    """Return the matrices, the settings that they decide, and their names in the file.

    Of several names for one matrix, a file may have any or all.
    """
    tied = config.get("tie_word_embeddings", bool, True)
    one = config.get("share_encoder_decoder_embeddings", bool, True)
    if tied:
        groups = [[SHARED, ENCODER, DECODER, HEAD]] if one else [[ENCODER], [DECODER, HEAD]]
    else:  # transformers 5 computes with three matrices then, older versions with two
        shared = [SHARED] if one else []
        groups = [[ENCODER, *shared], [DECODER, *shared], [HEAD]]
    ours = ["embedding/matrix", "target_embedding/matrix", "output_embedding/matrix"]
    arrays = {}
    for name, group in zip(ours, groups, strict=False):
        found = [tensors[theirs] for theirs in group if theirs in tensors]
        if not found:
            raise _missing(config, group[0])
        if tied and not all(np.array_equal(found[0], other) for other in found[1:]):
            raise InputError(
                f"{config.folder}: expected one matrix as {' and '.join(group)}, because "
                "config.json ties them, found others; set tie_word_embeddings or "
                "share_encoder_decoder_embeddings in config.json to false"
            )
        arrays[name] = found[0]
    facts = {"tie_embeddings": tied, "tie_source": one or not tied}
    return arrays, facts, set(itertools.chain.from_iterable(groups))


def _position_table(tensors: Arrays, config: Settings, model: ModelConfig) -> np.ndarray | None:
    """Return the position table, or None for Marian's sinusoids, which need none."""
    tables = {name: tensors[name] for name in POSITIONS if name in tensors}
    for name, table in tables.items():
        if table.ndim != 2 or table.shape[1] != model.d_model or not len(table):
            raise InputError(
                f"{config.folder}: expected {name} of shape (positions, {model.d_model}), found "
                f"{table.shape}; give the files of one model"
            )
    # Rounding to bfloat16 has moved sinusoids by up to 0.002.
    if all(np.allclose(t, sines_then_cosines(*t.shape), atol=0.003) for t in tables.values()):
        return None
    encoder, decoder = (tables.get(name) for name in POSITIONS)
    if encoder is None or decoder is None or not np.array_equal(encoder, decoder):
        raise InputError(
            f"{config.folder}: expected the same position table in encoder and decoder, found "
            "others; two cannot be expressed"
        )
    return encoder


def _forbid(bias: np.ndarray, words: Sequence[Any], eos_id: int) -> None:
    """Give the tokens that `generate` never writes the lowest bias there is.

    `generate` ignores a ban of EOS.
    """
    for word in words:
        single = isinstance(word, list) and len(word) == 1 and type(word[0]) is int
        if not (single and 0 <= word[0] < len(bias)):
            raise InputError(
                f"bad_words_ids: expected lists of one token id, found {repr(word)[:80]}; longer "
                "ones cannot be expressed"
            )
        if word[0] != eos_id:
            bias[word[0]] = NEVER


def _lengths(
    config: Settings, tokenizer: Settings, search: Settings, model: ModelConfig
) -> tuple[int, int]:
    """Return the longest source, EOS included, and how many more tokens its output may have.

    The source is cut where the tokenizer cuts it. `generate` limits the output alone: if that
    limit is above the source's, the difference is taken. A learned table has to hold both.
    """
    longest = config.whole("max_position_embeddings", 1024)
    # transformers writes 1e30 for "no limit".
    longest = max(2, int(min(longest, tokenizer.get("model_max_length", float, 512))))
    extra = search.whole("max_length", 0, low=0) - 1 - longest  # it counts the decoder's start
    extra = extra if extra > 0 else EXTRA_LENGTH
    if model.positions == "learned":
        rows = model.max_positions
        if rows <= longest:
            longest = max(2, rows // 2)
        extra = max(1, min(extra, rows - longest))
    return longest, extra
