"""Real data for tests that ask for it."""

import lzma
import os
from functools import cache
from pathlib import Path

import numpy as np
import pytest

DATA = Path(os.environ.get("TRANSFORMER_TEST_DATA", Path(__file__).parents[2] / "shared" / "data"))


def real_data(name: str) -> Path:
    """A folder of real data; the test that needs it is skipped where it is absent."""
    folder = DATA / name
    if not folder.is_dir():
        pytest.skip(f"no real data in {folder}; set TRANSFORMER_TEST_DATA")
    return folder


@cache
def words_of(name):
    """Lengths of a real corpus's training pairs in words, with the end mark."""
    folder = real_data(name)

    def lengths(side):
        path = folder / f"train.{side}"
        packed = folder / f"train.{side}.xz"
        text = path.read_bytes() if path.exists() else lzma.decompress(packed.read_bytes())
        return np.array([len(line.split()) + 1 for line in text.split(b"\n")[:-1]])

    return lengths("en"), lengths("de")
