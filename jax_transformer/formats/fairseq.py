"""Models of fairseq: a .pt file, dict.SOURCE.txt, dict.TARGET.txt and a file of byte-pair codes."""

import logging
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from jax_transformer.config import DecodingConfig, ModelConfig
from jax_transformer.data.text import read_lines
from jax_transformer.data.vocabularies.base import Vocabulary
from jax_transformer.data.vocabularies.bpe import END, BpeContent, BpeVocabulary, Pair, parse_codes
from jax_transformer.errors import InputError, located, shown
from jax_transformer.formats.fairseq_arrays import SIDES, FairseqArrays, read_arrays
from jax_transformer.formats.hugging_face import widened
from jax_transformer.formats.layout import Accepted, Arrays, ImportedModel, check_options
from jax_transformer.formats.torch_files import read_torch

logger = logging.getLogger(__name__)

BOS, PAD, EOS, UNK = range(4)  # fairseq's <s> is not used: its decoders start with </s>
_SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]
_CODES = ("bpecodes", "code", "codes")
_EPSILON = 1e-5  # of torch's layer normalization
LONGEST = 100_000  # tokens of a source; each position is a row of a table
MORE_POSITIONS = 1024  # of a table of sinusoids, beyond those of the longest source
_ACTIVATIONS: dict[str, Any] = {"relu": "relu", "gelu": "gelu", "swish": "swish", "silu": "swish"}
# Settings that change what a Transformer computes, and that ours does not have.
_OFF = (
    "adaptive_input",
    "adaptive_softmax_cutoff",
    "base_layers",
    "char_inputs",
    "cross_self_attention",
    "decoder_layers_to_keep",
    "decoder_xformers_att_config",
    "encoder_layers_to_keep",
    "encoder_xformers_att_config",
    "layernorm_embedding",
    "moses_no_dash_splits",
    "moses_no_escape",
    "no_cross_attention",
    "no_decoder_final_norm",
    "no_token_positional_embeddings",
    "tie_adaptive_weights",
)
_ACCEPTED: Accepted = {
    **dict.fromkeys(_OFF, (None, False, 0, "", [], ())),
    "task": ("translation", None),
    "tokenizer": ("moses", "space", None),
    "bpe": ("subword_nmt", "fastbpe", None),
    "bpe_separator": ("@@", None),
}

Settings = Mapping[str, Any]  # by fairseq's names


def read_fairseq(folder: Path) -> ImportedModel:
    """Read the one .pt file of a folder, dict.SOURCE.txt, dict.TARGET.txt and bpecodes (or code).

    Text is tokenized by Moses' rules, as in fairseq's own hub, unless the file names the tokenizer
    `space`. Nothing in the files is executed.

    Raises InputError if a file is missing or damaged, or for a model that ours cannot express.
    """
    path = _only_checkpoint(folder)
    state = read_torch(path)
    if not isinstance(state, Mapping) or not isinstance(state.get("model"), Mapping):
        raise InputError(f"{path}: expected a model of fairseq, found another file; give its .pt")
    arrays = {name: widened(path, name, array) for name, array in state["model"].items()}
    with located(path):
        settings = flat_settings(state)
        check_settings(path, settings)
    vocabularies = _vocabularies(folder, settings)
    try:
        return _imported(arrays, settings, *vocabularies)
    except (TypeError, ValueError, OverflowError) as error:  # a setting of another type
        raise InputError(f"{path}: {error!s:.300}") from None


def _imported(
    arrays: Arrays, settings: Settings, source: Vocabulary, target: Vocabulary
) -> ImportedModel:
    """Return the model. Raises InputError if the parts do not fit together."""
    limit = min(settings.get("max_source_positions") or 1024, LONGEST)
    found = read_arrays(
        arrays,
        learned={side for side in SIDES if settings.get(f"{side}_learned_pos")},
        rows=limit + MORE_POSITIONS,
        pad_id=PAD,
        scaled=not settings.get("no_scale_embedding"),
        one_vocabulary=source is target,
    )
    _check_norms(settings, found)
    decoding = DecodingConfig(
        beam_size=settings.get("beam") or 5,
        alpha=float(settings.get("lenpen", 1.0)),
        length_penalty="length",
        patience=1.0,
    )
    return assembled(
        found,
        (source, target),
        decoding,
        heads=[settings.get(f"{side}_attention_heads") for side in SIDES],
        activation=settings.get("activation_fn", "relu"),
        dropout=(settings.get("dropout") or 0.0, settings.get("attention_dropout") or 0.0),
        limit=limit,
        languages=(settings["source_lang"], settings["target_lang"]),
    )


