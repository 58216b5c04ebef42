"""What a newcomer types first, translated by the demo. Minutes, so only where a folder is given."""

import lzma
import random
import re
from pathlib import Path

import pytest
from real_data import real_data
from test_demo_bfloat16 import FOLDER, bleu_of_demo

import jax_transformer as jt
from jax_transformer import demo
from jax_transformer.evaluation.familiarity import familiarity
from jax_transformer.runs.results import usual_familiarity_of
from jax_transformer.runs.run_dir import RunFolder
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


def words(line):
    return set(re.findall(r"[a-z']+", line.lower()))


def test_98_of_100_simple_sentences_are_translated_as_a_person_did(workdir):
    sentences = simple_sentences()
    outputs = jt.load(workdir).translate(list(sentences))
    wrong = [
        pair for pair in zip(sentences, outputs, strict=True) if pair[1] not in sentences[pair[0]]
    ]
    assert len(wrong) <= 0.02 * len(sentences), wrong


def test_text_with_unknown_words_is_warned_of_and_the_run_s_own_is_not(workdir):
    model, folder = jt.load(workdir), RunFolder(workdir)
    usual = usual_familiarity_of(folder, model.run)
    assert usual is not None

    def share_warned_of(lines):
        found = zip(lines, model.translate(lines, n_best=1), strict=True)
        values = [familiarity(line, outputs[0], model.vocabulary) for line, outputs in found]
        return sum(value < usual for value in values) / len(values)

    known = set().union(*(words(english) for english, _ in demo.sentence_pairs("train")))
    packed = (real_data("tatoeba_deu_eng") / "dev.en.xz").read_bytes()
    lines = lzma.decompress(packed).decode("utf-8").splitlines()
    others = [line for line in lines if words(line) - known]
    assert share_warned_of(folder.text("dev", "source").read_text("utf-8").splitlines()) < 0.01
    assert share_warned_of(random.Random(1).sample(others, 100)) > 0.9
