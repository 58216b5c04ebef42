"""The vocabulary against byte-pair encoding by hand, sentencepiece itself, and hostile text."""

import hashlib
import os
import pickle
import random
import re
import unicodedata
from typing import Any

import numpy as np
import pytest
import sentencepiece
from refusals import refusal
from sentencepiece_models import trained

from jax_transformer.data.vocabularies import (
    load_user_vocabulary,
    load_vocabulary,
    read_vocabulary,
)
from jax_transformer.data.vocabularies.base import (
    BOS,
    EOS,
    PAD,
    UNK,
    Vocabulary,
)
from jax_transformer.data.vocabularies.sentencepiece import (
    SentencePieceVocabulary,
    model_pieces,
    train_vocabulary,
    trainer_option,
)

LINES = [
    "the cat sat on the mat",
    "die Katze saß auf der Matte",
    "a lower and wider river",
    "ein breiterer Fluß, the lowest!",
    "der Hund and the cat sat",
] * 3
FEWEST = len(set("".join(LINES))) + 4  # their characters, the space too, and the special ones


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory) -> Vocabulary:
    return train_vocabulary(LINES, 60, tmp_path_factory.mktemp("vocabulary") / "v.model")


def test_as_many_pieces_begin_a_word_as_there_are_words(vocabulary):
    starts = vocabulary.word_starts
    assert len(starts) == vocabulary.size
    assert [starts[index] for index in (PAD, BOS, EOS, UNK)] == [0, 0, 1, 0]
    for text in [*LINES, "unknown \u4e00\u4e01 \u4e00a a\u4e00"]:
        assert sum(starts[index] for index in vocabulary.encode(text)) == len(text.split(" "))


def test_the_special_ids_are_the_first_four_and_a_line_describes_a_vocabulary(vocabulary):
    special = [vocabulary.pad_id, vocabulary.bos_id, vocabulary.eos_id, vocabulary.unk_id]
    assert special == [PAD, BOS, EOS, UNK] == [0, 1, 2, 3]
    assert vocabulary.pieces(special) == ["<pad>", "<s>", "</s>", "<unk>"]
    assert len(vocabulary) == vocabulary.size == 60
    assert repr(vocabulary).startswith("<SentencePieceVocabulary: 60 ids; ")
    assert f"EOS {EOS}" in repr(vocabulary)
    for text in (LINES[0], ""):
        assert vocabulary.encode(text, eos=True) == [*vocabulary.encode(text), EOS]


def test_text_comes_back_as_it_was_up_to_runs_of_spaces_even_if_it_spells_special_pieces(tmp_path):
    spelled = ["x<s>y </s> <pad> <unk>", "<s>", "a</s>", "<pad><pad>"]
    strange = "\t\v\f\x1c\x85\u2028\u2029\xa0\u2009\u3000\u200b\ufeff\u2047\x01\x7f"
    letters = "abzÄß¼ﬁ\uff21é" + "e\u0301" + "\U0001f600<>&|" + strange + "    "
    draw = random.Random(0)
    texts = ["".join(draw.choices(letters, k=30)) for _ in range(300)]
    texts += [*spelled, "", " ", "  a  b ", "\ta\t", "...", "a" * 5000]
    learned = train_vocabulary(texts + LINES, 300, tmp_path / "v.model")
    for text in texts:
        ids = learned.encode(text)
        assert not set(ids) & {PAD, BOS, EOS, UNK}
        assert learned.decode(ids) == re.sub(" +", " ", text).strip(" ")


def test_a_character_without_a_piece_is_one_unk_and_decodes_to_a_sign(vocabulary):
    for stranger in ("\0", "\u00ad", "\u2585", "☃", "☃☃", "語"):
        ids = vocabulary.encode(f"the {stranger} cat")
        assert ids.count(UNK) == 1
        assert vocabulary.decode(ids) == "the \u2047 cat"


def test_white_space_without_a_piece_and_sentencepiece_s_space_count_as_spaces(vocabulary):
    for space in ("\r", "\n", "\r\n", "\u2581", "\t", "\x85", "\u2028", "\u00a0", " \u3000 "):
        assert vocabulary.encode(f"the{space}cat") == vocabulary.encode("the cat")
        assert vocabulary.encode(f"{space}the cat{space}") == vocabulary.encode("the cat")
    for line in LINES:  # and letters are composed
        assert vocabulary.encode(unicodedata.normalize("NFD", line)) == vocabulary.encode(line)
    for line in ("\u200b", "\ufeff \u00ad", "\0", "\u0301"):  # nothing to read
        assert vocabulary.encode(line) == []


