"""Byte pairs and Moses' rules against subword-nmt, fastBPE, fairseq and FSMTTokenizer.

Against the record everywhere, and against the programs themselves where they are installed.
"""

import importlib
import json
import lzma
import re
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jax_transformer.data.moses import Moses
from jax_transformer.data.vocabularies import read_vocabulary
from jax_transformer.data.vocabularies.bpe import BpeContent, BpeVocabulary, Merges, parse_codes
from jax_transformer.errors import InputError

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


def live() -> Any:
    for program in PROGRAMS:
        pytest.importorskip(program)
    return importlib.import_module("tools.record.bpe_recipe")


def pieces_of(codes: str, line: str) -> str:
    """A line's words cut into pieces, as subword-nmt writes them."""
    merges = Merges(parse_codes(codes.split("\n"), "codes"))
    cut = [merges.cut(word) for word in line.split(" ") if word]
    return " ".join(
        piece + ("@@" if i + 1 < len(word) else "") for word in cut for i, piece in enumerate(word)
    )


def content(pieces: list[str], codes: str, **options: Any) -> BpeContent:
    parsed = parse_codes(codes.split("\n"), "codes")
    merges = [" ".join(merge) for merge in parsed.merges]
    return BpeContent(
        pieces=pieces, merges=merges, end_apart=parsed.end_apart, **SPECIAL, **options
    )


def vocabulary(pieces: list[str], codes: str = "#version: 0.2\n", **options: Any) -> BpeVocabulary:
    return BpeVocabulary.make(content(pieces, codes, **options))


def fsmt_vocabulary(theirs: dict[str, Any], name: str) -> BpeVocabulary:
    source, target = LANGUAGES[name]
    moses = {"moses": True, "normalize": True, "lower_case": name == "fsmt_fren"}
    spelling = {"continuation": "", "end": "</w>"}
    languages = {"source_language": source, "target_language": target}
    return vocabulary(theirs["pieces"], theirs["codes"], **moses, **spelling, **languages)


# ---- Words ----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["0.2", "0.1", "none", "words", "fastbpe"])
def test_words_are_cut_as_subword_nmt_and_fastbpe_cut_them(theirs, version):
    codes, lines = theirs["codes"], theirs["tokens"]["en"]
    expected = theirs["fastbpe"] if version == "fastbpe" else theirs["subword_nmt"][version]
    head, *merges = codes.splitlines()
    if version == "0.1":
        codes = codes.replace(head, "#version: 0.1")
    elif version == "none":
        codes = "\n".join(merges)
    elif version == "words":
        lines = theirs["lines"]
    elif version == "fastbpe":
        codes = "".join(f"{merge} {1000 - i}\n" for i, merge in enumerate(merges))
    assert [pieces_of(codes, line) for line in lines] == [line.strip() for line in expected]


def test_of_equal_merges_the_first_counts():
    """As in subword-nmt; overlapping pairs are merged from the left."""
    assert pieces_of("#version: 0.2\na b\nb c\na b\n", "abcd") == "ab@@ c@@ d"
    assert pieces_of("#version: 0.2\nx x\n", "xxxxx xxxx") == "xx@@ xx@@ x xx@@ x@@ x"


@pytest.mark.parametrize("line", ["a", "a b c", "a b 1 2", "a  b", ""])
def test_a_line_that_is_not_a_merge_is_named(line):
    with pytest.raises(InputError, match=r"codes, line 3: .* found"):
        parse_codes(["#version: 0.2", "a b", line, "c d"], "codes")


def test_codes_of_a_later_version_are_refused():
    with pytest.raises(InputError, match=r"0\.3"):
        parse_codes(["#version: 0.3", "a b"], "codes")


# ---- Moses' rules -----------------------------------------------------------------------------


@pytest.mark.parametrize("language", ["en", "de", "fr", "ru"])
def test_tokens_are_fairseq_s(theirs, language):
    moses = Moses(language, language, normalize=False)
    tokens = [" ".join(moses.tokens(line)) for line in theirs["lines"]]
    assert tokens == theirs["tokens"][language]


