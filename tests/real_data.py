"""Real data for tests that ask for it."""

import os
from pathlib import Path

import pytest

DATA = Path(os.environ.get("TRANSFORMER_TEST_DATA", Path(__file__).parents[2] / "shared" / "data"))


def real_data(name: str) -> Path:
    """A folder of real data; the test that needs it is skipped where it is absent."""
    folder = DATA / name
    if not folder.is_dir():
        pytest.skip(f"no real data in {folder}; set TRANSFORMER_TEST_DATA")
    return folder
