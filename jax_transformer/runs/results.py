"""The scores and translations that a run folder holds: writing them, and reading the newest."""

import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jax_transformer.errors import InputError
from jax_transformer.evaluation.score import SEARCH
from jax_transformer.files import read_json, write_text
from jax_transformer.runs.run_dir import Run, RunFolder, step_range
from jax_transformer.runtime import environment

if TYPE_CHECKING:  # it imports JAX
    from jax_transformer.evaluation.evaluate import Evaluation

METRICS = ["perplexity", "bleu", "bleu_paper", "f1"]  # results.json may hold more

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunScore:
    """A score of a run; its entry in results.json may hold more."""

    metric: str
    split: str
    checkpoint: str
    steps: list[int]  # of the checkpoints that the model is made of
    score: float | None = None  # None if it is not finite
    signature: str | None = None
    beam_size: int | None = None  # None, like alpha and patience, for a score without a search
    alpha: float | None = None
    patience: float | None = None
    narrowing: bool | None = None
    length_penalty: str | None = None
    max_extra_length: int | None = None
    references: list[str] | None = None  # the files of a text that is not the run's

    @property
    def value(self) -> float:
        """The score, infinite if JSON has no number for it."""
        return math.inf if self.score is None else self.score

    def __str__(self) -> str:
        what = f"{self.metric} {self.value:.2f} {self.split} {self.checkpoint}"
        return ", ".join([what, step_range(self.steps), *filter(None, [self.signature])])


def scored_runs(folder: Path) -> Iterator[tuple[str, Run, list[RunScore]]]:
    """Yield (name, run, newest scores) of each run in the sub-folders of a folder.

    A run that cannot be read is left out, with a logged warning. Raises InputError if there is no
    run.
    """
    configs = sorted(folder.glob("*/config.json"))
    if not configs:
        raise InputError(
            f"{folder}: expected sub-folders with a config.json, found none; give the folder that "
            "holds the --workdir of each run"
        )
    for name in (path.parent.name for path in configs):
        try:
            run_folder = RunFolder(folder / name)
            run = run_folder.load_run()
            scores = newest_scores(run_folder, run)
        except InputError as error:
            logger.warning("%s is left out: %s", name, error)
        else:
            yield name, run, scores


def newest_scores(folder: RunFolder, run: Run) -> list[RunScore]:
    """Return the newest score of each of METRICS in results.json.

    Scores on files that `evaluate` was given are left out. Scores on the run's own split, with its
    own search, and BLEU by its own tokenizer and regard to case are preferred.
    """
    scores = read_json(folder.results, list[RunScore], "move it away") or []
    own = vars(run.config.decoding)
    preferences = [
        lambda score: score.split == run.scored_on,
        lambda score: all(getattr(score, name) in (None, own[name]) for name in SEARCH),
        lambda score: score.metric != "bleu" or is_own_bleu(score.signature, run),
    ]
    newest = []
    for metric in METRICS:
        found = [s for s in scores if s.metric == metric and s.references is None]
        for preferred in preferences:
            found = [score for score in found if preferred(score)] or found
        newest += found[-1:]
    return newest


def is_own_bleu(signature: str | None, run: Run) -> bool:
    """Return True for the signature of BLEU by the run's own tokenizer and regard to case."""
    data = run.config.data
    own = {f"tok:{data.bleu_tokenize}", f"case:{'lc' if data.bleu_lowercase else 'mixed'}"}
    return own <= {*(signature or "").split("|")}


def scores_of(folder: RunFolder, checkpoint: str, steps: list[int]) -> list[dict[str, Any]]:
    """Return the entries of results.json for one model; none, with a warning, if it is damaged."""
    try:
        found = folder.read_results()
    except InputError as error:  # which does not prevent translating
        logger.warning("%s", error)
        return []
    model = {"checkpoint": checkpoint, "steps": steps}
    return [entry for entry in found if model.items() <= entry.items()]


def save_scores(folder: RunFolder, found: "Evaluation", facts: dict[str, Any]) -> Path:
    """Write the outputs, append their scores to results.json, and return the file written.

    Each score is stored with the environment of this process.

    facts: the split, checkpoint and steps, and what else results.json has for each score. The file
      is named after the first two and the search: `test.averaged.beam4.txt`, or
      `test.averaged.beam4.patience1.txt` if the run's own settings have another patience; with
      `references` its split ends in a digest.
    """
    own, search = vars(folder.load_run().config.decoding), found.facts
    numbers = ("alpha", "patience", "max_extra_length")
    changed = [f"{n}{search[n]:g}" for n in numbers if search[n] != own[n]]
    changed += [search[n] for n in ("length_penalty",) if search[n] != own[n]]
    if search["narrowing"] != own["narrowing"]:
        changed.append("narrowing" if search["narrowing"] else "no-narrowing")
    split = facts["split"].replace("/", "_")
    if "references" in facts:  # the text is not the run's, and has its digest at the end
        split, _, digest = split.rpartition("-")
        changed.append(digest)
    name = ".".join([split, facts["checkpoint"], f"beam{search['beam_size']}", *changed])
    path = folder.path / "translations" / f"{name}.txt"
    write_text(path, "".join(f"{text}\n" for text in found.texts))
    facts = {**facts, "environment": environment()}
    texts = {**found.facts, **facts, "translations": str(path.relative_to(folder.path))}
    entries = [{**score.as_dict(), **texts} for score in found.scores]
    losses = [{**score.as_dict(), **found.counts, **facts} for score in found.losses]
    folder.append_results([*entries, *losses])
    return path


def describe_decoding(found: "Evaluation", split: str, checkpoint: str) -> str:
    """Describe a decoding: `test, averaged checkpoint, beam 4, 1,000 sentences in 9.1 s`."""
    facts = found.facts
    search = f"beam {facts['beam_size']}" if facts["beam_size"] > 1 else "greedy"
    if facts["patience"]:
        search += f", patience {facts['patience']:g}"
    return (
        f"{split}, {checkpoint} checkpoint, {search}, {facts['sentences']:,} sentences in "
        f"{facts['seconds']:.1f} s"
    )
