"""From text to a score and translations as processes: `make smoke`, for other Python versions."""

import json
import subprocess

import pytest
from commands import process_arguments, setting_flags

TINY = setting_flags(
    model__num_layers=1,
    model__d_model=32,
    model__d_ff=64,
    training__steps=3,
    training__checkpoint_steps=3,
    training__evaluate_steps=100,
    training__batch_tokens=600,
    decoding__batch_tokens=4096,
    data__vocabulary_size=1000,
    data__max_length=10,
)


def call(command, *arguments, stdin=""):
    options = process_arguments(command, *arguments)
    done = subprocess.run(**options, input=stdin, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.release
def test_the_demo_trains_scores_and_translates(tmp_path):
    workdir = f"--workdir={tmp_path / 'demo'}"
    trained = call("train", workdir, *TINY, "--set=decoding.beam_size=1")
    assert "from step 0 to 3" in trained.stderr
    assert "BLEU" in trained.stdout
    assert 'try "Where is the key?"' in trained.stdout
    beam = "--set=decoding.beam_size=2"
    done = call("translate", workdir, beam, stdin="The dog sleeps.\n\nHello.\n")
    out = done.stdout.split("\n")
    assert (len(out), out[1], out[3]) == (4, "", "")
    results = json.loads((tmp_path / "demo" / "results.json").read_text(encoding="utf-8"))
    assert results[0]["metric"] == "bleu"
