"""Scores of parses by hand: what the grammar had to step in for counts against the model."""

import pytest

from jax_transformer.evaluation.parse_scores import parse_scores

CAT = "( (S (NP (DT the) (NN cat)) (VP (VBZ sees) (NP (PRP her))) (. .)))"
DOG = "( (S (NP (DT the) (NN dog)) (VP (VBZ runs)) (. .)))"
SOURCES = ["the cat sees her .", "the dog runs ."]


def scores_of(constrained):
    found = parse_scores(SOURCES, [CAT, DOG], constrained, [CAT, DOG])
    return {score.metric: score for score in found}


def test_a_sentence_that_needed_the_grammar_is_one_without_brackets_and_is_not_left_out():
    found = scores_of([False, True])
    assert found["f1"].score == found["complete_match"].score == 100
    # Of S, NP, VP, NP and S, NP, VP the model by itself found the first four, and no others.
    alone = found["f1_unconstrained"]
    assert alone.score == pytest.approx(100 * 2 * 4 / (7 + 4))
    assert alone.detail.startswith("recall 57.14, precision 100.00, complete match 50.00")
    assert "|sentences:2|errors:0|" in alone.signature
    assert found["valid_trees_unconstrained"].score == 50


def test_where_none_needed_it_both_are_the_same():
    found = scores_of([False, False])
    assert found["f1_unconstrained"].score == found["f1"].score == 100
    assert found["valid_trees"].score == found["valid_trees_unconstrained"].score == 100
