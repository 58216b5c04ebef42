"""Byte pairs and Moses' rules against subword-nmt, fastBPE, fairseq and FSMTTokenizer.

Against the record everywhere, and against the programs themselves where they are installed.
"""

import importlib
import json
import lzma
import random
import re
import time
import timeit
import unicodedata
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusals import refusal
from sacremoses import MosesPunctNormalizer

from jax_transformer.data.moses import Moses, normalizer
from jax_transformer.data.vocabularies import read_vocabulary
from jax_transformer.data.vocabularies.bpe import (
    END,
    BpeContent,
    BpeVocabulary,
    Codes,
    Merges,
    parse_codes,
)

RECORD = Path(__file__).parents[1] / "recorded" / "bpe.json.xz"
PROGRAMS = ["fairseq", "fastBPE", "subword_nmt", "transformers"]
SPECIAL = {"bos_id": 2, "pad_id": 1, "eos_id": 2, "unk_id": 3}
NAMES = ["<s>", "<pad>", "</s>", "<unk>"]
LANGUAGES = {"fsmt_ende": ("en", "de"), "fsmt_fren": ("fr", "en")}


@pytest.fixture(scope="module", params=["recorded", "live"])
def theirs(request) -> dict[str, Any]:
    """Text, and what the other programs make of it."""
    if request.param == "recorded":
        return json.loads(lzma.decompress(RECORD.read_bytes()))
    return live().record()


def seconds(call: Callable[[], object]) -> float:
    """Processor time of the fastest of three calls, without collecting garbage."""
    return min(timeit.repeat(call, timer=time.process_time, number=1, repeat=3))


def live() -> Any:
    for program in PROGRAMS:
        pytest.importorskip(program)
    return importlib.import_module("tools.record.bpe_recipe")


def pieces_of(codes: str, lines: list[str]) -> list[str]:
    """Each line's words cut into pieces, as subword-nmt writes them."""
    merges = Merges(parse_codes(codes.split("\n"), "codes"))
    return [
        " ".join("@@ ".join(merges.cut(word)) for word in line.split(" ") if word) for line in lines
    ]


def vocabulary(pieces: list[str], codes: str = "#version: 0.2\n", **options: Any) -> BpeVocabulary:
    merges, end_apart = parse_codes(codes.split("\n"), "codes")
    content = {"pieces": pieces, "merges": [" ".join(merge) for merge in merges]}
    return BpeVocabulary.make(BpeContent(**content, end_apart=end_apart, **SPECIAL, **options))


def fsmt_vocabulary(theirs: dict[str, Any], name: str) -> BpeVocabulary:
    source, target = LANGUAGES[name]
    moses = {"moses": True, "normalize": True, "lower_case": name == "fsmt_fren"}
    spelling = {"continuation": "", "end": "</w>"}
    languages = {"source_language": source, "target_language": target}
    return vocabulary(theirs["pieces"], theirs["codes"], **moses, **spelling, **languages)


# ---- Words ----------------------------------------------------------------------------------


def test_words_are_cut_as_subword_nmt_and_fastbpe_cut_them(theirs):
    codes, expected = theirs["codes"], theirs["subword_nmt"] | {"fastbpe": theirs["fastbpe"]}
    head, *merges = codes.splitlines()
    others = {
        "0.1": codes.replace(head, "#version: 0.1"),
        "none": "\n".join(merges),
        "fastbpe": "".join(f"{merge} {1000 - i}\n" for i, merge in enumerate(merges)),
    }
    for version in ("0.2", "0.1", "none", "words", "fastbpe"):
        lines = theirs["lines"] if version == "words" else theirs["tokens"]["en"]
        found = pieces_of(others.get(version, codes), lines)
        assert found == [line.strip() for line in expected[version]], version


def test_of_equal_merges_the_first_counts():
    """As in subword-nmt; overlapping pairs are merged from the left."""
    assert pieces_of("#version: 0.2\na b\nb c\na b\n", ["abcd"]) == ["ab@@ c@@ d"]
    assert pieces_of("#version: 0.2\nx x\n", ["xxxxx xxxx"]) == ["xx@@ xx@@ x xx@@ x@@ x"]


def test_a_line_that_is_not_a_merge_is_named_and_codes_of_a_later_version_are_refused():
    for line in ("a", "a b c", "a b 1 2", "a  b", ""):
        error = refusal(parse_codes, ["#version: 0.2", "a b", line, "c d"], "codes")
        assert error.startswith("codes, line 3: ")
    assert "0.3" in refusal(parse_codes, ["#version: 0.3", "a b"], "codes")


