"""A text, and a run that was trained on it once for all tests."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import run_command, setting_flags, text_flags
from letters import write_letters


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
def trained(made_once: Callable[..., Path], flags: list[str], text: Path) -> Path:
    """A finished run without an interruption; copy it before changing anything in it.

    It was moved since, and its text is gone.
    """

    def train(folder: Path) -> None:
        write_letters(folder / "text")
        own = [
            *text_flags(folder / "text"),
            *(flag for flag in flags if flag not in text_flags(text)),
        ]
        done = run_command("train", f"--workdir={folder / 'first'}", *own)
        (folder / "stdout").write_text(done.stdout, encoding="utf-8")
        (folder / "stderr").write_text(done.stderr, encoding="utf-8")
        assert "warning: " not in done.stderr
        shutil.rmtree(folder / "text")
        (folder / "first").rename(folder / "whole")

    return made_once("trained", train) / "whole"


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A copy of the shared run that a test may change."""
    return shutil.copytree(trained, tmp_path / "copy")
