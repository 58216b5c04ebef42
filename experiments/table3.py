"""Table 3 in miniature: train one row of each kind on the same text, seed and steps.

python -m experiments.table3 --train_source=train.en --train_target=train.de \\
    --dev_source=dev.en --dev_target=dev.de [--set training.steps=600] [--row=miniature-A-h1]

Each row is a run folder of its own inside --workdir. After an interruption the same command
continues; a row that is trained is not trained again. The table is printed, and written to
table3.md in --workdir: perplexity a piece and BLEU (beam 4, last parameters) on the dev text.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from absl import app, flags

from experiments import cli
from experiments.cli import FLAGS
from experiments.configs import EXPERIMENTS
from experiments.configs.small import COUNTERPARTS, MINIATURE
from experiments.pipeline import train_run
from experiments.run_flags import (
    TEXT_FLAGS,
    check_files,
    define_seed,
    define_text_flags,
    given_files,
)
from jax_transformer.config import override
from jax_transformer.files import write_text
from jax_transformer.runs.results import newest_scores
from jax_transformer.runs.run_dir import Run, RunFolder
from jax_transformer.runtime import prepare_process

BASE_ROW = next(iter(MINIATURE))  # always trained: the others are compared with it
# Smaller differences from base, here or in the paper, say nothing about a direction.
EVEN = {"PPL": 0.05, "BLEU": 0.15}

cli.define_workdir("The folder of the rows (default: runs/table3).")
cli.define_set("training.steps=600", " of every row")
define_seed()
define_text_flags()
flags.DEFINE_multi_enum(
    "row", list(MINIATURE), list(MINIATURE), "Train and show only this row and base; repeatable."
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Row:
    """The results of one row."""

    name: str
    perplexity: float
    bleu: float


@cli.command()
def main() -> int:
    """Train row after row, then print the table."""
    prepare_process()
    workdir, files = Path(FLAGS.workdir or "runs/table3"), given_files(*TEXT_FLAGS)
    names = [name for name in MINIATURE if name in {*FLAGS.row, BASE_ROW}]
    rows = []
    for number, name in enumerate(names, 1):
        config, folder = override(EXPERIMENTS[name].config(), *FLAGS.set), RunFolder(workdir / name)
        run = Run(name, FLAGS.seed, config, files, scored_on="dev")
        check_files(run)
        logger.info("row %d of %d: %s", number, len(names), name)
        row = trained_row(run, folder)
        if row is None:
            if status := train_run(run, folder):
                return status
            row = trained_row(run, folder)
        rows.append(row)
    table = render(rows)
    write_text(workdir / "table3.md", table + "\n")
    print(f"\n{table}\n\nwritten to {workdir / 'table3.md'}")
    return 0


def trained_row(run: Run, folder: RunFolder) -> Row | None:
    """The results of a row; None where it was not trained to its last step and scored."""
    if folder.read_run() != run:
        return None
    last = [run.config.training.steps]
    scores = {s.metric: s.value for s in newest_scores(folder, run) if s.steps == last}
    if not {"perplexity", "bleu"} <= scores.keys():
        return None
    return Row(run.experiment, scores["perplexity"], scores["bleu"])


def render(rows: Sequence[Row]) -> str:
    """A Markdown table: each row, its counterpart in the paper, and whether they agree.

    They agree where both are better than their base, or both worse.
    """
    base, their_base = rows[0], _published(rows[0].name)
    columns = ["row", "PPL", "BLEU", "paper's row", "PPL", "BLEU", "agree"]
    lines = [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    for row in rows:
        theirs = _published(row.name)
        perplexity = _agreement("PPL", base.perplexity - row.perplexity, their_base[0] - theirs[0])
        bleu = _agreement("BLEU", row.bleu - base.bleu, theirs[1] - their_base[1])
        ours = [f"{row.perplexity:.3f}", f"{row.bleu:.2f}"]
        counterpart = COUNTERPARTS[row.name].removeprefix("table3-")
        published = [counterpart, f"{theirs[0]:.2f}", f"{theirs[1]:.1f}"]
        agreement = "" if row is base else f"{perplexity}, {bleu}"
        cells = [row.name.removeprefix("miniature-"), *ours, *published, agreement]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _published(name: str) -> tuple[float, float]:
    """Perplexity and BLEU of the counterpart."""
    row = EXPERIMENTS[COUNTERPARTS[name]].published
    assert row.perplexity is not None
    assert row.bleu is not None
    return row.perplexity, row.bleu


def _agreement(metric: str, ours: float, theirs: float) -> str:
    """Whether two gains over base point the same way."""
    if min(abs(theirs), abs(ours)) < EVEN[metric]:
        return f"{metric} even"
    return f"{metric} {'yes' if ours * theirs > 0 else 'no'}"


if __name__ == "__main__":
    app.run(main)
