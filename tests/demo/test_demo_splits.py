"""The demo's splits against their promises."""

import hashlib
import re

from jax_transformer import demo
from jax_transformer.demo.clauses import detokenize
from jax_transformer.demo.splits import sentences
from jax_transformer.parsing.linearize import delinearize, linearize
from jax_transformer.parsing.ptb import parse_tree
from jax_transformer.parsing.trees import leaves, normalize, write_tree

SPLITS = ("train", "dev", "test")
# Of all pairs and trees: results on the demo compare only while its text stays the same.
DIGEST = "28b3349a2a9ccbf2f0eb0502114c9da06874ed8d3f537e57ddaac8ddbba57995"


def test_the_splits_have_their_sizes():
    assert [len(demo.sentence_pairs(split)) for split in SPLITS] == [36_000, 500, 500]
    assert [len(demo.trees(split)) for split in SPLITS] == [45_000, 500, 500]


def test_no_sentence_comes_twice_in_either_language():
    everything = [each for split in SPLITS for each in sentences(split)]
    assert len({each.english for each in everything}) == len(everything)
    assert len({each.german for each in everything}) == len(everything)


def test_half_of_dev_and_test_holds_a_combination_that_train_never_shows():
    seen = {use for each in sentences("train") for use in each.combinations}
    constructions, words = ({use[i] for use in seen} for i in (0, 1))
    for split in ("dev", "test"):
        unseen = [each.combinations - seen for each in sentences(split)]
        assert [bool(uses) for uses in unseen] == [True, False] * 250
        for construction, word in set().union(*unseen):
            assert construction in constructions
            assert word in words


def test_train_shows_every_word_form_and_every_symbol_of_dev_and_test():
    forms = [
        {form for pair in demo.sentence_pairs(split) for form in re.findall(r"\w+", " ".join(pair))}
        for split in SPLITS
    ]
    symbols = [{each for tree in demo.trees(split) for each in linearize(tree)} for split in SPLITS]
    for shown, *evaluated in (forms, symbols):
        assert set().union(*evaluated) <= shown


def test_the_leaves_of_a_tree_are_the_english_sentence():
    for split in SPLITS:
        for (english, _), tree in zip(demo.sentence_pairs(split), demo.trees(split), strict=False):
            assert detokenize([word for _, word in leaves(tree)]) == english.replace(
                "can not", "cannot"
            )


def test_every_tree_is_well_formed_and_comes_back_from_its_symbols():
    for tree in demo.trees("dev") + demo.trees("test"):
        assert normalize(tree) == tree
        assert parse_tree(write_tree(tree)) == tree
        assert delinearize(linearize(tree), [word for _, word in leaves(tree)]) == tree


def test_the_text_of_the_corpus_has_not_changed():
    """Python draws another hash seed for each process, so an order that follows it shows here."""
    found = hashlib.sha256()
    for split in SPLITS:
        found.update(repr([demo.sentence_pairs(split), demo.trees(split)]).encode())
    assert found.hexdigest() == DIGEST
