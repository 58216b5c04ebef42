"""Exports for MarianMTModel, and our results, against Hugging Face's own, recorded."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from references import Arrays, assert_close, reference, within

from jax_transformer.data.vocabularies import load_vocabulary
from jax_transformer.data.vocabularies.sentencepiece import train_vocabulary
from jax_transformer.formats.imported import parameters
from jax_transformer.formats.marian import read_marian, write_marian
from jax_transformer.runs.load import build_model
from jax_transformer.runs.model import TrainedModel
from jax_transformer.runs.run_dir import Run

safetensors = pytest.importorskip(
    "safetensors.numpy", reason="writes exports: pip install -e '.[export]'"
)

PAD = 0
KINDS = ["paper", "options"]


def from_json(text: Any) -> Any:
    """The value of recorded or written JSON."""
    return json.loads(text.read_text(encoding="utf-8") if isinstance(text, Path) else str(text))


@pytest.fixture(scope="module")
def both_kinds() -> Arrays:
    """What Hugging Face's models have and compute."""
    return reference("marian", "recorded")


@pytest.fixture(params=KINDS)
def theirs(request, both_kinds) -> Arrays:
    """What a model has and computes: one as in the paper, or one with all options."""
    return {**both_kinds, **within(both_kinds, f"{request.param}/")}


@pytest.fixture(scope="module")
def vocabulary(both_kinds, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("vocabulary") / "vocabulary.model"
    train_vocabulary(from_json(both_kinds["text/corpus"]), 26, path)
    return path


@pytest.fixture
def ours(theirs, vocabulary, tmp_path) -> TrainedModel:
    """Their model as we read it; its norms have the paper's epsilon, which no file says."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    settings = {**from_json(theirs["settings"]), "model_type": "marian"}
    files = {"config": settings, "vocab": from_json(theirs["text/vocab"]), "tokenizer_config": {}}
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    for name in ("source.spm", "target.spm"):
        (folder / name).write_bytes(vocabulary.read_bytes())
    safetensors.save_file(within(theirs, "tensor/"), folder / "model.safetensors")
    imported = read_marian(folder)
    model = dataclasses.replace(imported.model, norm_epsilon=1e-6)
    run = Run("imported", 0, dataclasses.replace(imported.config(), model=model))
    module, params = build_model(run, imported.source, imported.target), parameters(imported, run)
    return TrainedModel(run, imported.source, imported.target, module, params, "last", [1])


# ---- What is compared ---------------------------------------------------------------------


def test_an_export_has_the_tensors_and_the_settings_of_their_model(theirs, ours, tmp_path):
    write_marian(ours, tmp_path)
    written = safetensors.load_file(tmp_path / "model.safetensors")
    for name, tensor in within(theirs, "tensor/").items():
        found = written.pop(name)
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, tensor, err_msg=name)
    assert not written
    settings, expected = from_json(tmp_path / "config.json"), from_json(theirs["settings"])
    assert {name: settings[name] for name in expected} == expected


@pytest.mark.parametrize("theirs", ["options"], indirect=True)
def test_logits_are_theirs(theirs, ours):
    inputs, apply = theirs["inputs"], jax.jit(ours.module.apply)
    logits: Any = apply({"params": ours.params}, theirs["source"], inputs)
    real = inputs != PAD
    assert_close(np.asarray(logits)[real], theirs["logits"][real], 5e-6)


@pytest.mark.parametrize("theirs", ["paper"], indirect=True)
def test_an_export_has_the_files_of_their_tokenizer_and_its_ids_are_ours(
    theirs, ours, vocabulary, tmp_path
):
    write_marian(ours, tmp_path)
    text = {name: from_json(value) for name, value in within(theirs, "text/").items()}
    assert from_json(tmp_path / "vocab.json") == text["vocab"]
    settings = from_json(tmp_path / "tokenizer_config.json")
    assert {name: settings[name] for name in text["settings"]} == text["settings"]
    for name in ("source.spm", "target.spm"):
        assert (tmp_path / name).read_bytes() == vocabulary.read_bytes()
    ours = load_vocabulary(vocabulary)
    for line, ids in zip(text["lines"], text["ids"], strict=True):
        spaces = " ".join(line.split())  # a tab is a space here, and UNK there
        assert ours.encode(line, eos=True) == (
            ids if set("\t\u2028").isdisjoint(line) else ours.encode(spaces, eos=True)
        )
