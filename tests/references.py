"""The results of other programs: recorded ones, and live ones if the programs are installed."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tools.record import __main__ as record

SOURCES = ["recorded", "live"]
FOLDER = Path(__file__).parent / "recorded"
NEEDED = {
    "torch": ["torch"],
    "marian": ["torch", "transformers"],
    "torch_files": ["torch", "omegaconf"],
}
Arrays = dict[str, Any]


def reference(name: str, source: str) -> Arrays:
    """What tools.record has written of `name`, or what it would write now."""
    if source == "recorded":
        with np.load(FOLDER / f"{name}.npz") as recorded:
            return dict(recorded)
    for package in NEEDED[name]:
        pytest.importorskip(package, reason="runs other programs: pip install -e '.[torch]'")
    return record.arrays(record.record(name))


def within(arrays: Arrays, prefix: str) -> Arrays:
    """The arrays whose names begin with the prefix, by the rest of their names."""
    names = [name for name in arrays if name.startswith(prefix)]
    return {name.removeprefix(prefix): arrays[name] for name in names}


def assert_close(found: Any, expected: np.ndarray, tolerance: float, name: str = "") -> None:
    """Equal within `tolerance` times the largest expected number."""
    largest = np.abs(expected).max()
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * largest, err_msg=name)
