"""Models of Hugging Face's FSMTForConditionalGeneration: fairseq's WMT19 models and others."""

import logging
from pathlib import Path

from jax_transformer.config import DecodingConfig
from jax_transformer.data.text import read_lines
from jax_transformer.data.vocabularies.bpe import BpeVocabulary, parse_codes
from jax_transformer.errors import InputError, located, shown
from jax_transformer.formats.fairseq import LONGEST, SPECIAL, assembled
from jax_transformer.formats.hugging_face import (
    ACTIVATIONS,
    Settings,
    added_pieces,
    read_settings,
    read_weights,
    search_settings,
)
from jax_transformer.formats.imported import ImportedModel, Unread
from jax_transformer.formats.piece_tables import (
    bpe_vocabularies,
    check_codes,
    piece_table,
    read_table,
)

logger = logging.getLogger(__name__)


def read_fsmt(folder: Path) -> ImportedModel:
    """Read config.json, vocab-src.json, vocab-tgt.json, merges.txt and the weights of a folder.

    generation_config.json gives the defaults of the search, and tokenizer_config.json lower-casing
    and the languages, if these files exist.
    """
    config = read_settings(folder / "config.json")
    config.check(model_type=["fsmt"], activation_function=[*ACTIVATIONS, None])
    search = read_settings(folder / "generation_config.json", missing=config)
    for settings in (search, config):
        settings.check(bad_words_ids=[None])
    tokenizer = read_settings(folder / "tokenizer_config.json", missing=config)
    languages = _languages(tokenizer, config)
    vocabularies = _vocabularies(folder, config, tokenizer, languages)
    limit = min(config.whole("max_position_embeddings", 1024), LONGEST)
    heads = config.whole("encoder_attention_heads")
    config.check(decoder_attention_heads=[heads])
    arrays = {name.removeprefix("model."): array for name, array in read_weights(folder).items()}
    with located(folder):
        return assembled(
            Unread(arrays, folder),
            vocabularies,
            DecodingConfig(**search_settings(search, config, limit)),
            scaled=config.get("scale_embedding", bool, True),
            heads=heads,
            activation=config.values.get("activation_function"),
            dropout=(
                config.get("dropout", float, 0.1),
                config.get("attention_dropout", float, 0.0),
            ),
            limit=limit,
            languages=languages,
        )


def _languages(tokenizer: Settings, config: Settings) -> tuple[str, str]:
    languages = tokenizer.values.get("langs") or config.values.get("langs")
    if not (
        isinstance(languages, list) and len(languages) == 2 and {*map(type, languages)} == {str}
    ):
        raise config.refusal("langs", "two languages")
    return languages[0], languages[1]


def _vocabularies(
    folder: Path, config: Settings, tokenizer: Settings, languages: tuple[str, str]
) -> tuple[BpeVocabulary, BpeVocabulary]:
    path, lower_case = folder / "merges.txt", tokenizer.get("do_lower_case", bool, False)
    lines = [*read_lines(path)]
    # The conversion removes a number at the end of a line as its count, though it may be a piece.
    # FSMTTokenizer never applies what is left of such a merge.
    whole = [line for line in lines if " " in line.strip(" ") or not line] or lines
    if left_out := len(lines) - len(whole):
        logger.warning(f"{path}: {left_out:,} merges lack a side; leaving them out")
    merges = parse_codes(whole, str(path)).merges
    source, target = (_pieces(folder / f"vocab-{side}.json") for side in ("src", "tgt"))
    check_codes(path, merges, source, "", "</w>")
    for piece, index in added_pieces(folder, tokenizer).items():
        if piece not in SPECIAL or source[index : index + 1] != [piece]:
            raise InputError(
                f"{folder}: expected no added tokens but {', '.join(SPECIAL)}, found "
                f"{shown(piece)}, which cannot be kept whole in a text here; remove it"
            )

    if not ("<unk>" in source and "<unk>" in target):
        raise InputError(f"{folder}: expected <unk> in the vocabulary, found none; fetch it again")
    return bpe_vocabularies(
        (source, target),
        languages,
        merges=[" ".join(pair) for pair in merges],
        end_apart=False,
        continuation="",
        end="</w>",
        moses=True,
        normalize=True,
        lower_case=lower_case,
        pad_id=config.whole("pad_token_id", 1, low=0),
        bos_id=config.whole("decoder_start_token_id", 2, low=0),
        eos_id=config.whole("eos_token_id", 2, low=0),
    )


def _pieces(path: Path) -> list[str]:
    """Return the pieces by their ids. Raises InputError unless these are 0, 1, 2 and so on."""
    table = read_table(path)
    return piece_table(path, table, len(table))
