"""Print Tables 2, 3 and 4: the paper's numbers, what our models cost, and what runs scored.

python -m experiments.paper [--table=2] [--runs=runs] [--json]
"""

import json
from collections.abc import Callable

from absl import app, flags

from experiments import cli
from experiments.cli import FLAGS
from experiments.configs.paper import DEVICES, SUSTAINED
from experiments.configs.tables import PRINTED_ROWS, SENTENCE, Row, measured_scores, table_rows

TABLES = ["2", "3", "4"]
flags.DEFINE_multi_enum("table", TABLES, TABLES, "Tables of the paper to print; repeatable.")
flags.DEFINE_string("runs", None, "A folder of run folders: their scores go into their rows.")
flags.DEFINE_boolean("json", False, "Print JSON: a list with an object for each row.")

_HEADER = f"""\
Ours beside the paper's numbers; "-" is a number that the paper does not print, or that we do not \
have.
PPL ...    perplexity, BLEU and F1 are the paper's.
params     millions. paper: Table 3's. counted: with attention biases and {PRINTED_ROWS:,} rows of
           embedding, as in the paper's code. trained: what the experiment trains, without biases
           and with its own vocabulary.
FLOPs      of training. counted: matrix products, forward and backward, in the gradient of one
           step on batches of 25,000 + 25,000 tokens in sentences of {SENTENCE}, without padding, \
times the
           steps. estimate: the paper's rule, hours x {DEVICES} devices x {SUSTAINED / 1e12} \
TFLOPS. ratio: counted to estimate.
measured   score, text and checkpoint of our runs (--runs); * with other settings, listed below."""
_TITLES = {
    2: "Table 2. newstest2014, averaged checkpoints",
    3: "Table 3. English to German, newstest2013, no averaging",
    4: "Table 4. Parsing, section 23 of the Wall Street Journal",
}
_NOTES = {
    2: "Table 2 gives one cost for both languages. It gives big's 41.8 on newstest2014 English "
    "to French;\n§6.1 and the first printing have 41.0.",
    4: "The paper gives no steps for parsing; ours are base's.",
}


@cli.command()
def main() -> None:
    """Count, read the runs' scores, print."""
    measured = measured_scores(FLAGS.runs) if FLAGS.runs else {}
    tables = {int(table): table_rows(int(table), measured) for table in sorted(set(FLAGS.table))}
    if FLAGS.json:
        print(json.dumps([row.as_dict() for rows in tables.values() for row in rows], indent=1))
        return
    print(_HEADER)
    for table, rows in tables.items():
        print(f"\n{render(table, rows)}")


def _published(field: str, form: str) -> Callable[[Row], str]:
    return lambda row: _number(getattr(row.published, field), form)


def _counted(field: str, form: str, unit: float = 1) -> Callable[[Row], str]:
    def cell(row: Row) -> str:
        value = getattr(row.ours, field, None)
        return _number(value if value is None or unit == 1 else value / unit, form)

    return cell


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form).replace("e+", "e")


_TRAINED = {"params trained": _counted("parameters", ".2f", 1e6)}
_COST = {"steps": _counted("steps", ","), "FLOPs counted": _counted("flops", ".2e")}
_ESTIMATE = {"estimate": _published("estimate", ".2e"), "ratio": _counted("ratio", ".2f")}
_COLUMNS = {
    2: {
        "BLEU": _published("bleu", ".2f"),
        "FLOPs paper": _published("flops", ".1e"),
        **_TRAINED,
        **_COST,
        **_ESTIMATE,
    },
    3: {
        "PPL": _published("perplexity", ".2f"),
        "BLEU": _published("bleu", ".1f"),
        "params paper": _published("parameters", ".0f"),
        "counted": _counted("parameters_as_printed", ".2f", 1e6),
        "trained": _counted("parameters", ".2f", 1e6),
        **_COST,
        **_ESTIMATE,
    },
    4: {"F1": _published("f1", ".1f"), **_TRAINED, **_COST},
}


def render(table: int, rows: list[Row]) -> str:
    """A table as text of fixed width, with the command of each row, and its runs' scores."""
    columns = _COLUMNS[table]
    lines: list[list[str]] = [["", *columns, "measured"]]
    for row in rows:
        if row.group and [row.group] not in lines:
            lines.append([row.group])
        scores = [score.text for score in row.ours.measured] if row.ours else []
        first, *more = scores or ["-"]
        lines.append([row.name, *(cell(row) for cell in columns.values()), first])
        lines += [[""] * (len(columns) + 1) + [score] for score in more]
    text = [_TITLES[table], "", cli.aligned(lines)]
    if table in _NOTES:
        text += ["", _NOTES[table]]
    return "\n".join([*text, "", *_commands(rows), *_runs(rows)])


def _commands(rows: list[Row]) -> list[str]:
    """One shell command a row; what it changes from base is its comment."""
    ours = [row.ours for row in rows if row.ours]
    width = max(len(each.command) for each in ours)
    return [
        f"{each.command.ljust(width)}  # "
        + (" ".join(f"{name}={value}" for name, value in each.changes.items()) or "base")
        for each in ours
    ]


def _runs(rows: list[Row]) -> list[str]:
    """What each score was measured with."""
    scores = [score for row in rows if row.ours for score in row.ours.measured]
    lines = []
    for score in scores:
        steps = sorted({score.steps[0], score.steps[-1]})
        facts = [f"steps {' to '.join(f'{step:,}' for step in steps)}"]
        facts += [score.signature] if score.signature else []
        facts += [f"* {'; '.join(score.other_settings)}"] if score.other_settings else []
        lines.append(f"{score.run}: {score.text}, {', '.join(facts)}")
    return ["", *lines] if lines else []


if __name__ == "__main__":
    app.run(main)
