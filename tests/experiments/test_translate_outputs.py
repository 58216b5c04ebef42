"""experiments.translate writes n lines for a line, whatever the search found."""

import pytest
from commands import run_command
from small_run import write_run

import jax_transformer as jt

LINES = ["the door", "", "we know that it rains"]
PATIENT = ["--set=decoding.beam_size=6", "--set=decoding.patience=0.3"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("outputs") / "run", "decoding.beam_size=6")


def test_blank_lines_stand_for_translations_that_there_are_not_and_are_counted(run):
    text = "".join(f"{line}\n" for line in LINES).encode()
    done = run_command("translate", f"--workdir={run}", "--n_best=6", *PATIENT, stdin=text)
    rows = done.stdout.split("\n")
    assert len(rows) == 6 * len(LINES) + 1
    lines = [rows[start : start + 6] for start in (0, 6, 12)]
    assert lines[1] == [""] * 6
    found = [list(filter(None, line)) for line in (lines[0], lines[2])]
    assert all(0 < len(line) < 6 and len(set(line)) == len(line) for line in found)
    (warning,) = [line for line in done.stderr.splitlines() if "blank" in line]
    assert "2 lines" in warning
    assert "6" in warning
    first = run_command("translate", f"--workdir={run}", *PATIENT, stdin=text).stdout.split("\n")
    assert first[:3] == [line[0] for line in lines]


def test_without_chance_samples_are_the_greedy_output(run):
    text = "".join(f"{line}\n" for line in LINES).encode()
    flags = f"--workdir={run}", "--samples=2", "--temperature=0"
    done = run_command("translate", *flags, stdin=text)
    greedy = jt.load(run).translate(LINES, beam_size=1)
    assert done.stdout.split("\n")[:-1] == [text for text in greedy for _ in range(2)]


@pytest.mark.parametrize("flag", ["--temperature=1e-40", "--temperature=nan", "--top_p=1e-320"])
def test_numbers_that_devices_read_as_others_are_refused(run, flag):
    done = run_command("translate", f"--workdir={run}", "--samples=1", flag, stdin=b"a\n", fails=2)
    assert flag[2:].split("=")[0] in done.stderr
