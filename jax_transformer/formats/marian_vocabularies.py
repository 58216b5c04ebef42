"""Vocabularies of Marian and of MarianTokenizer: tables, and models of sentencepiece."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from jax_transformer.data.piece_table import PieceTable, unused
from jax_transformer.data.vocabulary import read_sentencepiece
from jax_transformer.errors import InputError, located
from jax_transformer.files import read_bytes
from jax_transformer.formats.hugging_face import Settings, read_settings

_TOKENS = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
# Both are safe; libyaml's are ten times faster. The base loader makes text of every scalar.
_SAFE = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TEXT_ONLY = getattr(yaml, "CBaseLoader", yaml.BaseLoader)


def read_yaml(
    path: Path, content: bytes | None = None, *, text_only: bool = False
) -> dict[str, Any]:
    """Return the map in a file of YAML or JSON.

    content: of the file, if it is read already.
    text_only: True if every value is text, also what YAML reads as a number, as true or as null.

    Raises InputError if the file is missing, or is something else.
    """
    try:
        content = read_bytes(path) if content is None else content
    except OSError as error:
        raise InputError(
            f"{path}: expected a file of the model, found '{error.strerror}'; copy all files of "
            "the model into one folder"
        ) from None
    try:
        found = yaml.load(content, Loader=_TEXT_ONLY if text_only else _SAFE)  # noqa: S506
        if not isinstance(found, dict):
            raise ValueError(f"a {type(found).__name__}")
    except Exception as error:  # of many kinds, if a value does not have the form that its tag says
        raise InputError(
            f"{path}: expected `name: value` in each line, found something else: "
            f"{' '.join(str(error).split())}; copy the file again"
        ) from None
    return found


def piece_table(path: Path, table: Mapping[str, Any], rows: int) -> list[str]:
    """Return the pieces by their ids; a row of the matrix without one gets a name no text has.

    table: an id for each piece. Ids beyond the matrix are ignored. path: for messages.
    """
    pieces: dict[int, str] = {}
    for piece, index in table.items():
        if type(index) is not int or index < 0 or index in pieces:
            raise InputError(
                f"{path}: expected an id of its own for each piece, found {repr(index)[:80]} of "
                f"{piece!r}; fetch the file again"
            )
        pieces[index] = piece
    return [pieces.get(index, unused(index)) for index in range(rows)]


def read_cutter(path: Path) -> bytes:
    """Return the content of a model of sentencepiece. Raises InputError if it is none."""
    try:
        model = read_bytes(path)
    except OSError:
        raise InputError(
            f"{path}: expected a model of sentencepiece that cuts text, found none; models of "
            "Moses and BPE alone cannot be expressed"
        ) from None
    with located(path):
        read_sentencepiece(model)
    return model


def read_vocabularies(
    folder: Path, config: Settings, tokenizer: Settings, rows: tuple[int, int]
) -> tuple[PieceTable, PieceTable]:
    """Return the vocabularies of a folder of Hugging Face, the same object if one serves both.

    config, tokenizer: config.json and tokenizer_config.json. rows: of the matrices of the sides.

    Raises InputError if a file is missing, damaged, or does not fit config.json.
    """
    source_file, target_file = folder / "vocab.json", folder / "target_vocab.json"
    if not tokenizer.get("separate_vocabs", bool, target_file.is_file()):
        target_file = source_file
    source = _read(source_file, rows[0], folder / "source.spm", config, tokenizer)
    target = _read(target_file, rows[1], folder / "target.spm", config, tokenizer, is_target=True)
    return source, source if source.content == target.content else target


def _read(
    path: Path,
    rows: int,
    cutter: Path,
    config: Settings,
    tokenizer: Settings,
    is_target: bool = False,
) -> PieceTable:
    model, table = read_cutter(cutter), read_settings(path).values
    pieces = piece_table(path, table, rows)
    if not table.keys() <= {*pieces} or rows > 2 * len(table):
        last = max(table.values(), default=0)
        raise InputError(
            f"{path}: expected pieces with ids up to {rows - 1:,}, as the matrix has rows, found "
            f"{len(table):,} with ids up to {last:,}; give the files of one model"
        )
    pad_id, eos_id, unk_id = (_find(pieces, tokenizer, name) for name in _TOKENS)
    # The tokenizer takes tokens by their names, the search takes those of config.json.
    if is_target or eos_id is None:
        eos_id = config.whole("eos_token_id", low=0)
    if pad_id is None:
        pad_id = config.whole("pad_token_id", low=0)
    start = config.whole("decoder_start_token_id", low=0)
    bos_id = start if is_target or start < rows else pad_id  # sources have none
    if unk_id is None:
        raise InputError(f"{path}: expected a piece <unk>, found none; fetch the file again")
    with located(path):
        return PieceTable.make(
            pieces, model, pad_id=pad_id, bos_id=bos_id, eos_id=eos_id, unk_id=unk_id
        )


def _find(pieces: list[str], tokenizer: Settings, name: str) -> int | None:
    """Return the id of a special token, or None if the table lacks it."""
    token = tokenizer.values.get(name)
    if isinstance(token, dict):  # as older versions wrote it
        token = token.get("content")
    token = _TOKENS[name] if token is None else token
    return pieces.index(token) if token in pieces else None
