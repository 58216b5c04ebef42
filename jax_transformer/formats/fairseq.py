"""Models of fairseq: a .pt file, dict.SOURCE.txt, dict.TARGET.txt and a file of byte-pair codes."""

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jax_transformer.config import DecodingConfig, ModelConfig
from jax_transformer.data.text import read_lines
from jax_transformer.data.vocabularies.bpe import BpeVocabulary, parse_codes
from jax_transformer.errors import InputError, located, shown
from jax_transformer.formats import layout
from jax_transformer.formats.hugging_face import ACTIVATIONS, LAYER, Settings
from jax_transformer.formats.imported import ImportedModel, Unread
from jax_transformer.formats.layout import STACKS, Arrays
from jax_transformer.formats.piece_tables import bpe_vocabularies, check_codes
from jax_transformer.formats.torch_files import read_torch

PAD, EOS = 1, 2  # decoders start with </s>, and <s> is not used
SPECIAL: Sequence[str] = ("<s>", "<pad>", "</s>", "<unk>")
LONGEST = 100_000  # tokens of a source; each position is a row of a table
_CODES = ("bpecodes", "code", "codes")
_EPSILON = 1e-5  # of torch's layer normalization
_MORE_POSITIONS = 1024  # of a table of sinusoids, beyond those of the longest source
# Settings that change what a Transformer computes, and that are not supported.
_OFF = (
    *("adaptive_input", "adaptive_softmax_cutoff", "tie_adaptive_weights", "base_layers"),
    *("char_inputs", "cross_self_attention", "no_cross_attention", "layernorm_embedding"),
    *("decoder_layers_to_keep", "encoder_layers_to_keep", "no_decoder_final_norm"),
    *("decoder_xformers_att_config", "encoder_xformers_att_config"),
    *("moses_no_dash_splits", "moses_no_escape", "no_token_positional_embeddings"),
)
_ACCEPTED: dict[str, Collection[Any]] = {
    **dict.fromkeys(_OFF, (None, False, 0, "", [], ())),
    "activation_fn": [*ACTIVATIONS, None],
    "task": ("translation", None),
    "tokenizer": ("moses", "space", None),
    "bpe": ("subword_nmt", "fastbpe", None),
    "bpe_separator": ("@@", None),
}

# Arrays that are no parameters: the number of the layout, a mark of the device, sinusoids.
_IDLE = re.compile(
    r"(en|de)coder\.(version|_float_tensor|embed_positions\.(_float_tensor|weights))"
)
_LAYERS = "{stack}.layers.{i}."
_OLD_NORM = re.compile(r"(encoder|decoder)(\.layers\.\d+)\.layer_norms\.([0-2])(\..*)")
_NORMS = {"encoder": ("self_attn", "final"), "decoder": ("self_attn", "encoder_attn", "final")}
_EMBEDDINGS = (
    "encoder.embed_tokens.weight",
    "decoder.embed_tokens.weight",
    "decoder.output_projection.weight",
)


def read_fairseq(folder: Path) -> ImportedModel:
    """Read the one .pt file of a folder, dict.SOURCE.txt, dict.TARGET.txt and a file of codes.

    Text is tokenized by Moses' rules, as in fairseq's own hub, unless the file names the tokenizer
    `space`. Nothing in the files is executed.
    """
    path = _only_checkpoint(folder)
    state = read_torch(path)
    if not isinstance(state, Mapping) or not isinstance(state.get("model"), Mapping):
        raise InputError(f"{path}: expected a model of fairseq, found another file; give its .pt")
    with located(path):
        settings = _settings(path, state)
        languages = _language(settings, "source_lang"), _language(settings, "target_lang")
        limit = min(settings.get("max_source_positions", int, 1024), LONGEST)
        heads = settings.whole("encoder_attention_heads")
        settings.check(decoder_attention_heads=[heads])
        decoding = DecodingConfig(
            beam_size=settings.get("beam", int, 5),
            alpha=float(settings.get("lenpen", float, 1.0)),
            length_penalty="length",
            patience=1.0,
        )
    moses = settings.values.get("tokenizer") != "space"
    vocabularies = _vocabularies(folder, languages, moses)
    with located(path):
        return assembled(
            Unread(_tidied(state["model"]), path),
            vocabularies,
            decoding,
            learned=[s for s in STACKS if settings.get(f"{s}_learned_pos", bool, False)],
            norms={settings.get(f"{side}_normalize_before", bool, False) for side in STACKS},
            scaled=not settings.get("no_scale_embedding", bool, False),
            heads=heads,
            activation=settings.values.get("activation_fn"),
            dropout=[settings.get(name, float, 0.0) for name in ("dropout", "attention_dropout")],
            limit=limit,
            languages=languages,
        )


