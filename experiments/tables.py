"""Tables as text, for the commands that print them."""

import math
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev, variance
from typing import NamedTuple

from jax_transformer.evaluation.score import Score
from jax_transformer.presets import EXPERIMENTS
from jax_transformer.presets.small import COUNTERPARTS

TABLE_HEAD = "| row | PPL | BLEU | paper's row | PPL | BLEU | agree |"
LEAST = 30  # letters that the last column has on a terminal, enough for a setting


def terminal_width() -> int | None:
    """Return the columns of the terminal on standard output; None if it is a file or a pipe."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def aligned(rows: Sequence[Sequence[str]], width: int | None = None, keep: int = 1) -> str:
    """Align cells in lines of text: first and last column left, the numbers between them right.

    A row of a single cell is a heading. width: that of the terminal. The last column is wrapped,
    and others from the right are left out, and named below, if the last would get less than LEAST;
    but the first `keep` stay.
    """
    whole = [row for row in rows if len(row) > 1]
    widths = [max(len(row[i]) for row in whole) + 2 for i in range(len(whole[0]) - 1)]
    count = len(widths)
    while width and count > keep and sum(widths[:count]) + LEAST > width:
        count -= 1
    start = sum(widths[:count])
    lines = []
    for first, *rest in rows:
        if not rest:
            lines += _wrapped(first, width, 4)
            continue
        numbers = [cell.rjust(size - 2) for cell, size in zip(rest, widths[1:count], strict=False)]
        last, *more = _wrapped(rest[-1], width and width - start, 0)
        lines.append("  ".join([first.ljust(widths[0] - 2), *numbers, last]).rstrip())
        lines += [" " * start + line for line in more]
    if left_out := whole[0][count:-1]:
        note = f"Left out in {width} columns: {', '.join(left_out)}."
        lines += ["", *_wrapped(note, width, 0)]
    return "\n".join(lines)


def _wrapped(text: str, width: int | None, indent: int) -> list[str]:
    """Break a text after spaces and the | of signatures; all lines but the first are indented."""
    lines = [""]
    for part in re.findall(r"[^ |]+[ |]*|[ |]+", text):
        if width and lines[-1].strip() and len(lines[-1] + part.rstrip()) > width:
            lines.append(" " * indent)
        lines[-1] += part
    return [line.rstrip() for line in lines]


def score_table(
    scores: Sequence[Score], published: Mapping[str, float | None], width: int | None = None
) -> str:
    """Return a table with a row for each score, named as in results.json; details are below it.

    width: the width of the terminal, on which a column without a number is left out.
    """
    rows = [["score", "ours", "the paper's", "signature"]]
    for score in scores:
        theirs = published.get(score.metric) or "-"
        rows.append([score.metric, str(score), str(theirs), score.signature])
        if score.mean is not None:
            interval = f"95% of the samples in {score.mean:.2f} +- {score.interval:.2f}"
            rows.append(["", "", "", interval])
        if score.detail:
            rows.append(["", "", "", score.detail])
    if width and not any(map(published.get, (score.metric for score in scores))):
        rows = [[name, ours, more] for name, ours, _, more in rows]
    return aligned(rows, width, keep=2)


class Table3Row(NamedTuple):
    """The dev scores of a row of Table 3, ours in miniature or the paper's."""

    name: str
    perplexity: float
    bleu: float


def miniature_table(rows: Sequence[Sequence[Table3Row]]) -> str:
    """Return a table in Markdown: each row, its counterpart in the paper, and their agreement.

    rows: for each row its scores with each seed; the first is base.

    They agree if both are better than their base, both worse, or both even with it. With several
    seeds the table has means and standard deviations, and a row of ours counts as even if it
    differs from base by less than two standard errors of that difference.
    """
    lines = [TABLE_HEAD, "|" + "---|" * (TABLE_HEAD.count("|") - 1)]
    base, paper_base = rows[0], _counterpart(rows[0][0])
    for row in rows:
        paper = _counterpart(row[0])
        ours, verdicts = [row[0].name.removeprefix("miniature-")], []
        for metric, digits, even in (("perplexity", 3, 0.05), ("bleu", 2, 0.15)):
            scores, of_base = ([getattr(r, metric) for r in some] for some in (row, base))
            ours.append(f"{fmean(scores):.{digits}f}")
            theirs = _side(getattr(paper, metric) - getattr(paper_base, metric), even)
            if len(row) > 1:
                ours[-1] += f" ± {stdev(scores):.{digits}f}"
                even = max(even, 2 * math.sqrt((variance(scores) + variance(of_base)) / len(row)))
            side = _side(fmean(scores) - fmean(of_base), even)
            verdicts.append("yes" if side == theirs else "no" if side else "unclear")
        published = [paper.name.removeprefix("table3-"), f"{paper.perplexity:.2f}"]
        published.append(f"{paper.bleu:.1f}")
        agree = "" if row is base else "PPL {}, BLEU {}".format(*verdicts)
        lines.append(f"| {' | '.join([*ours, *published, agree])} |")
    return "\n".join(lines)


def _counterpart(row: Table3Row) -> Table3Row:
    name = COUNTERPARTS[row.name]
    published = EXPERIMENTS[name].published
    assert published.perplexity is not None
    assert published.bleu is not None
    return Table3Row(name, published.perplexity, published.bleu)


def _side(difference: float, even: float) -> int:
    """Return the sign of a difference from base; 0 if it is smaller than `even`."""
    return 0 if abs(difference) < even else 1 if difference > 0 else -1