def test_pad_bos_and_eos_vanish_in_decoding_and_other_ids_are_refused(vocabulary):
    the, cat = vocabulary.encode("the"), vocabulary.encode("cat")
    dressed = [PAD, BOS, *the, PAD, *cat, EOS, PAD]
    batch = [dressed, [], [EOS], np.array(the)]
    assert vocabulary.decode_batch(batch) == ["the cat", "", "", "the"]
    for wrong in (-1, 60):
        for call in (vocabulary.decode, vocabulary.pieces):
            assert f"0 to 59, found {wrong};" in refusal(call, [5, wrong])


def test_a_batch_is_encoded_as_its_lines_are(vocabulary):
    texts = ["", "x\0y", *LINES, "der\rHund"]
    expected = [vocabulary.encode(text) for text in texts]
    assert vocabulary.encode_batch(texts) == expected
    assert vocabulary.encode_batch([]) == []


def test_a_lone_surrogate_is_refused_with_its_place(vocabulary, tmp_path):
    broken = "cat\ud800 sat"
    assert "U+D800 at character 4" in refusal(vocabulary.encode, broken)
    assert "character 4 of line 2" in refusal(vocabulary.encode_batch, ["a", broken])
    message = refusal(train_vocabulary, [*LINES, broken], 60, tmp_path / "v.model")
    assert "character 4 of line 16" in message
    assert os.listdir(tmp_path) == []


def test_a_long_line_is_learned_in_full(tmp_path):
    # Above sentencepiece's default of 4,192 bytes a line, and above 65,535 characters a word.
    words = [f"{a}{b}ö" for a in "qwzxy" for b in ("uark", "ell", "im")] * 500
    long = train_vocabulary([*LINES, " ".join(words)], 120, tmp_path / "long.model")
    short = train_vocabulary([*LINES, *words], 120, tmp_path / "short.model")
    assert long.fingerprint == short.fingerprint
    assert UNK not in long.encode("quark")
    one_word = "ab" * 40_000 + "QZ" * 300
    learned = train_vocabulary([*LINES, one_word], 120, tmp_path / "word.model")
    assert "QZ" in learned.pieces(range(120))


def test_no_character_takes_its_line_out_of_the_learning(tmp_path):
    lines = [f"XX{character}YY" for character in "\0\u2585\u2581\r\u2028"]
    for line in lines:
        learned = train_vocabulary([*LINES, line], 70, tmp_path / "v.model", up_to=True)
        assert UNK not in learned.encode("XY")


def test_a_wrong_size_is_refused_with_the_nearest_that_works_and_prints_nothing(tmp_path, capfd):
    path = tmp_path / "v.model"
    message = refusal(train_vocabulary, LINES, 5000, path)
    assert "found one of 15 lines" in message
    named = re.search(r"--set data.vocabulary_size=(\d+),", message)
    assert named
    size = int(named[1])
    assert f"={size}," in refusal(train_vocabulary, LINES, size + 1, path)
    assert not path.exists()
    largest = train_vocabulary(LINES, size, path)
    assert train_vocabulary(LINES, 5000, path, up_to=True).all_pieces == largest.all_pieces
    for up_to in (False, True):
        message = refusal(train_vocabulary, LINES, FEWEST - 1, path, up_to=up_to)
        assert f"--set data.vocabulary_size={FEWEST} " in message
        assert train_vocabulary(LINES, FEWEST, path, up_to=up_to).size == FEWEST
    for lines in ([], ["  ", " \r\u2585"]):
        assert "give text" in refusal(train_vocabulary, lines, 60, path)
    captured = capfd.readouterr()
    assert captured.out + captured.err == ""


def test_the_same_lines_give_the_same_pieces_which_sentencepiece_reads(tmp_path, vocabulary):
    path = tmp_path / "v.model"
    again = train_vocabulary(iter(LINES), 60, path)
    plain = sentencepiece.SentencePieceProcessor(model_file=str(path))
    read, pickled = load_vocabulary(path), pickle.loads(pickle.dumps(again))
    assert again.fingerprint == read.fingerprint == vocabulary.fingerprint
    assert plain.get_piece_size() == again.size
    for text in LINES:
        assert plain.encode(text) == again.encode(text) == read.encode(text)
        assert pickled.encode(text) == again.encode(text)
    assert train_vocabulary(LINES[:4], 60, path).fingerprint != vocabulary.fingerprint
    pieces = "\n".join(vocabulary.all_pieces).encode()
    assert hashlib.sha256(pieces).hexdigest().startswith("f5725c154eb1c3755904bda7164c8c03")


