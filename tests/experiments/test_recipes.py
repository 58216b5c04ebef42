"""The code of docs/recipes.md runs as it stands there, on a tiny text and model."""

import re
import runpy
from pathlib import Path
from typing import Any

import pytest
from commands import ROOT, SETTINGS

import jax_transformer as jt

BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "recipes.md").read_text("utf-8"), re.S)
TINY = {**SETTINGS, "training.steps": 40, "training.evaluate_steps": 20}


def run_block(begin: str, names: dict[str, Any]) -> dict[str, Any]:
    """Run the code that begins like this, with the tiny settings; return all names after it."""
    found = next(code for code in BLOCKS if code.startswith(begin))
    tiny = ", ".join(f'"{name}={value}"' for name, value in TINY.items())
    code = found.replace('"training.steps=300"', tiny)
    Path("recipe.py").write_text(code, encoding="utf-8")
    return runpy.run_path("recipe.py", names)


@pytest.fixture
def names(text, tmp_path, monkeypatch):
    """The names that the blocks share, in a folder with the text."""
    for split in ("train", "dev"):
        for language in ("en", "de"):
            (tmp_path / f"{split}.{language}").write_bytes(
                (text / f"{split}.{language}").read_bytes()
            )
    monkeypatch.chdir(tmp_path)
    files = {
        f"{split}_{side}": f"{split}.{language}"
        for split in ("train", "dev")
        for side, language in (("source", "en"), ("target", "de"))
    }
    return {"jt": jt, "FILES": files}


@pytest.mark.slow
def test_a_sweep_and_a_loop_of_one_s_own(names):
    swept = run_block("import jax_transformer", names)
    assert set(swept["scores"]) == {0.0, 0.1}
    changed = run_block("import jax\n", names)["changed"]
    assert jt.load("runs/changed").translate(["a b"]) == changed.translate(["a b"])


def test_metrics_go_to_mlflow(names, monkeypatch, tmp_path):
    mlflow = pytest.importorskip("mlflow", reason="needs mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    run_block("import mlflow", names)
    logged = mlflow.search_runs(search_all_experiments=True)
    assert logged["metrics.train_step_seconds"].item() > 0
    assert "metrics.dev_greedy_bleu" in logged


def test_metrics_go_to_wandb(names, monkeypatch):
    pytest.importorskip("wandb", reason="needs wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    run_block("import wandb", names)
    assert list(Path("wandb").glob("offline-run-*/*.wandb"))
