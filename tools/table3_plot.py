"""Draw Table 3 in miniature: how each row of docs/results/table3.json differs from base.

python -m tools.table3_plot     writes docs/measurements/table3.svg
"""

import math
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
from absl import app

from experiments.cli import command, parse_flags, show
from jax_transformer.errors import InputError
from jax_transformer.files import read_json
from tools.results import FOLDER, Entry

OUTPUT = FOLDER.parent / "measurements" / "table3.svg"
METRICS = ("perplexity", "BLEU")


class Difference(NamedTuple):
    """A row's score minus base's, with two standard errors, and the same of the paper's row."""

    ours: float
    two_errors: float
    papers: float


def main() -> None:
    """Read the entry, and write the plot."""
    path = FOLDER / "table3.json"
    entry = read_json(path, Entry, "mend it, or remove it")
    if entry is None:
        raise InputError(f"{path}: found no such file; run python -m tools.results --add_table3")
    seeds = len(entry.facts["seeds"].split(", "))
    draw(entry.rows, seeds, OUTPUT)
    show(f"written to {OUTPUT}")


def differences(rows: list[dict[str, Any]], metric: str, seeds: int) -> dict[str, Difference]:
    """Return the differences of all rows but the first, which is base, by name."""
    found = {}
    base, base_error = mean_and_error(rows[0][metric], seeds)
    for row in rows[1:]:
        mean, error = mean_and_error(row[metric], seeds)
        papers = float(row[f"its {metric}"]) - float(rows[0][f"its {metric}"])
        found[row["row"]] = Difference(mean - base, 2 * math.hypot(error, base_error), papers)
    return found


def mean_and_error(cell: str, seeds: int) -> tuple[float, float]:
    """Return the mean in a cell, as in '5.1 ± 0.2', and its standard error."""
    mean, _, deviation = cell.partition(" ± ")
    return float(mean), float(deviation or 0) / math.sqrt(seeds)


def draw(rows: list[dict[str, Any]], seeds: int, output: Path) -> None:
    """Write a plot with a part for each metric, and a line in it for each row."""
    plt.rcParams |= {"svg.hashsalt": "table3", "svg.fonttype": "none"}
    figure, parts = plt.subplots(1, 2, sharey=True, figsize=(9, 3.6), layout="constrained")
    for part, metric in zip(parts, METRICS, strict=True):
        found = differences(rows, metric, seeds)
        ours, errors, papers = zip(*found.values(), strict=True)
        places = range(len(found))
        bars = {"fmt": "o", "capsize": 3, "label": "here, two standard errors"}
        part.errorbar(ours, places, xerr=errors, **bars)
        part.plot(papers, places, "x", label="the paper's row")
        part.axvline(0, color="gray", linewidth=0.8)
        part.set_yticks(places, [*found])
        better = "better to the left" if metric == "perplexity" else "better to the right"
        part.set_xlabel(f"{metric} minus base's, {better}")
    parts[0].invert_yaxis()
    parts[0].legend()
    figure.savefig(output, metadata={"Date": None})


if __name__ == "__main__":
    app.run(command(main), flags_parser=parse_flags)
