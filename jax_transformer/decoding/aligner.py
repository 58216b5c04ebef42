"""Word alignments of lines of text, over all devices."""

import difflib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice

import numpy as np
from jaxtyping import Array, Float, Int

from jax_transformer.data.vocabulary import Vocabulary
from jax_transformer.decoding.alignments import (
    Alignment,
    cross_attention,
    word_alignment,
    words_of,
)
from jax_transformer.decoding.generate import Ensemble
from jax_transformer.decoding.translator import Translation, Translator
from jax_transformer.errors import InputError
from jax_transformer.models.transformer import Transformer
from jax_transformer.parallel import Devices
from jax_transformer.types import AnyArray, Params


def align_pairs(
    translator: Translator,
    pairs: Sequence[tuple[str, str]],
    *,
    layer: int | None = None,
    head: int | None = None,
) -> list[Alignment]:
    """Return the word alignment of each (source, target); empty if a side is blank.

    layer: of the decoder, from 0; None takes the last but one, of two the last.
    head: from 0; None takes the mean of the heads.

    Words stand between spaces or tabs. Each word of a target belongs to one word of its source. A
    word has no partner if it stands after the tokens that the translator takes of a line.
    Raises InputError if there is no such layer or head, or if the model's weights are not finite.
    """
    model, bos_id = translator.model, translator.target_vocabulary.bos_id
    if isinstance(model, Ensemble):
        raise InputError("alignments: expected one model, found an ensemble; align with a member")
    config = model.config
    if layer is None:  # of two layers the last aligns far better (docs/measurements)
        layer = max(config.num_decoder_layers - 2, min(config.num_decoder_layers - 1, 1))
    _check("layer", layer, config.num_decoder_layers, "decoder layers")
    if head is not None:
        _check("head", head, config.num_heads, "heads")
    sources, source_words = encode_words(translator.vocabulary, [s for s, _ in pairs])
    targets, target_words = encode_words(translator.target_vocabulary, [t for _, t in pairs])
    sources = [ids[: translator.max_source - 1] for ids in sources]
    targets = [ids[: translator.max_target - 1] for ids in targets]
    for row, (source, target) in enumerate(zip(sources, targets, strict=True)):
        if not (source and target):  # `batches` leaves out rows without a token
            sources[row], targets[row] = [], []
    weights_of = _compiled(translator.devices, model, bos_id, layer, head)  # pyright: ignore
    found: list[Alignment] = [[] for _ in pairs]
    for rows, weights in translator.map_batches(weights_of, translator.batches(sources, targets)):
        for row, own in zip(rows, weights, strict=False):
            if not np.isfinite(own).all():
                raise InputError(
                    f"pair {row + 1:,}: expected finite attention weights, found others; use "
                    "another checkpoint"
                )
            kept = source_words[row][: len(sources[row])], target_words[row][: len(targets[row])]
            found[row] = word_alignment(own, *kept)
    return found


def stream_alignments(
    translator: Translator,
    found: Iterable[tuple[str, list[Translation]]],
    window: int,
    *,
    layer: int | None = None,
    head: int | None = None,
) -> Iterator[tuple[str, list[Translation], list[Alignment]]]:
    """Yield each line with its translations and their alignments, in order.

    found: lines and translations. `window` of them are read at a time.
    layer, head: as in `align_pairs`.
    """
    remaining = iter(found)
    while part := list(islice(remaining, window)):
        pairs = [(line, each.text) for line, translations in part for each in translations]
        alignments = iter(align_pairs(translator, pairs, layer=layer, head=head))
        for line, translations in part:
            yield line, translations, list(islice(alignments, len(translations)))


def encode_words(
    vocabulary: Vocabulary, lines: Sequence[str]
) -> tuple[list[list[int]], list[list[int]]]:
    """Return the ids of each line, none for white space, and the word that each id is part of.

    Each word is encoded alone too, which gives the same ids with most vocabularies. If it does
    not, as with Moses' tokenizer and a full stop, ids that differ are shared out in order.
    """
    lines = ["" if line.isspace() else line for line in lines]
    ids = vocabulary.encode_batch(lines)
    split = [words_of(line) for line in lines]
    words = sorted({word for line in split for word in line})
    alone = dict(zip(words, vocabulary.encode_batch(words), strict=True))
    return ids, [
        _word_numbers(own, [alone[word] for word in line])
        for own, line in zip(ids, split, strict=True)
    ]


def _word_numbers(ids: Sequence[int], words: Sequence[list[int]]) -> list[int]:
    """Return the word of each of a line's ids, by the ids of each word alone."""
    alone = [index for word in words for index in word]
    numbers = [number for number, word in enumerate(words) for _ in word]
    if alone == ids or not numbers:
        return numbers or [0] * len(ids)
    result = list[int]()
    matcher = difflib.SequenceMatcher(None, alone, ids, autojunk=False)
    for _, start, end, first, last in matcher.get_opcodes():
        for i in range(last - first):
            place = start + i * (end - start) // (last - first)
            result.append(numbers[min(place, len(numbers) - 1)])
    return result


@lru_cache(maxsize=16)  # so that a model compiles once, whatever its parameters
def _compiled(
    devices: Devices, model: Transformer, bos_id: int, layer: int, head: int | None
) -> Callable[[Params, tuple[AnyArray, AnyArray]], Array]:
    def weights(
        params: Params, pairs: tuple[Int[AnyArray, "B S"], Int[AnyArray, "B T"]]
    ) -> Float[Array, "B T S"]:
        return cross_attention(model, params, *pairs, bos_id=bos_id, layer=layer, head=head)

    return devices.map_rows(weights)


def _check(name: str, number: int, count: int, what: str) -> None:
    """Raise InputError unless the number is one of `count`."""
    if not (type(number) is int and 0 <= number < count):
        raise InputError(
            f"align: expected {name} from 0 to {count - 1} of the model's {count} {what}, found "
            f"{number!r}; give another {name}"
        )
