"""Vocabularies that a user brings: of sentencepiece with any special ids, of subword-nmt."""

import io
from typing import Any

import pytest
import sentencepiece
from refusals import refusal

from jax_transformer.data.vocabularies import load_user_vocabulary, read_vocabulary

LINES = ["low lower lowest", "newer wider new", "slow slower <sep> low"] * 9


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
    content = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES),
        model_writer=content,
        model_type=kind,
        vocab_size=30,
        hard_vocab_limit=False,
        user_defined_symbols=["<sep>"],
        minloglevel=2,
        **ids,
    )
    path = tmp_path / "v.model"
    path.write_bytes(content.getvalue())
    ours, theirs = (
        load_user_vocabulary([str(path)]),
        sentencepiece.SentencePieceProcessor(str(path)),
    )
    found = [getattr(ours, name) for name in ids]
    assert len({*found}) == 4
    assert all(
        index in (given, *range(len(theirs), ours.size))
        for index, given in zip(found, special, strict=True)
    )
    assert ours.size == len(theirs) + special.count(-1)
    for line in [*LINES, "x\u2603 low<sep>er"]:
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
    assert f"{codes}, line 1: " in refusal(load_user_vocabulary, [pieces, codes])
    assert "found 3 files" in refusal(load_user_vocabulary, [codes, pieces, pieces])
    assert "No such file" in refusal(load_user_vocabulary, [str(tmp_path / "absent")])
    assert str(tmp_path / "absent") in refusal(load_user_vocabulary, [codes, f"{tmp_path}/absent"])
