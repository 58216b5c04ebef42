"""Folders of other programs that several files test."""

from pathlib import Path

import ctranslate2_folders
import numpy as np
import pytest
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
