"""The scores of a text, and the outputs that a person is shown."""

import unicodedata
from functools import partial

import pytest

from jax_transformer.config import DataConfig
from jax_transformer.evaluation.evaluate import (
    METRICS,
    SCORES,
    Evaluation,
    samples,
    translation_scores,
)
from jax_transformer.parsing.parser import normalized
from jax_transformer.parsing.ptb import parse_tree
from jax_transformer.parsing.treebank import label_vocabulary

TREES = ["(TOP (S (NN a) (. .)))"]


def test_a_parser_is_validated_on_sentences_that_evalb_would_leave_out():
    data = DataConfig(task="parsing")
    wrong_tag = ["(TOP (S (NN a) (NN .)))"]
    assert SCORES["parsing"].first(wrong_tag, TREES, data).score == 0
    with_gold_tags = METRICS["f1"].score
    assert with_gold_tags
    assert with_gold_tags(wrong_tag, TREES, data).score == 100


def test_features_of_a_constituent_do_not_count():
    gold = ["(TOP (S (NP##case=gen## (NN##sg a)) (. .)))"]
    written = ["(TOP (S (NP (NN a)) (. .)))"]
    assert SCORES["parsing"].first(written, gold, DataConfig(task="parsing")).score == 100


@pytest.mark.parametrize("space", ["\t", "\u3000", "\u2028", "\u200b", "\ufeff "])
def test_references_are_compared_whatever_their_spaces_and_accents(space):
    text = "Der Schüler öffnet die Tür am Fenster."
    odd = unicodedata.normalize("NFD", f"{space}{text.replace(' ', space)}{space}")
    assert SCORES["translation"].first([text], [odd], DataConfig()).score == pytest.approx(100)


def test_bleu_and_chrf_are_of_the_case_that_the_settings_say():
    text, other = "Der Schüler öffnet die Tür.", "der schüler ÖFFNET die tür."
    for lowercase in (False, True):
        data = DataConfig(bleu_lowercase=lowercase)
        found = translation_scores(Evaluation([text], [False], {}), ["x"], [other], data)
        first = SCORES["translation"].first([text], [other], data)
        for score in (found[0], found[-1], first):
            assert (score.score == pytest.approx(100)) == lowercase


def test_samples_are_spread_over_the_text_and_rubbish_is_cut_on_a_screen():
    texts = [f"line {i}" for i in range(23)]
    shown = samples(texts, texts, texts)
    assert [text.splitlines()[0].split()[-1] for text in shown] == ["0", "4", "9", "13", "18"]
    assert len(samples(texts[:3], texts[:3], texts[:3])) == 3
    assert samples([], [], []) == []
    (blank,) = samples(["a", "b", "c"], ["", " ", ""], ["a", "b", "c"])
    assert "blank" in blank
    rubbish = "the " * 500
    (cut,) = samples(["a"], [rubbish], ["b"], longest=100)
    assert f"{'the ' * 25} ... (2,000 characters)\n" in cut
    assert rubbish in samples(["a"], [rubbish], ["b"])[0]


def test_the_references_of_a_parser_are_in_the_form_that_it_writes():
    gold = "( (S (NP-SBJ-1 (PRP She)) (VP (VBZ sleeps) (NP (-NONE- *-1)))) )"
    labels = label_vocabulary([parse_tree(gold)])
    parse = "( (S (NP (PRP She)) (VP (VBZ sleeps))))"
    written = partial(normalized, root=labels.root)
    (shown,) = samples(["She sleeps"], [parse], [gold], written)
    model, reference = (line.split(maxsplit=1)[1] for line in shown.splitlines()[1:])
    assert reference.replace(" ", "") == model.replace(" ", "")
    assert samples(["x"], ["y"], [""], written)[0].endswith("reference ")
