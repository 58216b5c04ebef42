"""A run folder says what it is, and what is of another run is refused."""

import json
import shutil

import pytest
from commands import EVERY, STEPS, only_error, run_command, setting_flags, text_flags
from letters import write_letters


def change(path, old, new):
    content = path.read_text(encoding="utf-8")
    assert content.count(old) == 1
    path.write_text(content.replace(old, new), encoding="utf-8")


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ('"seed": 7', '"seed": 3', "seed=3 instead of 7"),
        (
            '"dropout_rate": 0.1,\n   "att',
            '"dropout_rate": 0.3,\n   "att',
            "rate=0.3 instead of 0.1",
        ),
        ('"d_model": 16', '"d_model": 536870928', "model.d_model=536870928 instead of 16"),
    ],
)
def test_a_setting_that_the_model_was_not_trained_with_is_refused_by_name(run, old, new, named):
    change(run / "config.json", old, new)
    for command in ("translate", "train", "average", "evaluate"):
        done = run_command(command, f"--workdir={run}", stdin=b"a b\n", fails=2)
        error = done.stderr.splitlines()[-1]
        expected = "expected what the checkpoints there were trained with, found"
        assert error.startswith(f"error: {run / 'config.json'}: {expected}")
        assert named in error


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ('"beam_size": 4', '"beam_size": 3', "decoding.beam_size is 3, and was 4 in training"),
        ('"alpha": 0.6', '"alpha": 0.2', "decoding.alpha is 0.2, and was 0.6 in training"),
    ],
)
def test_a_setting_of_the_search_is_taken_with_a_warning_that_names_it(run, old, new, named):
    change(run / "config.json", old, new)
    done = run_command("translate", f"--workdir={run}", stdin=b"a b\n")
    assert f"warning: {run / 'config.json'}: {named}\n" in done.stderr


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
        assert f"{run / 'vocabulary.model'}: expected the vocabulary that the model" in error
    shutil.rmtree(whole / "checkpoints" / str(EVERY))
    shutil.copytree(other / "checkpoints" / str(EVERY), whole / "checkpoints" / str(EVERY))
    error = only_error("average", f"--workdir={whole}", f"--last={STEPS // EVERY}")
    assert f"found {EVERY} and {STEPS} with other settings, text or vocabularies" in error


def test_changed_text_is_not_scored(run):
    path = run / "text" / "test.target"
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    for changed in ([*lines[1:], lines[0]], lines[1:]):
        path.write_text("".join(changed), encoding="utf-8")
        before = {file: file.read_bytes() for file in (run / "translations").iterdir()}
        error = only_error("evaluate", f"--workdir={run}", "--checkpoint=last")
        assert f"{path}: expected the text as data.json describes it" in error
        assert {file: file.read_bytes() for file in (run / "translations").iterdir()} == before


def test_more_steps_are_announced_and_sealed_with_the_run_that_began(run):
    more = f"--set=training.steps={STEPS + 1}"
    done = run_command("train", f"--workdir={run}", more)
    assert f"continuing  with training.steps={STEPS + 1}, {STEPS} before\n" in done.stderr
    content = json.loads((run / "config.json").read_text(encoding="utf-8"))
    assert content["settings"]["training"]["steps"] == STEPS + 1
    assert "continuing " not in run_command("train", f"--workdir={run}").stderr
