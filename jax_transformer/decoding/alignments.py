"""§3.2.3 Attention over lines of text: word alignments, and maps of a sentence pair.

Axes: B pairs, S source pieces, T target pieces.
"""

import difflib
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Array, Float, Int

from jax_transformer.checks import is_whole
from jax_transformer.data.scripts import word_spans
from jax_transformer.data.vocabularies.base import Vocabulary
from jax_transformer.decoding.batches import padded_length
from jax_transformer.decoding.generate import attention_maps
from jax_transformer.decoding.line_search import NotFiniteError, places
from jax_transformer.decoding.translator import Translator
from jax_transformer.errors import InputError
from jax_transformer.models.transformer import Transformer
from jax_transformer.parallel import Devices, check_not_forked
from jax_transformer.training.train_step import shift_right
from jax_transformer.types import AnyArray, Params

_BLOCK = 1000  # letters that are matched at once, because time grows faster than their square

Alignment = list[tuple[int, int]]  # (number of a source word, number of a target word), from 0


def cross_attention(
    model: Transformer,
    params: Params,
    source: Int[AnyArray, "B S"],
    target: Int[AnyArray, "B T"],
    *,
    bos_id: int,
    layer: int,
    head: int | None = None,
) -> Float[Array, "B T S"]:
    """Return the attention over the source in the step that predicts each target token.

    Both sides end with EOS, then PAD. layer: the decoder's, from 0. head: None for their mean.
    """
    maps = attention_maps(model, params, source, shift_right(target, bos_id))
    weights = maps[f"decoder_{layer}/cross_attention"]  # [B, H, T, S]
    return weights.mean(axis=1) if head is None else weights[:, head]


def word_alignment(
    weights: Float[np.ndarray, "T S"], source_words: Sequence[int], target_words: Sequence[int]
) -> Alignment:
    """Return the (source word, target word) pairs of one sentence pair, in ascending order.

    Weights are summed over the pieces of a source word and averaged over those of a target word;
    each target word then belongs to the source word of the largest weight, the first of equal ones.

    weights: the attention of the step that predicts target piece t, over source pieces s. Rows and
      columns after the last piece of a word do not count.
    source_words, target_words: the number of the word that each piece is part of.

    "old dogs" has three source pieces, two of them of "dogs", and "alte Hunde" two target pieces:

    >>> weights = np.array([[0.5, 0.3, 0.1, 0.1], [0.1, 0.2, 0.1, 0.6]])
    >>> word_alignment(weights, source_words=[0, 1, 1], target_words=[0, 1])
    [(0, 0), (1, 1)]
    """
    if not source_words or not target_words:
        return []
    weights = weights[: len(target_words), : len(source_words)]
    sources, source_of = np.unique(source_words, return_inverse=True)
    targets, target_of = np.unique(target_words, return_inverse=True)
    # The sum over target pieces has its maximum where the mean has it.
    totals = np.eye(len(targets))[:, target_of] @ weights @ np.eye(len(sources))[source_of]
    best = sources[totals.argmax(axis=1)]
    return sorted(zip(best.tolist(), targets.tolist(), strict=True))


def moses(alignment: Alignment) -> str:
    """Write an alignment as Moses' tools read it.

    >>> moses([(0, 0), (2, 1)])
    '0-0 2-1'
    """
    return " ".join(f"{source}-{target}" for source, target in alignment)


