"""The score that validates a parser in training."""

import unicodedata

import pytest

from jax_transformer.config import DataConfig
from jax_transformer.evaluation.evaluate import (
    main_score,
)

TREES = ["(TOP (S (NN a) (. .)))"]


def test_a_parser_is_validated_on_sentences_that_evalb_would_leave_out():
    data = DataConfig(task="parsing")
    wrong_tag = ["(TOP (S (NN a) (NN .)))"]
    assert main_score(wrong_tag, TREES, data).score == 0
    assert main_score(wrong_tag, TREES, data, gold_tags=True).score == 100


@pytest.mark.parametrize("space", ["\t", "\u00a0", "\u3000", "\u2028", "\u200b", "\ufeff ", "\x85"])
def test_references_are_compared_whatever_their_spaces_and_accents(space):
    text = "Der Schüler öffnet die Tür am Fenster."
    odd = unicodedata.normalize("NFD", f"{space}{text.replace(' ', space)}{space}")
    assert main_score([text], [odd], DataConfig()).score == pytest.approx(100)
