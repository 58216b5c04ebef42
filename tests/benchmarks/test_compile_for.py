"""The account of a small model on eight TPUs that are not there."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SIZES = "d_model=128 d_ff=128 d_k=128 d_v=128 num_layers=1 num_heads=2"
SMALL = [*(f"--set=model.{size}" for size in SIZES.split()), "--set=data.vocabulary_size=1000"]
SMALL += ["--rows=4", "--length=16"]


@pytest.mark.slow
@pytest.mark.skipif(not find_spec("libtpu"), reason="pip install -e '.[compile-for-tpu]'")
def test_the_account_is_an_object_for_each_function():
    call = [sys.executable, "-m", "benchmarks.compile_for", "--target=tpu-v5e-8"]
    call += ["--what=train,beam-4", "--json", *SMALL]
    done = subprocess.run(call, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    train, beam = map(json.loads, done.stdout.splitlines())
    assert (train["target"], train["what"], beam["what"]) == ("tpu-v5e-8", "train", "beam-4")
    # Parameters and Adam's two moments in float32; widths of 128 are not padded.
    attention, feed_forward, norm = 4 * 128 * 256, 128 * 128 + 128 + 128 * 128 + 128, 2 * 128
    parameters = 1000 * 128 + 3 * attention + 2 * feed_forward + 5 * norm
    assert 1 <= train["argument_bytes"] / (3 * 4 * parameters) < 1.1
    assert train["fusion_bytes"] > train["argument_bytes"] > beam["argument_bytes"]
    assert train["fusions"] > beam["fusions"] > 0
