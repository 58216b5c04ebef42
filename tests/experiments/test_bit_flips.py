"""A few random bits of a run folder, each followed by a command; `bit_flips` does it with many."""

import shutil

import pytest
from bit_flips import COMMANDS, make_run, outcome, random_flips, trial


@pytest.mark.slow
@pytest.mark.release
def test_no_flipped_bit_changes_a_result_without_a_word(tmp_path):
    run = make_run(tmp_path)
    expected = outcome(shutil.copytree(run, tmp_path / "sound"))
    assert set(expected.results) == set(COMMANDS)
    for number, flip in enumerate(random_flips(run, 6, seed=3)):
        command = COMMANDS[number % len(COMMANDS)]
        result, why = trial(run, tmp_path / "copy", flip, expected, [command])
        assert result in ("detected", "harmless"), (flip, command, why)
