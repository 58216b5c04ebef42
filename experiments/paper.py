"""Print Tables 2, 3 and 4: the paper's numbers, the cost of our models, and the scores of runs.

python -m experiments.paper [--table=2] [--runs=runs]
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from absl import flags

from experiments import cli
from experiments.cli import FLAGS
from experiments.shared_flags import define_path
from experiments.tables import aligned, terminal_width
from jax_transformer.config import differing_settings, settings
from jax_transformer.data.wmt import DATASETS
from jax_transformer.presets import EXPERIMENTS
from jax_transformer.presets.paper import TITLES, Experiment, System, listed, table_rows
from jax_transformer.progress import Progress
from jax_transformer.runs.results import scored_runs

logger = logging.getLogger(__name__)

TABLES = [str(table) for table in TITLES]
flags.DEFINE_multi_enum("table", TABLES, TABLES, "Tables of the paper to print; repeatable.")
define_path("runs", "A folder of run folders; the scores of each are printed below its row.")

SENTENCE = 25  # tokens, about as in WMT's sentences
EMBEDDING_ROWS = 40_960  # in the paper's code; its column "params" fits them

HEADER = f"""\
Our numbers next to the paper's; "-" is one that the paper does not print, or
that we do not have.
PPL ...  perplexity, BLEU and F1 are the paper's. Scores of our runs (--runs)
         stand below their row, those of other runs below the last table.
params   millions. paper: Table 3's. counted: with attention biases and {EMBEDDING_ROWS:,}
         rows of embedding, as in the paper's code. trained: what the
         experiment trains, without biases and with its own vocabulary. Not in
         Table 4: the number of labels depends on the trees. Of Table 3's
         rows only big does not match: the paper's 213 would need about 35,800
         rows of embedding, and all others need 40,960.
FLOPs    of training. paper: Table 2's, hours x 8 devices x 9.5 TFLOPS.
         counted: matrix products, forward and backward, on batches of 25,000 +
         25,000 tokens without padding, in sentences of {SENTENCE}.
Train a row with its name, such as table3-A-h1:
  python -m experiments.train --experiment=NAME"""
COST = {"params trained": ".2f", "steps": ",", "FLOPs counted": ".2e"}
COLUMNS = {  # column -> format of its numbers
    2: {"BLEU": ".2f", "FLOPs paper": ".1e", **COST},
    3: {"PPL": ".2f", "BLEU": ".1f", "params paper": ".0f", "counted": ".2f", **COST},
    4: {"F1": ".1f", "steps": ","},
}


@cli.command
def main() -> None:
    """Count parameters and FLOPs, read the runs' scores, and print the tables."""
    measured = measured_scores(FLAGS.runs) if FLAGS.runs else {}
    cli.show(HEADER)
    for table in sorted(map(int, set(FLAGS.table))):
        logger.info(f"counting    the models of Table {table}")
        cli.show(f"\n{render(table, measured, terminal_width())}")
        for name, _ in table_rows(table):
            measured.pop(name, None)
    for name, scores in measured.items():
        cli.show("\n".join([f"\nruns of {name}, not a row above\n", *scores]))


def numbers(row: System | Experiment) -> dict[str, float | None]:
    """Return the numbers of a row by column; None for one that there is not."""
    paper = row.published
    found = {"PPL": paper.perplexity, "BLEU": paper.bleu, "F1": paper.f1}
    found |= {"params paper": paper.parameters, "FLOPs paper": paper.flops}
    if isinstance(row, System):
        return found
    from jax_transformer.evaluation.flops import count_parameters, count_training_flops

    config = row.config()
    model, training, vocabulary = config.model, config.training, config.data.vocabulary_size
    pair = count_training_flops(model, vocabulary, SENTENCE, SENTENCE)
    return {
        **found,
        "counted": count_parameters(replace(model, attention_bias=True), EMBEDDING_ROWS) / 1e6,
        "params trained": count_parameters(model, vocabulary) / 1e6,
        "steps": training.steps,
        "FLOPs counted": pair * training.batch_tokens / SENTENCE * training.steps,
    }


def render(table: int, measured: Mapping[str, Sequence[str]], width: int | None = None) -> str:
    """Return a table as aligned text, with the scores of its runs below each row.

    width: the width of the terminal; None for whole lines.
    """
    columns, rows = COLUMNS[table], table_rows(table)
    lines: list[list[str]] = [["", *columns, "changes from base"]]
    counted = []
    with Progress("counting", len(rows), "models", delay=0) as progress:
        for name, row in rows:
            counted.append((name, row, numbers(row)))
            progress.update()
    for group, members in groupby(counted, key=lambda each: each[1].group):
        lines += [[group]] if group else []
        for name, row, found in members:
            cells = [_cell(found.get(column), form) for column, form in columns.items()]
            changes = dict(row.changes) if isinstance(row, Experiment) else None
            if changes and table == 3:
                del changes["training.average_last"]  # the title names it for all rows
            lines.append([name, *cells, "-" if changes is None else listed(changes)])
            lines += [[f"  {score}"] for score in measured.get(name, [])]
    return f"{TITLES[table]}\n\n{aligned(lines, width)}"


def _cell(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form).replace("e+", "e")


def measured_scores(runs: str) -> dict[str, list[str]]:
    """Return for each experiment a line for each score of its runs in the folder `runs`."""
    found: dict[str, list[str]] = {}
    for name, run, scores in scored_runs(Path(runs)):
        other = []
        corpus = ""
        if run.experiment in EXPERIMENTS:
            corpus = EXPERIMENTS[run.experiment].corpus
            own, theirs = settings(EXPERIMENTS[run.experiment].config()), settings(run.config)
            own["model.fused_attention"] = theirs["model.fused_attention"]  # the same function
            other = differing_settings(theirs, own)
        files = run.sources.train or run.sources.test
        absent = run.corpus in DATASETS and not run.sources.data_dir
        if absent or (files and corpus in (*DATASETS, "wsj")):
            other.append("text of its own files")
        note = f", not the experiment's settings: {'; '.join(other)}" if other else ""
        lines = [f"{name}: {score}{note}" for score in scores] or [f"{name}: no score yet"]
        found.setdefault(run.experiment, []).extend(lines)
    return found


if __name__ == "__main__":
    cli.run(main)
