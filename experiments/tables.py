"""Tables as text, for the commands that print them."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from jax_transformer.evaluation.score import Score
from jax_transformer.presets import EXPERIMENTS
from jax_transformer.presets.small import COUNTERPARTS


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Align cells in lines of text: first and last column left, the numbers between them right.

    A row of a single cell is a heading.
    """
    whole = [row for row in rows if len(row) > 1]
    widths = [max(len(row[i]) for row in whole) for i in range(len(whole[0]) - 1)]
    lines = []
    for first, *rest in rows:
        numbers = [cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=False)]
        line = "  ".join([first.ljust(widths[0]), *numbers, *rest[len(numbers) :]])
        lines.append(line.rstrip())
    return "\n".join(lines)


def score_table(scores: Sequence[Score], published: Mapping[str, float | None]) -> str:
    """Return a table with a row for each score, named as in results.json; details are below it."""
    rows = [["score", "ours", "the paper's", "signature"]]
    for score in scores:
        theirs = published.get(score.metric) or "-"
        rows.append([score.metric, str(score), str(theirs), score.signature])
        if score.mean is not None:
            interval = f"95% of the samples in {score.mean:.2f} +- {score.interval:.2f}"
            rows.append(["", "", "", interval])
        if score.detail:
            rows.append(["", "", "", score.detail])
    return aligned(rows)


class Table3Row(NamedTuple):
    """The dev scores of a row of Table 3, ours in miniature or the paper's."""

    name: str
    perplexity: float
    bleu: float


def miniature_table(rows: Sequence[Table3Row]) -> str:
    """Return a table in Markdown: each row, its counterpart in the paper, and their agreement.

    They agree if both are better than their base, the first row, or both are worse.
    """
    columns = ["row", "PPL", "BLEU", "paper's row", "PPL", "BLEU", "agree"]
    lines = [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    base, paper_base = rows[0], _counterpart(rows[0])
    for row in rows:
        paper = _counterpart(row)
        perplexities = row.perplexity - base.perplexity, paper.perplexity - paper_base.perplexity
        bleus = row.bleu - base.bleu, paper.bleu - paper_base.bleu
        agreement = f"PPL {_agreement(*perplexities, 0.05)}, BLEU {_agreement(*bleus, 0.15)}"
        ours = [row.name.removeprefix("miniature-"), f"{row.perplexity:.3f}", f"{row.bleu:.2f}"]
        name = paper.name.removeprefix("table3-")
        theirs = [name, f"{paper.perplexity:.2f}", f"{paper.bleu:.1f}"]
        cells = [*ours, *theirs, "" if row is base else agreement]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _counterpart(row: Table3Row) -> Table3Row:
    name = COUNTERPARTS[row.name]
    published = EXPERIMENTS[name].published
    assert published.perplexity is not None
    assert published.bleu is not None
    return Table3Row(name, published.perplexity, published.bleu)


def _agreement(ours: float, theirs: float, even: float) -> str:
    """Compare the signs of two differences from base, unless one is smaller than `even`."""
    if min(abs(theirs), abs(ours)) < even:
        return "even"
    return "yes" if ours * theirs > 0 else "no"
