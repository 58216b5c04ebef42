"""A run folder: its settings, its lock, its results."""

import contextlib
import errno
import fcntl
import json
import os
import time
import warnings
from typing import Any

import pytest
from refusals import refusal

from jax_transformer.config import Config, override
from jax_transformer.errors import InputError
from jax_transformer.evaluation.evaluate import Evaluation
from jax_transformer.evaluation.score import SEARCH, Score
from jax_transformer.runs import run_dir
from jax_transformer.runs.bucket import Bucket
from jax_transformer.runs.results import save_scores
from jax_transformer.runs.run_dir import Run, RunFolder


def run_with(*assignments, seed=1):
    return Run("base", seed, override(Config(), *assignments))


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "run").mkdir()
    return RunFolder(tmp_path / "run")


def test_settings_come_back_as_they_went_and_may_change(folder):
    for run in (run_with("model.d_k=16"), run_with(seed=2)):
        folder.write_run(run)
        assert folder.load_run() == run
        assert RunFolder(folder.path).load_run() == run


def test_a_run_may_continue_on_a_disk_or_in_a_memory_that_was_too_small():
    small = run_with("training.keep_checkpoints=2", "training.accumulate=8").fixed_settings()
    assert small == run_with().fixed_settings() != run_with("training.log_steps=2").fixed_settings()


def test_a_config_that_was_changed_by_hand_is_refused_and_set_is_named(folder):
    folder.write_run(run_with())
    folder.manifest.write()
    content = folder.config.read_text("utf-8")
    folder.config.write_text(content.replace('"seed": 1', '"seed": 2'), encoding="utf-8")
    error = refusal(RunFolder(folder.path).load_run)
    assert error.startswith(f"{folder.config}: expected the SHA-256 ")
    assert "--set" in error
    folder.config.write_text(content, encoding="utf-8")
    assert RunFolder(folder.path).load_run() == run_with()


def test_a_config_without_a_newer_setting_takes_its_default_and_an_unknown_one_is_refused(folder):
    folder.write_run(run_with())
    content = json.loads(folder.config.read_bytes())
    del content["config"]["decoding"]["narrowing"]
    folder.config.write_text(json.dumps(content), encoding="utf-8")
    assert RunFolder(folder.path).load_run() == run_with()
    content["config"]["model"]["newer"] = 1
    folder.config.write_text(json.dumps(content), encoding="utf-8")
    error = refusal(RunFolder(folder.path).load_run)
    assert "model.newer: " in error
    assert "version" in error


def test_checkpoints_without_a_config_are_refused(folder):
    (folder.checkpoints / "20").mkdir(parents=True)
    assert "config.json next to checkpoints, found none" in refusal(folder.locked().__enter__)


# What a damaged file of JSON may hold, whatever belongs into it.
DEEP = [b"[" * 100_000, b'{"a":' * 100_000, b'[{"a":' * 100_000]
DAMAGED = [b"", b"{", b"5", b"[5]", b"null", b"\xff\xfe", b'["\xff"]', b"9" * 5000, *DEEP]


def test_a_folder_without_a_config_is_refused_and_the_way_to_import_is_named(tmp_path):
    folder = RunFolder(tmp_path)
    assert "found none in it" in refusal(folder.load_run)
    assert "experiments.import_model" in refusal(RunFolder(tmp_path / "absent").load_run)
    folder.config.mkdir()
    assert "config.json: " in refusal(RunFolder(tmp_path).load_run)


def test_a_config_that_is_none_is_refused(folder):
    for damaged in [*DAMAGED, b'{"model_type": "marian"}']:
        folder.config.write_bytes(damaged)
        error = refusal(folder.load_run)
        assert error.startswith(f"{folder.config}: expected a file that this program wrote, found:")
        assert "experiments.import_model" in error


@pytest.mark.parametrize(
    ("place", "value", "found"),
    [
        *(("seed", seed, "seed: expected") for seed in (True, "one", -5, 1.0, 2**32, None)),
        *(("sources", found, "sources") for found in (None, {"dev": 5}, {"dev": {"source": "a"}})),
        ("scored_on", "train", "scored_on: expected 'dev'"),
        ("config", {"model": [3]}, "config.model: expected"),
        ("config", {"model": {"d_k": 2**70}}, "config.model.d_k: expected"),
        ("config", {"model": {"d_ks": 1}}, "config.model.d_ks: Unexpected"),
        ("sede", 1, "sede: Unexpected"),
    ],
)
def test_a_value_of_another_type_in_a_config_is_refused_with_its_place(folder, place, value, found):
    folder.write_run(run_with())
    content = json.loads(folder.config.read_text("utf-8")) | {place: value}
    folder.config.write_text(json.dumps(content), encoding="utf-8")
    error = refusal(RunFolder(folder.path).load_run)
    assert error.startswith(f"{folder.config}: ")
    assert found in error


def test_a_second_process_in_the_folder_or_a_link_to_it_is_refused(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "new")
    link, folder = RunFolder(tmp_path / "link"), RunFolder(tmp_path / "new")
    with link.locked():
        assert folder.path.is_dir()
        # A lock belongs to an open file, so that this is as good as another process.
        assert "another process" in refusal(folder.locked().__enter__)
    with folder.locked():
        pass


