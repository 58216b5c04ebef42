"""Names and texts that somebody else wrote reach a terminal without what it would obey."""

import json
import re
import shutil

import pytest
from commands import only_error, run_command

ODD = "\x1b]0;owned\x07\x9b31m\x7f"  # sets the title of a window, then red letters
SHOWN = r"\x1b]0;owned\x07\x9b31m\x7f"
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")

ERRORS = {
    "a flag": ["train", f"--{ODD}=1"],
    "a flag's value": ["train", f"--seed={ODD}"],
    "a setting": ["train", f"--set=model.{ODD}=1"],
    "a setting's value": ["train", f"--set=model.positions={ODD}"],
    "an experiment": ["train", f"--experiment={ODD}"],
    "a folder": ["translate", f"--workdir={ODD}"],
    "a file": ["evalb", ODD, ODD],
    "a checkpoint": ["translate", "--workdir={run}", f"--checkpoint={ODD}"],
    "a setting of the run": ["translate", "--workdir={changed}"],
}


@pytest.fixture(scope="module")
def folders(trained, tmp_path_factory):
    """The trained run, and a config.json with a setting that nobody knows."""
    changed = tmp_path_factory.mktemp("changed")
    config = json.loads((trained / "config.json").read_text(encoding="utf-8"))
    config["config"]["model"][ODD] = 1
    (changed / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return {"run": trained, "changed": changed}


@pytest.mark.parametrize("place", ERRORS)
def test_an_error_line_has_no_control_characters(place, folders):
    error = only_error(*[part.format(**folders) for part in ERRORS[place]])
    assert SHOWN in error
    assert not CONTROLS.search(error)


@pytest.mark.slow
@pytest.mark.release
def test_a_warning_has_none_either(folders, tmp_path):
    shutil.copytree(folders["changed"], tmp_path / ODD)
    shutil.copytree(folders["run"], tmp_path / "run")
    done = run_command("paper", f"--runs={tmp_path}", "--table=4")
    assert f"warning: {SHOWN} is left out: " in done.stderr
    assert not CONTROLS.search(done.stderr)


@pytest.mark.slow
@pytest.mark.release
def test_evaluate_shows_none(trained, tmp_path):
    run, text = shutil.copytree(trained, tmp_path / ODD), tmp_path / f"{ODD}.en"
    text.write_text("a b c\n", encoding="utf-8")
    files = [f"--source={text}", f"--reference={text}"]
    done = run_command("evaluate", f"--workdir={run}", "--set=decoding.beam_size=1", *files)
    assert done.stdout.startswith(f"{SHOWN}.en, averaged checkpoint, greedy, ")
    assert f"/{SHOWN}/translations/{SHOWN}.en.averaged" in done.stdout
    assert not CONTROLS.search(done.stdout + done.stderr)
