"""Record the results of other programs for tests on machines without these programs.

python -m tools.record_references

Writes torch.npz, marian.npz and torch_files.npz in tests/recorded. Each file also has the date on
which it was made, and the versions of the packages.
"""

import datetime
from importlib.metadata import version
from pathlib import Path

import numpy as np

from tools import marian_reference, torch_files_reference, torch_reference

FOLDER = Path(__file__).parents[1] / "tests" / "recorded"
REFERENCES = {
    "torch": (torch_reference, ["numpy", "torch"]),
    "marian": (marian_reference, ["numpy", "torch", "transformers"]),
    "torch_files": (torch_files_reference, ["numpy", "omegaconf", "torch"]),
}


def main() -> None:
    """Write every file, and print its size."""
    for name, (reference, packages) in REFERENCES.items():
        made_with = {f"made_with/{package}": version(package) for package in packages}
        made_with["made_with/date"] = datetime.date.today().isoformat()
        path = FOLDER / f"{name}.npz"
        np.savez_compressed(path, **reference.arrays(), **made_with)  # pyright: ignore[reportArgumentType]
        print(f"{path}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
