r"""Table 3 in miniature: train one row of each kind on the same text, seed and steps.

python -m experiments.table3 --train_source=train.en --train_target=train.de \
    --dev_source=dev.en --dev_target=dev.de [--seeds=3] [--set training.steps=1000] \
    [--row=miniature-A-h1]

Each row is a run folder of its own inside --workdir; those of a second seed are in seed-2 there.
After an interruption the same command continues; a row that is trained is not trained again. The
table is printed, and written to table3.md in --workdir: perplexity a piece and BLEU (beam 4, last
parameters) on the dev text, with several seeds their means and standard deviations.
"""

import logging
import shlex
import sys
import time
from pathlib import Path
from typing import Any

from absl import flags

from experiments import cli
from experiments.cli import FLAGS
from experiments.shared_flags import (
    define_integer,
    define_seed,
    define_set,
    define_text_flags,
    define_workdir,
    given_files,
)
from experiments.tables import TABLE_HEAD, Table3Row, miniature_table
from jax_transformer.config import override, settings
from jax_transformer.data.manifest import text_digests
from jax_transformer.data.sources import Sources, Text, training_splits
from jax_transformer.data.urls import is_url
from jax_transformer.errors import InputError
from jax_transformer.files import write_text
from jax_transformer.presets import EXPERIMENTS
from jax_transformer.presets.small import MINIATURE
from jax_transformer.runs.request import check_files, checked_files
from jax_transformer.runs.results import newest_scores
from jax_transformer.runs.run_dir import Run, RunFolder
from jax_transformer.runtime import prepare_process

BASE_ROW = next(iter(MINIATURE))  # always trained: the others are compared with it

define_workdir("Folder of the rows (default: runs/table3).")
define_set("training.steps=1000", " of every row")
define_seed("Random seed of parameters, dropout and data order of every row.")
define_integer("seeds", 1, "Train each row with this many seeds, from --seed on.", lower_bound=1)
define_text_flags()
flags.DEFINE_multi_enum(
    "row", list(MINIATURE), list(MINIATURE), "Train and show only this row and base."
)

logger = logging.getLogger(__name__)


@cli.command
def main() -> int:
    """Train one row after another, then print the table."""
    if is_url(FLAGS.workdir):
        raise InputError(
            f"--workdir={FLAGS.workdir}: an address cannot be written to; give a local folder"
        )
    names = [name for name in MINIATURE if name in {*FLAGS.row, BASE_ROW}]
    presets = {name: settings(EXPERIMENTS[name].config()) for name in names}
    for change in FLAGS.set:
        changed = change.partition("=")[0].strip()
        if changed in ("training.average_last", "training.keep_best", "data.task"):
            raise InputError(
                f"--set {change} cannot be combined with this command, whose table describes the "
                "last parameters of translation models; remove it"
            )
        for name, preset in presets.items():
            if preset.get(changed) != presets[BASE_ROW].get(changed):
                raise InputError(
                    f"--set {change} would undo what {name} changes; remove it, or choose other "
                    "rows by --row"
                )
    workdir = Path(FLAGS.workdir or "runs/table3")
    sources = Sources.named(checked_files(given_files()), Text)
    output = workdir / "table3.md"
    configs = {name: override(EXPERIMENTS[name].config(), *FLAGS.set) for name in names}
    seeds = range(FLAGS.seed, FLAGS.seed + FLAGS.seeds)
    runs = [
        Run(name, seed, configs[name], sources, scored_on="dev") for seed in seeds for name in names
    ]
    check_files(runs[0])
    cli.check_output(output, str(output), TABLE_HEAD, "a table")
    prepare_process()
    from jax_transformer.runs.pipeline import train_run

    again = shlex.join(["python", "-m", "experiments.table3", *sys.argv[1:]])
    rows: dict[str, list[Table3Row]] = {name: [] for name in names}  # of each seed
    common: dict[str, Any] = {}
    seconds = []  # of the rows that were trained from their first step
    folders = [row_folder(workdir, run) for run in runs]
    for folder in folders:
        folder.mend_manifest()
    for number, (run, folder) in enumerate(zip(runs, folders, strict=True), 1):
        logger.info("row %d of %d: %s, seed %d", number, len(runs), run.experiment, run.seed)
        if trained_row(run, folder) is None:
            start, whole = time.monotonic(), not folder.trained_steps()
            outcome = train_run(run, folder, again=again)
            if outcome.stopped_by:
                return cli.show_outcome(outcome)
            seconds += [time.monotonic() - start] if whole else []
        row = trained_row(run, folder)
        if row is None:
            raise InputError(
                f"{folder.results}: expected the last step's scores as the newest, found those of "
                "another checkpoint; move the file away and run the same command again"
            )
        splits = folder.manifest.made_of["splits"]
        text = {s: text_digests(splits[s]) for s in (*training_splits(splits), "dev")}
        if text != (common := common or text):
            raise InputError(
                f"{folder.path}: expected the text of {folders[0].path}, found another; put the "
                "files back as they were for that row, and remove the rows of other text"
            )
        rows[row.name].append(row)
        logger.info("%s: perplexity %.3f, BLEU %.2f", run.experiment, row.perplexity, row.bleu)
        left = sum(not trained_row(*pair) for pair in [*zip(runs, folders, strict=True)][number:])
        if left and seconds:
            minutes = left * sum(seconds) / len(seconds) / 60
            logger.info(f"{left} of {len(runs)} rows left, about {minutes:.1f} minutes here")
    table = miniature_table([*rows.values()])
    write_text(output, table + "\n")
    cli.show(f"\n{table}\n\nwritten to {output}")
    return 0


def row_folder(workdir: Path, run: Run) -> RunFolder:
    """Return the folder of a row with the first seed, or of one with a later seed."""
    within = "" if run.seed == FLAGS.seed else f"seed-{run.seed}"
    return RunFolder(workdir / within / run.experiment)


def trained_row(run: Run, folder: RunFolder) -> Table3Row | None:
    """Return the scores of a row; None if it is not yet trained to its last step and scored."""
    if folder.run != run or "splits" not in folder.manifest.made_of:  # training mends the manifest
        return None
    last = [run.config.training.steps]
    scores = {s.metric: s.value for s in newest_scores(folder, run) if s.steps == last}
    if not {"perplexity", "bleu"} <= scores.keys():
        return None
    return Table3Row(run.experiment, scores["perplexity"], scores["bleu"])


if __name__ == "__main__":
    cli.run(main)
