"""What is no run folder but another program's model is answered with the command for it."""

import json
import shlex
from pathlib import Path

import pytest
from refusals import refusal

import jax_transformer as jt
from jax_transformer.formats import READ_FORMATS

IMPORT = "python -m experiments.import_model"
FILES = {  # the files of a folder -> --format
    ("config.json", "vocab.json"): "marian",
    ("config.json", "merges.txt"): "fsmt",
    ("model.npz", "model.npz.decoder.yml"): "marian-npz",
    ("config.json", "model.bin", "shared_vocabulary.json"): "ctranslate2",
    ("model.pt", "dict.en.txt"): "fairseq",
}


@pytest.mark.parametrize(("names", "form"), FILES.items())
def test_a_folder_of_another_program_is_answered_with_the_command(names, form, tmp_path):
    folder = tmp_path / "a model"
    folder.mkdir()
    for name in names:
        (folder / name).write_text(json.dumps({"model_type": form}), encoding="utf-8")
    command = (
        f"{IMPORT} --format={form} --input={shlex.quote(str(folder))} --workdir='runs/a model'"
    )
    for path in (folder, *[folder / names[0]] * (names[0] != "config.json")):
        error = refusal(jt.load, path)
        assert error.endswith(f"; bring it in with {command}"), error


def test_the_folders_of_each_reader_are_known():
    assert {*READ_FORMATS} <= {*FILES.values()}


def test_a_name_on_hugging_face_is_answered_with_a_download(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    error = refusal(jt.load, "Helsinki-NLP/opus-mt-en-de")
    assert error.endswith(
        "hf download Helsinki-NLP/opus-mt-en-de --local-dir=opus-mt-en-de && "
        f"{IMPORT} --format=marian --input=opus-mt-en-de --workdir=runs/opus-mt-en-de"
    )
    assert "--format=fsmt" in refusal(jt.load, "facebook/wmt19-en-de")
    Path("mine").mkdir()
    for other in ("mine/demo", "runs/demo", "a/b/c", "demo", "/none/here", "a b/c"):
        assert "hf download" not in refusal(jt.load, other)


def test_other_configs_stay_damaged_ones(tmp_path):
    for content in ('{"model_type": "bert"}', '{"model_type": ["marian"]}', "[]", "{", ""):
        (tmp_path / "config.json").write_text(content, encoding="utf-8")
        error = refusal(jt.load, tmp_path)
        assert "config.json: expected a file that this program wrote" in error
        assert "import_model" not in error
