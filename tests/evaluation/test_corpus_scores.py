"""The score that validates a parser in training."""

from jax_transformer.config import DataConfig
from jax_transformer.evaluation.corpus_scores import (
    main_score,
)

TREES = ["(TOP (S (NN a) (. .)))"]


def test_a_parser_is_validated_on_sentences_that_evalb_would_leave_out():
    data = DataConfig(task="parsing")
    wrong_tag = ["(TOP (S (NN a) (NN .)))"]
    assert main_score(wrong_tag, TREES, data).score == 0
    assert main_score(wrong_tag, TREES, data, gold_tags=True).score == 100
