"""List the benchmarks: python -m benchmarks."""

from pathlib import Path

from absl import app

from experiments import cli
from experiments.__main__ import listing, main

__doc__ = listing(Path(__file__).parent)  # which `main` and --help print

if __name__ == "__main__":
    app.run(main, flags_parser=cli.parse_flags)
