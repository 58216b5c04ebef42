"""A run folder: its settings, its lock, its results."""

import json

import pytest

from jax_transformer.config import Config, override
from jax_transformer.errors import InputError
from jax_transformer.runs.run_dir import Run, RunFolder


def run_with(*assignments, seed=1):
    return Run("base", seed, override(Config(), *assignments))


@pytest.fixture
def folder(tmp_path):
    return RunFolder(tmp_path / "run")


def refusal(call, *arguments):
    with pytest.raises(InputError) as caught:
        call(*arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_settings_come_back_as_they_went_and_may_change_until_something_is_trained(folder):
    for run in (run_with("model.d_k=16"), run_with(seed=2)):
        assert folder.resolve_run(run) == run
        assert folder.load_run() == run


def test_a_trained_run_continues_with_more_steps_and_no_other_change(folder):
    first = run_with("training.steps=30")
    folder.resolve_run(first)
    (folder.checkpoints / "20").mkdir(parents=True)
    more = run_with("training.steps=40")
    assert folder.resolve_run(more) == more
    changed = run_with("training.steps=40", "model.d_ff=32", seed=2)
    found = refusal(folder.resolve_run, changed)
    assert "seed: 2 instead of 1; model.d_ff: 32 instead of 2048" in found
    assert "training.steps" not in found
    assert "expected at least 20" in refusal(folder.resolve_run, run_with("training.steps=10"))
    assert folder.load_run() == more
    folder.config.unlink()
    assert "checkpoints but no config.json" in refusal(folder.resolve_run, more)


def test_a_damaged_config_is_refused(folder):
    assert "no such folder" in refusal(folder.load_run)
    folder.write_run(run_with())
    content = json.loads(folder.config.read_text("utf-8"))
    for damaged in ("{", "[]", json.dumps(content | {"settings": 3}), json.dumps({"seed": 1})):
        folder.config.write_text(damaged, encoding="utf-8")
        assert str(folder.config) in refusal(folder.load_run)


def test_a_second_process_in_the_folder_is_refused(folder):
    with folder.locked():
        # A lock belongs to an open file, so that this is as good as another process.
        assert "another process" in refusal(folder.locked().__enter__)
    with folder.locked():
        pass


def test_results_are_appended_and_never_overwritten_by_a_damaged_file(folder):
    assert folder.read_results() == []
    folder.append_results([{"bleu": 1}])
    folder.append_results([{"bleu": 2}])
    assert folder.read_results() == [{"bleu": 1}, {"bleu": 2}]
    for damaged in ("{", "[1]"):
        folder.results.write_text(damaged, encoding="utf-8")
        assert "move the file away" in refusal(folder.append_results, [{"bleu": 3}])
        assert folder.results.read_text("utf-8") == damaged
