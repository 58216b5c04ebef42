"""config.json and the settings in the manifest, which a later command is held to."""

from dataclasses import replace

import pytest

from jax_transformer.config import Config
from jax_transformer.data.manifest import Manifest
from jax_transformer.errors import InputError
from jax_transformer.runs import preparation
from jax_transformer.runs.run_dir import Run, RunFolder


def test_settings_are_recorded_although_a_kill_came_between_them_and_the_vocabulary(
    tmp_path, monkeypatch
):
    def killed(*_, **__):
        raise KeyboardInterrupt

    run = Run("demo", 1, Config())
    (tmp_path / "run").mkdir()
    monkeypatch.setattr(preparation, "prepare", killed)
    with pytest.raises(KeyboardInterrupt):
        preparation.prepare_run(run, RunFolder(tmp_path / "run"))
    monkeypatch.setattr(preparation, "prepare", lambda folder, *_, **__: folder.manifest.write())
    preparation.prepare_run(run, RunFolder(tmp_path / "run"))
    assert Manifest.read(tmp_path / "run").made_of["settings"] == run.fixed_settings()


def test_a_command_that_is_refused_leaves_the_run_that_was_requested_before(tmp_path, monkeypatch):
    def refused(folder, *_, **__):
        folder.manifest.made_of["splits"] = {"dev": "of text that is refused"}
        raise InputError("found nothing")

    run, folder = Run("demo", 1, Config()), tmp_path / "run"
    folder.mkdir()
    RunFolder(folder).write_run(run)
    monkeypatch.setattr(preparation, "prepare", refused)
    with pytest.raises(InputError, match="found nothing"):
        preparation.prepare_run(replace(run, seed=2), RunFolder(folder))
    assert RunFolder(folder).run == run
    assert "splits" not in Manifest.read(folder).made_of


def test_scores_of_a_model_that_is_gone_move_aside_once(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(preparation, "prepare", lambda folder, *_, **__: folder.manifest.write())
    run, path = Run("demo", 1, Config()), tmp_path / "run"
    path.mkdir()
    folder = RunFolder(path)
    folder.write_run(run)
    folder.append_results([{"metric": "bleu", "score": 1.0}])
    for _ in range(2):
        preparation.prepare_run(run, RunFolder(path))
    assert RunFolder(path).read_results() == []
    assert b'"score": 1.0' in (path / "results.before.json").read_bytes()
    assert caplog.text.count("scores of a model that is gone") == 1


def test_what_another_command_has_written_since_the_folder_was_opened_counts(tmp_path, monkeypatch):
    run, folder = Run("demo", 1, Config()), RunFolder(tmp_path / "run")
    folder.path.mkdir()
    assert folder.run is None
    assert not folder.manifest.sums
    other = RunFolder(folder.path)
    other.write_run(run)
    other.manifest.add(folder.vocabulary, b"")
    other.manifest.write()
    monkeypatch.setattr(preparation, "prepare", lambda folder, *_, **__: folder.manifest.write())
    preparation.prepare_run(run, folder)
    assert folder.vocabulary.name in Manifest.read(folder.path).sums