@pytest.mark.parametrize("language", ["en", "de", "fr"])
def test_text_is_fairseq_s(theirs, language):
    names = [*NAMES, *dict.fromkeys(" ".join(theirs["outputs"]).replace("<unk>", "").split())]
    ids = {name: index for index, name in enumerate(names)}
    ours = vocabulary(names, moses=True, target_language=language)
    outputs = [[ids[name] for name in line.split()] for line in theirs["outputs"]]
    assert ours.decode_batch(outputs) == theirs["text"][language]


def test_czech_text_at_which_sacremoses_fails_is_decoded():
    names = [*NAMES, "b&apos;", "-", "mail"]
    ours = vocabulary(names, moses=True, target_language="cs")
    assert ours.decode([4, 5, 6]) == "b' - mail"


# ---- Ids --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LANGUAGES)
def test_ids_and_text_are_those_of_fsmttokenizer(theirs, name):
    ours, expected = fsmt_vocabulary(theirs, name), theirs[name]
    assert ours.encode_batch(theirs["lines"]) == expected["ids"]
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


def test_text_that_spells_a_special_piece_is_text():
    """Even if the merges make one piece of it."""
    codes = "#version: 0.2\n< /\n</ s\n</s ></w>\n"
    ours = vocabulary(NAMES, codes)
    assert ours.encode("</s> <s>") == [3, 3, 3, 3]


def test_a_lone_surrogate_is_named():
    ours = vocabulary(NAMES, moses=True, source_language="en")
    with pytest.raises(InputError, match=r"U\+D800 at character 2 of line 2"):
        ours.encode_batch(["a", "b\ud800"])


def test_an_unknown_character_is_unk_and_is_written_as_one_sign():
    ours = vocabulary([*NAMES, "a@@", "b"])
    assert ours.encode("a\u4e00b a") == [4, 3, 5, 3]
    assert ours.decode([4, 3, 5]) == "a\u2047 b"


def test_a_file_gives_the_same_ids_again(theirs):
    ours = fsmt_vocabulary(theirs, "fsmt_ende")
    again = read_vocabulary(ours.content)
    assert again.fingerprint == ours.fingerprint
    assert again.encode_batch(theirs["lines"]) == ours.encode_batch(theirs["lines"])


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[:-2],
        lambda text: text.replace(b'"unk_id":3', b'"unk_id":4'),
        lambda text: text.replace(b'"unk_id":3', b'"unk_id":1'),
        lambda text: text.replace(b'"unk_id":3', b'"unk_id":-1'),
        lambda text: text.replace(b'"unk_id"', b'"unknown"'),
        lambda text: text.replace(b'"l o"', b'"lo"'),
        lambda text: text.replace(b'"l o"', b"7"),
        lambda text: b"[" * 100_000,
        lambda text: b"\xff",
    ],
)
def test_damaged_content_is_refused_in_one_line(damage):
    whole = vocabulary(NAMES, "#version: 0.2\nl o\n").content
    with pytest.raises(InputError) as refused:
        BpeVocabulary(damage(whole))
    assert "\n" not in str(refused.value)


# ---- BPE-dropout ------------------------------------------------------------------------------


def test_dropout_of_0_is_encoding_and_of_1_is_characters():
    singles = vocabulary([*NAMES, "l@@", "o@@", "w", "lo@@", "low"], "#version: 0.2\nl o\nlo w</w>")
    random = np.random.default_rng(0)
    assert singles.sample_words([[8]], [1], 0.0, random) == [[8]] == [singles.encode("low")]
    assert singles.sample_words([[8]], [1], 1.0, random) == [[4, 5, 6]]


def test_dropout_cuts_as_often_as_its_rate_says():
    """Of two merges in a row: the first is passed over, or it is done and the second is not."""
    ours = vocabulary([*NAMES, "l@@", "o@@", "w", "lo@@", "low"], "#version: 0.2\nl o\nlo w</w>")
    count, rate = 20_000, 0.3
    words = ours.sample_words([[8]], [count], rate, np.random.default_rng(0))
    ids = [index for word in words for index in word]
    shares = np.array([ids.count(6) - ids.count(7), ids.count(7), ids.count(8)]) / count
    expected = [rate, (1 - rate) * rate, (1 - rate) ** 2]
    np.testing.assert_allclose(shares, expected, atol=0.015)
