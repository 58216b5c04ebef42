"""Vocabularies whose ids stand in a table while sentencepiece cuts the text."""

import pytest
import sentencepiece
from refusals import refusal
from sacremoses import MosesPunctNormalizer
from sentencepiece_models import trained

from jax_transformer.data.vocabularies import read_vocabulary
from jax_transformer.data.vocabularies.piece_table import PieceTable

LINES = ["the old man sees a dog", "a dog sees the man", '"old" dogs, they say'] * 20
TAGS = [">>fra<<", ">>deu<<"]


@pytest.fixture(scope="module")
def model() -> bytes:
    return trained(LINES, vocab_size=40)


@pytest.fixture(scope="module")
def processor(model) -> sentencepiece.SentencePieceProcessor:
    processor = sentencepiece.SentencePieceProcessor()
    processor.load_from_serialized_proto(model)
    return processor


def table(model: bytes, processor: sentencepiece.SentencePieceProcessor, tags=TAGS) -> PieceTable:
    own = [processor.id_to_piece(i) for i in range(processor.get_piece_size() - 1, 2, -1)]
    pieces = ["</s>", "<unk>", *tags, *own, "<pad>"]
    last = len(pieces) - 1
    return PieceTable.make(pieces, model, pad_id=last, bos_id=last, eos_id=0, unk_id=1)


@pytest.fixture(scope="module")
def vocabulary(model, processor) -> PieceTable:
    return table(model, processor)


def test_ids_are_the_places_of_sentencepiece_s_pieces_in_the_table(vocabulary, processor):
    for line in LINES[:3]:
        assert vocabulary.pieces(vocabulary.encode(line)) == processor.encode(line, out_type=str)
        assert vocabulary.decode(vocabulary.encode(line)) == line
    assert vocabulary.encode("\u6f22")[-1] == vocabulary.unk_id
    assert read_vocabulary(vocabulary.content).encode("a dog") == vocabulary.encode("a dog")


def test_a_tag_in_front_is_one_id_and_one_that_is_not_known_is_refused(
    vocabulary, model, processor
):
    text = vocabulary.encode("a dog")
    for line in (">>fra<<a dog", ">>fra<< a dog", "  >>fra<< a dog"):
        assert vocabulary.encode(line) == [2, *text]
    assert 2 not in vocabulary.encode("a >>fra<< dog")
    assert "found >>xyz<< in '>>xyz<< a'; begin" in refusal(vocabulary.encode, ">>xyz<< a")
    assert "did you mean >>deu<<?" in refusal(vocabulary.encode, ">>de<< a")
    without = table(model, processor, tags=[])
    assert len(without.encode(">>fra<< a dog")) > len(text) + 1


def test_text_that_spells_a_special_piece_is_text(vocabulary):
    specials = {vocabulary.pad_id, vocabulary.eos_id}
    for line in ("</s>", "a <pad> dog</s>", "<unk> </s> <pad>"):
        assert not specials & {*vocabulary.encode(line)}
    ids = [vocabulary.pad_id, *vocabulary.encode("a dog"), vocabulary.unk_id, 0, vocabulary.pad_id]
    assert vocabulary.decode(ids) == "a dog \u2047"


def test_punctuation_is_normalized_by_moses_rules(vocabulary):
    line = "\u201eold\u201c  dogs , \u00abthey\u00bb say\u2026"
    normalizing = vocabulary.normalizing("en")
    assert normalizing.encode(line) == vocabulary.encode(MosesPunctNormalizer("en").normalize(line))
    assert normalizing.encode(line) != vocabulary.encode(line)
    assert normalizing.encode(f">>deu<< {line}")[0] == 3
    assert read_vocabulary(normalizing.content).encode(line) == normalizing.encode(line)
    assert normalizing.fingerprint != vocabulary.fingerprint


def test_a_no_break_space_is_read_by_moses_rules_and_else_is_a_space(model):
    identity = trained(LINES, vocab_size=40, normalization_rule_name="identity")
    for content in (model, identity):
        processor = sentencepiece.SentencePieceProcessor()
        processor.load_from_serialized_proto(content)
        normalizing = table(content, processor).normalizing("fr")
        for line, read in [
            ("\u00abthe\u00a0man\u00a0\u00bb", '"the man"'),
            ("a\u00a0dog, \u00a0they\u00a0 say\u00a0?", "a dog, they say?"),
            ("\u00a0>>deu<<\u00a0a dog\u00a0", ">>deu<< a dog"),
            ("\u00a0\u00ab\u00a0", '"'),
            ("\u00a0", ""),
        ]:
            assert normalizing.encode(line) == table(content, processor).encode(read)


def test_a_table_that_does_not_fit_is_refused(vocabulary, model):
    ids = {"pad_id": 0, "bos_id": 0, "eos_id": 0, "unk_id": 1}
    assert "'a' twice" in refusal(PieceTable.make, ["a", "b", "a"], model, **ids)
    assert "unk_id: expected one of the 1 ids" in refusal(PieceTable.make, ["a"], model, **ids)
    assert "sentencepiece" in refusal(PieceTable.make, ["a", "b"], b"x" * 50, **ids)
    for content in (vocabulary.content[:-9], vocabulary.content.replace(b'"unk_id":1', b'"unk":1')):
        assert "import the model again" in refusal(read_vocabulary, content)
