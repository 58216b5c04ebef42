"""The account of a small model on eight TPUs that are not there, and one line for each mistake."""

import json
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SMALL = [
    "--set=model.num_layers=1",
    "--set=model.d_model=128",
    "--set=model.d_ff=128",
    "--set=model.num_heads=2",
    "--set=model.d_k=128",
    "--set=model.d_v=128",
    "--set=data.vocabulary_size=1000",
    "--rows=4",
    "--length=16",
]


def compile_for(*flags: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "benchmarks.compile_for", *flags],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )


@pytest.mark.slow
@pytest.mark.skipif(not find_spec("libtpu"), reason="pip install -e '.[compile-for-tpu]'")
def test_the_account_is_an_object_for_each_function():
    done = compile_for("--target=tpu-v5e-8", "--what=train,beam-4", "--json", *SMALL)
    assert done.returncode == 0, done.stderr
    train, beam = map(json.loads, done.stdout.splitlines())
    assert list(train) == [
        "target",
        "what",
        "trace_seconds",
        "compile_seconds",
        "temp_bytes",
        "argument_bytes",
        "flops",
        "fusion_bytes",
        "fusions",
    ]
    assert (train["target"], train["what"], beam["what"]) == ("tpu-v5e-8", "train", "beam-4")
    # Parameters and Adam's two moments in float32; widths of 128 are not padded.
    attention, feed_forward, norm = 4 * 128 * 256, 128 * 128 + 128 + 128 * 128 + 128, 2 * 128
    parameters = 1000 * 128 + 3 * attention + 2 * feed_forward + 5 * norm
    assert 1 <= train["argument_bytes"] / (3 * 4 * parameters) < 1.1
    assert train["fusion_bytes"] > train["argument_bytes"] > beam["argument_bytes"]
    assert train["fusions"] > beam["fusions"] > 0


@pytest.mark.skipif(bool(find_spec("jax_cuda13_plugin")), reason="its compiler is installed")
def test_a_missing_compiler_for_a_gpu_is_named_as_the_extra_installs_it():
    done = compile_for("--target=h100-8")
    assert done.returncode == 2
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    (installed,) = extra["project"]["optional-dependencies"]["cuda"]
    assert "found no jax_cuda13_plugin" in done.stderr
    assert "jax[cuda13]" in installed
    assert "pip install -e '.[cuda]'" in done.stderr


@pytest.mark.skipif(bool(find_spec("libtpu")), reason="libtpu is installed")
def test_a_compiler_that_is_missing_is_one_line_and_exit_status_2():
    done = compile_for("--target=tpu-v5e-8")
    assert done.returncode == 2
    assert done.stderr == (
        "error: --target=tpu-v5e-8: expected its compiler, found no libtpu; "
        "pip install -e '.[compile-for-tpu]'\n"
    )


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--what=beam"], "--what=beam: expected train or beam-N, such as beam-4"),
        (["--experiment=wsj"], "--experiment=wsj: expected one that translates"),
    ],
)
def test_a_wrong_flag_is_one_line_and_exit_status_2(flags: list[str], message: str):
    done = compile_for("--target=h100-8", *flags)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {message}")
    assert done.stderr.count("\n") == 1
