"""Expected utilities compared with sums of sacreBLEU's own scores of sentences."""

import math

import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from jax_transformer.config import DataConfig
from jax_transformer.decoding.line_search import Translation
from jax_transformer.decoding.minimum_bayes_risk import expected_utilities, minimum_bayes_risk
from jax_transformer.decoding.outputs import choose

HYPOTHESES = [
    "Zwei Männer stehen am Herd, und kochen.",
    "Zwei Männer stehen am Herd und kochen das Essen.",
    "Zwei zwei zwei Männer",
    "Männer kochen",
    "x",
    "",
    "  ",
    "Zwei Männer stehen am Herd und kochen das Essen.",
    "Herd!",
]
WEIGHTS = [0.3, 0.0, 2.0, 0.1, 0.5, 0.7, 0.1, 0.25, 1e-3]


def sentence_score(utility, tokenize="13a"):
    metric = CHRF() if utility == "chrf" else BLEU(tokenize=tokenize, effective_order=True)
    return lambda hypothesis, reference: metric.sentence_score(hypothesis, [reference]).score


@pytest.mark.parametrize("utility", ["chrf", "bleu"])
def test_expected_utilities_are_means_of_sacrebleus_sentence_scores(utility):
    score = sentence_score(utility)
    for weights in (None, WEIGHTS):
        each = weights or [1.0] * len(HYPOTHESES)
        for ours, hypothesis in zip(
            expected_utilities(HYPOTHESES, weights, utility=utility), HYPOTHESES, strict=True
        ):
            pairs = zip(each, HYPOTHESES, strict=True)
            mean = sum(w * score(hypothesis, other) for w, other in pairs) / sum(each)
            assert ours == pytest.approx(mean, rel=1e-12)


def test_bleu_counts_the_tokens_that_are_asked_for():
    texts = ["我来了。", "我来吧。"]
    expected = (100 + sentence_score("bleu", "char")(*texts)) / 2
    found = expected_utilities(texts, utility="bleu", tokenize="char")
    assert found[0] == pytest.approx(expected, rel=1e-12)
    assert expected_utilities(texts, utility="bleu")[0] == pytest.approx(50)  # one token each


def test_equal_samples_count_as_often_as_they_appear():
    texts = ["a b c d", "e f g h", "e f g h"]
    assert minimum_bayes_risk(texts) == 1
    assert expected_utilities(texts) == pytest.approx([100 / 3, 200 / 3, 200 / 3])


def test_the_first_of_equally_good_hypotheses_wins():
    for utility in ("chrf", "bleu"):
        assert minimum_bayes_risk(["abcd", "efgh", "ijkl"], utility=utility) == 0
        assert minimum_bayes_risk(["abcd", "efgh", "efgh"], [0.3, 0.1, 0.2], utility=utility) == 0
        assert minimum_bayes_risk(["", " "], [1e-300, 1e300], utility=utility) == 0


def test_a_consensus_beats_the_most_probable_translation_however_small_the_probabilities():
    texts = ["quite another thing", "the cat sat", "the cat sat down", "the cat sat still"]

    def chosen(*shares):
        translations = [
            Translation(text, score=0.0, log_prob=-2000 + math.log(share), num_tokens=4)
            for text, share in zip(texts, shares, strict=True)
        ]
        ((best,), none) = choose("chrf", DataConfig(), False, [translations, []])
        assert none == []
        return texts.index(best.text)

    assert chosen(0.4, 0.2, 0.2, 0.2) in (1, 2, 3)
    assert chosen(0.97, 0.01, 0.01, 0.01) == 0


def test_case_counts_as_it_does_in_the_scores_of_the_run():
    texts = ["Der alte Hund", "DIE KATZE SITZT", "die katze sitzt"]
    drawn = [Translation(text, score=0.0, log_prob=-1.0, num_tokens=4) for text in texts]
    for lowercase, expected in ((False, 0), (True, 1)):
        data = DataConfig(bleu_lowercase=lowercase)
        ((best,),) = choose("bleu", data, True, [drawn])
        assert best.text == texts[expected]
