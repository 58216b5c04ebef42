"""What a newcomer types first, translated by the demo. Minutes, so only where a folder is given."""

from pathlib import Path

import pytest
from test_demo_bfloat16 import FOLDER, bleu_of_demo

import jax_transformer as jt
from tools.demo.splits import simple_sentences

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not FOLDER, reason="TRANSFORMER_TEST_DEMO names no folder to train in"),
]


@pytest.fixture(scope="module")
def workdir():
    """The run that the test of bfloat16 trains too, if nothing has trained it yet."""
    assert FOLDER
    bleu_of_demo("float32")
    return Path(FOLDER) / "float32"


def test_98_of_100_simple_sentences_are_translated_as_a_person_did(workdir):
    sentences = simple_sentences()
    outputs = jt.load(workdir).translate(list(sentences))
    wrong = [
        pair for pair in zip(sentences, outputs, strict=True) if pair[1] not in sentences[pair[0]]
    ]
    assert len(wrong) <= 0.02 * len(sentences), wrong
