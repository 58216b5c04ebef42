"""A model as Marian itself writes it: model.npz, its vocabularies, and decoder.yml.

Archives of OPUS-MT have these files too, with source.spm and target.spm, which cut the text, beside
a table of pieces.
"""

import io
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path, PureWindowsPath
from typing import Any

import numpy as np

from jax_transformer.config import DecodingConfig, ModelConfig
from jax_transformer.data.vocabularies.piece_table import PieceTable
from jax_transformer.data.vocabularies.sentencepiece import read_sentencepiece
from jax_transformer.errors import InputError, damage_named, located, shown
from jax_transformer.files import check_packed, read_bytes
from jax_transformer.formats import layout
from jax_transformer.formats.imported import (
    Accepted,
    ImportedModel,
    Unread,
    check_options,
    is_file_name,
)
from jax_transformer.formats.layout import NEVER, STACKS, Arrays
from jax_transformer.formats.piece_tables import (
    appended_padding,
    piece_table,
    read_cutter,
    read_table,
    read_yaml,
)

LONGEST = 100_000  # each position is a row of a table
# Options of the search that change outputs, and the values at which they do nothing.
_ACCEPTED: Accepted = {
    "word-penalty": [0],
    "allow-unk": [False],
    "allow-special": [False],
    "force-decode": [False],
    "shortlist": [[], None],
    "weights": [[], [1], None],
    "output-sampling": [[], None, False],  # older versions have a boolean
    "max-length": range(2, LONGEST + 1),
}


def read_marian_npz(folder: Path) -> ImportedModel:
    """Read the model that decoder.yml, model.npz.decoder.yml, or the only *.decoder.yml names.

    All files are read from the folder itself, whatever folders decoder.yml names.
    """
    search = _search_file(folder)
    options = read_yaml(search)
    check_options(search, options, {**dict.fromkeys(options), **_ACCEPTED})
    max_length = options.get("max-length", 1000)  # Marian's default in translation
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
    arrays, ties = layout.embedding_arrays([np.pad(m, [(0, 1), (0, 0)]) for m in matrices], shared)
    arrays["output_bias"] = np.append(bias, NEVER)
    positions = max(1024, max_length + decoding.max_extra_length)
    with located(path):
        model = ModelConfig(**settings, **ties, max_positions=positions)
        arrays["position_table"] = layout.tensor2tensor_positions(positions, model.d_model, first=0)
    arrays |= take_layers(npz, model)
    npz.refuse_rest()
    target = source if source.content == target.content else target
    return ImportedModel(model, decoding, arrays, source, target, max_length)


def _search_file(folder: Path) -> Path:
    found = sorted(path.name for path in folder.glob("*decoder.yml"))
    for name in ("decoder.yml", "model.npz.decoder.yml", *(found if len(found) == 1 else ())):
        if name in found:
            return folder / name
    raise InputError(
        f"{folder}: expected decoder.yml, which names Marian's model and vocabularies, found "
        f"{', '.join(found) or 'none'}; copy the one to use to decoder.yml"
    )


def _files(folder: Path, options: dict[str, Any], name: str, count: int) -> list[Path]:
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
            [*pieces, appended_padding(pieces)],
            model,
            pad_id=size,
            bos_id=size,
            eos_id=end,
            unk_id=unknown,
        )


OPTIONS = "special:model.yml"  # the array that holds the options, as bytes
Matrices = tuple[np.ndarray, np.ndarray, np.ndarray]

# The supported values of options that change what the same arrays compute. The other
# options are about other kinds of models, which have other arrays.
_EXPRESSIBLE: Accepted = {
    "type": ["transformer"],
    "right-left": [False],
    "transformer-decoder-autoreg": ["self-attention"],
    "transformer-pool": [False],
    "transformer-ffn-activation": ["swish", "relu", "gelu"],
    "transformer-postprocess-emb": ["d", ""],
    "transformer-disable-position-embeddings": [False],
    "transformer-attention-mask": ["default"],
}
_APPROXIMATES_GELU = (1, 12, 0)  # and later versions compute it exactly
_NORMALIZES_KEYS = (1, 11, 0)  # Marian 1.10 applies the pre-norm to queries alone
_LETTERS = {"query": "q", "key": "k", "value": "v", "output": "o"}
_MAPS = {  # a weight has W in the braces, a bias b
    **{f"self_attention/{role}": f"self_{{}}{letter}" for role, letter in _LETTERS.items()},
    **{f"cross_attention/{role}": f"context_{{}}{letter}" for role, letter in _LETTERS.items()},
    "feed_forward/inner": "ffn_{}1",
    "feed_forward/outer": "ffn_{}2",
}
_NORMS = {
    "self_attention_norm/norm": "self_Wo_ln_{}",
    "cross_attention_norm/norm": "context_Wo_ln_{}",
    "feed_forward_norm/norm": "ffn_ffn_ln_{}",
}


