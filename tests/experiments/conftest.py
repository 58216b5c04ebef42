"""A text, and a run that was trained on it once for all tests."""

import os
import shutil
from pathlib import Path

import pytest
from doors import Doors, setting_flags, text_flags, write_letters


@pytest.fixture(scope="session")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Doors:
    """Processes with one device unless told otherwise; all workers' share what they compile."""
    session = tmp_path_factory.getbasetemp()
    shared = session.parent if "PYTEST_XDIST_WORKER" in os.environ else session
    return Doors(shared / "compiled")


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """train, dev and test as .en and .de."""
    folder = tmp_path_factory.mktemp("text")
    write_letters(folder)
    return folder


@pytest.fixture(scope="session")
def flags(text: Path) -> list[str]:
    """What the shared run was started with, but its folder."""
    return ["--experiment=base", "--seed=7", *text_flags(text), *setting_flags()]


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory, doors: Doors, flags: list[str]) -> Path:
    """A finished run without an interruption; copy it before changing anything in it.

    It was moved since, and its text is gone.
    """
    folder = tmp_path_factory.mktemp("runs")
    write_letters(folder / "text")
    own = text_flags(folder / "text")
    done = doors.run("train", f"--workdir={folder / 'first'}", *flags, *own)
    (folder / "said").write_text(done.stdout, encoding="utf-8")
    assert done.stderr == ""
    shutil.rmtree(folder / "text")
    return (folder / "first").rename(folder / "whole")
