"""The account of a small model on eight TPUs that are not there."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SIZES = "d_model=128 d_ff=128 d_k=128 d_v=128 num_layers=1 num_heads=2"
SMALL = [*(f"--set=model.{size}" for size in SIZES.split()), "--set=data.vocabulary_size=1000"]
SMALL += ["--rows=4", "--length=16"]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not find_spec("libtpu"), reason="pip install -e '.[compile-for-tpu]'"),
]


def compile_for(*arguments: str) -> subprocess.CompletedProcess[str]:
    call = [sys.executable, "-m", "benchmarks.compile_for", "--json", *arguments, *SMALL]
    return subprocess.run(call, cwd=ROOT, capture_output=True, text=True)


def accounts(*arguments: str) -> list[dict[str, Any]]:
    done = compile_for(*arguments)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_the_account_is_an_object_for_each_function():
    train, beam = accounts("--target=tpu-v5e-8", "--what=train,beam-4")
    assert (train["target"], train["what"], beam["what"]) == ("tpu-v5e-8", "train", "beam-4")
    # Parameters and Adam's two moments in float32; widths of 128 are not padded.
    attention, feed_forward, norm = 4 * 128 * 256, 128 * 128 + 128 + 128 * 128 + 128, 2 * 128
    parameters = 1000 * 128 + 3 * attention + 2 * feed_forward + 5 * norm
    assert 1 <= train["argument_bytes"] / (3 * 4 * parameters) < 1.1
    assert train["fusion_bytes"] > train["argument_bytes"] > beam["argument_bytes"]
    assert train["fusions"] > beam["fusions"] > 0
    # Every gradient, and three sums of the loss.
    assert (train["reduced_bytes"], beam["reduced_bytes"]) == (4 * parameters + 4 * 3, 0)


def test_a_device_of_sixteen_has_the_account_of_a_device_of_eight():
    (eight,) = accounts("--target=tpu-v5e-8", "--what=train")
    (sixteen,) = accounts("--target=tpu-v5e-8", "--topology=4x4", "--what=train")
    for same in ("argument_bytes", "reduced_bytes"):
        assert sixteen[same] == eight[same]
    assert sixteen["flops"] == pytest.approx(eight["flops"], rel=0.01)
    assert sixteen["fusion_bytes"] == pytest.approx(eight["fusion_bytes"], rel=0.01)


def test_a_topology_of_other_devices_is_refused():
    done = compile_for("--target=tpu-v5e-8", "--topology=3x5")
    assert done.returncode == 2
    assert "--topology=3x5: expected one of tpu-v5e-8, such as 2x4" in done.stderr
