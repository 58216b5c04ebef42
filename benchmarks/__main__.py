"""List the benchmarks: python -m benchmarks."""

from pathlib import Path

from experiments.__main__ import run

if __name__ == "__main__":
    run(Path(__file__).parent)
