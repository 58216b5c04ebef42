"""experiments.translate with samples, prefixes and n-best lists: N lines for each line."""

import pytest
from commands import run_command
from small_run import write_run

pytestmark = pytest.mark.slow

LINES = ["the door", "", "we know that it rains"]
PATIENT = ["--set=decoding.beam_size=6", "--set=decoding.patience=0.3"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("outputs") / "run", "decoding.beam_size=6")


def translated(run, *flags):
    """The lines that are written, and the lines of warnings."""
    text = "".join(f"{line}\n" for line in LINES).encode()
    done = run_command("translate", f"--workdir={run}", *flags, stdin=text)
    return done.stdout.split("\n")[:-1], [s for s in done.stderr.splitlines() if "warning" in s]


def test_blank_lines_stand_for_translations_that_there_are_not_and_are_counted(run):
    rows, warnings = translated(run, "--n_best=6", *PATIENT)
    assert len(rows) == 6 * len(LINES)
    lines = [rows[start : start + 6] for start in (0, 6, 12)]
    assert lines[1] == [""] * 6
    found = [[*filter(None, line)] for line in (lines[0], lines[2])]
    assert all(0 < len(line) < 6 and len(set(line)) == len(line) for line in found)
    assert ["2 lines" in line and "6" in line for line in warnings] == [True]
    assert translated(run, *PATIENT)[0] == [line[0] for line in lines]


def test_samples_are_those_of_any_window_and_of_their_seed(run):
    flags = ["--samples=3", "--temperature=1.5", "--seed=2"]
    whole, _ = translated(run, *flags)
    assert len(whole) == 9
    assert whole[3:6] == ["", "", ""]
    assert translated(run, *flags, "--window=2")[0] == whole
    assert translated(run, *flags[:2])[0] != whole


def test_outputs_begin_with_the_lines_of_a_file(run, tmp_path):
    (tmp_path / "prefixes").write_text("the\n\n\n", encoding="utf-8")
    outputs, _ = translated(run, f"--prefixes={tmp_path / 'prefixes'}")
    assert outputs[0].split()[0] == "the"
    assert outputs[2] == translated(run)[0][2]
