"""Scores of parses, worked out by hand; constrained trees count against the model."""

import pytest

from jax_transformer.errors import InputError
from jax_transformer.evaluation.parse_scores import check_words, parse_scores, tree_f1

CAT = "( (S (NP (DT the) (NN cat)) (VP (VBZ sees) (NP (PRP her))) (. .)))"
DOG = "( (S (NP (DT the) (NN dog)) (VP (VBZ runs)) (. .)))"
SOURCES = ["the cat sees her .", "the dog runs ."]


def scores_of(constrained):
    found = parse_scores(SOURCES, [CAT, DOG], constrained, [CAT, DOG])
    return {score.metric: score for score in found}


def test_without_the_constraint_a_sentence_has_a_flat_tree_and_is_not_left_out():
    found = scores_of([False, True])
    assert found["f1"].score == found["complete_match"].score == 100
    # Of S, NP, VP, NP and S, NP, VP the model alone found the first four, and no others.
    alone = found["f1_unconstrained"]
    assert alone.score == pytest.approx(100 * 2 * 4 / (7 + 4))
    assert alone.detail.startswith("recall 57.14, precision 100.00, complete match 50.00")
    assert "|sentences:2|errors:0|" in alone.signature
    assert found["valid_trees_unconstrained"].score == 50


@pytest.mark.parametrize("root", ["", "TOP", "ROOT", "S1", "VROOT"])
def test_an_outer_bracket_does_not_count(root):
    gold, text = f"({root} (S (NN a)) ($. .))", f"({root} (X (NN a)) ($. .))"
    for one in (gold, f"( {gold})" if root else gold):  # a gold tree may have two of them
        assert tree_f1([one], [text]).detail.startswith("recall 0.00, precision 0.00")
        assert tree_f1([one], [gold]).detail.startswith("recall 100.00, precision 100.00")


def test_a_gold_tree_that_cannot_be_read_is_named():
    with pytest.raises(InputError, match=r"references\[1\]: "):
        check_words(["a", "a"], ["(S (NN a))", "(S (NN a)"])


def test_tags_of_gold_trees_count_without_functions_which_no_parser_writes():
    gold = "( (IP-MAT (NP-SBJ (NPR-N a)) (VBPI|BEPI b) (.-X .)))"
    text = "( (IP (NP (NPR a)) (VBPI b) (. .)))"
    found = {score.metric: score for score in parse_scores(["a b ."], [text], [False], [gold])}
    assert found["tagging"].score == found["f1"].score == 100
    assert "|errors:0|" in found["f1"].signature


def test_traces_of_any_kind_are_no_words_of_gold_trees():
    parse = "(TOP (S (NP (PRP She)) (VP (VBZ sleeps))))"
    for trace in ("-NONE-", "-NONE-A-RAISE-"):
        gold = f"(S (NP (PRP She)) (VP (VBZ sleeps) (NP ({trace} *T*-1))))"
        assert tree_f1([gold], [parse]).score == 100
        assert "|errors:0|" in tree_f1([gold], [parse]).signature


def test_f1_has_its_settings_and_the_number_of_sentences_left_out():
    golds = ["(S (A (x a)) (B (x b)))", "(S (x a))", "(S (x a))"]
    texts = ["(S (A (x a)) (C (x b)))", "(S (x b))", ""]
    score = tree_f1(golds, texts)
    assert score.score == pytest.approx(200 / 3)
    assert score.signature == "evalb|prm:COLLINS.prm|sentences:3|errors:1|skipped:1"
    assert "recall 66.67, precision 66.67, complete match 0.00, tagging 100.00" in score.detail
    assert "1 of 3 left out as EVALB does" in score.detail
    assert score.counted == "2 of 3 sentences counted"
    assert tree_f1(golds[:1], texts[:1]).counted is None
    assert "left out" not in tree_f1(golds[:1], texts[:1]).detail
    for wrong in (([], []), (golds, texts[:2])):
        with pytest.raises(InputError, match="one parse for each gold tree"):
            tree_f1(*wrong)
