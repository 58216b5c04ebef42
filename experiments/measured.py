"""The scores that run folders hold, for the rows of the paper's tables that they belong to."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.cli import warn
from experiments.configs.paper import EXPERIMENTS, Experiment
from jax_transformer.config import differences
from jax_transformer.errors import InputError
from jax_transformer.runs.run_dir import Run, RunFolder

# What the tables have a column for; results.json may hold more.
SHOWN = ["perplexity", "bleu", "bleu_paper", "f1"]


@dataclass(frozen=True)
class Measured:
    """One score of one run, with what is needed to judge it."""

    run: str  # the folder's name
    metric: str
    value: float
    split: str
    checkpoint: str
    steps: list[int]  # of the checkpoints that the model is made of
    signature: str | None
    other_settings: list[str]  # what differs from the experiment's own

    @property
    def text(self) -> str:
        """The score as a cell; a star where the run had other settings."""
        star = "*" if self.other_settings else ""
        return f"{self.metric} {self.value:.2f}{star} {self.split} {self.checkpoint}"


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
    some = False
    for child in sorted(path.iterdir()):
        try:
            run = RunFolder(child).read_run() if child.is_dir() else None
            scores = _scores_of(RunFolder(child), run) if run else []
        except InputError as error:
            warn(f"{child.name} is left out: {error}")
            continue
        some = some or run is not None
        if run and scores:
            found.setdefault(run.experiment, []).extend(scores)
    if not some:
        raise InputError(
            f"--runs={runs}: expected sub-folders with a config.json, found none; give the "
            "folder that holds the --workdir of each run"
        )
    return found


def _scores_of(folder: RunFolder, run: Run) -> list[Measured]:
    """The newest score of each metric; without a perplexity, the one that training logged."""
    experiment = EXPERIMENTS.get(run.experiment)
    if experiment is None:
        return []
    other = differences(run.config, experiment.config())
    if "/" in experiment.corpus and "data_dir" not in run.files:
        other.append("text of its own files")
    scores = [
        Measured(
            folder.path.name,
            entry["metric"],
            entry["score"],
            entry["split"],
            entry["checkpoint"],
            entry["steps"],
            entry.get("signature"),
            other,
        )
        for entry in _newest(_entries(folder), experiment, run)
    ]
    line = _last_dev_line(folder)
    none = all(score.metric != "perplexity" for score in scores)
    if line and none and experiment.scored_on == "dev":
        step, value = line["step"], line["perplexity"]
        score = Measured(
            folder.path.name, "perplexity", value, "dev", f"step {step}", [step], None, other
        )
        scores.insert(0, score)
    return scores


def _newest(entries: list[dict[str, Any]], experiment: Experiment, run: Run) -> list[Any]:
    """The last entry of each metric: on the row's split and as the run decodes, if there is one."""
    decoding = run.config.decoding
    planned = {name: getattr(decoding, name) for name in ("beam_size", "alpha", "patience")}
    wanted = [
        lambda entry: entry["split"] == experiment.scored_on,
        # A score without a search has neither.
        lambda entry: all(entry.get(name, value) == value for name, value in planned.items()),
    ]
    newest = []
    for metric in SHOWN:
        found = [entry for entry in entries if entry["metric"] == metric]
        for fits in wanted:
            found = [entry for entry in found if fits(entry)] or found
        newest += found[-1:]
    return newest


def _entries(folder: RunFolder) -> list[dict[str, Any]]:
    """results.json, checked for what a row shows."""
    try:
        entries = json.loads(folder.results.read_text(encoding="utf-8"))
        for entry in entries:
            for name, kind in (("metric", str), ("score", float | int), ("steps", list)):
                if not isinstance(entry[name], kind):
                    raise ValueError(f"{entry[name]!r} as {name}")
            if not {"split", "checkpoint"} <= set(entry):
                raise ValueError("an entry without split or checkpoint")
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise InputError(
            f"{folder.results}: expected a JSON list of scores, found {error}; move the file away"
        ) from None
    return entries


def _last_dev_line(folder: RunFolder) -> dict[str, Any] | None:
    """The last whole line of metrics.jsonl about the dev text; the run may still be writing."""
    try:
        lines = folder.metrics.read_text(encoding="utf-8").split("\n")[:-1]
        dev = [line for line in map(json.loads, lines) if line["split"] == "dev"]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise InputError(
            f"{folder.metrics}: expected a JSON object a line, found {error}; move the file away"
        ) from None
    return dev[-1] if dev else None
