"""§3.2.3 One HTML file that shows where each token attends, in every layer and head."""

import unicodedata
from collections.abc import Mapping, Sequence
from itertools import count, takewhile
from typing import Any

import numpy as np
from jaxtyping import Float

from jax_transformer.data.scripts import words_of
from jax_transformer.data.vocabularies.base import spelled
from jax_transformer.decoding.alignments import Alignment, AttentionMap
from jax_transformer.errors import InputError
from jax_transformer.runs.model import TrainedModel
from jax_transformer.viewer.page import page

SHIFT = "A position of the decoder reads one token and predicts the next"
# The three attentions: title, name in `TrainedModel.attention_maps`, hint.
VIEWS = [
    ("encoder self-attention", "encoder_{}/self_attention", "Each token sees the whole source."),
    ("decoder self-attention", "decoder_{}/self_attention", f"{SHIFT}; it sees no later position."),
    ("cross-attention", "decoder_{}/cross_attention", f"{SHIFT}; it sees the whole source."),
]


def attention_page(model: TrainedModel, source: str, target: str, *, forced: bool) -> str:
    """Return the page of a sentence pair as text. It contains all it needs, so it works offline.

    forced: True if the target was given, rather than translated by the model.

    Raises InputError for an empty sentence, or one that is too long.
    """
    if not forced:  # a model can write U+2028 and its like, which are refused in a target
        target = " ".join(target.splitlines())
    try:
        maps, (alignment,) = model.attention_maps(source, target), model.align([source], [target])
    except InputError as error:
        if forced or not str(error).startswith("target"):
            raise
        raise InputError(f"source: its translation cannot be shown: {error}") from None
    target_vocabulary = model.target_vocabulary
    views = _views(maps, target_vocabulary.all_pieces[target_vocabulary.eos_id])
    weights = maps["encoder_0/self_attention"].weights
    layers = " + ".join(str(len(view["layers"])) for view in views[:2])
    content = {
        "source": source,
        "target": target,
        "forced": forced,
        "facts": f"{model.description}; {layers} layers, {len(weights)} heads",
        "heads": len(weights),
        "words": aligned_words(words_of(source), words_of(target), alignment),
        "views": views,
    }
    return page("attention_page.html", content)


def aligned_words(
    source_words: Sequence[str], target_words: Sequence[str], alignment: Alignment
) -> list[tuple[str, str]]:
    """Return the words of each pair, without punctuation at them, which alignments do not count.

    >>> aligned_words(["Yes,", "I", "know."], ["Ich", "weiß."], [(1, 0), (2, 1)])
    [('I', 'Ich'), ('know', 'weiß')]
    """
    return [(_bare(source_words[i]), _bare(target_words[j])) for i, j in alignment]


def _bare(word: str) -> str:
    kept = [i for i, letter in enumerate(word) if unicodedata.category(letter)[0] != "P"]
    return word[kept[0] : kept[-1] + 1] if kept else word


def _views(maps: Mapping[str, AttentionMap], end: str) -> list[dict[str, Any]]:
    """Return the content of each of VIEWS: queries, keys, and the weights of every layer.

    The decoder reads the target shifted right: its position t reads target token t - 1, which is
    the begin mark at 0, and predicts token t, the last one `end`.
    """
    shown = []
    for title, name, hint in VIEWS:
        numbered = map(name.format, count())
        layers = [maps[each] for each in takewhile(maps.__contains__, numbered)]
        queries, keys = _tokens(layers[0].queries), _tokens(layers[0].keys)
        if name.startswith("decoder"):
            following = [token["text"] for token in queries[1:]] + [end]
            for token, text in zip(queries, following, strict=True):
                token["writes"] = text.strip()
        weights = [_rounded(layer.weights) for layer in layers]
        shown.append(
            {"name": title, "hint": hint, "queries": queries, "keys": keys, "layers": weights}
        )
    return shown


def _tokens(pieces: Sequence[str]) -> list[dict[str, str]]:
    """Return pieces as text, with a space where a word starts."""
    return [{"text": spelled(piece)} for piece in pieces]


def _rounded(weights: Float[np.ndarray, "H Q K"]) -> list[list[list[float]]]:
    """Return weights by queries, heads and keys, right to 0.00005."""
    return np.asarray(weights, np.float64).transpose(1, 0, 2).round(4).tolist()
