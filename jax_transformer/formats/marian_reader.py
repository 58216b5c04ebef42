"""Hugging Face's MarianMTModel folders, as OPUS-MT publishes them: reading."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np

from jax_transformer.config import DecodingConfig, Language, ModelConfig
from jax_transformer.data.piece_table import PieceTable
from jax_transformer.errors import InputError
from jax_transformer.files import read_bytes
from jax_transformer.formats.arrays import NEVER, Arrays, alternating, reordered, sines_then_cosines
from jax_transformer.formats.hugging_face import (
    Settings,
    read_settings,
    read_weights,
    search_settings,
)
from jax_transformer.formats.imported import ImportedModel
from jax_transformer.formats.marian import LAYER_NAMES

EPSILON = 1e-5  # of torch's LayerNorm; MarianConfig has no setting for it
ACTIVATIONS = {"relu": "relu", "swish": "swish", "silu": "swish", "gelu": "gelu"}
EMBEDDINGS = (
    "model.shared.weight",
    "model.encoder.embed_tokens.weight",
    "model.decoder.embed_tokens.weight",
    "lm_head.weight",
)
POSITIONS = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")
BIAS = "final_logits_bias"
_LAYER = re.compile(r"model\.(encoder|decoder)\.layers\.(\d+)\.(.+)")


def read_marian(folder: Path) -> ImportedModel:
    """Read config.json, vocab.json, source.spm, target.spm and the weights of a folder.

    Raises InputError that names what is missing, damaged or not expressible.
    """
    config = read_settings(folder / "config.json")
    config.expect("model_type", ["marian"], "give the folder of a MarianMTModel")
    config.expect("scale_embedding", [True], "only scaled embeddings can be expressed")
    tensors = read_weights(folder)
    source, target = _read_vocabularies(folder, config, tensors)
    search = read_settings(folder / "generation_config.json", missing=config)
    model = _model_settings(config)
    arrays, facts = _read_arrays(tensors, config, model)
    model = ModelConfig(**{**vars(model), **facts})
    if "position_table" not in arrays:
        arrays = reordered(arrays, alternating(model.d_model))
    _forbid(arrays["output_bias"], search.get("bad_words_ids", list, None) or [])
    decoding = DecodingConfig(**search_settings(search, config))
    tokenizer = read_settings(folder / "tokenizer_config.json", missing=Settings(folder, {}))
    return ImportedModel(
        model=model,
        decoding=decoding,
        arrays=arrays,
        source=source,
        target=target,
        max_length=_max_length(config, tokenizer, model),
        languages=_languages(tokenizer),
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
    changes: dict[str, Any] = {"activation": ACTIVATIONS[activation]}
    return ModelConfig(
        num_layers=layers,
        decoder_layers=0 if decoder_layers == layers else decoder_layers,
        d_model=d_model,
        d_ff=width,
        num_heads=heads,
        dropout_rate=float(config.get("dropout", float, 0.1)),
        attention_dropout_rate=float(config.get("attention_dropout", float, 0.0)),
        attention_bias=True,
        norm_epsilon=EPSILON,
        output_bias=True,
        **changes,
    )


def _read_arrays(
    tensors: Arrays, config: Settings, model: ModelConfig
) -> tuple[Arrays, dict[str, Any]]:
    """Return the arrays in `torch_layout`, and the settings that they decide."""
    arrays, facts = _read_embeddings(tensors, config)
    for name, tensor in tensors.items():
        if found := _LAYER.fullmatch(name):
            stack, number, rest = found.groups()
            for ours, theirs in LAYER_NAMES.items():
                if ours != "scale":  # only norms have one
                    rest = rest.replace(theirs, ours)
            rest = rest.replace("norm/weight", "norm/scale")
            arrays[f"{stack}_{number}/{rest}"] = tensor
        elif name not in (*EMBEDDINGS, *POSITIONS, BIAS):
            raise InputError(
                f"{config.folder}: expected the arrays of a MarianMTModel, found {name} among "
                "them; no other can be expressed"
            )
    tables = [tensors[name] for name in POSITIONS if name in tensors]
    if tables and not np.allclose(tables[0], sines_then_cosines(*tables[0].shape), atol=1e-3):
        if len(tables) == 2 and not np.array_equal(tables[0], tables[1]):
            raise InputError(
                f"{config.folder}: expected one position table, found another in the decoder; two "
                "cannot be expressed"
            )
        arrays["position_table"] = tables[0]
        facts |= {"positions": "learned", "max_positions": len(tables[0])}
    return arrays, facts


def _read_embeddings(tensors: Arrays, config: Settings) -> tuple[Arrays, dict[str, Any]]:
    shared, encoder, decoder, head = (tensors.get(name) for name in EMBEDDINGS)
    if config.get("share_encoder_decoder_embeddings", bool, True):
        encoder = decoder = encoder if shared is None else shared
    if encoder is None or decoder is None:
        missing = EMBEDDINGS[0 if encoder is decoder else 2 if decoder is None else 1]
        raise InputError(f"{config.folder}: expected {missing} among the arrays, found none")
    arrays = {"embedding/matrix": encoder}
    tied = config.get("tie_word_embeddings", bool, True) or head is None
    tie_source = encoder is decoder and tied
    if not tie_source:
        arrays["target_embedding/matrix"] = decoder
    if not tied and head is not None:
        arrays["output_embedding/matrix"] = head
    bias = tensors.get(BIAS, np.zeros((1, len(decoder)), np.float32))
    arrays["output_bias"] = np.array(bias, np.float32).reshape(-1)
    return arrays, {"tie_embeddings": tied, "tie_source": tie_source or not tied}


def _forbid(bias: np.ndarray, words: Sequence[Any]) -> None:
    """Give the tokens that `generate` never writes the lowest bias there is."""
    for word in words:
        if not (isinstance(word, list) and len(word) == 1 and 0 <= word[0] < len(bias)):
            raise InputError(
                f"bad_words_ids: expected lists of one token id, found {word!r}; longer ones "
                "cannot be expressed"
            )
        bias[word[0]] = NEVER


def _max_length(config: Settings, tokenizer: Settings, model: ModelConfig) -> int:
    """Return the longest source, as the tokenizer cuts it; at most half of a learned table."""
    longest = min(
        config.whole("max_position_embeddings", 512),
        int(tokenizer.get("model_max_length", float, 512)),
    )
    return max(longest // 2 if model.positions == "learned" else longest, 2)


@dataclass(frozen=True)
class _Ids:
    pad_id: int
    bos_id: int
    eos_id: int
    unk_id: int


def _read_vocabularies(
    folder: Path, config: Settings, tensors: Arrays
) -> tuple[PieceTable, PieceTable]:
    models = []
    for name in ("source.spm", "target.spm"):
        if not (folder / name).is_file():
            raise InputError(
                f"{folder / name}: expected a model of sentencepiece, found none; models of Moses "
                "and BPE alone cannot be expressed"
            )
        models.append(read_bytes(folder / name))
    bias = tensors.get(BIAS)
    rows = [
        config.whole("vocab_size"),
        config.whole("decoder_vocab_size", config.whole("vocab_size")),
    ]
    if bias is not None and config.get("share_encoder_decoder_embeddings", bool, True):
        rows[1] = rows[0]
    source = _table(folder / "vocab.json", rows[0])
    separate = folder / "target_vocab.json"
    target = _table(separate, rows[1]) if separate.is_file() else source
    made = []
    for pieces, model in ((source, models[0]), (target, models[1])):
        ids = _special_ids(folder, config, pieces)
        made.append(PieceTable.make(pieces, model, **vars(ids)))
    return made[0], made[0] if made[0].content == made[1].content else made[1]


def _special_ids(folder: Path, config: Settings, pieces: list[str]) -> _Ids:
    if "<unk>" not in pieces:
        raise InputError(f"{folder}: expected <unk> in vocab.json, found none; fetch it again")
    return _Ids(
        pad_id=config.whole("pad_token_id", low=0),
        bos_id=config.whole("decoder_start_token_id", low=0),
        eos_id=config.whole("eos_token_id", low=0),
        unk_id=pieces.index("<unk>"),
    )


def _table(path: Path, rows: int) -> list[str]:
    """Return the pieces of a vocab.json by their ids; rows without one get a name of their own."""
    table = read_settings(path).values
    pieces = [f"<unused {index}>" for index in range(rows)]
    for piece, index in table.items():
        if type(index) is not int or not 0 <= index < rows:
            raise InputError(
                f"{path}: expected ids from 0 to {rows - 1:,}, as config.json has, found {index!r} "
                f"of {piece!r}; give the files of one model"
            )
        pieces[index] = piece
    if len(table) < rows // 2:
        raise InputError(
            f"{path}: expected about {rows:,} pieces, as config.json has, found {len(table):,}; "
            "give the files of one model"
        )
    return pieces


def _languages(tokenizer: Settings) -> dict[str, str]:
    """Return the languages of both sides that sacremoses has rules for."""
    found = {}
    for side in ("source", "target"):
        code = tokenizer.get(f"{side}_lang", str, None)
        if code in get_args(Language):
            found[f"{side}_language"] = code
    return found
