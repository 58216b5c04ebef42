"""Folders of other programs that several files test."""

from collections.abc import Callable
from pathlib import Path

import ctranslate2_folders
import numpy as np
import pytest
from recorded_folders import write_recorded
from references import FOLDER, Arrays


@pytest.fixture(scope="session")
def converted(tmp_path_factory) -> Path:
    """The recorded folders of CTranslate2."""
    folder = tmp_path_factory.mktemp("ctranslate2")
    ctranslate2_folders.extract(folder)
    return folder


@pytest.fixture(scope="session")
def marian_files() -> Arrays:
    """The recorded files of Marian's models."""
    with np.load(FOLDER / "marian_npz.npz") as arrays:
        return dict(arrays)


@pytest.fixture
def make(tmp_path, marian_files, converted) -> Callable[[str], Path]:
    """A function that writes a recorded folder of a format."""
    return lambda form: write_recorded(form, tmp_path / form, marian_files, converted)
