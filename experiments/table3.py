"""Table 3 in miniature: train one row of each kind on the same text, seed and steps.

python -m experiments.table3 --data FOLDER [--budget 1200] [--workdir runs/table3]

FOLDER holds train.en, train.de, dev.en and dev.de (or val.*, valid.*; other languages by
flag). Each row is a run folder of its own inside --workdir. After an interruption the same
command continues; a row that is trained is not trained again. The table is printed, and written
to table3.md in --workdir: perplexity a piece and BLEU (beam 4, last parameters) on the dev text.
"""

import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import jax
from absl import app, flags

from experiments import cli
from experiments.cli import FLAGS
from experiments.configs import EXPERIMENTS
from experiments.configs.small import COUNTERPARTS, MINIATURE
from jax_transformer.config import Config, override
from jax_transformer.errors import InputError
from jax_transformer.files import write_text
from jax_transformer.runs.loading import build_model, load_vocabularies
from jax_transformer.runs.results import RunScore, newest_scores
from jax_transformer.runs.run_dir import Run, RunFolder
from jax_transformer.training.train_step import abstract_params

BASE_ROW = next(iter(MINIATURE))  # always trained: the others are compared with it
DEV_NAMES = ("dev", "val", "valid")

cli.define_workdir("The folder of the rows (default: runs/table3).")
cli.define_set("model.d_ff=128", " of every row")
flags.DEFINE_string("data", None, "The folder with the parallel text.")
flags.DEFINE_integer("budget", None, "Optimizer steps of every row.", lower_bound=1)
flags.DEFINE_string("source_language", "en", "Ending of the source files.")
flags.DEFINE_string("target_language", "de", "Ending of the target files.")
flags.DEFINE_integer("seed", 1, "Seed of every row.", lower_bound=0, upper_bound=2**32 - 1)
flags.DEFINE_multi_enum(
    "row", list(MINIATURE), list(MINIATURE), "Train and show these rows only; repeatable."
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Row:
    """The results of one row."""

    name: str
    perplexity: float
    bleu: float
    parameters: int
    seconds: float  # of training and its dev evaluations, without start-up


@cli.command()
def main() -> int:
    """Train row after row, then print the table."""
    workdir = Path(FLAGS.workdir or os.path.join("runs", "table3"))
    if RunFolder(workdir).config.exists():
        raise InputError(
            f"{workdir}: expected a folder of rows, or a place for one, found a run; choose "
            "another --workdir"
        )
    text = text_files(FLAGS.data, FLAGS.source_language, FLAGS.target_language)
    changes = [*FLAGS.set, *([f"training.steps={FLAGS.budget}"] if FLAGS.budget else [])]
    names = [name for name in MINIATURE if name in {*FLAGS.row, BASE_ROW}]
    rows = []
    for number, name in enumerate(names, 1):
        logger.info("row %d of %d: %s", number, len(names), name)
        if code := train_row(name, workdir / name, text, changes):
            print(f"\n{name} ended with exit status {code}; the same command continues from there")
            return code
        rows.append(trained_row(name, RunFolder(workdir / name)))
    table = render(rows)
    write_text(workdir / "table3.md", table + "\n")
    print(f"\n{table}\n\nwritten to {workdir / 'table3.md'}")
    return 0


def text_files(data: str | None, source: str, target: str) -> dict[str, str]:
    """The text of a folder by the names of train's flags. InputError where a file is missing."""
    if not data:
        raise InputError("--data: expected the folder with the parallel text, found none; give it")
    folder = Path(data)
    dev = next((name for name in DEV_NAMES if (folder / f"{name}.{source}").exists()), "dev")
    files = {
        f"{split}_{side}": folder / f"{stem}.{language}"
        for split, stem in (("train", "train"), ("dev", dev))
        for side, language in (("source", source), ("target", target))
    }
    for path in files.values():
        if not path.is_file():
            raise InputError(
                f"{path}: expected this file of parallel text, found none; --data={data} needs "
                f"train and dev (or val, valid) ending in .{source} and .{target}"
            )
    return {name: os.path.abspath(path) for name, path in files.items()}


def train_row(name: str, path: Path, text: dict[str, str], changes: Sequence[str]) -> int:
    """Train or continue a row in a process of its own; its exit status.

    A process, so that its memory and compiled functions are freed with it. InputError where the
    row was trained for more steps before.
    """
    folder, config = RunFolder(path), override(EXPERIMENTS[name].config(), *changes)
    trained = max(folder.trained_steps(), default=0)
    if trained > config.training.steps:
        raise InputError(
            f"{path}: expected a row of {config.training.steps:,} steps, found one of "
            f"{trained:,}; give --budget={trained}, or another --workdir"
        )
    if _is_complete(folder, name, config, text):
        return 0
    command = [
        *(sys.executable, "-m", "experiments.train", f"--experiment={name}"),
        *(f"--workdir={path}", f"--seed={FLAGS.seed}"),
        *(f"--{flag}={file}" for flag, file in text.items()),
        *(f"--set={change}" for change in changes),
    ]
    child = subprocess.Popen(command)
    # A terminal sends Ctrl-C to the child too; SIGTERM has to be passed on. The child saves.
    before = signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    try:
        while True:
            try:
                code = child.wait()
            except KeyboardInterrupt:
                continue
            return code if code >= 0 else 128 - code
    finally:
        signal.signal(signal.SIGTERM, before)


def _is_complete(folder: RunFolder, name: str, config: Config, text: dict[str, str]) -> bool:
    """Whether exactly this row was trained to its last step and scored."""
    run = folder.read_run()
    if run != Run(name, FLAGS.seed, config, text, scored_on="dev"):
        return False
    return [score.steps for score in _scores(folder)] == 2 * [[config.training.steps]]


def _scores(folder: RunFolder) -> list[RunScore]:
    """Perplexity and BLEU on the dev text, as far as they are known."""
    found = {score.metric: score for score in newest_scores(folder, folder.load_run())}
    return [found[metric] for metric in ("perplexity", "bleu") if metric in found]


def trained_row(name: str, folder: RunFolder) -> Row:
    """The results of a trained row."""
    model = build_model(folder.load_run(), *load_vocabularies(folder))
    parameters = sum(leaf.size for leaf in jax.tree.leaves(abstract_params(model)))
    perplexity, bleu = _scores(folder)
    lines = [json.loads(line) for line in folder.metrics.read_text("utf-8").splitlines()]
    seconds = sum(line["seconds"] for line in lines)
    return Row(name, perplexity.value, bleu.value, parameters, seconds)


def render(rows: Sequence[Row]) -> str:
    """A Markdown table: each row, its counterpart in the paper, and whether they agree.

    They agree where both are better than their base, or both worse; a difference under 0.05
    of perplexity or 0.15 of BLEU, in the paper or here, is called even.
    """
    base, their_base = rows[0], _published(rows[0].name)
    columns = "row | perplexity | BLEU | parameters | seconds | paper's row | PPL | BLEU | agree"
    lines = [f"| {columns} |", "|" + "---|" * 9]
    for row in rows:
        theirs = _published(row.name)
        perplexity = _agreement(base.perplexity - row.perplexity, their_base[0] - theirs[0], 0.05)
        bleu = _agreement(row.bleu - base.bleu, theirs[1] - their_base[1], 0.15)
        cells = [
            row.name.removeprefix("miniature-"),
            f"{row.perplexity:.3f}",
            f"{row.bleu:.2f}",
            f"{row.parameters:,}",
            f"{row.seconds:,.0f}",
            COUNTERPARTS[row.name].removeprefix("table3-"),
            f"{theirs[0]:.2f}",
            f"{theirs[1]:.1f}",
            "" if row is base else f"PPL {perplexity}, BLEU {bleu}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _published(name: str) -> tuple[float, float]:
    """Perplexity and BLEU of the counterpart."""
    row = EXPERIMENTS[COUNTERPARTS[name]].published
    assert row.perplexity is not None
    assert row.bleu is not None
    return row.perplexity, row.bleu


def _agreement(ours: float, theirs: float, close: float) -> str:
    """Whether two gains over base, of which more is better, point the same way."""
    if abs(theirs) < close or abs(ours) < close:
        return "even"
    return "yes" if ours * theirs > 0 else "no"


if __name__ == "__main__":
    app.run(main)
