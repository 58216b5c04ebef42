"""Folders of Hugging Face's MarianMTModel and MarianTokenizer, as OPUS-MT publishes them."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from jax_transformer.config import DecodingConfig, ModelConfig
from jax_transformer.data.vocabularies.base import Vocabulary
from jax_transformer.data.vocabularies.piece_table import PieceTable, unused
from jax_transformer.errors import InputError, located, shown
from jax_transformer.files import write_json
from jax_transformer.formats import exported, layout
from jax_transformer.formats.hugging_face import (
    ACTIVATIONS,
    LAYER,
    Settings,
    added_pieces,
    read_settings,
    read_weights,
    search_settings,
)
from jax_transformer.formats.imported import Accepted, ImportedModel, Unread
from jax_transformer.formats.layout import NEVER, STACKS, Arrays
from jax_transformer.formats.piece_tables import piece_table, read_cutter, read_table
from jax_transformer.runs.model import TrainedModel
from jax_transformer.types import Params

logger = logging.getLogger(__name__)

_TOKENS = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
_PADDED = (8, 16, 32, 64, 128)  # what users of Hugging Face fill up matrices to a multiple of
_EPSILON = 1e-5  # of torch's LayerNorm; MarianConfig has no setting for it
_EXTRA_LENGTH = 256  # as in an import from CTranslate2

# Names of arrays.
_LAYERS = "model.{stack}.layers.{i}."
_SHARED = "model.shared.weight"
_ENCODER, _DECODER = "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"
_HEAD = "lm_head.weight"
_POSITIONS = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")
_BIAS = "final_logits_bias"

_OWN_SEARCH = "This is the model's own search, which `generation_config.json` contains."
_NEAREST_SEARCH = """\
`generation_config.json` contains the search that is nearest to the model's own: it stops once
  `num_beams` outputs have ended."""
_SINUSOIDS = """\
- Dimensions of d_model are in another order than in the run folder: even ones before odd ones, as
  Marian's sinusoids are.
"""
_LEARNED = """\
- Positions are learned. They are in `model.safetensors`, but `save_pretrained` leaves them out, so
  keep this folder.