def by_the_rule(word: str, codes: Codes) -> list[str]:
    """Merge, from left to right, the pair of neighbours that was learned first, until none is."""
    symbols = [*word, END] if codes.end_apart else [*word[:-1], word[-1] + END]
    while learned := [pair for pair in codes.merges if pair in [*pairwise(symbols)]]:
        merged = []
        while symbols:
            count = 2 if tuple(symbols[:2]) == learned[0] else 1
            merged.append("".join(symbols[:count]))
            symbols = symbols[count:]
        symbols = merged
    pieces = symbols[:-1] if symbols[-1] == END else symbols
    return [*pieces[:-1], pieces[-1].removesuffix(END)]


@pytest.mark.parametrize("end_apart", [False, True])
def test_words_are_cut_by_the_rule_whatever_the_order_of_the_merges(end_apart):
    draw = random.Random(0)
    for _ in range(100):
        symbols, merges = ["a", "b", END], dict[tuple[str, str], None]()
        for _ in range(draw.randint(1, 10)):
            left, right = draw.choices(symbols, k=2)
            merges[left, right] = None
            symbols += [left + right, right + END]
        codes = Codes(draw.sample([*merges], len(merges)), end_apart)
        cutter = Merges(codes)
        for length in range(2, 13):
            word = "".join(draw.choices("ab", k=length))
            assert cutter.cut(word) == by_the_rule(word, codes), (word, codes)
            assert cutter.cut_at_random(word, 0.0, draw.random) == cutter.cut(word)
    assert cutter.cut("") == [""]
    assert cutter.cut("a") == ["a"]


def test_the_time_of_a_word_grows_with_its_length_and_not_with_its_square():
    letters = "etaoin"
    symbols = [*letters, *(a + b for a in letters for b in letters)]
    cutter = Merges(Codes([(a, b) for a in symbols for b in symbols], end_apart=False))
    word = "".join(random.Random(0).choices(letters, k=40_000))

    assert "".join(cutter.cut(word)) == word
    # 400 times and more if squared, 45 to 55 as it is.
    assert seconds(lambda: cutter.cut(word)) < 150 * seconds(lambda: cutter.cut(word[:2_000]))


def test_a_line_of_abbreviations_takes_no_longer_than_one_of_words():
    moses = Moses("en", "de", normalize=False)

    words = seconds(lambda: moses.tokens("A,B, " * 500))
    assert seconds(lambda: moses.tokens("A.B. " * 500)) < 10 * max(words, 0.005)


# ---- Moses' rules -----------------------------------------------------------------------------


def test_tokens_and_text_are_fairseq_s(theirs):
    for language, expected in theirs["tokens"].items():
        moses = Moses(language, language, normalize=False)
        assert [" ".join(moses.tokens(line)) for line in theirs["lines"]] == expected
    names = [*NAMES, *dict.fromkeys(" ".join(theirs["outputs"]).replace("<unk>", "").split())]
    ids = {name: index for index, name in enumerate(names)}
    outputs = [[ids[name] for name in line.split()] for line in theirs["outputs"]]
    for language, expected in theirs["text"].items():
        ours = vocabulary(names, moses=True, target_language=language)
        assert ours.decode_batch(outputs) == expected


def test_czech_text_at_which_sacremoses_fails_is_decoded():
    names = [*NAMES, "b&apos;", "-", "mail"]
    ours = vocabulary(names, moses=True, target_language="cs")
    assert ours.decode([4, 5, 6]) == "b' - mail"


def test_full_stops_and_quotation_marks_change_places_as_sacremoses_says_and_in_no_longer_time():
    ours, theirs = normalizer("de"), MosesPunctNormalizer(lang="de")
    draws = random.Random(1)
    for _ in range(1_000):
        text = "".join(draws.choices('..." <a\t”', k=draws.randint(1, 16)))
        assert ours.normalize(text) == theirs.normalize(text), text
    assert seconds(lambda: ours.normalize("." * 30_000)) < 1  # 6 with sacremoses's rule


# ---- Ids --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LANGUAGES)
def test_ids_and_text_are_those_of_fsmttokenizer(theirs, name):
    ours, expected = fsmt_vocabulary(theirs, name), theirs[name]
    assert ours.encode_batch(theirs["lines"]) == expected["ids"]
    assert read_vocabulary(ours.content).encode_batch(theirs["lines"]) == expected["ids"]
    known = [[index for index in row if index != ours.unk_id] for row in expected["ids"]]
    assert ours.decode_batch(known) == expected["text"]


def test_ids_are_fairseq_s_and_a_piece_that_its_dictionary_lacks_is_unk(theirs):
    names = [*NAMES, *theirs["dictionary"]]
    ours = vocabulary(names, theirs["codes"], moses=True, source_language="en")
    both = zip(theirs["lines"], theirs["fairseq_ids"], strict=True)
    for line, ids in both:
        # Letters and marks that the dictionary lacks are composed first, and spaces without width
        # are spaces; in fairseq they are UNK.
        usual = re.sub("[\u200b\ufeff]", " ", unicodedata.normalize("NFC", line))
        assert ours.encode(line) == (ids if line == usual else ours.encode(usual))
    assert sum(3 in row for row in theirs["fairseq_ids"]) > 20