def align_pairs(
    translator: Translator,
    pairs: Sequence[tuple[str, str]],
    *,
    layer: int | None = None,
    head: int | None = None,
    first: int | None = 1,
) -> list[Alignment]:
    """Return the word alignment of each (source, target); empty if a side is blank.

    layer: the decoder's layer, from 0; None is the second-to-last, or the last of two.
    head: a head, from 0; None for the mean of the heads.
    first: the number of the first pair in messages; None for lists.

    Words are those of `data.scripts.word_spans`. Each word of a target belongs to one word of its
    source; it has no partner if it stands after the tokens that the translator takes of a line, or
    the vocabulary drops it, such as a zero-width space alone.
    Raises InputError if there is no such layer or head, or if the model's weights are not finite.
    """
    model, bos_id = translator.model, translator.target_vocabulary.bos_id
    config = model.config
    if layer is None:  # of two layers the last aligns far better (docs/measurements)
        layer = max(config.num_decoder_layers - 2, min(config.num_decoder_layers - 1, 1))
    _check("layer", layer, config.num_decoder_layers, "decoder layers")
    if head is not None:
        _check("head", head, config.num_heads, "heads")
    sources, source_parts = encode_words(translator.vocabulary, [s for s, _ in pairs])
    targets, target_parts = encode_words(translator.target_vocabulary, [t for _, t in pairs])
    sources = [ids[: translator.max_source - 1] for ids in sources]
    targets = [ids[: translator.max_target - 1] for ids in targets]
    for row, (source, target) in enumerate(zip(sources, targets, strict=True)):
        if not (source and target):  # `Batches.of` leaves out rows without a token
            sources[row], targets[row] = [], []
    weights_of = _compiled(translator.devices, model, bos_id, layer, head)  # pyright: ignore
    found: list[Alignment] = [[] for _ in pairs]
    for rows, weights in translator.map_batches(
        weights_of, translator.batches.of(sources, targets)
    ):
        for row, own in zip(rows, weights, strict=False):
            if not np.isfinite(own).all():
                place = places("targets", "pair", len(pairs), first)[row]
                raise NotFiniteError(
                    f"{place}: expected finite attention weights, found others; use another "
                    "checkpoint"
                )
            source = [part for part in source_parts[row] if part.piece < len(sources[row])]
            target = [part for part in target_parts[row] if part.piece < len(targets[row])]
            each = [part.piece for part in target], [part.piece for part in source]
            words = [part.word for part in source], [part.word for part in target]
            found[row] = word_alignment(own[np.ix_(*each)], *words)
    return found


class AttentionMap(NamedTuple):
    """The weights of one attention of one layer: `weights[h, q, k]` of query q and key k."""

    weights: Float[np.ndarray, "H Q K"]  # each row over K sums to 1
    queries: list[str]  # the Q pieces
    keys: list[str]  # the K pieces


def maps_of_pair(translator: Translator, source: str, target: str) -> dict[str, AttentionMap]:
    """Return the weights of every attention on a sentence pair, by the names of `attention_maps`.

    The pieces of a source end with the end mark; those of the decoder are the ones that it reads,
    from the begin mark on. Raises InputError for a sentence that is blank or too long.
    """
    check_not_forked()
    vocabularies = translator.vocabulary, translator.target_vocabulary
    most, texts = translator.max_source, {"source": source, "target": target}
    tokens = [
        sentence_tokens(vocabulary, name, text, most)
        for vocabulary, (name, text) in zip(vocabularies, texts.items(), strict=True)
    ]
    sides = [*tokens[0], vocabularies[0].eos_id], [vocabularies[1].bos_id, *tokens[1]]
    length = padded_length(max(map(len, sides)), most)  # so that few lengths are compiled
    rows = []
    for vocabulary, ids in zip(vocabularies, sides, strict=True):
        padded = np.full((translator.devices.count, length), vocabulary.pad_id)
        padded[:, : len(ids)] = ids
        rows.append(padded)
    compiled = _compiled_maps(translator.devices, translator.model)  # pyright: ignore
    found = translator.devices.gather(compiled(translator.params, tuple(rows)))
    encoder, decoder = (v.pieces(ids) for v, ids in zip(vocabularies, sides, strict=True))
    maps = dict[str, AttentionMap]()
    for name, weights in found.items():
        queries = encoder if name.startswith("encoder") else decoder
        keys = encoder if name.endswith("cross_attention") else queries
        maps[name] = AttentionMap(weights[0, :, : len(queries), : len(keys)], queries, keys)
    return maps


def sentence_tokens(vocabulary: Vocabulary, name: str, text: str, longest: int) -> list[int]:
    """Return the ids of a sentence. Raises InputError with the name if it is blank or too long."""
    tokens, most = vocabulary.encode(text), longest - 1
    if not 0 < len(tokens) <= most:
        raise InputError(
            f"{name}: expected a sentence of 1 to {most:,} tokens, found {len(tokens):,}; give "
            "another sentence"
        )
    return tokens


