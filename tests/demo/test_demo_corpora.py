"""The demo's files against their promises; most of train, which parses slowly, as plain text."""

import re
from itertools import islice

from jax_transformer.data.text import read_lines
from jax_transformer.demo import SPLITS, TREE_FILES, sentence_pairs
from jax_transformer.parsing.linearize import delinearize, linearize
from jax_transformer.parsing.treebank import read_trees
from jax_transformer.parsing.trees import leaves, normalize, with_root
from tools.demo.clauses import detokenize


def test_the_splits_have_their_sizes_no_sentence_twice_and_dev_and_test_nothing_that_train_lacks():
    pairs = [sentence_pairs(split) for split in SPLITS]
    bracketed = [[*read_lines(TREE_FILES[f"{split}_trees"])] for split in SPLITS]
    assert [*map(len, pairs)] == [60_000, 500, 500]
    assert [*map(len, bracketed)] == [70_000, 500, 500]  # a tree in each line
    for side in zip(*(pair for each in pairs for pair in each), strict=True):
        assert len(set(side)) == len(side)
    words = [{*re.findall(r"\w+", " ".join(map(" ".join, each)))} for each in pairs]
    labels = [{*re.findall(r"\(\S+", " ".join(each))} for each in bracketed]
    for shown, *evaluated in (words, labels):
        assert set().union(*evaluated) <= shown


def test_a_tree_has_the_words_of_the_english_sentence_and_comes_back_from_its_symbols():
    for split in SPLITS:
        some = islice(read_trees(TREE_FILES[f"{split}_trees"]), 500)
        for (english, _), tree in zip(sentence_pairs(split), some, strict=False):
            words = [word for _, word in leaves(tree)]
            assert detokenize(words) == english.replace("can not", "cannot")
            normal = normalize(tree)
            assert normal
            assert with_root(normal) == tree
            assert delinearize(linearize(normal), words) == normal
