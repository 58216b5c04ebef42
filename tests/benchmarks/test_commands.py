"""The smallest run of each benchmark prints its table, and a mistake is one line."""

import importlib
import json
import math
import os
import platform
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from absl import flags
from absl.testing import flagsaver
from refusals import refusal
from small_run import write_run

import benchmarks
from benchmarks.measuring import read_table

ROOT = Path(__file__).parents[2]
SMOKE = "--model=smoke"  # a model that takes no time


def command(name: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """The benchmark as a process."""
    given = [flag for flag in os.environ["XLA_FLAGS"].split() if "device_count" not in flag]
    given.append("--xla_force_host_platform_device_count=1")
    return subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", *arguments],
        cwd=ROOT,
        env=os.environ | {"XLA_FLAGS": " ".join(given)},
        capture_output=True,
        text=True,
    )


def table_of(text: str) -> list[dict[str, str]]:
    """The rows of the Markdown table in a text, by their columns; its columns are aligned."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len({len(line) for line in lines}) == 1, text
    assert all(re.fullmatch(r" -+:? ", cell) for cell in lines[1].strip("|").split("|"))
    return read_table(text)


def number(cell: str) -> float:
    return float(cell.replace(",", ""))


@pytest.mark.release
def test_train_step_says_where_it_ran_and_how_fast():
    done = command("train_step", SMOKE, "--trials=2", "--batch_tokens=99")
    assert done.returncode == 0, done.stderr
    for fact in ("python 3", "jaxlib ", "flax ", "1 x cpu (cpu)", " cores", "commit "):
        assert fact in done.stdout
    (row,) = table_of(done.stdout)
    assert (row["model"], row["batch"], row["dtype"]) == ("smoke", "6 x (16 + 16)", "float32")
    target = number(row["target tokens/s"]) * number(row["ms/step"]) / 1000
    assert 0.75 * 96 < target <= 100  # of 96 positions at least four fifths are real
    assert 0 <= float(row["of peak"].removesuffix("%")) < 100  # 0.0% of many fast cores
    # 8,576 parameters and two moments of Adam, and what a step needs besides.
    assert 12 * 8_576 < 1e9 * number(row["memory GB"]) < 20 * 12 * 8_576
    low, high = map(number, row["range"].split(" - "))
    assert low <= number(row["ms/step"]) <= high


@pytest.mark.release
def test_decode_has_a_row_for_each_beam():
    done = command(
        "decode", SMOKE, "--trials=2", "--beam_size=1", "--beam_size=4", "--batch_size=6"
    )
    assert done.returncode == 0, done.stderr
    assert "6 sources of 24 tokens, outputs of 25" in done.stdout
    rows = table_of(done.stdout)
    assert [row["beam"] for row in rows] == ["1", "4"]
    for row in rows:
        tokens = number(row["output tokens/s"]) / number(row["sentences/s"])
        assert tokens == pytest.approx(25, rel=0.01)


@pytest.mark.release
def test_vs_torch_has_a_row_for_each_trainer():
    pytest.importorskip("torch", reason="compares with PyTorch: pip install -e '.[torch]'")
    done = command("vs_torch", SMOKE, "--trials=2", "--steps=1")
    assert done.returncode == 0, done.stderr
    rows = table_of(done.stdout)
    assert [row["trainer"].split(",")[0] for row in rows] == ["jax", "torch"]
    assert rows[0]["speed"] == "1.00"


@pytest.mark.release
def test_serving_has_a_row_for_each_number_of_clients_and_a_line_for_each_tenth_of_a_soak(tmp_path):
    for module in ("fastapi", "ctranslate2"):
        pytest.importorskip(module, reason="pip install -e '.[serve,export]'")
    run = write_run(tmp_path / "run")
    source = tmp_path / "source"
    source.write_text("the door\nwe know\nit rains\n" * 4, encoding="utf-8")
    given = [f"--workdir={run}", f"--source={source}", "--beam_size=4"]
    ours = [sys.executable, "-m", "benchmarks.serving", *given]
    text = {"capture_output": True, "text": True, "cwd": ROOT, "check": True}
    done = subprocess.run([*ours, "--clients=1", "--clients=3", "--seconds=1"], **text)
    rows = table_of(done.stdout)
    assert [row["clients"] for row in rows] == ["", "1", "1", "3", "1", "3"]
    assert rows[0]["of whole file"] == "1.00"
    for row in rows[2:]:
        assert 0 < number(row["p50 ms"]) <= number(row["p95 ms"])
        assert 1 <= number(row["a batch"]) <= number(row["clients"])
    done = subprocess.run([*ours, "--soak=120"], **text)
    found = re.findall(r"soak +(\d+) requests, .* a second, ([\d,.]+) MiB", done.stdout)
    assert [int(count) for count, _ in found] == list(range(12, 121, 12))
    assert all(number(memory) > 50 for _, memory in found)


@pytest.mark.release
def test_accelerator_has_lines_for_each_part_and_writes_the_facts_of_a_result(tmp_path):
    output = tmp_path / "accelerator.json"
    only = [f"--only={part}" for part in ("core", "base", "attention", "decode")]
    done = command("accelerator", "--trials=1", "--minutes=60", f"--output={output}", *only)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(output.read_text(encoding="utf-8"))
    assert (result["card"], result["versions"]["python"]) == ("cpu", platform.python_version())
    assert {"jax", "jaxlib", "flax"} <= set(result["versions"])
    assert {"date", "driver", "commit", "processor"} <= set(result)
    for part, found in result["parts"].items():
        lines = [row for row in table_of(done.stdout) if row["part"] == part]
        assert len(lines) == max(len(found["rows"]), 1), part
        assert (found["failure"] is not None) == (part == "attention"), found  # which needs a GPU
    core, base = (result["parts"][part]["rows"] for part in ("core", "base"))
    assert all(row["difference"] <= row["allowed"] for row in core)
    assert base[0]["target tokens/s"] > 0
    assert 0 < base[0]["of peak"] < 1


@pytest.mark.parametrize("device", ["cpu", "gpu", "tpu"])
def test_parts_of_accelerator_give_flags_and_read_columns_that_the_benchmarks_have(
    device, imported, monkeypatch
):
    with flagsaver.flagsaver():
        accelerator = imported("accelerator")
        flags.FLAGS(["accelerator"])
        monkeypatch.setattr(accelerator, "find_spec", lambda _: True)  # PyTorch is installed
        parts = [part for part in accelerator.parts(device).values() if not isinstance(part, str)]
    assert len(parts) == {"cpu": 6, "gpu": 7, "tpu": 5}[device]
    for name in {part.command[0] for part in parts}:
        with flagsaver.flagsaver():
            module = imported(name)
            for part in parts:
                if part.command[0] == name:
                    with flagsaver.flagsaver():
                        flags.FLAGS(part.command)
                        if "model" in flags.FLAGS:
                            assert len(module.workloads()) == 1
                    for words in (part.what, part.result):
                        words.format_map(dict.fromkeys(module.COLUMNS, ""))


@pytest.mark.slow
def test_a_part_of_accelerator_that_fails_or_hangs_is_a_line_with_the_reason(imported):
    accelerator = imported("accelerator")
    flags.FLAGS(["accelerator"])
    wrong = accelerator.Part(["train_step", "--model=smoke", "--set=data.buckets=3"], "", "")
    found = accelerator.take(wrong, timeout=1000)
    ((_, _, reason),) = accelerator.lines("base", wrong, found)
    assert "expected a setting of the model" in reason
    ((_, _, reason),) = accelerator.lines("base", wrong, accelerator.take(wrong, timeout=0.1))
    assert "--minutes" in reason


@pytest.mark.parametrize(("difference", "status"), [(5e-6, 0), (6e-6, 1), (math.nan, 1)])
def test_the_status_of_numerical_core_says_if_a_number_differs(
    difference, status, imported, monkeypatch
):
    module = imported("numerical_core")
    found = {"attention": {"padding": 0.0, "causal": difference, "both": 0.0}}
    monkeypatch.setattr(module, "differences", lambda *_: found)
    monkeypatch.setattr(module, "fused_difference", lambda: 0.0)
    assert module.main() == status


PATHS = [
    path
    for path in sorted((ROOT / "benchmarks").glob("[!_]*.py"))
    if '__name__ == "__main__"' in path.read_text(encoding="utf-8")
]


@pytest.fixture
def imported(monkeypatch):
    """A function of a benchmark's name: its module, whose flags are forgotten at the end."""
    for name in [path.stem for path in PATHS]:  # each defines its flags when it is imported
        monkeypatch.delitem(sys.modules, f"benchmarks.{name}", raising=False)
        monkeypatch.delattr(benchmarks, name, raising=False)
    with flagsaver.flagsaver():
        yield lambda name: importlib.import_module(f"benchmarks.{name}")


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_help_lists_the_flags_that_a_benchmark_reads(path, imported):
    listed = {flag.name for flag in flags.FLAGS.get_key_flags_for_module(imported(path.stem))}
    assert {*re.findall(r"FLAGS\.([a-z_]+)", path.read_text(encoding="utf-8"))} <= listed


REFUSED = {
    "train_step --set=data.buckets=3": "expected a setting of the model, as in model.d_k=16",
    "compile_for --target=h100-8 --what=beam": "expected train or beam-N, such as beam-4",
    "compile_for --target=h100-8 --experiment=wsj": "expected one that translates",
    "compile_for --target=h100-8": "found no jax_cuda13_plugin or jax_cuda12_plugin; pip",
    "compile_for --target=tpu-v5e-8": "found no libtpu; pip install -e '.[compile-for-tpu]'",
}


@pytest.mark.parametrize("given", REFUSED)
def test_a_wrong_flag_and_a_missing_compiler_are_refused(given, imported):
    for compiler in ("jax_cuda13_plugin", "libtpu"):
        if compiler in REFUSED[given] and find_spec(compiler):
            pytest.skip(f"{compiler} is installed")
    module = imported(given.split()[0])
    flags.FLAGS(given.split())
    assert REFUSED[given] in refusal(module.main)
