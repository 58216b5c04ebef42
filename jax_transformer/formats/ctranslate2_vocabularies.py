"""The vocabularies of a CTranslate2 folder: tables of pieces, and models of sentencepiece."""

import io
import logging
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import sentencepiece

from jax_transformer.data.vocabularies.base import Vocabulary
from jax_transformer.data.vocabularies.piece_table import PieceTable
from jax_transformer.data.vocabularies.sentencepiece import SentencePieceVocabulary
from jax_transformer.errors import InputError, located, shown
from jax_transformer.files import file_lines, read_bytes, read_json
from jax_transformer.formats.hugging_face import Settings
from jax_transformer.formats.imported import Accepted, check_options
from jax_transformer.formats.piece_tables import appended_padding

logger = logging.getLogger(__name__)

# Models of sentencepiece: of one side, or of both under the names that converters copy.
_MODELS = ["vocabulary.model", "sentencepiece.model", "sentencepiece.bpe.model"]
# Settings of config.json, by the values that are supported.
_ACCEPTED: Accepted = {
    **dict.fromkeys(("unk_token", "bos_token", "eos_token", "decoder_start_token")),
    **dict.fromkeys(("add_source_eos", "layer_norm_epsilon")),
    "add_source_bos": [False],
    "multi_query_attention": [False],
}
_PADDING = ["<pad>", "<blank>"]
# Languages of M2M-100, __de__, and of NLLB, deu_Latn.
_LANGUAGE = re.compile(r"__([a-z]{2,3})__|([a-z]{3}_[A-Z][a-z]{3})")


class Sides(NamedTuple):
    """The vocabularies of both sides, the same object if one serves both."""

    source: Vocabulary
    target: Vocabulary
    appended: tuple[int, int]  # pieces of each that the folder lacks


def read_sides(
    folder: Path, inner: Path, settings: Settings, zero_start: bool, rows: Sequence[int]
) -> Sides:
    """Return the vocabularies of a folder. settings: config.json.

    inner: the folder with the tables; models of sentencepiece may be in either.
    rows: the number of rows of the source's and the target's matrix.

    UNK is the last row if a table lacks it, as in CTranslate2. A piece `<pad>` is appended to a
    table that has none, and to both if the decoder starts with zeros, which then is its embedding.

    Raises InputError for a file that is missing or damaged, and a setting that is not supported.
    """
    check_options(settings.path, settings.values, _ACCEPTED)
    tables, unknown = _tables(inner), settings.get("unk_token", str)
    tables = [
        [*table, unknown] if unknown not in table and len(table) + 1 == count else table
        for table, count in zip(tables, rows, strict=True)
    ]
    source, target = (
        _vocabulary((folder, inner), side, _with_tags(table), settings, zero_start)
        for side, table in zip(("source", "target"), tables, strict=True)
    )
    if any(map(_LANGUAGE.fullmatch, tables[1])):
        logger.warning(
            f"{folder}: its translations should begin with the target's language, which cannot be "
            "chosen here; to choose the source's, begin the text with a tag such as >>en<<"
        )
    appended = source.size - len(tables[0]), target.size - len(tables[1])
    return Sides(target if source.content == target.content else source, target, appended)


def _vocabulary(
    folders: tuple[Path, Path], side: str, table: list[str], settings: Settings, zero_start: bool
) -> Vocabulary:
    start = settings.get("decoder_start_token", str)
    # OpenNMT's models start with <s>, and their sources have no end mark. PAD is put there, which
    # nothing attends to. The tokenizers of the others append the mark.
    ends = side == "target" or settings.get("add_source_eos", bool) or start != "<s>"
    starts = not zero_start and (side == "target" or start in table)
    padding = next((piece for piece in _PADDING if piece in table and not zero_start), None)
    if padding is None:
        padding = appended_padding(table)
        table = [*table, padding]
    tokens = {
        "pad_id": padding,
        "bos_id": start if starts else padding,
        "eos_id": settings.get("eos_token", str) if ends else padding,
        "unk_id": settings.get("unk_token", str),
    }
    for token in tokens.values():
        if token not in table:
            raise InputError(
                f"{folders[1]}: expected the piece {shown(token)}, which config.json "
                f"names, in the {side}'s vocabulary, found none; convert the model again"
            )
    ids: dict[str, Any] = {name: table.index(token) for name, token in tokens.items()}
    model = _model_of(folders, side, required=any("\u2581" in piece for piece in table))
    if model is None:
        logger.warning(
            f"{folders[0]}: expected the model of sentencepiece that cuts the {side}, found "
            "none; text is taken for pieces with spaces between them"
        )
        model = _model_of_words(table)
        table = [piece if piece in tokens.values() else f"\u2581{piece}" for piece in table]
    with located(folders[1]):
        alone = SentencePieceVocabulary(model)
        same = alone.size == len(table) and alone.all_pieces == table
        if same and all(getattr(alone, name) == index for name, index in ids.items()):
            return alone
        return PieceTable.make(table, model, **ids)


def _tables(folder: Path) -> list[list[str]]:
    for names in (("shared", "shared"), ("source", "target")):
        found = [_table(folder, f"{name}_vocabulary") for name in names]
        if all(found):
            return [table for table in found if table]
    raise InputError(
        f"{folder}: expected shared_vocabulary.json, or source_vocabulary.json and "
        "target_vocabulary.json (or .txt), found none or one; copy the whole folder"
    )


def _table(folder: Path, name: str) -> list[str] | None:
    """Return the pieces in a file of JSON or of lines, or None if there is none."""
    path = folder / f"{name}.json"
    if table := read_json(path, list[str], "convert the model again", "a list of pieces"):
        return table
    try:
        return file_lines(folder / f"{name}.txt")
    except OSError:
        return None


def _with_tags(table: list[str]) -> list[str]:
    """Return the pieces with languages as tags: __de__ is >>de<<, deu_Latn is >>deu_Latn<<.

    So text can begin with one, as that of other multilingual models does.
    """
    named = [_LANGUAGE.fullmatch(piece) for piece in table]
    return [
        f">>{found[1] or found[2]}<<" if found else piece
        for piece, found in zip(table, named, strict=True)
    ]


def _model_of_words(words: Iterable[str]) -> bytes:
    """Return a model of sentencepiece that cuts text at spaces into the words."""
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(words),
        model_writer=out,
        model_type="word",
        normalization_rule_name="identity",
        use_all_vocab=True,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    return out.getvalue()


def _model_of(folders: tuple[Path, Path], side: str, required: bool) -> bytes | None:
    for path in [folder / name for folder in folders for name in (f"{side}.spm", *_MODELS)]:
        try:
            return read_bytes(path)
        except OSError:
            continue
    if not required:
        return None
    raise InputError(
        f"{folders[0]}: expected the model of sentencepiece that cuts text, found none; put it "
        f"there as {side}.spm, or as sentencepiece.model for both sides (converters copy it "
        "only with --copy_files)"
    )