def read_npz(path: Path) -> Arrays:
    """Return the arrays of a NumPy archive by name; pickles are refused."""
    with damage_named(path, "an archive of arrays (.npz)", "copy it again"):
        content = io.BytesIO(read_bytes(path))
        with zipfile.ZipFile(content) as zipped:
            check_packed(zipped, content.getbuffer().nbytes)
        content.seek(0)
        with np.load(content, allow_pickle=False) as archive:  # noqa: TID251, pickles are refused
            # macOS adds members of its own when somebody packs the archive again.
            names = [name for name in archive.files if not name.startswith("__MACOSX/")]
            arrays = {name: archive[name] for name in names}
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray):
            raise InputError(
                f"{path}: expected arrays alone (.npz), found {shown(name)}; copy it again"
            )
    return arrays


def read_model_settings(npz: Unread) -> dict[str, Any]:
    """Return the settings of ModelConfig that the options in model.npz give."""
    found = npz.left.pop(OPTIONS, None)
    if found is None:
        raise InputError(
            f"{npz.path}: expected a model of Marian, found an archive without {OPTIONS}; give the "
            "model, not the state of its optimizer"
        )
    options = read_yaml(npz.path, found.tobytes().rstrip(b"\0"))
    check_options(npz.path, options, {**dict.fromkeys(options), **_EXPRESSIBLE})
    activation = options.get("transformer-ffn-activation", "swish")
    if activation == "gelu" and _version(options) <= _APPROXIMATES_GELU:
        raise InputError(
            f"{npz.path}: expected a model with gelu of a Marian newer than 1.12.0, found version: "
            f"{options.get('version')}, which computes x sigmoid(1.702 x) instead; this model "
            "cannot be imported"
        )
    return {
        **layout.depths([options.get("enc-depth"), options.get("dec-depth")]),
        "d_model": options.get("dim-emb"),
        "d_ff": options.get("transformer-dim-ffn"),
        "num_heads": options.get("transformer-heads"),
        "activation": activation,
        "attention_bias": True,
        "norm_position": _norm_position(npz.path, options),
        "norm_epsilon": 1e-6,
        "output_bias": True,
        "positions": "learned",
    }


def _norm_position(path: Path, options: Mapping[str, Any]) -> str:
    """Return pre or post. Each letter is an operation: a adds the input, n normalizes, d drops."""
    defaults = {"preprocess": "", "postprocess": "dan", "postprocess-top": ""}
    found = [options.get(f"transformer-{name}", default) for name, default in defaults.items()]
    before, after, top = (str(letters).replace("d", "") for letters in found)
    position = {("", "an", ""): "post", ("n", "a", "n"): "pre"}.get((before, after, top))
    if position is None:
        raise InputError(
            f"{path}: transformer-preprocess, transformer-postprocess and "
            'transformer-postprocess-top: expected "", "dan" and "" (post-norm), or "n", "da" and '
            f'"n" (pre-norm), found {found}; this model cannot be imported'
        )
    if position == "pre" and _version(options) < _NORMALIZES_KEYS:
        raise InputError(
            f"{path}: expected a pre-norm model of Marian 1.11 or newer, found version: "
            f"{options.get('version')}, which does not normalize keys and values; this model "
            "cannot be imported"
        )
    return position


def _version(options: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the three numbers of Marian's version; zeros if there is none."""
    found = re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?", str(options.get("version", "")))
    return (*(int(number or 0) for number in found.groups()),) if found else (0, 0, 0)


def take_embeddings(npz: Unread) -> tuple[Matrices, np.ndarray]:
    """Return the matrices [V, d_model] of source, target and logits, and the bias of the logits."""
    if "Wemb" in npz:
        source = target = npz.take("Wemb", 2)
    else:
        source, target = npz.take("encoder_Wemb", 2), npz.take("decoder_Wemb", 2)
    output = npz.take("decoder_ff_logit_out_Wt", 2, target)
    output = npz.take("decoder_ff_logit_out_W", 2, output.T).T  # of an older version
    bias = npz.take("decoder_ff_logit_out_b", 2, np.zeros((1, len(target)), np.float32))
    return (source, target, output), bias.reshape(-1)


def take_layers(npz: Unread, model: ModelConfig) -> Arrays:
    """Take the arrays of all layers, under our names."""
    pre = "_pre" if model.norm_position == "pre" else ""
    table = {
        theirs.format(leaf): [ours]
        for names, theirs_of in ((_MAPS, "Wb"), (_NORMS, (f"scale{pre}", f"bias{pre}")))
        for part, theirs in names.items()
        for leaf, ours in zip(theirs_of, layout.leaves(part), strict=True)
    }
    layers = model.num_layers, model.num_decoder_layers
    names = {
        ours: theirs for theirs, [ours] in layout.layer_names(layers, "{stack}_l{number}_", table)
    }
    for stack in STACKS if pre else ():
        for leaf in ("scale", "bias"):
            names[f"{stack}_norm/{leaf}"] = f"{stack}_top_ln_{leaf}"
    taken = {ours: npz.take(theirs, 2) for ours, theirs in names.items()}
    return {
        name: array.T if name.endswith("weight") else array.reshape(-1)
        for name, array in taken.items()
    }
