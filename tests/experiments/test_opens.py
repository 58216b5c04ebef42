"""A run is opened once: its config, vocabulary and manifest are read one time and handed on."""

import pytest
from commands import STEPS, run_command
from opens import counted

FILES = ("config.json", "vocabulary.model", "manifest.sha256")


@pytest.mark.parametrize("command", ["translate", "evaluate", "average", "train"])
def test_a_command_reads_what_describes_the_run_once(run, command):
    with counted(run) as opened:
        run_command(command, f"--workdir={run}", stdin=b"a b c\n")
    assert {name: opened[name] for name in FILES} == dict.fromkeys(FILES, 1)


@pytest.mark.slow
def test_a_training_that_goes_on_with_more_steps_does_too(run):
    with counted(run) as opened:
        run_command("train", f"--workdir={run}", f"--set=training.steps={STEPS + 1}")
    assert {name: opened[name] for name in FILES} == dict.fromkeys(FILES, 1)


def test_a_new_run_reads_nothing_that_it_has_written(flags, tmp_path):
    with counted(tmp_path / "run") as opened:
        run_command("prepare", f"--workdir={tmp_path / 'run'}", *flags)
    # One open of the manifest finds that there is none.
    assert [opened[name] for name in FILES] == [0, 0, 1]
