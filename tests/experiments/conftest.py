"""A text, a run that was trained on it once for all tests, and a browser."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import run_command, setting_flags, text_flags
from letters import write_letters


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that take a trained run as slow."""
    for item in items:
        if {"trained", "fluent"} & {*getattr(item, "fixturenames", ())}:
            item.add_marker(pytest.mark.slow)


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


@pytest.fixture(scope="session")
def fluent(made_once: Callable[..., Path]) -> Path:
    """A run that has learned its letters, on any processor: all its outputs are right and sure."""
    changes = {
        "model.d_model": 32,
        "model.d_ff": 64,
        "model.dropout_rate": 0.0,
        "training.steps": 300,
        "training.batch_tokens": 1024,
        "training.warmup_steps": 100,
        "training.checkpoint_steps": 300,
        "training.evaluate_steps": 300,
        "training.average_last": 1,
    }

    def train(folder: Path) -> None:
        write_letters(folder / "text", train=2_000)
        own = ["--experiment=base", "--seed=7", *text_flags(folder / "text")]
        run_command("train", f"--workdir={folder / 'run'}", *own, *setting_flags(**changes))

    return made_once("fluent", train) / "run"


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A copy of the shared run that a test may change."""
    return shutil.copytree(trained, tmp_path / "copy")


def browser_path(own: str) -> str:
    """$CHROMIUM, one on PATH, or the one that Playwright downloaded; '' where there is none."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
    found = [os.environ.get("CHROMIUM"), *map(shutil.which, names), own]
    return next((path for path in found if path and Path(path).exists()), "")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A headless Chromium."""
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    with playwright.sync_playwright() as started:
        path = browser_path(started.chromium.executable_path)
        if not path:
            pytest.skip("no Chromium: install one, or name it in the variable CHROMIUM")
        # Chromium's sandbox refuses to run for root, who tests in containers.
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        with started.chromium.launch(executable_path=path, args=sandbox) as chromium:
            yield chromium
