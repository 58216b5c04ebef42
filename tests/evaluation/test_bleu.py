"""Scores compared with the formulas, and signatures with those of sacreBLEU."""

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
import sacrebleu
from papineni import bleu_by_hand, matches
from refusals import refusal
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from jax_transformer.errors import InputError
from jax_transformer.evaluation.bleu import bleu, chrf, perplexity
from jax_transformer.evaluation.paper_bleu import paper_bleu


def chrf_by_hand(hypothesis: str, reference: str) -> float:
    """Popovic, 2015: mean precision and recall of character 1- to 6-grams, F with beta 2."""
    ours, theirs = hypothesis.replace(" ", ""), reference.replace(" ", "")
    counts = [matches(ours, theirs, n) for n in range(1, 7)]
    precision = sum(m / h for m, h, _ in counts) / 6
    recall = sum(m / r for m, _, r in counts) / 6
    return 100 * 5 * precision * recall / (4 * precision + recall)


HYPOTHESES = ["the cat sat on a mat", "a dog in the park ran very fast", "it rains , again"]
REFERENCES = ["the cat sat on the red mat", "a dog in the park ran fast", "it rains , yet again"]


def test_bleu_equals_the_formula_of_papineni():
    short = [line.rsplit(maxsplit=1)[0] for line in HYPOTHESES]  # brevity penalty below 1
    for hypotheses in (HYPOTHESES, short, REFERENCES):
        expected = bleu_by_hand(hypotheses, REFERENCES)
        assert bleu(hypotheses, REFERENCES, tokenize="none").score == pytest.approx(expected, 1e-12)
    assert bleu(REFERENCES, REFERENCES).score == pytest.approx(100)


def test_signatures_are_those_of_sacrebleu_with_its_options():
    version = f"version:{sacrebleu.__version__}"
    start = "nrefs:1|case:"
    for tokenize in ("13a", "none", "intl", "char", "zh"):
        signature = bleu(HYPOTHESES, REFERENCES, tokenize=tokenize).signature
        assert signature == f"{start}mixed|eff:no|tok:{tokenize}|smooth:exp|{version}"
    lower = bleu(HYPOTHESES, REFERENCES, tokenize="none", lowercase=True).signature
    assert lower == f"{start}lc|eff:no|tok:none|smooth:exp|{version}"
    character = chrf(HYPOTHESES, REFERENCES).signature
    assert character == f"{start}mixed|eff:yes|nc:6|nw:0|space:no|{version}"


def test_chrf_equals_the_formula_of_popovic():
    for hypothesis, reference in zip(HYPOTHESES, REFERENCES, strict=True):
        expected = chrf_by_hand(hypothesis, reference)
        assert chrf([hypothesis], [reference]).score == pytest.approx(expected, rel=1e-12)
    # "abcdefg" against "abcdef": n-grams match 6 5 4 3 2 1 of 7 6 5 4 3 2, all recalled.
    precision = (6 / 7 + 5 / 6 + 4 / 5 + 3 / 4 + 2 / 3 + 1 / 2) / 6
    expected = 100 * 5 * precision / (4 * precision + 1)
    assert chrf(["abcdefg"], ["abcdef"]).score == pytest.approx(expected, rel=1e-12)
    assert chrf(["xyz"], ["abc"]).score == 0


def test_there_is_no_warning_about_text_that_is_tokenized_on_purpose(caplog, capfd):
    tokenized = ["it rains ."] * 200
    bleu(tokenized, tokenized, tokenize="none")
    assert not caplog.records
    assert capfd.readouterr().err == ""
    for _ in range(3):  # three evaluations of a run
        bleu(tokenized, tokenized, tokenize="13a")
    (message,) = caplog.messages
    assert "--set data.bleu_tokenize=none" in message
    assert capfd.readouterr().err == ""


def test_every_reference_counts():
    others = [line.replace("the", "a") for line in REFERENCES]
    for function, library in ((bleu, BLEU()), (chrf, CHRF()), (paper_bleu, None)):
        language: Any = {"language": "de"} if function is paper_bleu else {}
        score = function(HYPOTHESES, REFERENCES, others=[others], **language)
        assert "|nrefs:2|" in f"|{score.signature}"
        assert score.score >= function(HYPOTHESES, REFERENCES, **language).score
        if library:
            expected = library.corpus_score(HYPOTHESES, [REFERENCES, others]).score
            assert score.score == pytest.approx(expected)
    with pytest.raises(InputError, match="found 1 hypotheses and 2"):
        bleu(["a"], ["a"], others=[["a", "b"]])


def bootstrap_by_hand(lines: int, samples: int, score) -> tuple[float, float]:
    """(mean, half of the width that holds 95%) of `score` of resampled line numbers."""
    drawn = np.random.default_rng(12345).choice(lines, size=(samples, lines), replace=True)
    scores = sorted(score(rows) for rows in drawn.tolist())
    outer = samples // 40
    return sum(scores) / samples, (scores[samples - outer - 1] - scores[outer]) / 2


def test_the_bootstrap_interval_equals_that_of_resampled_test_sets():
    random = np.random.default_rng(3)
    references = [" ".join(random.choice(list("abcde"), 9)) for _ in range(60)]
    hypotheses = [line[:-4] if i % 3 else line for i, line in enumerate(references)]

    def resampled(rows):
        return bleu_by_hand([hypotheses[i] for i in rows], [references[i] for i in rows])

    mean, interval = bootstrap_by_hand(60, 80, resampled)
    score = bleu(hypotheses, references, tokenize="none", bootstrap=80)
    assert score.mean == pytest.approx(mean, rel=1e-5)
    assert score.interval == pytest.approx(interval, rel=1e-4)
    assert interval > 0.1
    assert "|bs:80|seed:12345|" in score.signature
    without = bleu(hypotheses, references, tokenize="none")
    assert (score.score, score.detail) == (without.score, without.detail)


def test_counts_that_differ_or_are_zero_are_refused():
    for metric in (bleu, chrf, partial(paper_bleu, language="de")):
        assert "1,203 hypotheses and 2 references" in refusal(metric, ["a"] * 1203, ["a"] * 2)
        assert "0 hypotheses and 0 references" in refusal(metric, [], [])


def test_perplexity_is_the_number_of_choices_of_a_uniform_guess_and_may_be_infinite():
    assert perplexity(7 * math.log(37_000), 7) == pytest.approx(37_000, rel=1e-12)
    assert perplexity(0.0, 3) == 1.0
    assert perplexity(1e6, 2) == math.inf
    assert perplexity(math.inf, 2) == math.inf
    assert math.isnan(perplexity(math.nan, 2))