def assembled(
    found: FairseqArrays,
    vocabularies: tuple[Vocabulary, Vocabulary],
    decoding: DecodingConfig,
    *,
    heads: list[Any],
    activation: str,
    dropout: tuple[float, float],
    limit: int,
    languages: tuple[str, str],
) -> ImportedModel:
    """Return the model of fairseq or FSMT. Raises InputError if the parts do not fit together.

    heads: the numbers of attention heads in encoder and decoder.
    dropout: the rates of dropout_rate and attention_dropout_rate.
    limit: the most source tokens.
    """
    _check_sizes(vocabularies, found)
    if type(heads[0]) is not int or heads[0] != heads[1]:
        raise InputError(
            "expected one number of attention heads in encoder and decoder, found "
            f"{shown(heads[0])} and {shown(heads[1])}; give another model"
        )
    if activation not in _ACTIVATIONS:
        raise InputError(
            f"expected the activation relu, gelu or swish, found {shown(activation)}; give another "
            "model"
        )
    model = ModelConfig(
        num_heads=heads[0],
        activation=_ACTIVATIONS[activation],
        norm_epsilon=_EPSILON,
        dropout_rate=float(dropout[0]),
        attention_dropout_rate=float(dropout[1]),
        **found.settings,
    )
    # Outputs may be longer than their sources, and need positions too.
    longest = min(limit, model.max_positions - decoding.max_extra_length)
    if longest < 2:
        raise InputError(
            f"expected a table of more than {decoding.max_extra_length} positions, found "
            f"{model.max_positions}; give another model"
        )
    return ImportedModel(
        model, decoding, found.arrays, *vocabularies, max_length=longest, languages=languages
    )


def flat_settings(state: Mapping[str, Any]) -> Settings:
    """Return all settings side by side: those of argparse, or from 2020 on those of hydra."""
    if isinstance(state.get("args"), Mapping):
        return dict(state["args"])
    sections = state.get("cfg")
    if not isinstance(sections, Mapping) or not isinstance(sections.get("model"), Mapping):
        found = shown(sections if sections else state.get("args"))
        raise InputError(
            f"expected the settings of a model, args or cfg, found {found}; give another"
        )
    flat: dict[str, Any] = {}
    for name in ("generation", "tokenizer", "bpe", "task", "model"):
        section = sections.get(name) or {}
        if not isinstance(section, Mapping):
            raise InputError(f"expected the settings cfg.{name}, found {shown(section)}")
        flat |= section
        flat[name] = section.get("_name")
    flat["arch"] = flat.get("arch") or flat.pop("model")
    for side in SIDES:
        if isinstance(flat.get(side), Mapping):
            flat |= {f"{side}_{name}": value for name, value in flat.pop(side).items()}
    return flat


def check_settings(path: Path, settings: Settings) -> None:
    """Raise InputError for a setting that our Transformer cannot express. path: for messages."""
    check_options(path, {name: settings.get(name) for name in _ACCEPTED}, _ACCEPTED)
    if not str(settings.get("arch")).startswith("transformer"):
        raise InputError(
            f"arch={shown(settings.get('arch'))}: expected a Transformer; give another model"
        )
    for name in ("source_lang", "target_lang"):
        code = settings.get(name)
        if type(code) is not str or not re.fullmatch(r"[\w.-]{1,40}", code):
            raise InputError(
                f"{name}: expected a language, found {shown(code)}; give a translation model"
            )


