"""The program `jax-transformer`: `jax-transformer NAME` is `python -m experiments.NAME`.

It takes the package `experiments` that lies beside this one, since a folder of the user's that has
the same name may come first on Python's path.
"""

import importlib
import sys
from pathlib import Path


def main() -> None:
    """Run the command that the first argument names, or list the commands."""
    beside = Path(__file__).parents[1]
    sys.path.insert(0, str(beside))
    importlib.import_module("experiments")
    del sys.path[0]  # other packages are found where they were
    commands = importlib.import_module("experiments.__main__")
    commands.run(beside / "experiments", "jax-transformer ")


if __name__ == "__main__":
    main()
