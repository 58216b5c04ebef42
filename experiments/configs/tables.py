"""The rows of Tables 2, 3 and 4: the paper's numbers, what our models cost, what runs scored."""

import dataclasses
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.configs import EXPERIMENTS, Experiment
from experiments.configs.paper import SYSTEMS, Published
from jax_transformer.config import differences
from jax_transformer.data.wmt import DATASETS
from jax_transformer.errors import InputError
from jax_transformer.evaluation.flops import count_parameters, count_training_flops
from jax_transformer.runs.results import RunScore, newest_scores
from jax_transformer.runs.run_dir import RunFolder

# Any length that divides a batch's tokens into whole sentences would do; WMT's are about as long.
SENTENCE = 25  # tokens, source and target alike
PRINTED_ROWS = 40_960  # of the embedding, in the paper's code; its column "params" fits them

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Measured(RunScore):
    """A score of a run, and how the run's settings differ from its row's."""

    other_settings: list[str]

    @property
    def text(self) -> str:
        """The score as a cell; a star where the run had other settings."""
        star = "*" if self.other_settings else ""
        return f"{self.metric} {self.value:.2f}{star} {self.split} {self.checkpoint}"


@dataclass(frozen=True)
class Ours:
    """What is known of a row that is an experiment."""

    command: str
    changes: dict[str, Any]
    parameters: int  # as it trains
    parameters_as_printed: int  # with PRINTED_ROWS and attention biases
    steps: int
    flops: float  # of training, counted
    ratio: float | None  # of these to the paper's estimate
    measured: list[Measured]


@dataclass(frozen=True)
class Row:
    """A line of a table: the paper's, and ours where it is a Transformer."""

    table: int
    group: str
    name: str
    published: Published
    ours: Ours | None

    def as_dict(self) -> dict[str, Any]:
        """All of it, ready for JSON."""
        values = dataclasses.asdict(self)
        values["published"]["estimate"] = self.published.estimate
        return values


def table_rows(table: int, measured: Mapping[str, list[Measured]]) -> list[Row]:
    """The rows of one of the paper's tables in its order: by group, other systems first."""
    rows = [Row(s.table, s.group, s.name, s.published, None) for s in SYSTEMS if s.table == table]
    for name, experiment in EXPERIMENTS.items():
        if experiment.table == table:
            ours = _ours(name, experiment, measured.get(name, []))
            rows.append(Row(table, experiment.group, name, experiment.published, ours))
    groups = list(dict.fromkeys(row.group for row in rows))
    return sorted(rows, key=lambda row: groups.index(row.group))


def _ours(name: str, experiment: Experiment, measured: list[Measured]) -> Ours:
    config = experiment.config()
    model, training, vocabulary = config.model, config.training, config.data.vocabulary_size
    pair = count_training_flops(model, vocabulary, SENTENCE, SENTENCE)
    flops = pair * training.batch_tokens / SENTENCE * training.steps
    estimate = experiment.published.estimate
    return Ours(
        f"python -m experiments.train --experiment={name}",
        dict(experiment.changes),
        count_parameters(model, vocabulary),
        count_parameters(dataclasses.replace(model, attention_bias=True), PRINTED_ROWS),
        training.steps,
        flops,
        flops / estimate if estimate else None,
        measured,
    )


def measured_scores(runs: str) -> dict[str, list[Measured]]:
    """Experiment name -> scores of its runs among the sub-folders of `runs`, by folder name.

    A folder that cannot be read is left out with a warning. Raises InputError where
    `runs` is no folder, or holds no run.
    """
    path = Path(runs)
    if not path.is_dir():
        raise InputError(
            f"--runs={runs}: expected a folder of run folders, found "
            f"{'a file' if path.exists() else 'nothing'}; give the one that holds them"
        )
    found: dict[str, list[Measured]] = {}
    empty = True
    for folder in (RunFolder(child) for child in sorted(path.iterdir()) if child.is_dir()):
        try:
            run = folder.read_run()
            if run is None:
                continue
            empty = False
            scores = newest_scores(folder, run)
        except InputError as error:
            logger.warning("%s is left out: %s", folder.path.name, error)
            continue
        if run.experiment not in EXPERIMENTS:
            continue
        other = differences(run.config, EXPERIMENTS[run.experiment].config())
        if run.corpus in DATASETS and "data_dir" not in run.files:
            other.append("text of its own files")
        found.setdefault(run.experiment, []).extend(
            Measured(**vars(score), other_settings=other) for score in scores
        )
    if empty:
        raise InputError(
            f"--runs={runs}: expected sub-folders with a config.json, found none; give the "
            "folder that holds the --workdir of each run"
        )
    return found
