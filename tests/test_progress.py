"""The progress of long work: on a terminal, in a log, and in the time that it says is left."""

import logging
import os
import pty
import subprocess
import sys

import pytest

from jax_transformer import progress
from jax_transformer.progress import Progress, duration

WORK = """
import logging, time
from jax_transformer.progress import Progress
logging.basicConfig(level={level})
with Progress("reading", {total}, "lines", delay=0.05) as progress:
    for _ in range(3):
        time.sleep(0.15)
        progress.update(1000, "at work")
"""


def on_terminal(level: str, total: int | None) -> str:
    """What the work above writes to a terminal."""
    ours, theirs = pty.openpty()
    code = WORK.format(level=f"logging.{level}", total=total)
    subprocess.run([sys.executable, "-c", code], stderr=theirs, check=True)
    os.write(theirs, b"|")  # for an empty terminal cannot be read
    written = os.read(ours, 100_000).decode()
    os.close(ours)
    os.close(theirs)
    return written.removesuffix("|")


def test_a_terminal_shows_a_bar_with_the_time_left_and_keeps_nothing_of_it():
    shown = on_terminal("INFO", 500_000)
    assert "| 1,000 of 500,000 lines, at work" in shown
    assert "| 2,000 of 500,000 lines, at work, 1 min left" in shown
    assert "%|" in shown
    assert shown.endswith("\r")
    assert not shown.split("\r")[-2].strip()  # blanks over the last state


def test_a_terminal_shows_what_is_done_where_nobody_knows_how_much_there_is():
    shown = on_terminal("INFO", None)
    assert "reading     2,000 lines, at work" in shown
    assert "left" not in shown


def test_nothing_is_shown_to_programs_that_use_the_library():
    assert on_terminal("WARNING", 500_000) == ""


def test_nothing_is_shown_where_standard_error_is_closed(monkeypatch, caplog):
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(sys, "stderr", None)
    with Progress("training", 100, "steps") as shown:
        shown.update()
    assert shown.done == 1


def test_elsewhere_it_is_logged_at_intervals(caplog, monkeypatch):
    monkeypatch.setattr(progress, "LOG_SECONDS", 0)
    caplog.set_level(logging.INFO)
    with Progress("training", 100, "steps", done=90) as shown:
        shown.update(5, "loss 2.500")
        shown.update(5, "loss 2.000")
    assert caplog.messages == [
        "training    95 of 100 steps, loss 2.500",
        "training    100 of 100 steps, loss 2.000, 0 s left",
    ]
    monkeypatch.setattr(progress, "LOG_SECONDS", 3600)
    with Progress("training", 100, "steps") as shown:
        shown.update(5)
    assert len(caplog.messages) == 2


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.2, "0 s"),
        (29.6, "30 s"),
        (59.4, "1 min"),
        (89, "1 min"),
        (3570, "1 h 0 min"),
        (3600 * 23.9, "23 h 54 min"),
        (3600 * 24 - 1, "1 d 0 h"),
        (60363.1 * 60, "41 d 22 h"),
    ],
)
def test_durations_are_in_the_two_largest_units(seconds, text):
    assert duration(seconds) == text
