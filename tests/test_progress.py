"""The progress of long work: on a terminal, in a log, and in the time that it says is left."""

import logging
import os
import pty
import re
import sys
import time

import pytest

from jax_transformer import progress
from jax_transformer.progress import Progress, duration


@pytest.fixture
def on_terminal(monkeypatch, caplog):
    """A function of a level and a total: what some work writes to a terminal."""

    def work(level: int, total: int | None, **options: bool) -> str:
        caplog.set_level(level)
        ours, theirs = pty.openpty()
        with os.fdopen(theirs, "w", buffering=1) as terminal, monkeypatch.context() as patch:
            patch.setattr(sys, "stderr", terminal)
            with Progress("reading", total, "lines", delay=0.05, **options) as shown:
                for _ in range(3):
                    time.sleep(0.15)
                    shown.update(1000, "at work")
            terminal.write("END")  # for an empty terminal cannot be read
            terminal.flush()
            written = b""
            while not written.endswith(b"END"):
                written += os.read(ours, 100_000)
        os.close(ours)
        return written.decode().removesuffix("END")

    return work


def test_a_terminal_shows_a_bar_with_the_time_left_and_keeps_nothing_of_it(on_terminal):
    shown = on_terminal(logging.INFO, 500_000)
    assert "| 1,000 of 500,000 lines, at work" in shown
    assert re.search(r"\| 2,000 of 500,000 lines, at work, \d+ min left", shown)
    assert "%|" in shown
    assert shown.endswith("\r")
    assert not shown.split("\r")[-2].strip()  # blanks over the last state


def test_a_terminal_shows_what_is_done_where_nobody_knows_how_much_there_is(on_terminal):
    shown = on_terminal(logging.INFO, None)
    assert "reading     2,000 lines, at work" in shown
    assert "left" not in shown


def test_nothing_is_shown_to_programs_that_use_the_library(on_terminal):
    assert on_terminal(logging.WARNING, 500_000) == ""
    assert "| 2,000 of 500,000 lines" in on_terminal(logging.WARNING, 500_000, always=True)


def test_a_notebook_shows_a_bar_although_nothing_is_logged(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ipykernel", sys)
    with Progress("reading", 500_000, "lines", delay=0) as shown:
        for _ in range(3):
            time.sleep(0.15)
            shown.update(1000)
    assert "| 2,000 of 500,000 lines" in capsys.readouterr().err


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
        "training    95 of 100 steps, loss 2.500, 0 s left",
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


def test_time_in_which_something_was_compiled_is_no_pace(caplog, monkeypatch):
    caplog.set_level(logging.INFO)
    clock = iter([0.0, 0.0, 60.0, 60.0, 64.0, 64.0, 70.0, 70.0, 200.0, 200.0, 210.0, 210.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(progress, "LOG_SECONDS", 3)
    compiled = progress.compilation_events()
    with Progress("decoding", 100, "lines") as shown:
        compiled.append("a shape")
        shown.update(10)
        shown.update(20)  # in 4 s
        shown.update(20)  # in 6 s
        compiled.append("another")
        shown.update(10)
        shown.update(10)  # in 10 s
    assert caplog.messages == [
        "decoding    10 of 100 lines",
        "decoding    30 of 100 lines, 14 s left",
        "decoding    50 of 100 lines, 12 s left",
        "decoding    60 of 100 lines, 10 s left",
        "decoding    70 of 100 lines, 12 s left",
    ]


def test_what_goes_on_is_noted_before_it_is_done(caplog, monkeypatch):
    monkeypatch.setattr(progress, "LOG_SECONDS", 0)
    caplog.set_level(logging.INFO)
    with Progress("training", 100, "steps") as shown:
        shown.update(50, "loss 2.500")
        with shown.noting("compiling 2 of 6 shapes"):
            assert "50 of 100 steps, compiling 2 of 6 shapes" in caplog.messages[-1]
        shown.update(1, "loss 2.000")
    assert "compiling" not in caplog.messages[-1]


def test_what_takes_long_has_its_own_time_each_second_and_no_time_left(caplog, monkeypatch):
    monkeypatch.setattr(progress, "LOG_SECONDS", 0)
    monkeypatch.setattr(progress, "TICK_SECONDS", 0.01)
    caplog.set_level(logging.INFO)
    with Progress("training", 100, "steps") as shown:
        shown.update(100, "loss 2.500")
        assert "left" in caplog.messages[-1]
        with shown.noting("scoring"):
            while len(caplog.messages) < 6:
                time.sleep(0.01)
        assert all("100 of 100 steps, scoring, 0 s" in line for line in caplog.messages[2:6])
        assert "left" not in "".join(caplog.messages[1:6])
        shown.update(0)
        assert "loss 2.500" in caplog.messages[-1]
