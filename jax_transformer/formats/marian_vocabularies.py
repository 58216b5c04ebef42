"""The vocabularies of Hugging Face's MarianTokenizer: tables in JSON, models of sentencepiece."""

from pathlib import Path

from jax_transformer.data.piece_table import PieceTable, unused
from jax_transformer.errors import InputError
from jax_transformer.files import read_bytes
from jax_transformer.formats.hugging_face import Settings, read_settings

TOKENS = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}


def read_vocabularies(
    folder: Path, config: Settings, tokenizer: Settings
) -> tuple[PieceTable, PieceTable]:
    """Return the vocabularies of source and target, the same object if one serves both.

    config, tokenizer: config.json and tokenizer_config.json.

    Raises InputError if a file is missing, damaged, or does not fit config.json.
    """
    models = []
    for name in ("source.spm", "target.spm"):
        if not (folder / name).is_file():
            raise InputError(
                f"{folder / name}: expected a model of sentencepiece, found none; models of Moses "
                "and BPE alone cannot be expressed"
            )
        models.append(read_bytes(folder / name))
    rows = config.whole("vocab_size")
    one_matrix = config.get("share_encoder_decoder_embeddings", bool, True)
    target_rows = rows if one_matrix else config.whole("decoder_vocab_size", rows)
    target_file = folder / "target_vocab.json"
    separate = tokenizer.get("separate_vocabs", bool, target_file.is_file())
    target_file = target_file if separate else folder / "vocab.json"
    source = _read(folder / "vocab.json", rows, models[0], config, tokenizer)
    target = _read(target_file, target_rows, models[1], config, tokenizer, is_target=True)
    return source, source if source.content == target.content else target


def languages(tokenizer: Settings) -> dict[str, str]:
    """Return the codes of the languages of source and target, if they are there."""
    codes = {side: tokenizer.get(f"{side}_lang", str, None) for side in ("source", "target")}
    return {f"{side}_language": code for side, code in codes.items() if code}


def _read(
    path: Path,
    rows: int,
    model: bytes,
    config: Settings,
    tokenizer: Settings,
    is_target: bool = False,
) -> PieceTable:
    pieces = _pieces(path, rows)
    found = {name: _find(pieces, tokenizer, name) for name in TOKENS}
    if found["unk_token"] is None:
        raise InputError(f"{path}: expected a piece <unk>, found none; fetch the file again")
    # The tokenizer takes tokens by their names, the search takes those of config.json.
    eos_id = config.whole("eos_token_id", low=0)
    if not is_target and found["eos_token"] is not None:
        eos_id = found["eos_token"]
    pad_id, start = found["pad_token"], config.whole("decoder_start_token_id", low=0)
    if pad_id is None:
        pad_id = config.whole("pad_token_id", low=0)
    bos_id = start if is_target or start < rows else pad_id  # sources have none
    ids = {"pad_id": pad_id, "bos_id": bos_id, "eos_id": eos_id, "unk_id": found["unk_token"]}
    try:
        return PieceTable.make(pieces, model, **ids)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _find(pieces: list[str], tokenizer: Settings, name: str) -> int | None:
    """Return the id of a special token, or None if the table lacks it."""
    token = tokenizer.values.get(name)
    if isinstance(token, dict):  # as older versions wrote it
        token = token.get("content")
    token = TOKENS[name] if token is None else token
    return pieces.index(token) if token in pieces else None


def _pieces(path: Path, rows: int) -> list[str]:
    """Return the pieces of a vocab.json by their ids; the matrix may have more rows."""
    table = read_settings(path).values
    if not len(table) <= rows <= 2 * len(table):
        raise InputError(
            f"{path}: expected at most {rows:,} pieces and not many fewer, as config.json has, "
            f"found {len(table):,}; give the files of one model"
        )
    pieces: list[str | None] = [None] * rows
    for piece, index in table.items():
        if type(index) is not int or not 0 <= index < rows:
            raise InputError(
                f"{path}: expected ids from 0 to {rows - 1:,}, as config.json has, found "
                f"{repr(index)[:80]} of {piece!r}; give the files of one model"
            )
        if pieces[index] is not None:
            raise InputError(
                f"{path}: expected an id of its own for each piece, found {index} twice, for "
                f"{pieces[index]!r} and {piece!r}; fetch the file again"
            )
        pieces[index] = piece
    return [unused(index) if piece is None else piece for index, piece in enumerate(pieces)]