@pytest.mark.parametrize(("lowercase", "nfkc"), [(True, False), (True, True)])
def test_lower_case_and_nfkc_are_those_of_python_and_unicode(tmp_path, lowercase, nfkc):
    texts = [
        "Die STRASSE, Straße: ÄÖÜ äöü",
        "ﬁne \uff21\uff22\uff43 № ½ x² Å",
        "Été 가각 ẾÇ ǆ",
        "A\u0301\u0302 plain",
    ]
    texts += [unicodedata.normalize("NFD", text) for text in texts]
    path = tmp_path / "v.model"
    learned = train_vocabulary(
        [*texts, *LINES], 300, path, up_to=True, lowercase=lowercase, nfkc=nfkc
    )
    for text in texts:
        expected = unicodedata.normalize("NFKC", text) if nfkc else text
        expected = expected.lower() if lowercase else expected
        assert learned.decode(learned.encode(text)) == learned.as_in_pieces(text) == expected
        assert load_vocabulary(path).encode(expected) == learned.encode(text)
    assert learned.as_in_pieces("\u2047") == "\u2047"  # UNK as it is shown, which NFKC would change


# ---- Models of sentencepiece that others trained ----------------------------------------------


def test_the_pieces_kinds_and_options_of_a_model_are_read_as_protobuf_reads_them():
    pb2 = pytest.importorskip("sentencepiece.sentencepiece_model_pb2")
    for options in (
        {"model_type": "bpe", "vocab_size": 60, "user_defined_symbols": ["<br>", "x" * 200]},
        {"model_type": "unigram", "vocab_size": 320, "byte_fallback": True},
    ):
        content = trained(LINES, **options)
        expected = pb2.ModelProto.FromString(content)
        assert list(model_pieces(content)) == [
            (index, each.piece, each.type) for index, each in enumerate(expected.pieces)
        ]
        assert trainer_option(content, 3) == expected.trainer_spec.model_type
        assert trainer_option(content, 4) == expected.trainer_spec.vocab_size


@pytest.mark.parametrize("model_type", ["bpe", "unigram"])
def test_pieces_of_bytes_stand_for_bytes_and_do_not_make_a_character_known(model_type):
    ours = SentencePieceVocabulary(
        trained(LINES, model_type=model_type, vocab_size=320, byte_fallback=True)
    )
    texts = [ours.piece_texts[index] for index in ours.encode("the \u8a9e")]
    assert b"".join(t for t in texts if isinstance(t, bytes)).decode() == "\u8a9e"
    breaks = [ours.all_pieces.index(f"<0x0{byte}>") for byte in "AD"]
    the = ours.encode("the")
    assert ours.decode([*the, *breaks, *the]) == "the   the"  # one line
    assert "".join(t for t in texts if isinstance(t, str)).strip() == "the"
    assert not ours.knows("\u8a9e")
    assert ours.encode("the\tcat") == ours.encode("the cat")
    assert ours.encode("Flu\u0308\u00df") == ours.encode("Fl\u00fc\u00df")


def test_unk_is_shown_as_a_word_of_its_own_or_as_the_model_says():
    ours = SentencePieceVocabulary(trained(LINES, model_type="bpe", vocab_size=60))
    assert ours.decode(ours.encode("the \u8a9e cat\u2603")) == "the \u2047 cat \u2047"
    assert str(ours.piece_texts[ours.unk_id]).strip() == "\u2047"
    ours = SentencePieceVocabulary(trained(LINES, model_type="bpe", vocab_size=60, unk_surface=" "))
    assert ours.decode(ours.encode("the \u8a9e cat")).split() == ["the", "cat"]


