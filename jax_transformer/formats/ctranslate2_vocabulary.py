"""The vocabularies of a CTranslate2 folder: its tables of pieces, and what cuts text into them."""

import logging
import re
from functools import partial
from pathlib import Path
from typing import NamedTuple

from jax_transformer.data.piece_table import PieceTable
from jax_transformer.data.vocabulary import SentencePieceVocabulary, Vocabulary
from jax_transformer.errors import InputError
from jax_transformer.files import parse_json, read_bytes
from jax_transformer.formats.ctranslate2_variables import Settings

logger = logging.getLogger(__name__)

# Models of sentencepiece: of one side, or of both under the names that converters copy.
_MODELS = ["vocabulary.model", "sentencepiece.model", "sentencepiece.bpe.model", "spiece.model"]
_PADDING = ["<pad>", "<blank>"]
_APPENDED = ["<pad>", "<zero>", "<appended>"]
# Languages of M2M-100, __de__, and of NLLB, deu_Latn.
_LANGUAGE = re.compile(r"__([a-z]{2,3})__|([a-z]{3}_[A-Z][a-z]{3})")


class Sides(NamedTuple):
    """The vocabularies of both sides, the same object if one serves both."""

    source: Vocabulary
    target: Vocabulary
    stored: tuple[int, int]  # pieces of each in the folder; others are appended

    @property
    def one_table(self) -> bool:
        """True if both sides have the same pieces, though perhaps different ways to cut text."""
        return self.source.all_pieces == self.target.all_pieces


def read_sides(folder: Path, settings: Settings, zero_start: bool) -> Sides:
    """Return the vocabularies of a folder.

    A piece `<pad>` is appended to a table that has none, and to both if the decoder starts with
    zeros, which then is its embedding.

    Raises InputError if a file is missing or damaged, or lacks a special token.
    """
    tables = _tables(folder)
    source, target = (
        _vocabulary(folder, side, table, settings, zero_start)
        for side, table in zip(("source", "target"), tables, strict=True)
    )
    stored = len(tables[0]), len(tables[1])
    if any(map(_LANGUAGE.fullmatch, tables[1])):
        logger.warning(
            f"{folder}: its translations should begin with the target's language, which cannot be "
            "given; a tag such as >>en<< in front of the text gives the source's"
        )
    return Sides(target if source.content == target.content else source, target, stored)


def _vocabulary(
    folder: Path, side: str, table: list[str], settings: Settings, zero_start: bool
) -> Vocabulary:
    start, index = settings.decoder_start_token, partial(_index, folder, side)
    # OpenNMT's models start with <s>, and their sources have no end mark. PAD is put there, which
    # nothing attends to. The tokenizers of the others append the mark.
    ends = side == "target" or settings.add_source_eos or start != "<s>"
    starts = not zero_start and (side == "target" or start in table)
    table = _with_tags(table)
    pad_id = next((table.index(piece) for piece in _PADDING if piece in table), None)
    if pad_id is None or zero_start:
        table = [*table, next(piece for piece in _APPENDED if piece not in table)]
        pad_id = len(table) - 1
    ids = {
        "pad_id": pad_id,
        "bos_id": index(table, start) if starts else pad_id,
        "eos_id": index(table, settings.eos_token) if ends else pad_id,
        "unk_id": index(table, settings.unk_token),
    }
    model = _model_of(folder, side)
    try:
        alone = SentencePieceVocabulary(model)
        same = alone.size == len(table) and alone.all_pieces == table
        if same and all(getattr(alone, name) == index for name, index in ids.items()):
            return alone
        return PieceTable.make(table, model, **ids)
    except InputError as error:
        raise InputError(f"{folder}, the {side}'s vocabulary: {error}") from None


def _index(folder: Path, side: str, table: list[str], token: str | None) -> int:
    if token is None or token not in table:
        raise InputError(
            f"{folder}: expected the piece {token!r}, which the model's settings name, in the "
            f"{side}'s vocabulary, found none; convert the model again"
        )
    return table.index(token)


def _tables(folder: Path) -> list[list[str]]:
    """Return the pieces of source and target, by their ids."""
    if shared := _table(folder, "shared_vocabulary"):
        return [shared, shared]
    found = [_table(folder, f"{side}_vocabulary") for side in ("source", "target")]
    if not all(found):
        missing = "source" if not found[0] else "target"
        raise InputError(
            f"{folder}: expected shared_vocabulary.json, or source_vocabulary.json and "
            f"target_vocabulary.json (or .txt), found no {missing}_vocabulary; copy it there"
        )
    return [table for table in found if table]


def _table(folder: Path, name: str) -> list[str] | None:
    """Return the pieces in a file of JSON or of lines, or None if there is none."""
    for path in (folder / f"{name}.json", folder / f"{name}.txt"):
        try:
            content = read_bytes(path)
            return parse_json(content, list[str]) if path.suffix == ".json" else _lines(content)
        except FileNotFoundError:
            continue
        except OSError as error:
            found = error.strerror
        except ValueError as error:
            found = str(error)
        raise InputError(f"{path}: expected a list of pieces, found: {found}; convert again")
    return None


def _lines(content: bytes) -> list[str]:
    """Return the pieces in lines that LF ends, or CR LF if all do: others may end with CR."""
    lines = content.decode("utf-8").split("\n")
    if lines[-1] == "":
        lines.pop()
    windows = all(line.endswith("\r") for line in lines)
    return [line[:-1] for line in lines] if windows else lines


def _with_tags(table: list[str]) -> list[str]:
    """Return the pieces with languages as tags: __de__ is >>de<<, deu_Latn is >>deu_Latn<<.

    So text can begin with one, as that of other multilingual models does.
    """
    named = [_LANGUAGE.fullmatch(piece) for piece in table]
    return [
        f">>{found[1] or found[2]}<<" if found else piece
        for piece, found in zip(table, named, strict=True)
    ]


def _model_of(folder: Path, side: str) -> bytes:
    """Return the content of the model of sentencepiece for a side."""
    for name in [f"{side}.spm", *_MODELS]:
        try:
            return read_bytes(folder / name)
        except OSError:
            continue
    raise InputError(
        f"{folder}: expected the model of sentencepiece that cuts text, found none; put it there "
        f"as {side}.spm, or as sentencepiece.model for both sides (converters copy it only with "
        "--copy_files)"
    )