"""


def accepted_settings(model: ModelConfig) -> Accepted:
    """Return the settings of a model that MarianMTModel can express."""
    # transformers has 1e-5 always.
    return {**exported.torch_settings(model), "norm_epsilon": [_EPSILON, 1e-6]}


def write_marian(trained: TrainedModel, out: Path) -> None:
    """Write the files that `from_pretrained` reads, and README.md, into the folder `out`."""
    from safetensors.numpy import save

    source, target = exported.text_vocabularies(trained)
    if source.eos_id == source.pad_id:
        raise InputError(
            "--format=marian: expected a model whose sources end with an end mark, found an import "
            "from OpenNMT, whose sources have none; export it with --format=ctranslate2"
        )
    special = [(side.pad_id, side.eos_id, side.unk_id) for side in (source, target)]
    if special[0] != special[1]:
        raise InputError(
            "--format=marian: expected the same ids of padding, end mark and unknown piece in both "
            f"vocabularies, because MarianTokenizer has one of each, found {special[0]} and "
            f"{special[1]}; export the model with --format=ctranslate2"
        )
    arrays = marian_arrays(trained.params, trained.config.model)
    # transformers requires this metadata before it reads a file. save_file would make a file that
    # its owner alone can read.
    (out / "model.safetensors").write_bytes(save(arrays, metadata={"format": "pt"}))
    write_json(out / "config.json", _marian_settings(trained, source, target))
    write_json(out / "generation_config.json", _generation_settings(trained, target))
    _write_tokenizer(trained, source, target, out)
    learned = trained.config.model.positions == "learned"
    positions = _LEARNED if learned else _SINUSOIDS
    decoding = trained.config.decoding
    same = decoding.patience in (0, 1) and not decoding.narrowing
    facts = {"positions": positions, "normalizing": exported.normalizing(source)}
    facts["search"] = _OWN_SEARCH if same else _NEAREST_SEARCH
    exported.write_readme(trained, out, "marian.md", **facts)


def _write_tokenizer(
    trained: TrainedModel, source: Vocabulary, target: Vocabulary, out: Path
) -> None:
    pieces = source.all_pieces
    separate = target.all_pieces != pieces
    tables = {"vocab.json": source} | ({"target_vocab.json": target} if separate else {})
    for name, vocabulary in tables.items():
        pieces_by_id = enumerate(vocabulary.all_pieces)
        write_json(out / name, {p: index for index, p in pieces_by_id if p != unused(index)})
    whole = source.whole if isinstance(source, PieceTable) else []
    if whole:
        write_json(out / "added_tokens.json", {piece: pieces.index(piece) for piece in whole})
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
        # Text that spells </s> is text, here as in training. But it would cut added tokens too.
        "split_special_tokens": not whole,
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
    ours = layout.torch_layout(layout.flat_arrays(params), config)
    if config.positions == "sinusoidal":
        ours = layout.reordered(ours, layout.sines_first(config.d_model))
    source, target, output = layout.embeddings(ours, config)
    bias = ours.get("output_bias", np.zeros(len(output), np.float32))
    bias = np.where(bias == NEVER, np.float32(0), bias)  # generation_config.json has those ids
    arrays = {_BIAS: bias[None]}
    arrays |= {_SHARED: source} if source is output else {_ENCODER: source, _DECODER: target}
    if output is not target:
        arrays[_HEAD] = output
    if config.positions == "learned":
        arrays |= {name: ours["position_table"].copy() for name in _POSITIONS}
    zeros = np.zeros(config.d_model, np.float32)  # biases of attention may be missing
    layers = config.num_layers, config.num_decoder_layers
    names = layout.layer_names(layers, _LAYERS, LAYER)
    return arrays | {theirs: ours.get(name, zeros) for theirs, [name] in names}


def _marian_settings(
    trained: TrainedModel, source: Vocabulary, target: Vocabulary
) -> dict[str, Any]:
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
        "max_position_embeddings": exported.position_rows(trained.config),
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


def read_marian(folder: Path) -> ImportedModel:
    """Read config.json, vocab.json, source.spm, target.spm and the weights of a folder.

    A name in config.json that MarianConfig lacks is ignored, as transformers does.
    """
    config = read_settings(folder / "config.json")
    config.check(model_type=["marian"], scale_embedding=[True])
    tokenizer = read_settings(folder / "tokenizer_config.json", missing=Settings(folder, {}))
    search = read_settings(folder / "generation_config.json", missing=config)
    for name in ("eos_token_id", "decoder_start_token_id"):
        search.check(**{name: [None, config.whole(name, low=0)]})
    model = _model_settings(config)
    tensors = Unread(read_weights(folder), folder)
    matrices = _take_embeddings(tensors, config)
    sizes = len(matrices[0]), len(matrices[1])
    source, target = _vocabularies(folder, config, tokenizer, sizes)
    arrays, ties = layout.embedding_arrays(matrices, source.all_pieces == target.all_pieces)
    layers = model.num_layers, model.num_decoder_layers
    for theirs, [ours] in layout.layer_names(layers, _LAYERS, LAYER):
        arrays[ours] = tensors.take(theirs, 2 if ours.endswith("weight") else 1)
    model = replace(model, **ties)
    arrays["output_bias"] = _output_bias(tensors, len(matrices[2]), search, target.eos_id)
    table = _position_table(tensors)
    if table is None:
        arrays = layout.reordered(arrays, layout.alternating(model.d_model))
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
    layers = [config.whole(f"{stack}_layers") for stack in STACKS]
    heads, width = config.whole("encoder_attention_heads"), config.whole("encoder_ffn_dim")
    config.check(
        decoder_attention_heads=[heads], decoder_ffn_dim=[width], activation_function=[*ACTIVATIONS]
    )
    return ModelConfig(
        **layout.depths(layers),
        d_model=config.whole("d_model"),
        d_ff=width,
        num_heads=heads,
        activation=ACTIVATIONS[config.get("activation_function", str)],  # pyright: ignore
        attention_bias=True,
        norm_epsilon=_EPSILON,
        output_bias=True,
        dropout_rate=config.get("dropout", float, 0.1),
        attention_dropout_rate=config.get("attention_dropout", float, 0.0),
    )


def _take_embeddings(tensors: Unread, config: Settings) -> list[np.ndarray]:
    """Return the matrices of source, target and logits, which each may have several names.

    Models that transformers converted before May 2024 may have another matrix for the logits, which
    was never trained, though config.json ties it to the embedding.
    """
    tied = config.get("tie_word_embeddings", bool, True)
    one = config.get("share_encoder_decoder_embeddings", bool, True)
    if tied and one:
        groups = [[_SHARED, _ENCODER, _DECODER, _HEAD]] * 3
    elif tied:
        groups = [[_ENCODER], [_DECODER, _HEAD], [_DECODER, _HEAD]]
    else:  # transformers 5 computes with three matrices then, older versions with two
        shared = [_SHARED] if one else []
        groups = [[_ENCODER, *shared], [_DECODER, *shared], [_HEAD]]
    names = [name for name in (_SHARED, _ENCODER, _DECODER, _HEAD) if name in tensors]
    found = {name: tensors.take(name, 2) for name in names}
    embeddings = [found[name] for name in groups[2] if name in found and name != _HEAD]
    every = [found[name] for name in groups[2] if name in found]
    if tied and embeddings and _same(embeddings) and not _same(every):
        logger.warning(
            f"{config.folder}: {_HEAD} is not the embedding that config.json ties it to, as in old "
            "conversions of transformers; taking the embedding"
        )
        del found[_HEAD]
    matrices = []
    for group in groups:
        same = [found[name] for name in group if name in found] or [tensors.take(group[0], 2)]
        if tied and not _same(same):
            raise InputError(
                f"{config.folder}: expected one matrix as {' and '.join(group)}, because "
                "config.json ties them, found others; set tie_word_embeddings or "
                "share_encoder_decoder_embeddings in config.json to false"
            )
        matrices.append(same[0])
    return matrices


def _same(matrices: list[np.ndarray]) -> bool:
    return all(np.array_equal(matrices[0], other) for other in matrices[1:])


def _position_table(tensors: Unread) -> np.ndarray | None:
    """Return the position table, or None for sinusoids."""
    tables = [tensors.take(name, 2) for name in _POSITIONS if name in tensors]
    sinusoids = all(map(layout.are_sines_then_cosines, tables))
    return None if sinusoids else layout.shared_table(tensors.path, tables)


def _output_bias(tensors: Unread, rows: int, search: Settings, eos_id: int) -> np.ndarray:
    """Return the bias of the logits, NEVER for tokens that `generate` never writes."""
    bias = tensors.take(_BIAS, 2, np.zeros((1, rows), np.float32)).reshape(-1).copy()
    for word in search.get("bad_words_ids", list, None) or []:
        single = isinstance(word, list) and len(word) == 1 and type(word[0]) is int
        if not (single and 0 <= word[0] < len(bias)):
            raise InputError(
                f"{search.path}: bad_words_ids: expected lists of one token id, found "
                f"{shown(word)}; longer ones cannot be imported"
            )
        if word[0] != eos_id:  # whose ban `generate` ignores
            bias[word[0]] = NEVER
    return bias


def _lengths(
    config: Settings, tokenizer: Settings, search: Settings, model: ModelConfig
) -> tuple[int, int]:
    """Return the longest source, EOS included, and how many more tokens its output may have."""
    longest = config.whole("max_position_embeddings", 1024)
    # transformers writes 1e30 for "no limit".
    longest = max(2, int(min(longest, tokenizer.get("model_max_length", float, 512))))
    # `generate` limits the output alone, and counts the decoder's start.
    extra = search.whole("max_length", 0, low=0) - 1 - longest
    extra = extra if extra > 0 else _EXTRA_LENGTH
    if model.positions == "learned":  # the table has to hold both
        rows = model.max_positions
        if rows <= longest:
            longest = max(2, rows // 2)
        extra = max(1, min(extra, rows - longest))
    return longest, extra


def _vocabularies(
    folder: Path, config: Settings, tokenizer: Settings, rows: tuple[int, int]
) -> tuple[PieceTable, PieceTable]:
    """Return both vocabularies, the same object if one serves both sides. rows: of the matrices."""
    found, files = list[PieceTable](), {"source": "vocab.json", "target": "vocab.json"}
    if tokenizer.get("separate_vocabs", bool, (folder / "target_vocab.json").is_file()):
        files["target"] = "target_vocab.json"
    added = added_pieces(folder, tokenizer)
    for (side, name), count in zip(files.items(), rows, strict=True):
        path, model = folder / name, read_cutter(folder / f"{side}.spm")
        table = read_table(path)
        if table and _find([*table, *added], tokenizer, "unk_token") is None:
            raise InputError(f"{path}: expected a piece <unk>, found none; fetch the file again")
        pieces = piece_table(path, table | added, count, _PADDED)
        pad_id, eos_id, unk_id = (_find(pieces, tokenizer, name) for name in _TOKENS)
        # The tokenizer takes tokens by their names, the search takes those of config.json.
        if side == "target" or eos_id is None:
            eos_id = config.whole("eos_token_id", low=0)
        if pad_id is None:
            pad_id = config.whole("pad_token_id", low=0)
        # Sources have none; in their own table its id may be that of any piece.
        starts = side == "target" or name == files["target"]
        bos_id = config.whole("decoder_start_token_id", low=0) if starts else pad_id
        assert unk_id is not None
        with located(path):
            ids = {"pad_id": pad_id, "bos_id": bos_id, "eos_id": eos_id, "unk_id": unk_id}
            whole = [piece for piece, index in added.items() if index not in ids.values()]
            found.append(PieceTable.make(pieces, model, **ids, whole=whole))
    source, target = found
    return source, source if source.content == target.content else target


def _find(pieces: list[str], tokenizer: Settings, name: str) -> int | None:
    """Return the id of a special token, or None if the table lacks it."""
    token = tokenizer.values.get(name)
    if isinstance(token, dict):  # as older versions wrote it
        token = token.get("content")
    token = _TOKENS[name] if token is None else token
    return pieces.index(token) if token in pieces else None
