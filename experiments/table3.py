"""Table 3 in miniature: train one row of each kind on the same text, seed and steps.

python -m experiments.table3 --data FOLDER [--budget 1200] [--workdir runs/table3]

FOLDER holds train.en, train.de, dev.en and dev.de (or val.*, valid.*; other languages by
flag). Each row is a run folder of its own inside --workdir. Stopped, the same command goes
on where it was; what is trained is not trained again. The table is printed, and written to
table3.md in --workdir: perplexity a piece and BLEU (beam 4, last parameters) on the dev text.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from absl import flags

from experiments.cli import FLAGS, define_workdir, open_door
from experiments.configs import EXPERIMENTS
from experiments.configs.small import COUNTERPARTS, MINIATURE
from jax_transformer.config import Config, override
from jax_transformer.errors import InputError
from jax_transformer.files import write_text
from jax_transformer.runs.results import RunScore, newest_scores
from jax_transformer.runs.run_dir import Run, RunFolder

BASE_ROW = next(iter(MINIATURE))  # what the others are compared with, so always there
DEV_NAMES = ("dev", "val", "valid")


@dataclass(frozen=True)
class Row:
    """What one row came to."""

    name: str
    perplexity: float
    bleu: float
    parameters: int
    seconds: float  # of training and its dev evaluations, without start-up


def define_flags() -> None:
    """This door's flags."""
    define_workdir(required=False)
    flags.DEFINE_string("data", None, "The folder with the parallel text.")
    flags.DEFINE_integer("budget", None, "Optimizer steps of every row.", lower_bound=1)
    flags.DEFINE_string("source_language", "en", "Ending of the source files.")
    flags.DEFINE_string("target_language", "de", "Ending of the target files.")
    flags.DEFINE_integer("seed", 1, "Seed of every row.", lower_bound=0, upper_bound=2**32 - 1)
    flags.DEFINE_multi_enum(
        "row", list(MINIATURE), list(MINIATURE), "Train and show these rows only; repeatable."
    )
    flags.DEFINE_multi_string(
        "set", [], "Change a setting of every row, as in experiments.train; repeatable."
    )


def main() -> int:
    """Row after row, then the table."""
    workdir = Path(FLAGS.workdir or os.path.join("runs", "table3"))
    if RunFolder(workdir).config.exists():
        raise InputError(
            f"{workdir}: expected a folder of rows, or a place for one, found a run; choose "
            "another --workdir"
        )
    text = text_files(FLAGS.data, FLAGS.source_language, FLAGS.target_language)
    rows = []
    names = [name for name in MINIATURE if name in {*FLAGS.row, BASE_ROW}]
    for number, name in enumerate(names, 1):
        print(f"row {number} of {len(names)}: {name}", flush=True)
        config = settings_of(name)
        code = train(name, config, workdir / name, text)
        if code:
            print(
                f"\n{name} ended with exit status {code}; the same command goes on from there",
                file=sys.stderr,
                flush=True,
            )
            return code
        rows.append(measured(name, workdir / name))
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


def settings_of(name: str) -> Config:
    """A row's settings with what the flags change in every row."""
    return override(EXPERIMENTS[name].config(), *_changes())


def _changes() -> list[str]:
    budget = [] if FLAGS.budget is None else [f"training.steps={FLAGS.budget}"]
    return [*FLAGS.set, *budget]


def train(name: str, config: Config, folder: Path, text: dict[str, str]) -> int:
    """Train or continue a row with the train door, in a process of its own; its exit status.

    A process, so that a row's memory and compiled functions go with it. InputError where the row
    was trained for more steps before.
    """
    trained = max(RunFolder(folder).trained_steps(), default=0)
    if trained > config.training.steps:
        raise InputError(
            f"{folder}: expected a row of {config.training.steps:,} steps, found one of "
            f"{trained:,}; give --budget={trained}, or another --workdir"
        )
    if RunFolder(folder).read_run() == Run(name, FLAGS.seed, config, text, scored_on="dev"):
        steps = [score.steps for score in scores(folder)]
        if steps == 2 * [[config.training.steps]]:
            return 0  # trained and scored before
    command = [
        *(sys.executable, "-m", "experiments.train", f"--experiment={name}"),
        *(f"--workdir={folder}", f"--seed={FLAGS.seed}"),
        *(f"--{flag}={path}" for flag, path in text.items()),
        *(f"--set={change}" for change in _changes()),
    ]
    child = subprocess.Popen(command)
    # A terminal's Ctrl-C reaches the child by itself, a SIGTERM to us does not; it saves.
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


def scores(folder: Path) -> list[RunScore]:
    """The row's perplexity and BLEU on the dev text, as far as they are there."""
    run_folder = RunFolder(folder)
    found = {score.metric: score for score in newest_scores(run_folder, run_folder.need_run())}
    return [found[metric] for metric in ("perplexity", "bleu") if metric in found]


def measured(name: str, folder: Path) -> Row:
    """What a trained row came to."""
    import jax

    from jax_transformer.runs.loading import build_model, load_vocabularies
    from jax_transformer.training.train_step import abstract_params

    run_folder = RunFolder(folder)
    model = build_model(run_folder.need_run(), *load_vocabularies(run_folder))
    leaves = jax.tree.leaves(abstract_params(model))
    perplexity, bleu = scores(folder)
    lines = [json.loads(line) for line in run_folder.metrics.read_text("utf-8").splitlines()]
    seconds = sum(line["seconds"] for line in lines)
    return Row(name, perplexity.value, bleu.value, sum(leaf.size for leaf in leaves), seconds)


def render(rows: Sequence[Row]) -> str:
    """A Markdown table: ours beside the counterpart in the paper, and whether they agree.

    They agree where both are better than their base, or both worse; a difference under 0.05
    of perplexity or 0.15 of BLEU, in the paper or here, is called even.
    """
    base, their_base = rows[0], _published(rows[0].name)
    columns = "row | perplexity | BLEU | parameters | seconds | paper's row | PPL | BLEU | agree"
    lines = [f"| {columns} |", "|" + "---|" * 9]
    for row in rows:
        theirs = _published(row.name)
        sides = [
            _agreement(base.perplexity - row.perplexity, their_base[0] - theirs[0], 0.05),
            _agreement(row.bleu - base.bleu, theirs[1] - their_base[1], 0.15),
        ]
        verdict = "" if row is base else f"PPL {sides[0]}, BLEU {sides[1]}"
        cells = [
            row.name.removeprefix("miniature-"),
            f"{row.perplexity:.3f}",
            f"{row.bleu:.2f}",
            f"{row.parameters:,}",
            f"{row.seconds:,.0f}",
            COUNTERPARTS[row.name].removeprefix("table3-"),
            f"{theirs[0]:.2f}",
            f"{theirs[1]:.1f}",
            verdict,
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
    open_door(define_flags, main, __doc__)
