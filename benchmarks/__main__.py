"""List the benchmarks: python -m benchmarks."""

from pathlib import Path

from absl import app

from experiments import cli
from experiments.__main__ import listing

LISTING = __doc__ = listing(Path(__file__).parent)  # --help prints the docstring


@cli.command
def main() -> None:
    """Print the list."""
    cli.show(LISTING)


if __name__ == "__main__":
    app.run(main, flags_parser=cli.parse_flags)
