"""Scores as a person reads them: ours, the paper's, and what exactly was counted."""

from collections.abc import Sequence
from typing import Any

from experiments.configs.paper import EXPERIMENTS
from jax_transformer.evaluation.bleu import Score

# What results.json calls a score, what a person calls it, and its decimals.
ROWS = {
    "bleu": ("BLEU, sacreBLEU's", 2),
    "bleu_paper": ("BLEU, the paper's", 2),
    "chrf": ("chrF", 2),
    "loss": ("loss, smoothed", 3),
    "nll": ("NLL", 3),
    "perplexity": ("perplexity", 3),
    "length_ratio": ("length ratio, tokens", 3),
    "length_ratio_pieces": ("length ratio, pieces", 3),
}
TREE_ROWS = {
    "f1": ("F1, EVALB's", 2),
    "f1_40": ("F1 up to 40 words", 2),
    "f1_gold_tags": ("F1 with gold's tags", 2),
    "f1_unconstrained": ("F1 without the grammar", 2),
    "complete_match": ("complete match", 2),
    "tagging": ("tagging accuracy", 2),
    "valid_trees": ("valid trees", 2),
    "valid_trees_unconstrained": ("valid without the grammar", 2),
    **{name: ROWS[name] for name in ("loss", "nll", "perplexity")},
}
MISSING = {"bleu_paper": "of plain text only; this is tokenised already"}
# Which text of an experiment a test set of sacreBLEU is.
NEWSTESTS = {"wmt13": "dev", "wmt14": "test", "wmt14/full": "test"}


def published_scores(experiment: str, split: str) -> dict[str, float]:
    """What the paper prints for an experiment, by the name of the score that counts as it did.

    Nothing for another text than the paper's own, newstest2013 or newstest2014.
    """
    row: Any = EXPERIMENTS.get(experiment)
    published = getattr(row, "published", None)
    if published is None or NEWSTESTS.get(split.split(".")[0], split) != row.scored_on:
        return {}
    numbers = {
        "bleu_paper": published.bleu,
        "perplexity": published.perplexity,
        "f1": published.f1,
    }
    return {name: number for name, number in numbers.items() if number is not None}


def score_table(scores: Sequence[Score], published: dict[str, float]) -> str:
    """A row for each score: `score  ours  the paper's  signature`, details below it.

    A score that is not there has its reason instead.
    """
    found = {score.metric: score for score in scores}
    rows = [("score", "ours", "the paper's", "signature")]
    shown = TREE_ROWS if "f1" in found else ROWS
    for name, (label, decimals) in shown.items():
        theirs = str(published.get(name, "-"))
        if name not in found:
            rows.append((label, "-", theirs, MISSING.get(name, "nothing to score")))
            continue
        score = found[name]
        rows.append((label, f"{score.score:.{decimals}f}", theirs, score.signature))
        if score.mean is not None:
            spread = f"95% of the samples in {score.mean:.2f} +- {score.interval:.2f}"
            rows.append(("", "", "", spread))
        if score.detail:
            rows.append(("", "", "", score.detail))
    left, ours, theirs = (max(len(row[column]) for row in rows) for column in range(3))
    return "\n".join(
        f"{label:<{left}}  {one:>{ours}}  {two:>{theirs}}  {rest}" for label, one, two, rest in rows
    )
