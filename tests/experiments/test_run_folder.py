"""The files of a run folder belong together: what is of another run is refused."""

import shutil

import pytest
from commands import (
    EVERY,
    STEPS,
    files_of,
    only_error,
    results,
    run_command,
    setting_flags,
    text_flags,
)
from letters import write_letters

from jax_transformer.data.manifest import NAME


def change(path, old, new):
    content = path.read_text(encoding="utf-8")
    assert content.count(old) == 1
    path.write_text(content.replace(old, new), encoding="utf-8")


def test_a_config_that_was_changed_by_hand_is_refused_and_set_is_named(run):
    change(run / "config.json", '"beam_size": 4', '"beam_size": 3')
    for command in ("translate", "train", "average"):
        error = only_error(command, f"--workdir={run}", stdin=b"a b\n")
        assert f"{run / 'config.json'}: expected the SHA-256 " in error
        assert "--set" in error


@pytest.mark.release
def test_without_a_manifest_the_checkpoints_tell_what_was_trained(run):
    (run / NAME).unlink()
    error = only_error("translate", f"--workdir={run}", stdin=b"a b\n")
    assert f"{run / NAME}: expected" in error
    sound = (run / "config.json").read_bytes()
    for old, new in (('"seed": 7', '"seed": 3'), ('"d_model": 16', '"d_model": 536870928')):
        change(run / "config.json", old, new)
        done = run_command("train", f"--workdir={run}", fails=2)
        assert new.split()[1] in done.stderr.splitlines()[-1]
        (run / "config.json").write_bytes(sound)
    done = run_command("train", f"--workdir={run}")  # the text is gone, and not needed
    assert "encoding" not in done.stderr


@pytest.mark.release
def test_the_copy_in_a_checkpoint_is_the_manifest_that_was_lost(run):
    before = (run / NAME).read_bytes()
    (run / NAME).write_bytes(before[:-9])
    done = run_command("train", f"--workdir={run}")
    assert f"warning: {run / NAME}" in done.stderr
    assert (run / NAME).read_bytes() == before


def test_a_run_goes_on_after_other_text_was_refused(run, tmp_path):
    write_letters(tmp_path / "text", train=150)
    error = only_error(
        *("train", f"--workdir={run}", *text_flags(tmp_path / "text")),
        "--set=decoding.beam_size=3",
    )
    assert "another text of train" in error
    assert "continuing " not in run_command("train", f"--workdir={run}").stderr
    assert results(run)[-1]["beam_size"] == 4


@pytest.mark.release
def test_a_setting_of_the_search_may_change_and_the_change_is_logged(run):
    done = run_command("train", f"--workdir={run}", "--set=decoding.beam_size=3")
    assert "continuing  with decoding.beam_size=3, 4 before\n" in done.stderr
    assert results(run)[-1]["beam_size"] == 3
    run_command("translate", f"--workdir={run}", stdin=b"a b\n")
    error = only_error("train", f"--workdir={run}", "--set=model.dropout_rate=0.3", "--seed=8")
    assert "seed=8 instead of 7" in error
    assert "model.dropout_rate=0.3 instead of 0.1" in error
    assert "continuing " not in run_command("train", f"--workdir={run}").stderr


@pytest.mark.release
def test_the_vocabulary_and_the_checkpoints_of_another_run_are_refused(run, tmp_path):
    write_letters(tmp_path / "text", train=150)
    other = tmp_path / "other"
    few = setting_flags(training__steps=EVERY, training__evaluate_steps=EVERY)
    run_command(
        "train", f"--workdir={other}", "--experiment=base", *text_flags(tmp_path / "text"), *few
    )
    whole = shutil.copytree(run, tmp_path / "whole")
    shutil.copyfile(other / "vocabulary.model", run / "vocabulary.model")
    for command in ("translate", "train"):
        error = only_error(command, f"--workdir={run}", stdin=b"a b\n")
        assert f"{run / 'vocabulary.model'}: expected the SHA-256 " in error
    shutil.rmtree(whole / "checkpoints" / str(EVERY))
    shutil.copytree(other / "checkpoints" / str(EVERY), whole / "checkpoints" / str(EVERY))
    error = only_error("average", f"--workdir={whole}", f"--last={STEPS // EVERY}")
    assert f"found step {EVERY} unlike " in error
    assert "seed=1 instead of 7" in error
    assert "another text of train" in error
    assert "another vocabulary.model" in error


def test_changed_text_is_not_scored(run):
    path = run / "text" / "test.target"
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join([*lines[1:], lines[0]]), encoding="utf-8")
    before = files_of(run)
    error = only_error("evaluate", f"--workdir={run}", "--checkpoint=last")
    assert f"{path}: expected the SHA-256 " in error
    assert files_of(run) == before