def test_real_text_is_cut_as_fsmttokenizer_cuts_it(newstest2014):
    reference = live()
    lines = (newstest2014 / "newstest2014.en").read_text(encoding="utf-8").split("\n")[:1000]
    german = (newstest2014 / "newstest2014.de").read_text(encoding="utf-8").split("\n")[:1000]
    codes = reference.learned_codes(reference.fairseq_moses(lines, "en"))
    pieces = reference.fsmt_pieces(codes)
    tokenizer = reference.fsmt_tokenizer(codes, pieces, ["en", "de"])
    theirs = {"pieces": list(pieces), "codes": codes}
    ours = fsmt_vocabulary(theirs, "fsmt_ende")
    ids = reference.fsmt_ids(tokenizer, lines + german)
    assert ours.encode_batch(lines + german) == ids
    known = [[index for index in row if index != ours.unk_id] for row in ids]
    assert ours.decode_batch(known) == reference.fsmt_text(tokenizer, known)


def test_words_between_spaces_come_back():
    ours = vocabulary([*NAMES, "lo@@", "w", "w@@", "er"], "#version: 0.2\nl o\ne r</w>\n")
    ids = ours.encode(" low  lower ")
    assert ids == [4, 5, 4, 6, 7]
    assert ours.pieces(ids) == ["lo@@", "w", "lo@@", "w@@", "er"]
    assert ours.decode([*ids, ours.eos_id, ours.pad_id]) == "low lower"


def test_a_word_that_ends_like_a_piece_in_front_of_others_comes_back():
    codes = "#version: 0.2\n@ @</w>\nf o\nfo o\nfoo @@</w>\n"
    ours = vocabulary([*NAMES, "@@", "@@@", "foo@@", "@", "r"], codes)
    for line in ("foo@@ r", "@@ r", "@@", "@@@ r", "foo@@"):
        assert ours.decode(ours.encode(line)) == line


def test_decomposed_letters_stay_if_the_pieces_have_the_marks():
    ours = vocabulary([*NAMES, "u@@", "\u0308@@", "b", "\u00fc@@"])
    assert ours.encode("u\u0308b") == [4, 5, 6]
    assert ours.encode("\u00fcb") == [7, 6]


def test_text_that_spells_a_special_piece_is_text_and_an_unknown_character_is_one_sign():
    """Even if the merges make one piece of it."""
    ours = vocabulary([*NAMES, "a@@", "b"], "#version: 0.2\n< /\n</ s\n</s ></w>\n")
    assert ours.encode("</s> <s>") == [3, 3, 3, 3]
    assert ours.encode("a\u4e00b a") == [4, 3, 5, 3]
    assert ours.decode([4, 3, 5]) == "a\u2047 b"
    ours = vocabulary(NAMES, moses=True, source_language="en")
    assert "U+D800 at character 2 of line 2" in refusal(ours.encode_batch, ["a", "b\ud800"])


def test_damaged_content_is_refused_in_one_line():
    whole = vocabulary(NAMES, "#version: 0.2\nl o\n").content
    changes = [(b'"l o"', b'"lo"'), (b'"l o"', b"7"), (b'"unk_id"', b'"unknown"')]
    changes += [(b'"unk_id":3', b'"unk_id":%d' % wrong) for wrong in (4, 1, -1)]
    damaged = [whole[:-2], b"[" * 100_000, b"\xff", *(whole.replace(*each) for each in changes)]
    for content in damaged:
        refusal(BpeVocabulary, content)


# ---- BPE-dropout ------------------------------------------------------------------------------


def test_dropout_cuts_as_often_as_its_rate_says():
    """Of two merges in a row: the first is passed over, or it is done and the second is not."""
    ours = vocabulary([*NAMES, "l@@", "o@@", "w", "lo@@", "low"], "#version: 0.2\nl o\nlo w</w>")
    random, count, rate = np.random.default_rng(0), 10_000, 0.3
    assert ours.sample_words([[8]], [1], 0.0, random) == [[8]] == [ours.encode("low")]
    assert ours.sample_words([[8]], [1], 1.0, random) == [[4, 5, 6]]
    ids = [index for word in ours.sample_words([[8]], [count], rate, random) for index in word]
    shares = np.array([ids.count(6) - ids.count(7), ids.count(7), ids.count(8)]) / count
    expected = [rate, (1 - rate) * rate, (1 - rate) ** 2]
    np.testing.assert_allclose(shares, expected, atol=0.015)