def _check_sizes(vocabularies: tuple[Vocabulary, Vocabulary], found: FairseqArrays) -> None:
    """Raise InputError unless each id of both vocabularies has a row in the embeddings."""
    for side, vocabulary, rows in zip(
        ("source", "target"), vocabularies, found.vocabulary_sizes, strict=True
    ):
        if vocabulary.size != rows:
            raise InputError(
                f"expected {rows:,} pieces in the vocabulary of the {side}, one for each row of "
                f"its embeddings, found {vocabulary.size:,}; give the vocabulary of this model"
            )


def _check_norms(settings: Settings, found: FairseqArrays) -> None:
    """Raise InputError unless both stacks are post-norm, or pre-norm with a final norm."""
    before = {bool(settings.get(f"{side}_normalize_before")) for side in SIDES}
    final = found.settings["norm_position"] == "pre"
    if before != {final}:
        raise InputError(
            "expected norms after all sub-layers, or before all and after both stacks, found "
            f"normalize_before={', '.join(map(str, sorted(before)))} and "
            f"{'a' if final else 'no'} norm after the stacks; give another model"
        )


def _only_checkpoint(folder: Path) -> Path:
    """Return the .pt file in the folder. Raises InputError if there are none or several."""
    paths = sorted(folder.glob("*.pt"))
    if len(paths) != 1:
        names = ", ".join(path.name for path in paths[:4]) or "none"
        raise InputError(
            f"{folder}: expected one .pt file, found {names}; give a folder with one, of an "
            "ensemble one of its members"
        )
    return paths[0]


def _vocabularies(folder: Path, settings: Settings) -> tuple[Vocabulary, Vocabulary]:
    """Return the vocabularies of both sides, the same object if their pieces are the same."""
    languages = (settings["source_lang"], settings["target_lang"])
    source, target = (read_dictionary(folder / f"dict.{language}.txt") for language in languages)
    path = next((folder / name for name in _CODES if (folder / name).is_file()), None)
    if path is None:
        raise InputError(
            f"{folder}: expected byte-pair codes, {' or '.join(_CODES)}, found none; put the file "
            "there"
        )
    codes = parse_codes(read_lines(path), str(path))
    check_codes(path, codes.merges, source, "@@", "")

    def vocabulary(pieces: list[str], source_language: str) -> BpeVocabulary:
        return BpeVocabulary.make(
            BpeContent(
                pieces=pieces,
                merges=[" ".join(pair) for pair in codes.merges],
                end_apart=codes.end_apart,
                moses=settings.get("tokenizer") != "space",
                source_language=source_language,
                target_language=languages[1],
                pad_id=PAD,
                bos_id=EOS,
                eos_id=EOS,
                unk_id=UNK,
            )
        )

    ours = vocabulary(source, languages[0])
    return ours, ours if source == target else vocabulary(target, languages[1])


def check_codes(
    path: Path, merges: Iterable[Pair], pieces: Iterable[str], continuation: str, end: str
) -> None:
    """Raise InputError unless the merges make nearly all pieces of the text that they cut.

    Fewer than a tenth is a vocabulary that was not made by merges: that is logged as a warning.
    """
    made = {"".join(pair).removesuffix(END) for pair in merges}
    texts = [piece.removesuffix(continuation or end) for piece in pieces if piece[:1] != "<"]
    longer = [text for text in texts if len(text) > 1 and not text.startswith("madeupword")]
    lacking = [text for text in longer if text not in made]
    if len(lacking) <= 0.01 * len(longer):
        return
    message = (
        f"{path}: expected merges that make the {len(longer):,} pieces of several letters, found "
        f"none for {len(lacking):,}, such as {shown(lacking[0])}; give the whole file of this model"
    )
    if len(lacking) <= 0.9 * len(longer):
        raise InputError(message)
    logger.warning(message)


def read_dictionary(path: Path) -> list[str]:
    """Return the pieces of a dict.LANGUAGE.txt in the order of their ids, special ones before.

    A line is a piece and its count, and `#fairseq:overwrite` if the piece has occurred before.
    Raises InputError for anything else.
    """
    pieces, seen = list(_SPECIAL), set(_SPECIAL)
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
