"""The progress of long work: on a terminal, in a log, and where there is neither."""

import logging
import os
import pty
import re
import sys
import time

import pytest

from jax_transformer import progress
from jax_transformer.progress import Progress


@pytest.fixture
def on_terminal(monkeypatch, caplog):
    """A function of a level and a total: what some work writes to a terminal."""

    def work(level: int, total: int | None, **options: bool) -> str:
        caplog.set_level(level)
        ours, theirs = pty.openpty()
        with os.fdopen(theirs, "w", buffering=1) as terminal, monkeypatch.context() as patch:
            patch.setattr(sys, "stderr", terminal)
            patch.setenv("COLUMNS", "80")
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
    assert "reading    :   0%|" in shown
    assert re.search(r"\| 2000/500000 \[\d\d:\d\d<\d", shown)
    assert ", at work]" in shown
    assert shown.endswith("\r")
    assert not shown.split("\r")[-2].strip()  # blanks over the last state


def test_a_terminal_shows_what_is_done_where_nobody_knows_how_much_there_is(on_terminal):
    shown = on_terminal(logging.INFO, None)
    assert re.search(r"reading    : 2000 lines \[\d\d:\d\d, ", shown)


def test_nothing_is_shown_to_programs_that_use_the_library(on_terminal):
    assert on_terminal(logging.WARNING, 500_000) == ""
    assert "| 2000/500000" in on_terminal(logging.WARNING, 500_000, always=True)


def test_a_notebook_shows_a_bar_although_nothing_is_logged(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ipykernel", sys)
    with Progress("reading", 500_000, "lines", delay=0) as shown:
        for _ in range(3):
            time.sleep(0.15)
            shown.update(1000)
    assert "| 2000/500000" in capsys.readouterr().err


def test_nothing_is_shown_where_standard_error_is_closed(monkeypatch, caplog):
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(sys, "stderr", None)
    with Progress("training", 100, "steps") as shown:
        shown.update()
    assert shown.n == 1


def test_elsewhere_it_is_logged_at_intervals(caplog, monkeypatch):
    caplog.set_level(logging.INFO)
    with Progress("training", 100, "steps") as shown:
        shown.update(5)
    assert caplog.messages == []
    monkeypatch.setattr(progress, "LOG_SECONDS", 1e-9)
    with Progress("training", 1000, "steps", done=900) as shown:
        shown.update(50, "loss 2.500")
        with shown.noting("compiling 2 of 6 shapes"):
            shown.update(25)
        shown.update(25, "loss 2.000")
    notes = ["loss 2.500", "compiling 2 of 6 shapes", "loss 2.000"]
    assert len(caplog.messages) == len(notes)
    for line, done, note in zip(caplog.messages, ("950", "975", "1,000"), notes, strict=True):
        assert line.startswith(f"training    {done} of 1,000 steps [00:00<00:00, {note}")
    with Progress("reading", 10, "lines") as shown:
        shown.update(15)  # of a file that grows
    assert caplog.messages[-1].startswith("reading     15 of 10 lines")