def test_without_locks_everything_goes_on_with_one_warning_for_each_folder(
    tmp_path, monkeypatch, caplog
):
    def flock(*_):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", flock)
    folder = RunFolder(tmp_path / "run")
    with folder.locked():
        folder.append_results([{"bleu": 1}])
        folder.append_results([{"bleu": 2}])
    assert folder.read_results() == [{"bleu": 1}, {"bleu": 2}]
    (message,) = caplog.messages
    assert str(folder.path) in message
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    bucket = Bucket("memory://bucket/no-locks")
    bucket.local.mkdir(parents=True)
    (bucket.local / "config").write_text("a")
    bucket.put()
    assert str(bucket.local) in caplog.messages[-1]


def refuse(folder, *files):
    with contextlib.suppress(InputError), folder.locked():
        folder.write_run(run_with())
        for name in files:
            (folder.path / name).mkdir(parents=True)
        raise InputError("the text cannot be used")


def test_a_refused_run_leaves_no_new_folder_unless_its_text_is_encoded(tmp_path):
    new = RunFolder(tmp_path / "new" / "run")
    refuse(new, "text")
    assert not new.path.exists()
    there = RunFolder(tmp_path)
    refuse(there, "text")
    assert {path.name for path in tmp_path.iterdir()} >= {"new", "text"}
    refuse(new, "tokens/train")
    assert not new.path.exists()
    refuse(new, "tokens/train/store.json", "tokens/train_2.building")
    assert new.load_run() == run_with()


def test_what_killed_processes_were_writing_is_removed_at_the_next_start(folder):
    folder.write_run(run_with())
    killed = 999_999_999  # a number that no process has
    left = [
        folder.path / f"vocabulary.model.{killed}.partial",
        folder.path / "text" / f"dev.source.{killed}.partial",
        folder.path / f"config.json.{os.getpid()}.partial",  # of another container
    ]
    others = [
        folder.path / f"results.json.{os.getppid()}.partial",  # it is being written
        folder.path / "film.mkv.partial",
        folder.path / f"film.mkv.{killed}.partial",
        folder.path / f"text/train.source.{killed}.partial",
    ]
    (folder.path / "text").mkdir()
    for path in [*left, *others]:
        path.touch()
    with folder.locked():
        assert not any(path.exists() for path in left)
        assert all(path.exists() for path in others)


@pytest.mark.parametrize("name", ["vocabulary.model", "text/dev.source", "tokens/mine"])
def test_files_of_the_user_that_a_new_run_would_replace_are_refused_and_stay(folder, name):
    (folder.path / name).parent.mkdir(exist_ok=True)
    (folder.path / name).write_text("mine")
    assert f"next to {name.removesuffix('/mine')}, found none" in refusal(folder.locked().__enter__)
    assert [path for path in folder.path.rglob("*") if path.is_file()] == [folder.path / name]
    assert (folder.path / name).read_text() == "mine"


def test_results_are_never_overwritten_by_a_damaged_file(folder):
    assert folder.read_results() == []
    for damaged in DAMAGED:
        folder.results.write_bytes(damaged)
        assert "move it away" in refusal(folder.append_results, [{"bleu": 3}])
        assert folder.results.read_bytes() == damaged


def test_translations_by_another_search_do_not_replace_those_by_the_runs_own(folder):
    folder.write_run(run_with())
    own = folder.load_run().config.decoding
    facts = {"split": "test", "checkpoint": "last", "steps": [2]}
    searches = [{name: getattr(own, name) for name in SEARCH}]
    changes: list[dict[str, Any]] = [
        *({"max_extra_length": 1}, {"patience": 1.0}, {"narrowing": not own.narrowing})
    ]
    searches += [{**searches[0], **change} for change in changes]
    names = [
        save_scores(folder, Evaluation(["a"], [False], search), facts).name for search in searches
    ]
    assert names[0] == "test.last.beam4.txt"
    assert len({*names}) == 4


def test_outputs_that_another_model_has_replaced_are_not_named_any_more(folder):
    folder.write_run(run_with())
    search = {name: getattr(folder.load_run().config.decoding, name) for name in SEARCH}
    found = Evaluation(["a"], [False], search, [Score("bleu", 1.0, "")])
    for steps in ([1], [1], [2]):
        save_scores(folder, found, {"split": "test", "checkpoint": "last", "steps": steps})
    entries = [(entry["steps"], "translations" in entry) for entry in folder.read_results()]
    assert entries == [([1], False), ([1], False), ([2], True)]


def test_two_processes_that_append_results_at_once_lose_none(folder):
    children = []
    for _ in range(2):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # JAX's own, of the fork
            child = os.fork()
        if not child:
            with contextlib.suppress(BaseException):
                for i in range(100):
                    folder.append_results([{"i": i}])
            os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
    assert sorted(entry["i"] for entry in folder.read_results()) == sorted([*range(100)] * 2)


def test_another_process_waits_until_it_sees_the_run_that_process_0_has_begun(folder, monkeypatch):
    """NFS may remember for a while that a file was not there."""
    other = RunFolder(folder.path)
    assert other.run is None
    monkeypatch.setattr(run_dir, "NFS_SECONDS", 3)
    slept = []
    monkeypatch.setattr(time, "sleep", slept.append)
    assert not other.appears()
    monkeypatch.setattr(time, "sleep", lambda _: folder.write_run(run_with()))
    assert other.appears()
    assert slept == [1, 1, 1]