def assembled(
    theirs: Unread,
    vocabularies: tuple[BpeVocabulary, BpeVocabulary],
    decoding: DecodingConfig,
    *,
    learned: Collection[str] = (),
    norms: Collection[bool] = (False,),
    scaled: bool,
    heads: int,
    activation: str | None,
    dropout: Sequence[float],
    limit: int,
    languages: tuple[str, str],
) -> ImportedModel:
    """Return the model of fairseq or FSMT.

    learned: the STACKS whose positions are learned; the others have sinusoids.
    norms: True for a stack whose norms are before its sub-layers, and False for another one.
    scaled: False if the model does not multiply embeddings by sqrt(d_model); ours does, so they
      are divided by it.
    dropout: the rates of dropout_rate and attention_dropout_rate.
    limit: the most source tokens.
    """
    matrices = _embeddings(theirs, scaled)
    shared = vocabularies[0].all_pieces == vocabularies[1].all_pieces
    arrays, ties = layout.embedding_arrays(matrices, shared)
    d_model, first = matrices[1].shape[1], vocabularies[0].pad_id + 1
    sinusoids = layout.tensor2tensor_positions(limit + _MORE_POSITIONS, d_model, first=first)
    table = arrays["position_table"] = _position_table(theirs, learned, sinusoids, first)
    layers, pre = layout.layer_counts(theirs.left, _LAYERS), "encoder.layer_norm.weight" in theirs
    names = {ours: name for name, [ours] in layout.layer_names(layers, _LAYERS, LAYER)}
    for stack in STACKS if pre else ():
        for leaf, ours in zip(("weight", "bias"), layout.leaves(f"{stack}_norm"), strict=True):
            names[ours] = f"{stack}.layer_norm.{leaf}"
    arrays |= {
        ours: theirs.take(name, 2 if ours.endswith("weight") else 1) for ours, name in names.items()
    }
    theirs.refuse_rest()
    if set(norms) != {pre}:
        raise InputError(
            "expected norms after all sub-layers, or before all and after both stacks, found "
            f"normalize_before={', '.join(map(str, sorted(norms)))} and {'a' if pre else 'no'} "
            "norm after the stacks; give another model"
        )
    model = ModelConfig(
        **layout.depths(layers),
        **ties,
        d_model=d_model,
        d_ff=_widen_feed_forward(arrays),
        num_heads=heads,
        activation=ACTIVATIONS[activation or "relu"],
        attention_bias=True,
        norm_position="pre" if pre else "post",
        norm_epsilon=_EPSILON,
        dropout_rate=float(dropout[0]),
        attention_dropout_rate=float(dropout[1]),
        positions="learned",
        max_positions=len(table),
    )
    # Outputs may be longer than their sources, and need positions too.
    longest = min(limit, model.max_positions - decoding.max_extra_length)
    return ImportedModel(
        model, decoding, arrays, *vocabularies, max_length=longest, languages=languages
    )


def _settings(path: Path, state: Mapping[str, Any]) -> Settings:
    """Return all settings side by side: those of argparse, or from 2020 on those of hydra."""
    sections: Any = state.get("cfg")
    if isinstance(state.get("args"), Mapping):
        flat = {str(name): value for name, value in state["args"].items()}
    elif isinstance(sections, Mapping) and isinstance(sections.get("model"), Mapping):
        flat: dict[str, Any] = {}
        for name in ("generation", "tokenizer", "bpe", "task", "model"):
            section = sections.get(name) or {}
            if not isinstance(section, Mapping):
                raise InputError(f"expected the settings cfg.{name}, found {shown(section)}")
            flat |= {str(key): value for key, value in section.items()}
            flat[name] = section.get("_name")
        flat["arch"] = flat.get("arch") or flat.pop("model")
        for side in STACKS:
            if isinstance(flat.get(side), Mapping):
                flat |= {f"{side}_{name}": value for name, value in flat.pop(side).items()}
    else:
        found = shown(sections if sections else state.get("args"))
        raise InputError(
            f"expected the settings of a model, args or cfg, found {found}; give another"
        )
    settings = Settings(path, flat)
    settings.check(**_ACCEPTED)
    if not str(flat.get("arch")).startswith("transformer"):
        raise InputError(
            f"arch={shown(flat.get('arch'))}: expected a Transformer; give another model"
        )
    return settings


def _language(settings: Settings, name: str) -> str:
    code = settings.get(name, str, "")
    if not re.fullmatch(r"[\w.-]{1,40}", code):
        raise settings.refusal(name, "a language")
    return code


