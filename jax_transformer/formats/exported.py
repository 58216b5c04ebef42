"""What writers share: the settings that a format accepts, vocabularies, and README.md."""

import dataclasses
import re
from pathlib import Path
from string import Template
from typing import Any

from jax_transformer.config import Config, DecodingConfig, ModelConfig
from jax_transformer.data.vocabularies.base import Vocabulary
from jax_transformer.data.vocabularies.piece_table import PieceTable
from jax_transformer.errors import InputError
from jax_transformer.files import write_text
from jax_transformer.formats.imported import Accepted, first_refused
from jax_transformer.runs.model import TrainedModel
from jax_transformer.runs.run_dir import step_range

# Settings that every format accepts: sizes, and those of training, because arrays are float32.
COMMON_SETTINGS: Accepted = {
    **dict.fromkeys(("num_layers", "decoder_layers", "d_model", "d_ff", "max_positions")),
    **dict.fromkeys(("dropout_rate", "attention_dropout_rate")),
    **dict.fromkeys(("attention_bias", "tie_embeddings", "fused_attention")),
    "positions": ["sinusoidal", "learned"],
    "compute_dtype": ["float32", "bfloat16"],
    "matmul_precision": ["highest", "high", "default"],
    "remat": ["none", "layers"],
}

_READMES = Path(__file__).parent / "readmes"
_NORMALIZING = """\
from sacremoses import MosesPunctNormalizer

normalizer = MosesPunctNormalizer({language!r})  # it needs sacremoses
lines = [normalizer.normalize(line) for line in lines]
"""
# Not in the name of an experiment or a language, and has a meaning in Markdown.
_UNUSUAL = re.compile(r"[^\w ,.-]")
_PENALTIES = {
    "gnmt": """\
the nearest to what the model
  was scored with, not the same. Here log P is divided by |y|^alpha, in the paper by
  ((5 + |y|) / 6)^alpha. Choose it again on development text.""",
    "length": """\
those of the model. Log P is divided by
  |y|^alpha, as it was there.""",
}


def inexpressible(settings: ModelConfig | DecodingConfig, accepted: Accepted) -> str | None:
    """Return the first setting whose value is not accepted, and the values that are, else None.

    A setting that is not listed must have its default. So every format refuses a setting or a
    choice that is added until somebody lists it there.
    """
    values, legal = dict[str, Any](), dict[str, Any]()
    for part in dataclasses.fields(settings):
        name = settings.inside + part.name
        values[name] = getattr(settings, part.name)
        legal[name] = accepted.get(part.name, [part.default])
    return first_refused(values, legal)


def torch_settings(model: ModelConfig) -> Accepted:
    """Return the settings that Marian and CTranslate2 accept: those of `torch_layout` and more.

    Heads are d_model / h wide, and padded if ours are narrower.
    """
    widths = range(1, model.d_model // model.num_heads + 1)
    return {
        **COMMON_SETTINGS,
        **dict.fromkeys(("output_bias", "tie_source")),
        "activation": ["relu", "swish", "gelu"],
        "num_heads": [h for h in range(1, model.d_model + 1) if model.d_model % h == 0],
        "d_k": widths,
        "d_v": widths,
    }


def position_rows(config: Config) -> int:
    """Return the number of positions of an exported model, enough for the longest output.

    A learned table keeps its rows. Sinusoids get 1,024 at least, the default of the other programs.
    """
    if config.model.positions == "learned":
        return config.model.max_positions
    return max(1024, config.data.max_length + config.decoding.max_extra_length)


def text_vocabularies(trained: TrainedModel) -> tuple[Vocabulary, Vocabulary]:
    """Return source's and target's vocabularies. Raises InputError unless sentencepiece cuts."""
    source, target = trained.vocabulary, trained.target_vocabulary
    if not (source.sentencepiece and target.sentencepiece):
        raise InputError(
            "expected vocabularies of sentencepiece, found others, which the folder cannot hold; "
            "no format can express them"
        )
    return source, target


def normalizing(source: Vocabulary) -> str:
    """Return the code for a README that normalizes the punctuation of `lines`, if the model does.

    MarianTokenizer's own normalizer has the rules of source_lang, which may be others or missing.
    """
    if not (isinstance(source, PieceTable) and source.normalize):
        return ""
    return _NORMALIZING.format(language=source.normalize)


def write_readme(trained: TrainedModel, out: Path, template: str, **facts: str) -> None:
    """Write README.md into the folder `out`: a file of readmes/ with its $names filled in.

    facts: names and values in addition to those of the settings.
    """
    config, source, target = trained.config, trained.vocabulary, trained.target_vocabulary
    pieces = f"{source.size:,}"
    if target.all_pieces != source.all_pieces:
        pieces = f"{pieces} source and {target.size:,} target"
    steps = step_range(trained.steps)
    origin = f"from {steps if len(trained.steps) == 1 else f'the average of {steps}'}"
    imported, languages = trained.run.imported_from, config.data.languages
    names = {
        **vars(config.model),
        **vars(config.decoding),
        "decoder_layers": config.model.num_decoder_layers,
        "penalty": _PENALTIES[config.decoding.length_penalty],
        "experiment": _UNUSUAL.sub("", trained.run.experiment),
        "origin": "which another program trained" if imported else origin,
        "as_trained": "" if imported else ", as they were in training",
        "languages": f", {_UNUSUAL.sub('', languages)}" if languages else "",
        "pieces": pieces,
        "max_source": config.data.max_length - 1,
        "max_length": config.data.max_length,
        "max_target": config.data.max_length + config.decoding.max_extra_length,
        **facts,
    }
    text = (_READMES / template).read_text(encoding="utf-8")
    write_text(out / "README.md", Template(text).substitute(names))
