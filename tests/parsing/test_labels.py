"""The label vocabulary: symbols of linearized trees to ids and back."""

import random

import pytest
from trees import random_tree

from jax_transformer.data import vocabulary
from jax_transformer.errors import InputError
from jax_transformer.parsing.labels import BOS, EOS, PAD, LabelVocabulary
from jax_transformer.parsing.linearize import linearize
from jax_transformer.parsing.ptb import parse_tree
from jax_transformer.parsing.trees import normalize

TREES = [
    parse_tree("(S (NP (PRP She)) (VP (VBZ sleeps)))"),
    parse_tree("(S (NP (NN x)) (NP (NN y)))"),
]


def test_ids_are_ordered_by_frequency_and_then_by_name():
    labels = LabelVocabulary.from_trees(TREES)
    counted = ["(NP", "/NP", "(S", "/S", "NN", "(VP", "/VP", "PRP", "VBZ"]
    assert labels.names == ["", "", "", *counted]
    assert (labels.size, labels.pad_id, labels.bos_id, labels.eos_id) == (12, PAD, BOS, EOS)
    assert (PAD, BOS, EOS) == (vocabulary.PAD, vocabulary.BOS, vocabulary.EOS)


def test_tags_are_the_symbols_that_stand_for_a_word():
    labels = LabelVocabulary.from_trees(TREES)
    tags = [name for name, is_one in zip(labels.names, labels.tags, strict=True) if is_one]
    assert tags == ["NN", "PRP", "VBZ"]


def test_decoding_inverts_encoding():
    draw = random.Random(0)
    trees = [random_tree(draw) for _ in range(50)]
    labels = LabelVocabulary.from_trees(trees)
    normal = [tree for tree in map(normalize, trees) if tree]
    texts = [" ".join(linearize(tree)) for tree in normal]
    assert len(texts) > 40
    for text, ids in zip(texts, labels.encode_batch(texts), strict=True):
        assert ids is not None
        assert not {PAD, BOS, EOS} & set(ids)
        assert labels.decode([BOS, *ids, EOS, 5, PAD]) == text.split(" ")


def test_a_text_with_an_unknown_symbol_has_no_ids():
    encoded = LabelVocabulary.from_trees(TREES).encode_batch(["(S NN /S", "(X NN /X", ""])
    assert encoded[0] is not None
    assert encoded[1] is None
    assert encoded[2] == []


@pytest.mark.parametrize("trees", [[], [("NN", "dog")], [("TOP", (("NN", "dog"),))]])
def test_trees_without_constituents_are_refused(trees):
    with pytest.raises(InputError, match="expected trees with constituents"):
        LabelVocabulary.from_trees(trees)


def test_labels_have_a_length_and_a_line_about_them():
    labels = LabelVocabulary(["", "", "", "(NP", "/NP", "DT", "NN"])
    assert len(labels) == 7
    assert repr(labels) == "<LabelVocabulary: 7 ids, of (NP, /NP, DT ...>"
