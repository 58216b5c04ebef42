"""experiments.clean: what it writes and prints."""

import gzip

import pytest
from commands import run_command
from letters import letters

SOURCES, TARGETS = letters(120, 0)


@pytest.fixture
def flags(tmp_path):
    """Of 122 pairs, in whose text the last two are noise."""
    (tmp_path / "text.en").write_text("\n".join([*SOURCES, "1 2 3 4", "x\u2028"]), encoding="utf-8")
    lines = "\n".join([*TARGETS, "1 2 3 4", ""]).encode() + b"\n"
    (tmp_path / "text.de.gz").write_bytes(gzip.compress(lines))
    paths = {"source": "text.en", "target": "text.de.gz"}
    paths |= {"output_source": "clean/a.en.gz", "output_target": "clean/a.de"}
    return {name: f"--{name}={tmp_path / path}" for name, path in paths.items()}


def test_the_pairs_that_stay_are_written_and_the_others_counted_and_shown(flags, tmp_path):
    done = run_command("clean", *flags.values())
    assert gzip.decompress((tmp_path / "clean" / "a.en.gz").read_bytes()).decode().split("\n") == [
        *SOURCES,
        "",
    ]
    assert (tmp_path / "clean" / "a.de").read_text(encoding="utf-8").split("\n") == [*TARGETS, ""]
    assert "          1   0.82%  mostly digits and symbols\n" in done.stdout
    assert "\nmostly digits and symbols\n        121\t1 2 3 4\t1 2 3 4\n" in done.stdout
    assert done.stdout.endswith("\n        120 of 122 pairs are kept\n")
