"""Word alignments of lines: which words, in which order, whatever batch and devices."""

import random
import time
from functools import partial

import jax
import numpy as np
import pytest
from refusals import refusal
from tiny_translator import model_of, params_of

from jax_transformer.config import DecodingConfig
from jax_transformer.data.vocabularies.bpe import BpeContent, BpeVocabulary
from jax_transformer.decoding.alignments import align_pairs, encode_words, word_parts
from jax_transformer.decoding.generate import attention_maps
from jax_transformer.decoding.translator import Translator
from jax_transformer.parallel import Devices

PAIRS = [
    ("the cat sat", "die katze sitzt"),
    ("", "die matte"),
    ("a cat and the katze", "  die   matte "),
    ("cat", "\t"),
    ("the mat sat on a katze", "a"),
    ("sitzt", "die katze auf der matte"),
]
DECODING = DecodingConfig(beam_size=1, max_extra_length=4, batch_tokens=60)
MAX_LENGTH = 20


@pytest.fixture(scope="module")
def translators(vocabulary):
    """The translators by their number of devices."""
    model = model_of(vocabulary, decoder_layers=3)
    own = model, params_of(model), vocabulary, DECODING
    return {n: Translator(*own, max_length=MAX_LENGTH, devices=Devices(n)) for n in (1, 3)}


@pytest.fixture(scope="module")
def maps_of(translators):
    """`attention_maps` of one pair, both of the same length for all pairs."""
    return jax.jit(partial(attention_maps, translators[1].model, translators[1].params))


def aligned_alone(vocabulary, maps_of, source, target, layer, head):
    """A pair's alignment by the maps of attention_maps, and by U+2581 in the pieces."""
    sides = [vocabulary.encode(source), vocabulary.encode(target)]
    words = [
        np.cumsum([piece.startswith("\u2581") for piece in vocabulary.pieces(ids)]) - 1
        for ids in sides
    ]
    source_ids, target_ids = np.full((2, 1, MAX_LENGTH), vocabulary.pad_id)
    source_ids[0, : len(sides[0]) + 1] = [*sides[0], vocabulary.eos_id]
    target_ids[0, : len(sides[1]) + 1] = [vocabulary.bos_id, *sides[1]]
    maps = maps_of(source_ids, target_ids)
    weights = np.asarray(maps[f"decoder_{layer}/cross_attention"][0], np.float64)[head]
    weights = weights.mean(axis=0) if weights.ndim == 3 else weights
    weights = weights[: len(sides[1]), : len(sides[0])]
    found = []
    for word in range(words[1].max() + 1):
        rows = weights[words[1] == word].mean(axis=0)
        found.append((np.bincount(words[0], rows).argmax(), word))
    return sorted(found)


@pytest.mark.parametrize(
    ("count", "options", "layer", "head"),
    [(3, {}, 1, slice(None)), (1, {"layer": 2, "head": 0}, 2, 0)],
)
def test_alignments_of_a_batch_are_those_of_each_pair_alone(
    translators, vocabulary, maps_of, count, options, layer, head
):
    found = align_pairs(translators[count], PAIRS, **options)
    assert [len(each) for each in found] == [3, 0, 2, 0, 1, 5]
    assert len({source for each in found for source, _ in each}) > 2  # so a mistake can be seen
    for (source, target), alignment in zip(PAIRS, found, strict=True):
        if alignment:
            assert alignment == aligned_alone(vocabulary, maps_of, source, target, layer, head)


def test_of_two_layers_the_last_aligns(vocabulary):
    model = model_of(vocabulary, decoder_layers=2)
    own = model, params_of(model), vocabulary, DECODING
    translator = Translator(*own, max_length=MAX_LENGTH, devices=Devices(1))
    found, last, first = (align_pairs(translator, PAIRS, layer=layer) for layer in (None, 1, 0))
    assert found == last != first


def test_words_after_the_longest_length_have_no_partner(translators):
    long = "a " * 100
    ((*_, last),) = align_pairs(translators[1], [("cat", long)])
    assert last == (0, MAX_LENGTH + DECODING.max_extra_length - 2)
    (alignment,) = align_pairs(translators[1], [(long, "the cat sat on the mat")])
    assert max(alignment)[0] <= MAX_LENGTH - 2


def test_a_layer_or_head_that_is_not_there_and_weights_that_are_not_finite_are_refused(translators):
    for name, wrong, most in [("layer", 3, 2), ("layer", -1, 2), ("head", 2, 1)]:
        message = refusal(align_pairs, translators[1], PAIRS, **{name: wrong})
        assert f"{name} {wrong}: " in message
        assert f"one from 0 to {most}" in message
    broken = jax.tree.map(lambda leaf: np.full_like(leaf, np.nan), translators[1].params)
    message = refusal(align_pairs, translators[1].with_params(broken), [("", ""), ("a", "a")])
    assert message.startswith("pair 2: ")


# ---- Words and their pieces -----------------------------------------------------------------