@pytest.mark.parametrize("keeps", [False, True])
def test_white_space_that_a_model_drops_or_maps_to_a_space_is_one_space(keeps):
    options = {"model_type": "bpe", "vocab_size": 60, "remove_extra_whitespaces": not keeps}
    ours = SentencePieceVocabulary(
        trained(LINES, **options)
    )  # with sentencepiece's own normalization
    for line in (
        "the\x1ccat",
        "\tthe cat\x85",
        "the\u3000 \u200bcat\u00a0",
        "\u2581the\u2581\x1fcat",
    ):
        assert ours.encode(line) == ours.encode("the cat")
    assert (ours.encode("the  cat") != ours.encode("the cat")) == keeps


# ---- Files ---------------------------------------------------------------------------------


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("kind", "special"),
    [
        ("bpe", (3, 0, 1, 2)),
        ("bpe", (-1, 1, -1, 0)),
        ("unigram", (-1, -1, 5, 0)),
        ("unigram", (9, 8, 7, 6)),
    ],
)
def test_a_model_of_sentencepiece_may_have_any_special_ids_and_symbols(tmp_path, kind, special):
    ids: dict[str, Any] = dict(zip(("pad_id", "bos_id", "eos_id", "unk_id"), special, strict=True))
    lines = ["low lower lowest", "newer wider new", "slow slower <sep> low"] * 9
    ids |= {"model_type": kind, "vocab_size": 30, "user_defined_symbols": ["<sep>"]}
    path = tmp_path / "v.model"
    path.write_bytes(trained(lines, **ids))
    ours = load_user_vocabulary([str(path)])
    theirs = sentencepiece.SentencePieceProcessor(str(path))
    found = [ours.pad_id, ours.bos_id, ours.eos_id, ours.unk_id]
    assert len({*found}) == 4
    assert all(
        index in (given, *range(len(theirs), ours.size))
        for index, given in zip(found, special, strict=True)
    )
    assert ours.size == len(theirs) + special.count(-1)
    for line in [*lines, "x\u2603 low<sep>er"]:
        assert ours.encode(line) == theirs.encode(line)
        dressed = [ours.bos_id, *ours.encode(line), ours.eos_id, ours.pad_id]
        shown = theirs.decode(theirs.encode(line))  # with two spaces on each side of UNK
        assert ours.decode(dressed) == " ".join(shown.split())
    assert "<sep>" in ours.pieces(ours.encode("low<sep>er"))
    assert read_vocabulary(ours.content).all_pieces == ours.all_pieces


def test_codes_and_vocabulary_of_subword_nmt_are_one_vocabulary(tmp_path):
    codes = write(tmp_path / "codes", "#version: 0.2\nl o\nlo w</w>\ne r</w>\n")
    pieces = write(tmp_path / "pieces", "low 9\nlo@@ 5\nw@@ 4\ner 3\n")
    vocabulary = load_user_vocabulary([codes, pieces])
    assert vocabulary.all_pieces == ["<pad>", "<s>", "</s>", "<unk>", "low", "lo@@", "w@@", "er"]
    assert vocabulary.encode("low lower x") == [4, 5, 6, 7, 3]
    assert vocabulary.decode([1, 4, 5, 6, 7, 2, 0]) == "low lower"
    assert read_vocabulary(vocabulary.content).fingerprint == vocabulary.fingerprint


def test_what_is_not_a_vocabulary_is_refused_by_its_name(tmp_path):
    codes = write(tmp_path / "codes", "#version: 0.2\nl o\n")
    pieces = write(tmp_path / "pieces", "lo@@ 5\nw 4\n")
    foreign = tmp_path / "v.model"
    for content in (b"the\ncat\n" * 20, b"", b"\x80\x04\x95pickle"):
        foreign.write_bytes(content)
        assert refusal(load_user_vocabulary, [str(foreign)]).startswith(f"{foreign}: expected a m")
    suffix = trained(LINES, vocab_size=60, treat_whitespace_as_suffix=True)
    assert "treat_whitespace_as_suffix" in refusal(SentencePieceVocabulary, suffix)
    assert f"{codes}, line 1: " in refusal(load_user_vocabulary, [pieces, codes])
    words = write(tmp_path / "words", "lo@@ 5\nthe\t7\ncat\t3\n")
    assert "found 2 others, such as 'the\\t7'" in refusal(load_user_vocabulary, [codes, words])
    assert "found 3 files" in refusal(load_user_vocabulary, [codes, pieces, pieces])
    assert "No such file" in refusal(load_user_vocabulary, [str(tmp_path / "absent")])
    assert str(tmp_path / "absent") in refusal(load_user_vocabulary, [codes, f"{tmp_path}/absent"])
