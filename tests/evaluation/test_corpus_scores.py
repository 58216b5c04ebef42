"""A corpus decoded by a stand-in for a translator, and its scores by task."""

from types import SimpleNamespace
from typing import Any

import pytest

from jax_transformer.config import DataConfig, DecodingConfig
from jax_transformer.decoding.translator import Translation
from jax_transformer.evaluation.bleu import bleu
from jax_transformer.evaluation.corpus_scores import (
    all_scores,
    decode,
    main_score,
)
from jax_transformer.evaluation.paper_bleu import paper_bleu

REFERENCES = ["Das Haus ist sehr alt.", "Es regnet heute wieder.", ""]
OUTPUTS = ["Das Haus ist alt.", "Es regnet heute wieder.", ""]
TREES = ["(TOP (S (NN a) (. .)))"]


@pytest.fixture
def translator() -> Any:
    """Answers with OUTPUTS, one piece a word, and no output for a blank line."""

    def translate_lines(lines):
        outputs = [
            Translation(text, -1.0, -1.0, len(text.split()) + 1, constrained=text is OUTPUTS[0])
            for text in OUTPUTS
        ]
        return [[output] if line else [] for line, output in zip(lines, outputs, strict=True)]

    return SimpleNamespace(translate_lines=translate_lines, decoding=DecodingConfig(beam_size=3))


def test_a_blank_line_has_a_blank_output(translator):
    decoded = decode(translator, ["x", "y", ""])
    assert decoded.texts == OUTPUTS
    assert decoded.constrained == [True, False, False]
    assert decoded.facts["sentences"] == 3
    assert decoded.facts["beam_size"] == 3


def test_translations_have_both_bleus_unless_they_are_tokenized(translator):
    sources = ["x", "y", ""]
    decoded = decode(translator, sources)
    found = all_scores(decoded, sources, REFERENCES, DataConfig())
    scores = {score.metric: score for score in found}
    assert scores["bleu"].score == bleu(OUTPUTS, REFERENCES).score
    assert scores["bleu_paper"].score == paper_bleu(OUTPUTS, REFERENCES, "de").score
    assert scores["bleu"] == main_score(OUTPUTS, REFERENCES, DataConfig())
    tokenized = DataConfig(bleu_tokenize="none")
    found = all_scores(decoded, sources, ["", "", ""], tokenized)
    assert [s.metric for s in found] == ["bleu", "chrf"]


def test_a_parser_is_validated_on_sentences_that_evalb_would_leave_out():
    data = DataConfig(task="parsing")
    wrong_tag = ["(TOP (S (NN a) (NN .)))"]
    assert main_score(wrong_tag, TREES, data).score == 0
    assert main_score(wrong_tag, TREES, data, gold_tags=True).score == 100
