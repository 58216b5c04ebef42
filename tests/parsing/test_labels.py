"""The label vocabulary: symbols of linearized trees to ids and back."""

import json
import random

import pytest
from refusals import refusal
from trees import random_tree

from jax_transformer.data.vocabularies import read_vocabulary
from jax_transformer.data.vocabularies.base import BOS, EOS, PAD
from jax_transformer.data.vocabularies.labels import LabelVocabulary
from jax_transformer.errors import InputError
from jax_transformer.files import encode_json
from jax_transformer.parsing.linearize import linearize
from jax_transformer.parsing.ptb import parse_tree
from jax_transformer.parsing.treebank import label_vocabulary
from jax_transformer.parsing.trees import normalize

TREES = [
    parse_tree("(S (NP (PRP She)) (VP (VBZ sleeps)))"),
    parse_tree("(S (NP (NN x)) (NP (NN y)))"),
]


def test_ids_are_ordered_by_frequency_and_then_by_name():
    labels = label_vocabulary(TREES)
    counted = ["(NP", "/NP", "(S", "/S", "NN", "(VP", "/VP", "PRP", "VBZ"]
    assert labels.names == ["", "", "", *counted]
    assert (labels.size, labels.pad_id, labels.bos_id, labels.eos_id) == (12, PAD, BOS, EOS)


def test_decoding_inverts_encoding_and_an_unknown_symbol_has_the_id_minus_one():
    draw = random.Random(0)
    trees = [random_tree(draw) for _ in range(50)]
    labels = label_vocabulary(trees)
    normal = [tree for tree in map(normalize, trees) if tree]
    texts = [" ".join(linearize(tree)) for tree in normal]
    assert len(texts) > 40
    for text, ids in zip(texts, labels.encode_batch(texts), strict=True):
        assert not {PAD, BOS, EOS} & set(ids)
        assert labels.decode([BOS, *ids, EOS, PAD]) == text
    unknown, blank = label_vocabulary(TREES).encode_batch(["(X NN /X", ""])
    assert [index < 0 for index in unknown] == [True, False, True]
    assert blank == []


@pytest.mark.parametrize("trees", [[], [("NN", "dog")], [("TOP", (("NN", "dog"),))]])
def test_trees_without_constituents_are_refused(trees):
    with pytest.raises(InputError, match="expected trees with constituents"):
        label_vocabulary(trees)


def test_labels_are_read_from_their_content_and_nothing_else_is():
    labels = label_vocabulary(TREES)
    again = read_vocabulary(labels.content)
    assert isinstance(again, LabelVocabulary)
    assert (again.names, again.root) == (labels.names, labels.root)
    assert again.fingerprint == labels.fingerprint != LabelVocabulary.make(labels.names).fingerprint
    content = json.loads(labels.content)
    for wrong in (content | {"root": 5}, content | {"names": 1}, content | {"more": 1}):
        assert "found something else" in refusal(read_vocabulary, encode_json(wrong))
