"""A model as Marian itself writes it: model.npz, its vocabularies, and decoder.yml.

Archives of OPUS-MT have these files too, with source.spm and target.spm, which cut the text, beside
a table of pieces.
"""

from pathlib import Path, PureWindowsPath
from typing import Any

import numpy as np

from jax_transformer.config import DecodingConfig, ModelConfig
from jax_transformer.data.vocabularies.piece_table import PieceTable
from jax_transformer.data.vocabularies.sentencepiece import read_sentencepiece
from jax_transformer.errors import InputError, located, shown
from jax_transformer.formats.arrays import NEVER, Accepted, check_options, tensor2tensor_positions
from jax_transformer.formats.imported import (
    ImportedModel,
    Unread,
    embedding_arrays,
    is_file_name,
)
from jax_transformer.formats.marian_arrays import (
    read_model_settings,
    read_npz,
    take_embeddings,
    take_layers,
)
from jax_transformer.formats.marian_vocabularies import (
    piece_table,
    read_cutter,
    read_table,
    read_yaml,
)

MIN_POSITIONS = 1024
MAX_LENGTH = 512  # Marian's default in translation
LONGEST = 100_000  # each position is a row of a table
# Options of the search that change outputs, and the values at which they do nothing.
_ACCEPTED: Accepted = {
    "word-penalty": [0],
    "allow-unk": [False],
    "allow-special": [False],
    "force-decode": [False],
    "shortlist": [[], None],
    "weights": [[], [1], None],
    "output-sampling": [[], None],
    "max-length": range(2, LONGEST + 1),
}


def read_marian_npz(folder: Path) -> ImportedModel:
    """Read the model that decoder.yml, or the only *.decoder.yml, names in a folder.

    All files are read from the folder itself, whatever folders decoder.yml names.

    Raises InputError if a file is missing or damaged, or if our model cannot express an option.
    """
    search = _search_file(folder)
    options = read_yaml(search)
    check_options(search, options, {**dict.fromkeys(options), **_ACCEPTED})
    max_length = options.get("max-length", MAX_LENGTH)
    with located(search):
        decoding = DecodingConfig(
            beam_size=options.get("beam-size", 12),
            alpha=options.get("normalize", 0),
            length_penalty="length",
            patience=1.0,
            narrowing=True,
        )
        (path,) = _files(folder, options, "models", 1)
        vocabularies = _files(folder, options, "vocabs", 2)
    npz = Unread(read_npz(path), path)
    settings = read_model_settings(npz)
    matrices, bias = take_embeddings(npz)
    source, target = (
        _vocabulary(file, folder / f"{side}.spm", len(matrix))
        for file, side, matrix in zip(vocabularies, ("source", "target"), matrices, strict=False)
    )
    # The decoder starts with zeros: here with `<pad>`, whose embedding they are.
    shared = source.all_pieces == target.all_pieces
    arrays, ties = embedding_arrays([np.pad(m, [(0, 1), (0, 0)]) for m in matrices], shared)
    arrays["output_bias"] = np.append(bias, NEVER)
    positions = max(MIN_POSITIONS, max_length + decoding.max_extra_length)
    with located(path):
        model = ModelConfig(**settings, **ties, max_positions=positions)
        arrays["position_table"] = tensor2tensor_positions(positions, model.d_model, first=0)
    arrays |= take_layers(npz, model)
    npz.refuse_rest()
    target = source if source.content == target.content else target
    return ImportedModel(model, decoding, arrays, source, target, max_length)


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


def _files(folder: Path, options: dict[str, Any], name: str, count: int) -> list[Path]:
    """Return the files that an option names. Raises InputError unless there are `count`."""
    found = options.get(name)
    if not isinstance(found, list) or len(found) != count:
        raise InputError(
            f"expected {name} to be a list of {count}, found {shown(found)}; an ensemble, or a "
            "model with several sources, cannot be imported"
        )
    # A Windows path has both kinds of slashes.
    names = [PureWindowsPath(str(path)).name for path in found]
    if not all(map(is_file_name, names)):
        raise InputError(f"expected the names of files as {name}, found {shown(found)}")
    return [folder / file for file in names]


def _vocabulary(path: Path, cutter: Path, size: int) -> PieceTable:
    """Return a vocabulary with `<pad>` as the last piece, which the decoder starts with.

    path: a model of sentencepiece, or a table. cutter: the model that cuts text for a table.
    size: the number of pieces that the model has embeddings for.
    """
    if path.suffix == ".spm":
        model = read_cutter(path)
        processor = read_sentencepiece(model)
        names = processor.id_to_piece(list(range(processor.get_piece_size())))
        table = {piece: index for index, piece in enumerate(names)}
    else:
        model, table = read_cutter(cutter), read_table(path)
    pieces = piece_table(path, table, size)
    for name in ("</s>", "<unk>"):
        if name not in pieces:
            raise InputError(f"{path}: expected a piece {name}, found none; fetch the file again")
    end, unknown = pieces.index("</s>"), pieces.index("<unk>")
    with located(path):
        return PieceTable.make(
            [*pieces, "<pad>"], model, pad_id=size, bos_id=size, eos_id=end, unk_id=unknown
        )
