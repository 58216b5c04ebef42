"""The code of each guide in docs/ runs as it stands there, pasted in order, with toy sizes."""

import dataclasses
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from commands import SETTINGS, run_command
from hub_server import Library, hub_of
from pasting import Session, guide_blocks

import jax_transformer as jt
from jax_transformer import demo
from jax_transformer.presets import EXPERIMENTS
from tools.demo import splits

pytestmark = pytest.mark.release

TINY: dict[str, Any] = {
    **SETTINGS,
    "model.num_layers": 2,
    "model.num_heads": 4,
    "training.steps": 4,
    "training.batch_tokens": 1024,
    "training.warmup_steps": 2,
    "training.checkpoint_steps": 2,
    "training.evaluate_steps": 4,
    "training.average_last": 1,
    "data.vocabulary_size": 150,
    "data.vocabulary_up_to": True,
    "data.max_length": 40,
    "data.packing": False,
    "decoding.alpha": 6.0,  # or a model that has learned nothing writes blank lines
}
PAIRS = {"train": 200, "dev": 12, "test": 12}
NEEDED = {  # what a guide imports -> its extra
    "export": {"ctranslate2": "export", "safetensors": "export"},
    "decoding": {"sentencex": "sentences"},
}


@pytest.fixture
def toys(monkeypatch, tmp_path) -> None:
    """Every experiment is tiny, and the demo's text a few lines."""
    for name, experiment in EXPERIMENTS.items():
        if experiment.corpus in ("demo", "files"):
            changes = {**experiment.changes, **TINY}
            tiny = dataclasses.replace(experiment, changes=changes)
            monkeypatch.setitem(EXPERIMENTS, name, tiny)
    for split, count in PAIRS.items():
        pairs = demo.sentence_pairs(split)[:count]
        for side, lines in zip(("source", "target"), zip(*pairs, strict=True), strict=True):
            path = tmp_path / f"{split}.{side}"
            path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            monkeypatch.setitem(demo.TEXT_FILES, f"{split}_{side}", str(path))
    linked = SimpleNamespace(links=[(0, 0, True)])  # the grammar makes 70,000 sentences
    monkeypatch.setattr(splits, "sentences", lambda split: [linked] * PAIRS[split])
    monkeypatch.setattr(splits, "sentence_pairs", demo.sentence_pairs)
    monkeypatch.delitem(sys.modules, "tools.demo.gold_alignments", raising=False)


@pytest.fixture
def demo_run(made_once: Callable[..., Path], toys: None) -> Path:
    """A tiny run of the demo."""
    return (
        made_once("toy", lambda folder: run_command("train", f"--workdir={folder / 'demo'}"))
        / "demo"
    )


@pytest.fixture
def session(demo_run: Path, tmp_path: Path, monkeypatch) -> Iterator[Session]:
    """A terminal in a folder in which the demo has been trained."""
    folder = tmp_path / "checkout"
    shutil.copytree(demo_run, folder / "runs" / "demo")
    monkeypatch.chdir(folder)
    session = Session(folder)
    yield session
    session.close()


@pytest.fixture
def opus_mt(demo_run: Path, tmp_path: Path, monkeypatch) -> Iterator[None]:
    """A hub of this process with OPUS-MT's names for the toy, as Hugging Face's format has it."""
    for module in ("huggingface_hub", "safetensors"):
        pytest.importorskip(module, reason="pip install -e '.[hub]'")
    jt.load(demo_run).export("marian", tmp_path / "marian")
    with hub_of(Library(monkeypatch), tmp_path / "home") as hub:
        for pair in ("en-de", "de-en"):
            hub.models[f"Helsinki-NLP/opus-mt-{pair}"] = {"main": tmp_path / "marian"}
        yield


@pytest.mark.usefixtures("opus_mt")
def test_a_published_model_can_be_used_by_pasting_the_guide(session):
    pytest.importorskip("ctranslate2", reason="pip install -e '.[export]'")
    for name, line in (("test.en", "The dog sleeps.\n"), ("test.de", "Der Hund schläft.\n")):
        (session.folder / name).write_text(line, encoding="utf-8")
    for block in guide_blocks("published-models"):
        session.paste(block)
    assert jt.load("runs/opus-en-de").run.imported_from.startswith("marian:hf://Helsinki-NLP/")


@pytest.mark.parametrize("guide", ["alignments", "decoding", "fine-tune", "export"])
def test_a_guide_can_be_pasted_from_top_to_bottom(guide, session):
    for module, extra in NEEDED.get(guide, {}).items():
        pytest.importorskip(module, reason=f"pip install -e '.[{extra}]'")
    for block in guide_blocks(guide):
        session.paste(block)


def test_back_translation_can_be_pasted_with_ones_own_text(session):
    (session.folder / "data").mkdir()
    for split, name in (("train", "train"), ("dev", "val")):
        for side, language in (("source", "en"), ("target", "de")):
            text = Path(demo.TEXT_FILES[f"{split}_{side}"])
            shutil.copyfile(text, session.folder / "data" / f"{name}.{language}")
    for block in guide_blocks("back-translation"):
        done = session.paste(block)
    assert done.output.count("bleu_paper") == 2


def recipes(session: Session, *begins: str) -> None:
    """Paste the recipes that begin like this, in their order."""
    for block in guide_blocks("recipes"):
        if block.code.startswith(begins):
            session.paste(block)


def test_a_sweep_and_a_loop_of_one_s_own(session):
    recipes(session, "python -c", "import jax_transformer", "import jax\n", "from jax_transformer")
    assert set(session.names["scores"]) == {0.0, 0.1}
    usual, own = (jt.load(f"runs/{name}").params for name in ("sweep-0.0", "unscaled"))
    assert not all(map(np.array_equal, jax.tree.leaves(usual), jax.tree.leaves(own)))
    changed = session.names["changed"].translate(["The dog sleeps."])
    assert jt.load("runs/changed").translate(["The dog sleeps."]) == changed


@pytest.fixture
def files(session: Session) -> Session:
    """The session after the recipes' text was written, with the names of the first recipe."""
    recipes(session, "python -c")
    sides = {"source": "en", "target": "de"}.items()
    names = {
        f"{split}_{s}": f"{split}.{language}" for split in ("train", "dev") for s, language in sides
    }
    session.names.update(jt=jt, FILES=names)
    return session


def test_metrics_go_to_mlflow(files, monkeypatch, tmp_path):
    mlflow = pytest.importorskip("mlflow", reason="needs mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    recipes(files, "import mlflow")
    logged = mlflow.search_runs(search_all_experiments=True)
    assert logged["metrics.train_step_seconds"].item() > 0
    assert "metrics.dev_greedy_bleu" in logged


def test_metrics_go_to_wandb(files, monkeypatch):
    pytest.importorskip("wandb", reason="needs wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    recipes(files, "import wandb")
    assert list(Path("wandb").glob("offline-run-*/*.wandb"))
