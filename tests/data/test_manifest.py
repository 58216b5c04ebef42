"""The manifest: read by sha256sum, no change goes unnoticed, no kill ends in a refusal."""

import json
import os
import random
import re
import shutil
import subprocess

import pytest
from refusals import refusal

from jax_transformer.config import Config, settings
from jax_transformer.data.manifest import NAME, Manifest, check_same, differences
from jax_transformer.files import write_bytes

REMEDY = "put back a copy"
SETTINGS = settings(Config())


@pytest.fixture
def folder(tmp_path):
    """A folder with two files and their manifest."""
    manifest = Manifest(tmp_path, {"splits": {"dev": {"source": "ä\u2028\n"}}}, {})
    (tmp_path / "text").mkdir()
    for name in ("config.json", "text/dev.source"):
        manifest.replace(tmp_path / name, f"content of {name}\n".encode())
    manifest.write()
    return tmp_path


@pytest.mark.skipif(not shutil.which("sha256sum"), reason="GNU coreutils")
def test_sha256sum_checks_the_folder(folder):
    def check():
        command = ["sha256sum", "--check", "--strict", NAME]
        english = os.environ | {"LC_ALL": "C"}
        return subprocess.run(command, cwd=folder, env=english, capture_output=True, text=True)

    assert check().stdout == "config.json: OK\ntext/dev.source: OK\n"
    assert check().returncode == 0
    (folder / "text" / "dev.source").write_text("other\n")
    assert "text/dev.source: FAILED" in check().stdout


def test_every_flipped_bit_and_every_cut_of_the_manifest_is_found(folder):
    path, choose = folder / NAME, random.Random(0)
    content = path.read_bytes()
    for _ in range(60):
        changed = bytearray(content)
        changed[choose.randrange(len(content))] ^= 1 << choose.randrange(8)
        path.write_bytes(choose.choice([changed, content[: choose.randrange(len(content))]]))
        assert refusal(Manifest.read, folder).startswith(f"{path}: expected its own SHA-256")
    for foreign in (b"", b"5", b"[" * 100_000, b"\xff\xfe\n"):
        path.write_bytes(foreign)
        assert refusal(Manifest.read, folder).startswith(f"{path}: expected its own SHA-256")


def test_a_changed_file_is_refused_with_both_sums_and_made_again_if_it_can_be(folder, caplog):
    path, manifest = folder / "config.json", Manifest.read(folder)
    assert manifest.made_of == {"splits": {"dev": {"source": "ä\u2028\n"}}}
    assert manifest.content(path, REMEDY) == manifest.current(path) == path.read_bytes()
    path.write_bytes(b"another\n")
    error = refusal(Manifest.read(folder).content, path, REMEDY)
    assert error.startswith(f"{path}: expected the SHA-256 ")
    expected, found = re.findall(r"\b[0-9a-f]{12}\b", error)
    lines = (folder / NAME).read_text(encoding="utf-8").splitlines()
    (listed,) = [line for line in lines if line.endswith("  config.json")]
    assert listed.startswith(expected)
    assert not listed.startswith(found)
    assert error.endswith(REMEDY)
    assert Manifest.read(folder).current(path) is None
    assert str(path) in caplog.messages[0]


def test_a_file_that_is_not_listed_is_refused_and_the_manifest_is_named(folder):
    other = folder / "vocabulary.model"
    other.write_bytes(b"")
    manifest = Manifest.read(folder)
    assert refusal(manifest.content, other, REMEDY).startswith(f"{manifest.path}: expected")
    manifest.path.unlink()
    assert "found no such file" in refusal(Manifest.read(folder).content, other, REMEDY)
    assert Manifest.read(folder).current(other) is None


def test_a_kill_while_a_file_is_replaced_leaves_no_wrong_sum(folder, monkeypatch):
    path = folder / "config.json"
    before = path.read_bytes()

    def killed(into, content):
        if into == path:
            raise KeyboardInterrupt
        write_bytes(into, content)

    with monkeypatch.context() as patch:
        patch.setattr("jax_transformer.data.manifest.write_bytes", killed)
        with pytest.raises(KeyboardInterrupt):
            Manifest.read(folder).replace(path, b"new")
    assert path.read_bytes() == before
    assert path.name not in Manifest.read(folder).sums
    Manifest.read(folder).replace(path, b"new")  # and the manifest is not written again
    assert path.name not in Manifest.read(folder).sums


def copy(sums=None, splits=None, **changed):
    made_of = {"settings": SETTINGS | changed, "splits": splits or {}}
    return json.loads(json.dumps({"made_of": made_of, "sums": sums or {}}))


def test_two_runs_differ_in_what_determines_the_model_by_name():
    text = {"train": {"source": {"digest": "a", "path": "/x"}, "pairs": 3}}
    moved = {"train": {"source": {"digest": "a", "path": "/y"}, "pairs": 4}}
    other = {"train": {"source": {"digest": "b", "path": "/x"}, "pairs": 3}}
    words = {"vocabulary.model": "1" * 64, "text/dev.source": "2" * 64}
    ours = copy(words, text)
    assert differences(ours, copy(words | {"text/dev.source": "3" * 64}, moved)) == []
    assert differences(ours, {}) == differences({}, ours) == []
    more = copy(words, text | {"train_2": text["train"], "test": {}})
    assert differences(ours, more) == ["no text of train_2"]
    assert differences(more, ours) == ["text of train_2 instead of none"]
    found = differences(ours, copy({"vocabulary.model": "4" * 64}, other, **{"model.d_k": 8}))
    assert found[0] == "model.d_k=64 instead of 8"
    assert found[1] == "another text of train"
    assert found[2].startswith("another vocabulary.model, of SHA-256 111111111111")
    error = refusal(check_same, "folder", ours, copy(words, text, **{"model.d_k": 8}))
    assert error.startswith("folder: expected what its checkpoints were trained with, found model")