class Part(NamedTuple):
    """A piece that stands for some letters of a word, by the numbers of both in their line."""

    piece: int
    word: int


def encode_words(
    vocabulary: Vocabulary, lines: Sequence[str]
) -> tuple[list[list[int]], list[list[Part]]]:
    """Return the ids of each line, and its `word_parts`."""
    encoded = vocabulary.encode_batch(lines)
    texts = vocabulary.piece_texts
    return encoded, [
        word_parts(line, [texts[index] for index in ids])
        for line, ids in zip(lines, encoded, strict=True)
    ]


def word_parts(line: str, pieces: Sequence[str | bytes]) -> list[Part]:
    """Return the parts of a line's words. pieces: what each piece adds to the text.

    A piece of several words is a part of each, as one unknown token for several letters that are
    words. A piece without a letter or a digit is not a part of a word that has other pieces.
    """
    letters = [
        (line[place], word)
        for word, span in enumerate(word_spans(line))
        for place in range(*span)
        if not (line[place].isspace() or line[place] in "\u200b\ufeff")  # read as a space
    ]
    plain = ["".join(_as_text(piece).split()) for piece in pieces]
    ends = list(accumulate(map(len, plain), initial=0))
    places = [*_places([letter for letter, _ in letters], "".join(plain)), len(letters)]
    parts, marks = dict[Part, None](), dict[Part, None]()
    for number, (first, end) in enumerate(pairwise(ends)):
        if first == end:  # a space, which begins the next word, or the last byte of a letter
            first -= isinstance(pieces[number], bytes)
        for letter, word in letters[places[first] : max(places[end], places[first] + 1)]:
            (parts if letter.isalnum() else marks)[Part(number, word)] = None
    named = {part.word for part in parts}
    return sorted([*parts, *(mark for mark in marks if mark.word not in named)])


def _places(line: Sequence[str], text: str) -> list[int]:
    """Return the place in the line of each letter of the text, which may differ from the line."""
    if len(line) == len(text):
        return list(range(len(line)))
    places, begin, size = list[int](), 0, _BLOCK
    while len(places) < len(text):
        own, rest = line[begin : begin + size], text[len(places) : len(places) + size]
        parts = difflib.SequenceMatcher(None, own, rest, autojunk=False).get_opcodes()
        if begin + size < len(line) or len(places) + size < len(text):
            # What follows the last match may match letters of the next block.
            while parts and parts[-1][0] != "equal":
                parts.pop()
            size = _BLOCK if parts else 2 * size
        for _, start, end, first, last in parts:
            for i in range(last - first):
                place = begin + start + i * (end - start) // (last - first)
                places.append(min(place, len(line) - 1))
        begin += parts[-1][2] if parts else 0
    return places


def _as_text(piece: str | bytes) -> str:
    if isinstance(piece, str):
        return piece
    return "" if 0x80 <= piece[0] < 0xC0 else "a"  # a letter for the first byte of a character


@lru_cache(maxsize=16)  # so that a model compiles once, whatever its parameters
def _compiled(
    devices: Devices, model: Transformer, bos_id: int, layer: int, head: int | None
) -> Callable[[Params, tuple[AnyArray, AnyArray]], Array]:
    chosen = {"bos_id": bos_id, "layer": layer, "head": head}
    return devices.map_rows(lambda params, pairs: cross_attention(model, params, *pairs, **chosen))


@lru_cache(maxsize=16)
def _compiled_maps(devices: Devices, model: Transformer) -> Callable[..., Any]:
    return devices.map_rows(lambda params, rows: attention_maps(model, params, *rows))


def _check(name: str, number: int, count: int, what: str) -> None:
    if not (is_whole(number) and 0 <= number < count):
        raise InputError(
            f"alignment {name} {number!r}: the model has {count} {what}; choose one from 0 to "
            f"{count - 1}"
        )
