"""One HTML file that contains a trained model and runs it in the browser (§3, §6.1)."""

import base64
from typing import Any

import jax
import numpy as np

from jax_transformer.config import DecodingConfig
from jax_transformer.data.sources import Sources
from jax_transformer.data.vocabularies.base import Vocabulary
from jax_transformer.data.vocabularies.labels import LabelVocabulary
from jax_transformer.data.vocabularies.piece_table import PieceTable
from jax_transformer.data.vocabularies.sentencepiece import byte_pair_model
from jax_transformer.errors import InputError
from jax_transformer.formats.exported import COMMON_SETTINGS, inexpressible
from jax_transformer.formats.imported import Accepted
from jax_transformer.formats.layout import NEVER, named_leaves
from jax_transformer.runs.model import TrainedModel
from jax_transformer.runs.pipeline import HINTS
from jax_transformer.types import Params
from jax_transformer.viewer.attention_page import VIEWS
from jax_transformer.viewer.page import page

MOST_PARAMETERS = 20_000_000
_REMEDY = "use the page of experiments.serve, or experiments.export --format=ctranslate2"

# What transformer.js implements. It computes in float32 whatever the type.
_SETTINGS: Accepted = {
    **COMMON_SETTINGS,
    **dict.fromkeys(("num_heads", "d_k", "d_v", "norm_epsilon", "attention_radius")),
    **dict.fromkeys(("tie_source", "output_bias")),
    "activation": ["relu", "swish", "gelu"],
    "norm_position": ["post", "pre"],
}
# What beam_search.js implements.
_DECODING: Accepted = {
    **dict.fromkeys(("beam_size", "alpha", "patience", "narrowing")),
    **dict.fromkeys(("max_extra_length", "batch_tokens")),
    "length_penalty": ["gnmt", "length"],
}

# Sentences for the demo's model, and what is to be seen. The page turns to the layer and head of an
# attention, 1 in the decoder and 2 over the source, in which the piece that writes `word` attends
# most to the piece `attends`.
_DEMO = (
    {
        "text": "We know that the old teacher will open the door.",
        "note": "German puts the verb of this clause last. Follow the line: to write it, “wird”, "
        "the head that is picked below looks at “will”.",
        "view": 2,
        "word": "wird",
        "attends": "will",
    },
    {
        "text": "My sister turned on the lamp.",
        "note": "“turned on” is one German verb in two parts, “schaltete … ein”. Follow the line: "
        "to write “ein”, the head that is picked below looks at the end of “schal-tete”.",
        "view": 1,
        "word": "ein",
        "attends": "tete",
    },
    {
        "text": "The letter that the girl reads is long.",
        "note": "The German “that” has the gender of its noun. Follow the line: to write it, "
        "“den”, the head that is picked below looks at the article of the noun, “Der”.",
        "view": 1,
        "word": "den",
        "attends": "Der",
    },
)


def live_page(model: TrainedModel, decoding: DecodingConfig) -> str:
    """Return the page of a model as text. It contains all it needs, so it works offline.

    decoding: the search that the page begins with.

    Raises InputError for a model that the page cannot run.
    """
    return page("live_page.html", live_content(model, decoding))


def live_content(model: TrainedModel, decoding: DecodingConfig) -> dict[str, Any]:
    """Return what the page contains, for JSON: settings, vocabularies, and weights in float16.

    Raises InputError for a model that the page cannot run.
    """
    config, params = model.config.model, half_precision(model.params)
    if refused := inexpressible(config, _SETTINGS) or inexpressible(decoding, _DECODING):
        raise InputError(f"--live: {refused}; {_REMEDY}")
    size, module, arrays = _checked_size(params), model.module, named_leaves(params)
    halves = b"".join(array.astype("<f2").tobytes() for array in arrays.values())
    marks = {
        side: [*getattr(module, name, b"")]
        for side, name in (("source", "word_starts"), ("target", "tags"))
    }
    source, target = model.vocabulary, model.target_vocabulary
    corpus = model.run.corpus if model.run.sources == Sources() else "files"  # that was read
    return {
        "facts": f"{model.description}; {config.num_layers} + {config.num_decoder_layers} layers, "
        f"{config.num_heads} heads, {size:,} parameters",
        "parses": model.run.task.verb == "parses",
        "config": vars(config),
        "decoding": vars(decoding),
        "max_source": model.config.data.max_length,
        "hint": HINTS.get(corpus, ""),
        "views": VIEWS,
        "examples": _DEMO if corpus == "demo" else (),
        "source": {**_shown(source), **_cutting(source)},
        "target": _shown(target),
        "marks": marks if any(marks.values()) else {},
        "parameters": [(name, array.size) for name, array in arrays.items()],
        "weights": base64.b64encode(halves).decode("ascii"),
    }


def half_precision(params: Params) -> Params:
    """Return parameters rounded to float16, in float32: those of the page.

    The bias of a token that an imported model never writes becomes the lowest number of float16.
    """

    def rounded(array: Any) -> Any:
        finite = np.where(array == NEVER, np.finfo(np.float16).min, array)
        return finite.astype(np.float16).astype(np.float32)

    with np.errstate(over="ignore"):  # infinite numbers are refused
        return jax.tree.map(rounded, jax.device_get(params))


def _checked_size(params: Params) -> int:
    """Return the number of parameters. Raises InputError for those that the page cannot hold."""
    leaves = jax.tree.leaves(params)
    if (size := sum(leaf.size for leaf in leaves)) > MOST_PARAMETERS:
        raise InputError(
            f"--live: expected at most {MOST_PARAMETERS:,} parameters, found {size:,}; {_REMEDY}"
        )
    if not all(np.isfinite(leaf).all() for leaf in leaves):
        raise InputError(
            "--live: expected parameters of at most 65,504, as float16 has, found a larger one; "
            + _REMEDY
        )
    return size


def _shown(vocabulary: Vocabulary) -> dict[str, Any]:
    """Return the pieces of all ids, and the special ids."""
    pieces = [*vocabulary.all_pieces]
    if isinstance(vocabulary, LabelVocabulary):
        pieces = [f" {piece}" if piece else "" for piece in pieces]
        pieces[vocabulary.bos_id], pieces[vocabulary.eos_id] = "<s>", "</s>"
    ids = {name: getattr(vocabulary, name) for name in ("pad_id", "bos_id", "eos_id", "unk_id")}
    return {"pieces": pieces, **ids}


def _cutting(vocabulary: Vocabulary) -> dict[str, Any]:
    """Return what vocabulary.js needs to cut text. Raises InputError for other algorithms."""
    model = byte_pair_model(vocabulary.sentencepiece or b"")
    plain = not isinstance(vocabulary, PieceTable) or vocabulary.is_plain
    if model is None or not plain:
        raise InputError(
            "--live: expected a vocabulary of sentencepiece's byte pairs (BPE), without tags, "
            "added pieces or normalization of punctuation, found another; "
            f"{_REMEDY}"
        )
    charsmap = base64.b64encode(model.charsmap).decode("ascii")
    return {**model._asdict(), "charsmap": charsmap}
