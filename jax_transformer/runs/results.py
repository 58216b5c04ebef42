"""The scores and translations that a run folder holds: writing them, and reading the newest."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jax_transformer.errors import InputError
from jax_transformer.evaluation.corpus_scores import Decoded
from jax_transformer.evaluation.score import Score
from jax_transformer.files import write_text
from jax_transformer.runs.run_dir import Run, RunFolder

METRICS = ["perplexity", "bleu", "bleu_paper", "f1"]  # results.json may hold more


@dataclass(frozen=True)
class RunScore:
    """One score of one run, and what it was computed from."""

    run: str  # the folder's name
    metric: str
    value: float
    split: str
    checkpoint: str
    steps: list[int]  # of the checkpoints that the model is made of
    signature: str | None


def newest_scores(folder: RunFolder, run: Run) -> list[RunScore]:
    """The newest score of each of METRICS in results.json.

    Scores on the run's own split and with its own search come first. Where a run is scored on dev
    and has no perplexity, the one that training logged takes its place.
    """
    name = folder.path.name
    try:
        scores = [
            RunScore(
                name,
                entry["metric"],
                float(entry["score"]),
                entry["split"],
                entry["checkpoint"],
                list(entry["steps"]),
                entry.get("signature"),
            )
            for entry in _newest(folder.read_results(), run)
        ]
    except (KeyError, TypeError) as error:
        raise InputError(
            f"{folder.results}: expected a list of scores, found {error!r}; move the file away"
        ) from None
    line = _last_dev_line(folder)
    missing = all(score.metric != "perplexity" for score in scores)
    if line and missing and run.scored_on == "dev":
        step, value = line["step"], line["perplexity"]
        scores.insert(0, RunScore(name, "perplexity", value, "dev", f"step {step}", [step], None))
    return scores


def _newest(entries: list[dict[str, Any]], run: Run) -> list[dict[str, Any]]:
    decoding = run.config.decoding
    search = {name: getattr(decoding, name) for name in ("beam_size", "alpha", "patience")}
    preferences = [
        lambda entry: entry["split"] == run.scored_on,
        # A score that needs no search has none of these.
        lambda entry: all(entry.get(name, value) == value for name, value in search.items()),
    ]
    newest = []
    for metric in METRICS:
        found = [entry for entry in entries if entry["metric"] == metric]
        for preferred in preferences:
            found = [entry for entry in found if preferred(entry)] or found
        newest += found[-1:]
    return newest


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


def save_translations(folder: RunFolder, name: str, texts: Sequence[str]) -> str:
    """Write them into the run folder, and return the path inside it."""
    path = folder.translations(name)
    write_text(path, "".join(f"{text}\n" for text in texts))
    return str(path.relative_to(folder.path))


def save_score(
    folder: RunFolder, name: str, decoded: Decoded, score: Score, facts: dict[str, Any]
) -> str:
    """Write the translations, append the score to results.json, and describe it in three lines.

    facts: split, checkpoint and steps.
    """
    facts = {**decoded.facts, **facts}
    path = save_translations(folder, name, decoded.texts)
    folder.append_results([{**score.as_dict(), **facts, "translations": path}])
    return (
        f"{score.metric.upper()} {score.score:.2f}  {describe_decoding(facts)}\n"
        f"      {score.signature}\n      {score.detail}"
    )


def describe_decoding(facts: dict[str, Any]) -> str:
    """What was decoded, and how: `test, averaged checkpoint, beam 4, 1,000 sentences in 9.1 s`."""
    search = f"beam {facts['beam_size']}" if facts["beam_size"] > 1 else "greedy"
    if facts.get("patience"):
        search += f", patience {facts['patience']:g}"
    return (
        f"{facts['split']}, {facts['checkpoint']} checkpoint, {search}, {facts['sentences']:,} "
        f"sentences in {facts['seconds']:.1f} s"
    )
