"""A model as Marian itself writes it: model.npz, its vocabularies, and decoder.yml.

Archives of OPUS-MT have these files too, with source.spm and target.spm, which cut the text, beside
a table of pieces.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path, PureWindowsPath

from jax_transformer.config import ModelConfig
from jax_transformer.data.piece_table import PieceTable
from jax_transformer.data.vocabulary import read_sentencepiece
from jax_transformer.errors import InputError
from jax_transformer.files import read_bytes
from jax_transformer.formats.imported import ImportedModel
from jax_transformer.formats.marian_arrays import marian_npz_arrays, vocabulary_sizes
from jax_transformer.formats.marian_options import Options, decoding_settings, longest_source
from jax_transformer.formats.marian_yaml import read_options, read_pieces
from jax_transformer.formats.npz import read_npz

MIN_POSITIONS = 1024


def read_marian_npz(folder: Path) -> ImportedModel:
    """Read the model that decoder.yml, or the only *.decoder.yml, names in a folder.

    All files are read from the folder itself, whatever folders decoder.yml names.

    Raises InputError if a file is missing or damaged, or if our model cannot express an option.
    """
    search = _search_file(folder)
    text = _text(search)
    with _named(search):
        options = read_options(text)
        decoding, max_length = decoding_settings(options), longest_source(options)
        (model,) = _files(folder, options, "models", 1)
        vocabularies = _files(folder, options, "vocabs", 2)
    npz = read_npz(model)
    with _named(model):
        sizes = vocabulary_sizes(npz)
    source, target = (
        _vocabulary(path, folder / f"{side}.spm", size)
        for path, side, size in zip(vocabularies, ("source", "target"), sizes, strict=True)
    )
    if source.content == target.content:
        target = source
    positions = max(MIN_POSITIONS, max_length + decoding.max_extra_length)
    with _named(model):
        shared = source.all_pieces == target.all_pieces
        settings, arrays = marian_npz_arrays(npz, shared, positions)
        config = ModelConfig(**settings)  # pyright: ignore[reportArgumentType]
    return ImportedModel(config, decoding, arrays, source, target, max_length)


def _search_file(folder: Path) -> Path:
    """Return decoder.yml, or model.npz.decoder.yml, or the only other file of such a name."""
    found = sorted(path.name for path in folder.glob("*decoder.yml"))
    for name in ("decoder.yml", "model.npz.decoder.yml", *(found if len(found) == 1 else ())):
        if name in found:
            return folder / name
    raise InputError(
        f"{folder}: expected decoder.yml, which names Marian's model and vocabularies, found "
        f"{', '.join(found) or 'none'}; copy the one to use to decoder.yml"
    )


def _files(folder: Path, options: Options, name: str, count: int) -> list[Path]:
    """Return the files that an option names. Raises InputError unless there are `count`."""
    found = options.get(name)
    if not isinstance(found, list) or len(found) != count:
        raise InputError(
            f"expected {name} to be a list of {count}, found {found}; an ensemble, or a model with "
            "several sources, cannot be imported"
        )
    # A Windows path has both kinds of slashes.
    return [folder / PureWindowsPath(str(path)).name for path in found]


def _vocabulary(path: Path, cutter: Path, size: int) -> PieceTable:
    """Return a vocabulary with `<pad>` as the last piece, which the decoder starts with.

    cutter: the model of sentencepiece that cuts text if `path` is a table.
    size: the number of pieces that the model has embeddings for.
    """
    if path.suffix == ".spm":
        model = _content(path)
        with _named(path):
            processor = read_sentencepiece(model)
        pieces = [processor.id_to_piece(index) for index in range(processor.get_piece_size())]
        end, unknown = processor.eos_id(), processor.unk_id()
    elif path.suffix in (".yml", ".yaml", ".json"):
        text, model = _text(path), _cutter(path, cutter)
        with _named(path):
            pieces = read_pieces(text)
        end, unknown = (
            pieces.index(piece) if piece in pieces else -1 for piece in ("</s>", "<unk>")
        )
    else:
        raise InputError(
            f"{path}: expected a vocabulary in .spm, .yml or .json, found another kind, such as "
            "factors in .fsv; use another model"
        )
    # A table may have more entries than the model. Marian ignores the last ones.
    pieces = pieces[:size] + [f"<unused {index}>" for index in range(len(pieces), size)]
    special = {"pad_id": size, "bos_id": size, "eos_id": end, "unk_id": unknown}
    if not all(0 <= index < size for index in (end, unknown)):
        raise InputError(
            f"{path}: expected </s> and <unk> among the {size:,} pieces of the model, found the "
            f"ids {end} and {unknown}; give the vocabulary of this model"
        )
    with _named(path):
        return PieceTable.make([*pieces, "<pad>"], model, **special)


def _cutter(table: Path, cutter: Path) -> bytes:
    if not cutter.exists():
        raise InputError(
            f"{table}: expected the model of sentencepiece that cuts text, {cutter.name}, beside "
            "this table, found none; models with Moses and BPE cannot be imported"
        )
    return _content(cutter)


def _content(path: Path) -> bytes:
    try:
        return read_bytes(path)
    except OSError as error:
        raise InputError(
            f"{path}: expected a file of the model, found '{error.strerror}'; copy all files of "
            "the model into one folder"
        ) from None


def _text(path: Path) -> str:
    try:
        return _content(path).decode("utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{path}: expected text in UTF-8; copy the file again") from None


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    """Let each InputError of the block name the file."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
