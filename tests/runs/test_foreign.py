"""A path that is another program's model is answered with the command that imports it."""

from pathlib import Path

import pytest
from refusals import refusal

import jax_transformer as jt

IMPORT = "python -m experiments.import_model"
FOLDERS = [
    ("vocab.json", "config.json"),
    ("merges.txt", "config.json"),
    ("model.npz", "decoder.yml"),
    ("model.bin", "config.json"),
    ("model.pt", "dict.en.txt"),
]


@pytest.mark.parametrize("names", FOLDERS)
def test_a_model_of_another_program_is_answered_with_the_command(names, tmp_path):
    for name in names:
        (tmp_path / name).write_text("{}", encoding="utf-8")
    for path in (tmp_path, tmp_path / names[0]):
        assert IMPORT in refusal(jt.load, path)


def test_a_name_on_hugging_face_is_answered_with_a_download(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    error = refusal(jt.load, "Helsinki-NLP/opus-mt-en-de")
    assert "hf download Helsinki-NLP/opus-mt-en-de" in error
    assert IMPORT in error
    Path("mine").mkdir()
    for other in ("mine/demo", "runs/demo", "a/b/c", "demo", "/none/here", "a b/c"):
        assert "hf download" not in refusal(jt.load, other)


def test_other_configs_stay_damaged_ones(tmp_path):
    for content in ('{"model_type": "bert"}', "[]", "{", ""):
        (tmp_path / "config.json").write_text(content, encoding="utf-8")
        error = refusal(jt.load, tmp_path)
        assert "config.json: expected a file that this program wrote" in error
        assert "import_model" not in error
