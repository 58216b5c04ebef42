"""Hugging Face's MarianMTModel folders, as OPUS-MT publishes them: reading."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from jax_transformer.config import DecodingConfig, ModelConfig
from jax_transformer.errors import InputError, shown
from jax_transformer.formats.arrays import (
    NEVER,
    alternating,
    are_sines_then_cosines,
    reordered,
)
from jax_transformer.formats.hugging_face import (
    Settings,
    read_settings,
    read_weights,
    search_settings,
)
from jax_transformer.formats.imported import ImportedModel, Unread, embedding_arrays
from jax_transformer.formats.marian import EPSILON, layer_names
from jax_transformer.formats.marian_vocabularies import read_vocabularies

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
        search.expect(name, [None, config.whole(name, low=0)], "as config.json has")
    model = _model_settings(config)
    tensors = Unread(read_weights(folder), folder)
    matrices = _take_embeddings(tensors, config)
    sizes = len(matrices[0]), len(matrices[1])
    source, target = read_vocabularies(folder, config, tokenizer, sizes)
    arrays, ties = embedding_arrays(matrices, source.all_pieces == target.all_pieces)
    for ours, theirs in layer_names(model):
        arrays[ours] = tensors.take(theirs, 2 if ours.endswith("weight") else 1)
    model = replace(model, **ties)
    arrays["output_bias"] = _output_bias(tensors, len(matrices[2]), search, target.eos_id)
    table = _position_table(tensors)
    if table is None:
        arrays = reordered(arrays, alternating(model.d_model))
    else:
        arrays["position_table"] = table
        model = replace(model, positions="learned", max_positions=len(table))
    tensors.refuse_rest()
    max_length, extra = _lengths(config, tokenizer, search, model)
    searching = search_settings(search, config, max_length)
    decoding = DecodingConfig(**searching, max_extra_length=extra)
    languages = tokenizer.get("source_lang", str, ""), tokenizer.get("target_lang", str, "")
    return ImportedModel(model, decoding, arrays, source, target, max_length, languages)


def _model_settings(config: Settings) -> ModelConfig:
    """Return what config.json describes; what the arrays decide is still to come."""
    d_model, layers = config.whole("d_model"), config.whole("encoder_layers")
    heads, width = config.whole("encoder_attention_heads"), config.whole("encoder_ffn_dim")
    config.expect("decoder_attention_heads", [heads], "both stacks need the same number")
    config.expect("decoder_ffn_dim", [width], "both stacks need the same width")
    config.expect("activation_function", [*ACTIVATIONS], "others cannot be expressed")
    decoder_layers = config.whole("decoder_layers")
    return ModelConfig(
        num_layers=layers,
        decoder_layers=0 if decoder_layers == layers else decoder_layers,
        d_model=d_model,
        d_ff=width,
        num_heads=heads,
        activation=ACTIVATIONS[config.get("activation_function", str)],  # pyright: ignore
        attention_bias=True,
        norm_epsilon=EPSILON,
        output_bias=True,
        dropout_rate=config.get("dropout", float, 0.1),
        attention_dropout_rate=config.get("attention_dropout", float, 0.0),
    )


def _take_embeddings(tensors: Unread, config: Settings) -> list[np.ndarray]:
    """Return the matrices of source, target and logits.

    Of several names for one matrix, a file may have any or all.
    """
    tied = config.get("tie_word_embeddings", bool, True)
    one = config.get("share_encoder_decoder_embeddings", bool, True)
    if tied and one:
        groups = [[SHARED, ENCODER, DECODER, HEAD]] * 3
    elif tied:
        groups = [[ENCODER], [DECODER, HEAD], [DECODER, HEAD]]
    else:  # transformers 5 computes with three matrices then, older versions with two
        shared = [SHARED] if one else []
        groups = [[ENCODER, *shared], [DECODER, *shared], [HEAD]]
    names = [name for name in (SHARED, ENCODER, DECODER, HEAD) if name in tensors]
    found = {name: tensors.take(name, 2) for name in names}
    matrices = []
    for group in groups:
        same = [found[name] for name in group if name in found] or [tensors.take(group[0], 2)]
        if tied and not all(np.array_equal(same[0], other) for other in same[1:]):
            raise InputError(
                f"{config.folder}: expected one matrix as {' and '.join(group)}, because "
                "config.json ties them, found others; set tie_word_embeddings or "
                "share_encoder_decoder_embeddings in config.json to false"
            )
        matrices.append(same[0])
    return matrices


def _position_table(tensors: Unread) -> np.ndarray | None:
    """Return the position table, or None for Marian's sinusoids, which need none."""
    tables = [tensors.take(name, 2) for name in POSITIONS if name in tensors]
    if all(map(are_sines_then_cosines, tables)):
        return None
    if not all(np.array_equal(tables[0], other) for other in tables):
        raise InputError(
            f"{tensors.path}: expected the same position table in encoder and decoder, found "
            "others; two cannot be expressed"
        )
    return tables[0]


def _output_bias(tensors: Unread, rows: int, search: Settings, eos_id: int) -> np.ndarray:
    """Return the bias of the logits, the lowest there is for tokens that `generate` never writes.

    `generate` ignores a ban of EOS.
    """
    bias = np.zeros(rows, np.float32)
    if BIAS in tensors:
        bias = tensors.take(BIAS, 2).reshape(-1).copy()
    for word in search.get("bad_words_ids", list, None) or []:
        single = isinstance(word, list) and len(word) == 1 and type(word[0]) is int
        if not (single and 0 <= word[0] < len(bias)):
            raise InputError(
                f"{search.path}: bad_words_ids: expected lists of one token id, found "
                f"{shown(word)}; longer ones cannot be expressed"
            )
        if word[0] != eos_id:
            bias[word[0]] = NEVER
    return bias


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
