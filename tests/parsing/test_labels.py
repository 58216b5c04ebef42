"""The closed set of symbols that a parser writes."""

import json
import random

import pytest
from random_trees import random_tree

from jax_transformer.data.vocabulary import BOS, EOS, PAD
from jax_transformer.errors import InputError
from jax_transformer.parsing.labels import Symbols
from jax_transformer.parsing.linearize import linearise
from jax_transformer.parsing.ptb import parse_tree
from jax_transformer.parsing.trees import normalise

TREES = [
    parse_tree("(S (NP (PRP She)) (VP (VBZ sleeps)))"),
    parse_tree("(S (NP (NN x)) (NP (NN y)))"),
]


def test_ids_go_by_frequency_and_then_by_name():
    symbols = Symbols.of_trees(TREES)
    counted = ["(NP", "/NP", "(S", "/S", "NN", "(VP", "/VP", "PRP", "VBZ"]
    assert symbols.names == ["", "", "", *counted]
    assert (symbols.size, symbols.pad_id, symbols.bos_id, symbols.eos_id) == (12, PAD, BOS, EOS)
    assert sorted({PAD, BOS, EOS}) == [0, 1, 2]


def test_tags_are_the_symbols_that_stand_for_a_word():
    symbols = Symbols.of_trees(TREES)
    tags = [name for name, is_one in zip(symbols.names, symbols.tags, strict=True) if is_one]
    assert tags == ["NN", "PRP", "VBZ"]


def test_what_is_encoded_comes_back():
    draw = random.Random(0)
    trees = [random_tree(draw) for _ in range(50)]
    symbols = Symbols.of_trees(trees)
    normal = [tree for tree in map(normalise, trees) if tree]
    texts = [" ".join(linearise(tree)) for tree in normal]
    assert len(texts) > 40
    for text, ids in zip(texts, symbols.encode_batch(texts), strict=True):
        assert ids is not None
        assert not {PAD, BOS, EOS} & set(ids)
        assert symbols.decode([BOS, *ids, EOS, 5, PAD]) == text.split(" ")


def test_a_symbol_that_no_tree_has_cannot_be_written():
    encoded = Symbols.of_trees(TREES).encode_batch(["(S NN /S", "(X NN /X", ""])
    assert encoded[0] is not None
    assert encoded[1] is None
    assert encoded[2] == []


def test_a_file_comes_back_and_a_damaged_one_is_refused(tmp_path):
    path = tmp_path / "symbols.json"
    symbols = Symbols.of_trees(TREES)
    symbols.save(path)
    again = Symbols.load(path)
    assert (again.names, again.fingerprint) == (symbols.names, symbols.fingerprint)
    content = json.loads(path.read_text(encoding="utf-8"))
    content["symbols"][3] = "(XP"
    for damaged in (json.dumps(content), "{", "[]", "{}"):
        path.write_text(damaged, encoding="utf-8")
        with pytest.raises(InputError, match="restore the file, or train anew"):
            Symbols.load(path)
    with pytest.raises(InputError, match="No such file"):
        Symbols.load(tmp_path / "none.json")


def test_the_order_of_the_trees_does_not_matter():
    assert Symbols.of_trees(TREES[::-1]).fingerprint == Symbols.of_trees(TREES).fingerprint


def test_no_trees_give_no_symbols():
    with pytest.raises(InputError, match="expected trees with words"):
        Symbols.of_trees([])
