"""A trained run beside CTranslate2: one command, one table, the same text from both."""

import subprocess
import sys
from pathlib import Path

import pytest
from doors import PATIENCE, ROOT, Doors

pytest.importorskip("ctranslate2", reason="compares with CTranslate2: pip install -e '.[bench]'")


def compare(doors: Doors, what: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", f"benchmarks.compare_{what}", *map(str, arguments)]
    return subprocess.run(
        command,
        cwd=ROOT,
        env=doors.environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


def rows(text: str) -> list[dict[str, str]]:
    """The table's rows by the names of its columns."""
    lines = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    names = [cell.strip() for cell in lines[0]]
    return [dict(zip(names, map(str.strip, line), strict=True)) for line in lines[2:]]


def number(cell: str) -> float:
    return float(cell.replace(",", "").rstrip("%"))


def test_whole_commands_translate_the_same_lines_alike(doors: Doors, trained: Path, tmp_path: Path):
    source = tmp_path / "source"
    # Blank, with spaces around, too long for the model, with a character it never saw.
    source.write_text("a b c\n\n  d e  \n" + "f g " * 9 + "\na \u2028 \u4e2d\n", encoding="utf-8")
    done = compare(
        doors,
        "translating",
        *(f"--workdir={trained}", f"--source={source}", "--lines=5,7", "--beam_size=1"),
        *("--repetitions=1", "--rounds=1", "--peers=jax,jax-patience,ctranslate2"),
    )
    assert done.returncode == 0, done.stderr
    found = rows(done.stdout)
    assert [(row["lines"], row["translator"]) for row in found] == [
        (count, name) for count in ("5", "7") for name in ("jax", "jax-patience", "ctranslate2")
    ]
    for row in found:
        lines, seconds = number(row["lines"]), number(row["seconds"])
        # Seconds are printed to a tenth.
        assert lines / (seconds + 0.06) < number(row["sentences/s"]) + 0.06
        assert (number(row["sentences/s"]) - 0.06) * (seconds - 0.06) < lines
        assert 20 < number(row["memory MB"]) < 20_000
        assert number(row["CPU s"]) > 0
    # What does not end by itself is cut at other lengths.
    assert [number(row["same"]) >= 50 for row in found] == [True] * 6


def test_a_run_s_own_text_is_decoded_in_turns(doors: Doors, trained: Path):
    done = compare(
        doors,
        "decoding",
        *(f"--workdir={trained}", "--lines=6", "--beam=1"),
        *("--repetitions=5", "--rounds=5", "--peers=jax,ctranslate2-int8"),
    )
    assert done.returncode == 0, done.stderr
    found = rows(done.stdout)
    assert [row["decoder"] for row in found] == ["jax", "ctranslate2-int8"]
    assert found[0]["same"] == "100.0%"
    assert found[0]["to ours"] == "1.00"


@pytest.mark.parametrize(
    ("what", "flag", "said"),
    [
        ("decoding", "--beam=0", "expected numbers of hypotheses"),
        ("translating", "--workdir=/nowhere/at/all", "expected a run folder"),
    ],
)
def test_a_wrong_flag_is_one_line_and_exit_code_2(doors: Doors, what: str, flag: str, said: str):
    done = compare(doors, what, flag)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert said in done.stderr