def _tidied(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arrays by the names of today, each of queries, keys and values apart."""
    arrays = {}
    for name, array in found.items():
        old = _OLD_NORM.fullmatch(name)
        joined = re.fullmatch(r"(.*)\.in_proj_(weight|bias)", name)
        if joined and getattr(array, "ndim", 0) and len(array) % 3 == 0:
            for letter, part in zip("qkv", np.split(array, 3), strict=True):
                arrays[f"{joined[1]}.{letter}_proj.{joined[2]}"] = part
        elif old and int(old[3]) < len(_NORMS[old[1]]):
            arrays[f"{old[1]}{old[2]}.{_NORMS[old[1]][int(old[3])]}_layer_norm{old[4]}"] = array
        elif not _IDLE.fullmatch(name):
            arrays[_EMBEDDINGS[2] if name == "decoder.embed_out" else name] = array
    return arrays


def _embeddings(theirs: Unread, scaled: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the matrices of source, target and output; one that is tied may stand there once."""
    first = next((name for name in _EMBEDDINGS if name in theirs), _EMBEDDINGS[0])
    source = theirs.take(first, 2)
    target = theirs.take(_EMBEDDINGS[1], 2, source)
    output = theirs.take(_EMBEDDINGS[2], 2, target)
    if not scaled:
        factor = np.float32(source.shape[1] ** -0.5)
        source, target = source * factor, target * factor
    return source, target, output


def _position_table(
    theirs: Unread, learned: Collection[str], sinusoids: np.ndarray, first: int
) -> np.ndarray:
    """Return the table of both stacks; its first row is `first` in theirs."""
    tables = []
    for stack in STACKS:
        name = f"{stack}.embed_positions.weight"
        if stack in learned:
            tables.append(theirs.take(name, 2)[first:])
        else:
            theirs.left.pop(name, None)  # sinusoids, which FSMT computes
            tables.append(sinusoids)
    return layout.shared_table(theirs.path, tables)


def _widen_feed_forward(arrays: Arrays) -> int:
    """Return d_ff; a stack whose inner layers are narrower gets units that compute zero."""
    inner = [name for name in arrays if "/feed_forward/inner/" in name]
    outer = [name for name in arrays if name.endswith("/feed_forward/outer/weight")]
    width = max((len(arrays[name]) for name in inner), default=1)
    arrays |= {name: layout.padded(arrays[name], 0, width) for name in inner}
    arrays |= {name: layout.padded(arrays[name], 1, width) for name in outer}
    return width


def _only_checkpoint(folder: Path) -> Path:
    paths = sorted(folder.glob("*.pt"))
    if len(paths) != 1:
        names = ", ".join(path.name for path in paths[:4]) or "none"
        raise InputError(
            f"{folder}: expected one .pt file, found {names}; give a folder with one, of an "
            "ensemble one of its members"
        )
    return paths[0]


def _vocabularies(
    folder: Path, languages: tuple[str, str], moses: bool
) -> tuple[BpeVocabulary, BpeVocabulary]:
    source, target = (read_dictionary(folder / f"dict.{language}.txt") for language in languages)
    paths = [folder / name for name in _CODES]
    path = next((path for path in paths if path.exists() and not path.is_dir()), None)
    if path is None:
        raise InputError(
            f"{folder}: expected byte-pair codes, {' or '.join(_CODES)}, found none; put the file "
            "there"
        )
    codes = parse_codes(read_lines(path), str(path))
    check_codes(path, codes.merges, source, "@@", "")
    return bpe_vocabularies(
        (source, target),
        languages,
        merges=[" ".join(pair) for pair in codes.merges],
        end_apart=codes.end_apart,
        moses=moses,
        pad_id=PAD,
        bos_id=EOS,
        eos_id=EOS,
    )


def read_dictionary(path: Path) -> list[str]:
    """Return the pieces of a dict.LANGUAGE.txt in the order of their ids, special ones before.

    A line is a piece and its count, and `#fairseq:overwrite` if the piece has occurred before.
    """
    pieces, seen = list(SPECIAL), set(SPECIAL)
    for number, line in enumerate(read_lines(path), start=1):
        text = line.rstrip()
        again = text.endswith(" #fairseq:overwrite")
        piece, space, count = text.removesuffix(" #fairseq:overwrite").rpartition(" ")
        if not space or not count.isdecimal():
            raise InputError(
                f"{path}, line {number}: expected a piece and its count, found {shown(line)}; give "
                "the dictionary of fairseq"
            )
        if piece in seen and not again:
            raise InputError(
                f"{path}, line {number}: expected each piece once, found {shown(piece)} again; "
                "give the dictionary that the model was trained with"
            )
        seen.add(piece)
        pieces.append(piece)
    return pieces
