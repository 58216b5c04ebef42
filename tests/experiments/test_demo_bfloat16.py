"""The demo in bfloat16 is as good as in float32. Ten minutes, so only where a folder is given."""

import os
import subprocess
from pathlib import Path

import pytest
from commands import process_arguments, results

FOLDER = os.environ.get("TRANSFORMER_TEST_DEMO")


def bleu_of_demo(dtype):
    """Trains the demo, or what is left of it, as a user does."""
    workdir = Path(FOLDER or "") / dtype
    flags = ["--seed=1", f"--set=model.compute_dtype={dtype}"]
    options = process_arguments("train", f"--workdir={workdir}", *flags)
    options["env"].pop("XLA_FLAGS")  # one device
    subprocess.run(**options, check=True)
    return results(workdir)[-1]["score"]


@pytest.mark.slow
@pytest.mark.skipif(not FOLDER, reason="TRANSFORMER_TEST_DEMO names no folder to train demos in")
def test_bleu_of_the_demo_in_bfloat16_is_within_half_a_point_of_float32():
    bleu = bleu_of_demo("float32")
    assert bleu > 95
    assert abs(bleu_of_demo("bfloat16") - bleu) < 0.5
