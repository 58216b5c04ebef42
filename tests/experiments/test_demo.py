"""The demo trained whole, as a newcomer does. Ten minutes each, so only if a folder is given."""

import os
import subprocess
from pathlib import Path

import pytest
from commands import process_arguments, results

import jax_transformer as jt
from tools.demo.splits import simple_sentences

FOLDER = os.environ.get("TRANSFORMER_TEST_DEMO", "")
pytestmark = [
    pytest.mark.release,
    pytest.mark.skipif(not FOLDER, reason="TRANSFORMER_TEST_DEMO names no folder to train in"),
]


def trained(dtype):
    """The run folder of the demo, which trains what is left of it."""
    workdir = Path(FOLDER) / dtype
    flags = ["--seed=1", f"--set=model.compute_dtype={dtype}"]
    options = process_arguments("train", f"--workdir={workdir}", *flags)
    options["env"].pop("XLA_FLAGS")  # one device
    subprocess.run(**options, check=True)
    return workdir


def test_bleu_of_the_demo_in_bfloat16_is_within_half_a_point_of_float32():
    bleu, other = (results(trained(dtype))[-1]["score"] for dtype in ("float32", "bfloat16"))
    assert bleu > 95
    assert abs(other - bleu) < 0.5


def test_98_of_100_simple_sentences_are_translated_as_a_person_did():
    sentences = simple_sentences()
    outputs = jt.load(trained("float32")).translate(list(sentences))
    wrong = [
        pair for pair in zip(sentences, outputs, strict=True) if pair[1] not in sentences[pair[0]]
    ]
    assert len(wrong) <= 0.02 * len(sentences), wrong
