"""Tables 2, 3 and 4 with ours beside them: counted from the models, measured where runs are."""

import dataclasses
import functools
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from experiments.configs.paper import EXPERIMENTS, Experiment
from experiments.configs.published import DEVICES, SUSTAINED, SYSTEMS, Published
from experiments.measured import Measured, measured_scores
from jax_transformer.config import Config, ModelConfig
from jax_transformer.evaluation.flops import count_parameters, count_training_flops

# Any length that divides a batch's tokens into whole sentences would do; WMT's are about as long.
SENTENCE = 25  # tokens, source and target alike
PRINTED_ROWS = 40_960  # of the embedding, in the paper's code; its column "params" fits them


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


def print_tables(tables: list[int], runs: str | None, as_json: bool) -> None:
    """Print the tables asked for; `runs` is a folder of run folders, or None."""
    measured = measured_scores(runs) if runs else {}
    if as_json:
        rows = [row.as_dict() for table in tables for row in table_rows(table, measured)]
        print(json.dumps(rows, indent=1))
        return
    print(_HEADER)
    for table in tables:
        print(f"\n{render(table, table_rows(table, measured))}", flush=True)


def table_rows(table: int, measured: dict[str, list[Measured]]) -> list[Row]:
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
    model, flops = _without_dropout(config.model), training_flops(config)
    estimate = experiment.published.estimate
    printed = dataclasses.replace(model, attention_bias=True)
    return Ours(
        f"python -m experiments.train --experiment={name}",
        dict(experiment.changes),
        _parameters(model, config.data.vocabulary_size),
        _parameters(printed, PRINTED_ROWS),
        config.training.steps,
        flops,
        flops / estimate if estimate else None,
        measured,
    )


def training_flops(config: Config) -> float:
    """FLOPs of all steps of a training, in full batches of sentences of SENTENCE tokens."""
    pair = _pair_flops(_without_dropout(config.model), config.data.vocabulary_size)
    return pair * config.training.batch_tokens / SENTENCE * config.training.steps


# Dropout has neither parameters nor products: rows that differ in nothing else are counted once.
def _without_dropout(model: ModelConfig) -> ModelConfig:
    return dataclasses.replace(model, dropout_rate=0.0, attention_dropout_rate=0.0)


_parameters = functools.cache(count_parameters)


@functools.cache
def _pair_flops(model: ModelConfig, vocabulary_size: int) -> int:
    return count_training_flops(model, vocabulary_size, SENTENCE, SENTENCE)


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


@dataclass(frozen=True)
class _Column:
    name: str
    cell: Callable[[Row], str]


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form).replace("e+", "e")


def _published(name: str, field: str, form: str) -> _Column:
    return _Column(name, lambda row: _number(getattr(row.published, field), form))


def _counted(name: str, field: str, form: str) -> _Column:
    return _Column(name, lambda row: _number(getattr(row.ours, field, None), form))


def _millions(name: str, field: str) -> _Column:
    return _Column(
        name, lambda row: _number(getattr(row.ours, field) / 1e6 if row.ours else None, ".2f")
    )


_STEPS = _counted("steps", "steps", ",")
_TRAINED = _millions("params trained", "parameters")
_FLOPS = _counted("FLOPs counted", "flops", ".2e")
_COST = [
    _STEPS,
    _FLOPS,
    _published("estimate", "estimate", ".2e"),
    _counted("ratio", "ratio", ".2f"),
]
_TITLES = {
    2: "Table 2. newstest2014, averaged checkpoints",
    3: "Table 3. English to German, newstest2013, no averaging",
    4: "Table 4. Parsing, section 23 of the Wall Street Journal",
}
_COLUMNS = {
    2: [
        _published("BLEU", "bleu", ".2f"),
        _published("FLOPs paper", "flops", ".1e"),
        _TRAINED,
        *_COST,
    ],
    3: [
        _published("PPL", "perplexity", ".2f"),
        _published("BLEU", "bleu", ".1f"),
        _published("params paper", "parameters", ".0f"),
        _millions("counted", "parameters_as_printed"),
        _millions("trained", "parameters"),
        *_COST,
    ],
    4: [_published("F1", "f1", ".1f"), _TRAINED, _STEPS, _FLOPS],
}
_NOTES = {
    2: "Table 2 gives one cost for both languages. It gives big's 41.8 on newstest2014 English "
    "to French;\n§6.1 and the first printing have 41.0.",
    4: "The paper gives no steps for parsing; ours are base's.",
}


def render(table: int, rows: list[Row]) -> str:
    """A table as text of fixed width, with the command of each row, and what was measured."""
    columns = _COLUMNS[table]
    heads = ["", *(column.name for column in columns), "measured"]
    lines: list[list[str]] = []
    group = ""
    for row in rows:
        if row.group != group:
            group = row.group
            lines.append([group])
        scores = [score.text for score in row.ours.measured] if row.ours else []
        first, *more = scores or ["-"]
        lines.append([row.name, *(column.cell(row) for column in columns), first])
        lines += [[""] * (len(heads) - 1) + [score] for score in more]
    whole = [heads, *(line for line in lines if len(line) > 1)]
    widths = [max(len(line[i]) for line in whole) for i in range(len(heads))]
    text = [_TITLES[table], "", _aligned(heads, widths)]
    text += [_aligned(line, widths) for line in lines]
    if table in _NOTES:
        text += ["", _NOTES[table]]
    return "\n".join([*text, "", *_commands(rows), *_runs(rows)])


def _aligned(cells: list[str], widths: list[int]) -> str:
    """The first and the last cell to the left, numbers to the right."""
    if len(cells) == 1:
        return cells[0]
    name, *numbers, last = cells
    right = [cell.rjust(width) for cell, width in zip(numbers, widths[1:-1], strict=True)]
    return "  ".join([name.ljust(widths[0]), *right, last]).rstrip()


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
