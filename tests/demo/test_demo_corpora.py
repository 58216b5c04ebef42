"""The demo's files against their promises."""

import functools
import re

from jax_transformer import demo
from jax_transformer.demo import SPLITS
from jax_transformer.parsing.linearize import delinearize, linearize
from jax_transformer.parsing.trees import leaves, normalize, with_root
from tools.demo.clauses import detokenize

sentence_pairs = functools.cache(demo.sentence_pairs)
trees = functools.cache(demo.trees)


def test_the_splits_have_their_sizes():
    assert [len(sentence_pairs(split)) for split in SPLITS] == [60_000, 500, 500]
    assert [len(trees(split)) for split in SPLITS] == [70_000, 500, 500]


def test_no_sentence_comes_twice_in_either_language():
    for side in zip(*(pair for split in SPLITS for pair in sentence_pairs(split)), strict=True):
        assert len(set(side)) == len(side)


def test_train_shows_every_word_form_and_every_symbol_of_dev_and_test():
    forms = [
        {form for pair in sentence_pairs(split) for form in re.findall(r"\w+", " ".join(pair))}
        for split in SPLITS
    ]
    symbols = [
        {each for tree in trees(split) for each in linearize(normalize(tree) or tree)}
        for split in SPLITS
    ]
    for shown, *evaluated in (forms, symbols):
        assert set().union(*evaluated) <= shown


def test_the_leaves_of_a_tree_are_the_english_sentence():
    for split in SPLITS:
        for (english, _), tree in zip(sentence_pairs(split), trees(split), strict=False):
            assert detokenize([word for _, word in leaves(tree)]) == english.replace(
                "can not", "cannot"
            )


def test_every_tree_is_well_formed_and_comes_back_from_its_symbols():
    for tree in trees("dev") + trees("test"):
        normal = normalize(tree)
        assert normal
        assert with_root(normal) == tree
        assert delinearize(linearize(normal), [word for _, word in leaves(tree)]) == normal