PIECES = ["<s>", "<pad>", "</s>", "<unk>", "lo@@", "w", "e@@", "r", "."]
SPECIAL = {"bos_id": 2, "pad_id": 1, "eos_id": 2, "unk_id": 3}


def bpe(**options):
    return BpeVocabulary.make(
        BpeContent(pieces=PIECES, merges=["l o"], end_apart=False, **SPECIAL, **options)
    )


def words_of_pieces(vocabulary, line):
    """The pieces of each word of a line, in order."""
    (ids,), (parts,) = encode_words(vocabulary, [line])
    words = dict[int, str]()
    for part in parts:
        (piece,) = vocabulary.pieces([ids[part.piece]])
        words[part.word] = words.get(part.word, "") + piece
    return {word: text.replace("\u2581", "") for word, text in words.items()}


def test_pieces_belong_to_the_words_between_spaces(vocabulary):
    assert words_of_pieces(vocabulary, "the katze") == {0: "the", 1: "katze"}
    assert words_of_pieces(vocabulary, "  a\tmat  cat ") == {0: "a", 1: "mat", 2: "cat"}
    assert {*words_of_pieces(vocabulary, "cat\u00a0cat")} == {0}
    assert encode_words(vocabulary, ["", " \u00a0 "]) == ([[], []], [[], []])


def test_a_letter_of_a_script_without_spaces_is_a_word_and_one_piece_may_be_several():
    pieces = [" ", "\u559c\u6b22", "GP", "U", "\u3002", "\u5f88"]
    assert word_parts("\u559c\u6b22GPU\u3002\u5f88", pieces) == [
        (0, 0), (1, 0), (1, 1), (2, 2), (3, 2), (5, 3),
    ]  # fmt: skip
    # Neighbours that the vocabulary lacks are one UNK.
    unknown = word_parts("a\u597d\u7684\u5417 b", [" a", "\u2047", " b"])
    assert unknown == [(0, 0), (1, 1), (1, 2), (1, 3), (2, 4)]
    # The vowel of a Thai letter is a mark on it.
    assert word_parts("\u0e01\u0e34\u0e19", ["\u0e01\u0e34", "\u0e19"]) == [(0, 0), (1, 1)]


def test_punctuation_belongs_to_no_word_but_its_own():
    assert word_parts("Er, ja -", [" Er", ",", " j", "a", " -"]) == [(0, 0), (2, 1), (3, 1), (4, 2)]
    assert word_parts("p.m.", [" p.m", "."]) == [(0, 0)]
    assert word_parts("a \u200b b", [" a", " b"]) == [(0, 0), (1, 2)]  # read as a space
    assert word_parts("a \u0301 b", [" a", "\u2047", " b"]) == [(0, 0), (1, 1), (2, 2)]


def test_bytes_and_letters_that_the_vocabulary_changes_belong_to_their_word():
    pieces = [" caf", b"\xc3", b"\xa9", " o", "le"]
    assert word_parts("caf\u00e9 ole", pieces) == [(0, 0), (1, 0), (2, 0), (3, 1), (4, 1)]
    assert word_parts("cafe\u0301 ole", pieces) == [(0, 0), (1, 0), (2, 0), (3, 1), (4, 1)]
    assert word_parts("\u2603\u2603 a b", [" \u2047 ", " a", " b"]) == [(0, 0), (1, 1), (2, 2)]


def test_a_long_line_whose_letters_differ_from_its_pieces_is_read_in_blocks():
    draw = random.Random(1)
    words = ["".join(draw.choices("abcdefghijklmnop", k=8)) for _ in range(1000)]
    words[::9] = ["\ufb03" + word for word in words[::9]]  # which stands for three letters
    words[300] = "\u2603" * 1500  # of which UNK is one
    pieces = [" \u2047 " if word[0] == "\u2603" else f" {word}" for word in words]
    pieces = [piece.replace("\ufb03", "ffi") for piece in pieces]
    begin = time.process_time()
    assert word_parts(" ".join(words), pieces) == [(i, i) for i in range(len(words))]
    assert time.process_time() - begin < 3  # 20 in one block


def test_pieces_with_a_sign_of_continuation_belong_to_one_word():
    ids, words = encode_words(bpe(), ["low er low", "\u00e9 er"])
    assert ids[0] == [4, 5, 6, 7, 4, 5]
    assert [[part.word for part in own] for own in words] == [[0, 0, 1, 1, 2, 2], [0, 1, 1]]


def test_tokens_of_moses_belong_to_the_words_of_the_text():
    moses = bpe(moses=True, source_language="en", target_language="en")
    # "er." is one token before a word in lower case, and two alone.
    line = "low er. low"
    ids, (parts,) = encode_words(moses, [line])
    assert ids[0] != [index for word in line.split() for index in moses.encode(word)]
    assert [part.word for part in parts if ids[0][part.piece] != PIECES.index(".")] == [
        0, 0, 1, 1, 2, 2,
    ]  # fmt: skip
