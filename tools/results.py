r"""Add a file to docs/results, or render docs/results.md from all of them.

python -m tools.results --add=runs/a --add=runs/b --name=demo --data="500 sentences of the demo"
python -m tools.results --add_benchmark=printed.txt --name=torch --data="training steps, PyTorch"
python -m tools.results --add_table3=runs/table3 --name=table3 --data="Multi30k, val" \
    --command="python -m experiments.table3 --seeds=3 ..."
python -m tools.results

--add takes the runs of one command, which differ in their seed; with --reference, their scores of
a text that `evaluate` was given. --add_benchmark takes what a benchmark has printed, the JSON of
benchmarks.accelerator, or the lines of benchmarks.compile_for --json. --add_table3 takes the folder
of experiments.table3. The prose of the page is tools/results_page.md. An entry without its command,
commit, versions or machine is refused.
"""

import json
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import jax
from absl import app, flags

from benchmarks.measuring import read_header, read_table, table
from experiments.cli import command, parse_flags, show
from experiments.tables import TABLE_HEAD
from jax_transformer.errors import InputError
from jax_transformer.evaluation.score import SEARCH
from jax_transformer.files import parse_json, read_json, write_json, write_text
from jax_transformer.presets.paper import TABLE_2, TABLE_4
from jax_transformer.runs.load import load
from jax_transformer.runs.metrics_writer import read_metrics
from jax_transformer.runs.request import command_of
from jax_transformer.runs.results import METRICS, is_own_bleu
from jax_transformer.runs.run_dir import Run, RunFolder

FLAGS = flags.FLAGS
FOLDER = Path(__file__).parents[1] / "docs" / "results"
PAGE = FOLDER.with_suffix(".md")
MACHINE = ("processor", "cores", "devices", "driver")
HEAD_OF_TABLE_3 = (
    "| row | perplexity | BLEU | the paper's row | its perplexity | its BLEU | agree |"
)
NEEDED = ("what", "command", "rows", "python", "jax", "commit", "processor", "devices")
Object = dict[str, Any]


@dataclass(frozen=True)
class Entry:
    """The results of one command, or of a training with several seeds.

    what: the data of a training, or the work that was measured. environment: versions, commit and
      machine by name. rows: of a training one for each seed, else those of the printed table.
      facts: what else belongs to the numbers, such as a signature. transcribed: the account that
      the numbers were copied from, if no program wrote this file.
    """

    section: Literal["training", "table3", "speed", "compilers"]
    what: str
    command: str
    environment: Object
    rows: list[Object]
    facts: dict[str, str] = field(default_factory=dict)
    published: str = ""
    note: str = ""
    transcribed: str = ""


def main() -> None:
    """Add entries if the flags name any, and render the page."""
    if (FLAGS.add or FLAGS.add_benchmark or FLAGS.add_table3) and not (FLAGS.name and FLAGS.data):
        raise InputError("expected --name and --data with what is added; give both")
    if FLAGS.published and "; " not in FLAGS.published:
        raise InputError(f"--published={FLAGS.published}: expected a number, '; ' and its source")
    added: dict[str, Entry] = {}
    given = FLAGS.environment and read_json(Path(FLAGS.environment), Object, "mend it")
    if FLAGS.add:
        folders = [*map(RunFolder, FLAGS.add)]
        added[FLAGS.name] = of_runs(folders, FLAGS.data, given, FLAGS.reference)
    if FLAGS.add_table3:
        folder = Path(FLAGS.add_table3)
        added[FLAGS.name] = of_table3(folder, FLAGS.data, FLAGS.command or "")
    if FLAGS.add_benchmark:
        text = Path(FLAGS.add_benchmark).read_text(encoding="utf-8")
        try:
            added |= of_benchmark(text, FLAGS.name, FLAGS.data, FLAGS.command)
        except (LookupError, TypeError, ValueError) as error:
            raise InputError(
                f"{FLAGS.add_benchmark}: expected all that a benchmark printed, found another file "
                f"({error!r}); give that"
            ) from None
    for name, entry in added.items():
        environment = entry.environment | (given or {})
        notes = {"note": FLAGS.note, "published": FLAGS.published}
        entry = replace(entry, environment=environment, **notes)
        check(name, entry)
        write_json(FOLDER / f"{name}.json", entry)
    write_text(PAGE, page())
    show(f"written to {PAGE}")


def of_runs(
    folders: Sequence[RunFolder],
    what: str,
    given: Object | None = None,
    reference: str | None = None,
) -> Entry:
    """Return the entry of runs that differ in their seed.

    given: what the runs did not record of their environment. reference: name of the file that
    `evaluate` was given; None for the text of the runs. Raises InputError if the runs have other
    differences, or not the same scores of the averaged checkpoint.
    """
    runs = [folder.load_run() for folder in folders]
    commands = [command_of(run) for run in runs]
    if len({re.sub(r" --seed=\d+", "", text) for text in commands}) > 1:
        raise InputError(f"expected runs of one command, found {' and '.join(commands)}")
    parameters = sum(leaf.size for leaf in jax.tree.leaves(load(folders[0]).params))
    facts = {"experiment": runs[0].experiment, "parameters": f"{parameters:,}"}
    rows, starts, kinds = [], [], dict[str, Path]()
    for folder, run in zip(folders, runs, strict=True):
        lines = [parse_json(text, Object) for text, _ in read_metrics(folder.metrics)]
        scores = own_scores(folder, run, reference)
        kinds[", ".join(f"{score['metric']} of {score['split']}" for score in scores)] = folder.path
        found = {score["metric"]: score["score"] for score in scores}
        minutes = max((line.get("total_seconds", 0) for line in lines), default=0) / 60
        rows.append({"seed": run.seed, **found, "minutes": minutes})
        starts += starts_of(folder)
        for score in scores:
            key = f"{score['metric']} signature"
            known = dict.fromkeys([*facts.get(key, "").split(", then "), score["signature"]])
            facts[key] = ", then ".join(filter(None, known))
            facts[f"{score['metric']} of"] = ", ".join(
                [f"{score['split']}, {score['sentences']:,} sentences, averaged checkpoint"]
                + [f"{name} {score[name]}" for name in ("beam_size", "alpha") if name in score]
            )
            if score.get("environment", {}) not in (*starts, {}):
                facts[f"{score['metric']} scored by"] = listed(score["environment"])
    if len(kinds) > 1:
        each = "; ".join(f"{kind} in {path}" for kind, path in kinds.items())
        raise InputError(
            f"expected the same scores of each run, found {each}; score all with "
            "python -m experiments.evaluate"
        )
    if given:
        facts["noted by hand"] = ", ".join(given)
    return Entry("training", what, commands[0], merged(starts) | (given or {}), rows, facts)


def of_table3(folder: Path, what: str, typed: str) -> Entry:
    """Return the entry of the table that experiments.table3 wrote, and of the runs beside it.

    typed: its command. Raises InputError if a row has no run.
    """
    text = (folder / "table3.md").read_text(encoding="utf-8")
    rows: list[Object] = [*read_table(text.replace(TABLE_HEAD, HEAD_OF_TABLE_3))]
    runs = [*map(RunFolder, sorted(path.parent for path in folder.rglob("starts.jsonl")))]
    seeds = {run.load_run().seed for run in runs}
    found = {run.path.name.removeprefix("miniature-") for run in runs}
    if missing := {row["row"] for row in rows} - found:
        raise InputError(f"{folder}: expected the runs of {', '.join(missing)}, found none")
    facts = {"seeds": ", ".join(map(str, sorted(seeds))), "perplexity and BLEU": "mean ± deviation"}
    scores = [score for run in runs for score in run.read_results()]
    for metric in ("perplexity", "bleu"):
        kinds = dict.fromkeys(each["signature"] for each in scores if each["metric"] == metric)
        facts[f"{metric} signature"] = ", ".join(kinds)
    starts = [start for run in runs for start in starts_of(run)]
    return Entry("table3", what, typed, merged(starts), rows, facts)


def merged(starts: Sequence[Object]) -> Object:
    """Return the environments of several starts as one, with each value that a name had."""
    environment: Object = {}
    for name in dict.fromkeys(name for start in starts for name in start):
        values = dict.fromkeys(str(start[name]) for start in starts if start.get(name) is not None)
        environment[name] = ", then ".join(values)
    return environment


def own_scores(folder: RunFolder, run: Run, reference: str | None) -> list[Object]:
    """Return the newest score of each metric, of the averaged checkpoint and the run's search.

    BLEU is that by the run's own tokenizer and regard to case. reference: as in `of_runs`.
    """
    own, found = vars(run.config.decoding), {}
    for score in folder.read_results():
        searched = all(score.get(name, own[name]) == own[name] for name in SEARCH)
        alike = score["metric"] != "bleu" or is_own_bleu(score["signature"], run)
        names = [Path(path).name for path in score.get("references", [])]
        asked = names == ([reference] if reference else [])
        if score.get("checkpoint") == "averaged" and asked and searched and alike:
            split = reference or score["split"]
            found[split, score["metric"]] = score
    for split in [reference] if reference else (run.scored_on, "dev"):
        scores = [found[split, metric] for metric in METRICS if (split, metric) in found]
        if len({str(score.get("steps")) for score in scores}) > 1:
            raise InputError(
                f"{folder.results}: expected scores of one averaged checkpoint, found those of "
                "several; score the last one again with python -m experiments.evaluate"
            )
        if scores:
            return scores
    raise InputError(f"{folder.results}: expected a score of the averaged checkpoint, found none")


def starts_of(folder: RunFolder) -> list[Object]:
    """Return the environments of a training since it last began at step 0."""
    lines = folder.starts.read_bytes().splitlines() if folder.starts.exists() else []
    try:
        starts = [parse_json(line, Object) for line in lines]
        steps = [start.pop("step") for start in starts]
    except (KeyError, ValueError) as error:
        found = f"expected the lines that training wrote, found {error}; remove them"
        raise InputError(f"{folder.starts}: {found}, and give --environment") from None
    return starts[max((n for n, step in enumerate(steps) if step == 0), default=0) :]


def of_benchmark(text: str, name: str, what: str, typed: str | None = None) -> dict[str, Entry]:
    """Return the entries of a benchmark's output by name: of an accelerator one for each part.

    typed: the command, if the output does not have it.
    """
    tables: dict[str, tuple[str, Object, list[Object], Object]] = {}
    if not text.startswith("{"):
        facts = read_header(text)
        line, made_with = typed or facts.pop("command", ""), facts.pop("versions")
        made_with |= {key: facts.pop(key) for key in ("commit", *MACHINE) if key in facts}
        tables[name] = line, made_with, [*read_table(text)], facts
    elif '"parts"' in text:
        found = json.loads(text)
        made_with = found["versions"] | {key: found.get(key) for key in ("commit", *MACHINE)}
        for part, result in found["parts"].items():
            if result["rows"]:
                tables[f"{name}-{part}"] = result["command"], made_with, result["rows"], {}
    else:
        rows = [json.loads(line) for line in text.splitlines()]
        ((line, made_with), *_) = [(row.pop("command"), row.pop("environment")) for row in rows]
        tables[name] = line, made_with, rows, {}
    entries = {}
    for entry, (line, made_with, rows, facts) in tables.items():
        line = re.sub(r"(?<=[ =])[~/][^ ]*/", "", line)  # the folders of files
        section = "compilers" if "benchmarks.compile_for" in line else "speed"
        entries[entry] = Entry(section, what, line, made_with, rows, facts)
    return entries


def check(name: str, entry: Entry) -> None:
    """Raise InputError if an entry cannot be measured again as it stands."""
    facts = vars(entry) | entry.environment
    if missing := [
        each for each in NEEDED if facts.get(each, "unknown") in ("unknown", None, "", [])
    ]:
        raise InputError(
            f"{FOLDER / name}.json: expected its {', '.join(missing)}, found none; give what was "
            "noted, by --command or --environment, or leave the entry out"
        )


def page() -> str:
    """Return the page. Raises InputError for an entry that cannot be measured again."""
    entries: dict[str, Entry] = {}
    for path in sorted(FOLDER.glob("*.json")):
        entry = read_json(path, Entry, "mend it, or remove it")
        assert entry is not None
        check(path.stem, entry)
        entries[path.stem] = entry
    paper = [
        f"- `{name}`: published {row.published.bleu or row.published.f1} "
        f"(Vaswani et al. 2017, Table {row.table})."
        for name, row in {**TABLE_2, **TABLE_4}.items()
    ]
    text = Path(__file__).with_name("results_page.md").read_text(encoding="utf-8")
    text = text.replace("{paper}", "\n".join(paper))
    text = text.replace("{scores}", scores_table(entries))
    for section in ("training", "table3", "speed", "compilers"):
        own = [details(name, entry) for name, entry in entries.items() if entry.section == section]
        text = text.replace(f"{{{section}}}", "\n\n".join(own))
    for name in (entry.facts.get("experiment") for entry in entries.values()):
        text = re.sub(rf"^- `{name}`: .*\n(?:  .*\n)*", "", text, flags=re.MULTILINE)
    return text


def scores_table(entries: Mapping[str, Entry]) -> str:
    """Return the table of all trainings: means over seeds, with the least and the largest."""
    columns = ["entry", "data", "`--experiment`", "parameters", "score", "seeds", "minutes"]
    lines = []
    for name, entry in entries.items():
        if entry.section != "training":
            continue
        means = {}
        for column in entry.rows[0]:
            values = [row[column] for row in entry.rows]
            means[column] = f"{statistics.mean(values):.2f}"
            if len(values) > 1:
                means[column] += f" ({min(values):.2f} to {max(values):.2f})"
        seeds = ", ".join(str(row["seed"]) for row in entry.rows)
        minutes = means.pop("minutes") + (f", {entry.note}" if entry.note else "")
        score = "; ".join(f"{metric} {mean}" for metric, mean in means.items() if metric != "seed")
        number, _, source = entry.published.partition("; ")
        facts = [f"`{entry.facts['experiment']}`", entry.facts["parameters"], score, seeds, minutes]
        cells = [f"[{name}](#{name})", entry.what, *facts]
        lines.append([*cells, f"{number} ({source})" if source else "none"])
    return table([*columns, "published"], lines)


def details(name: str, entry: Entry) -> str:
    """Return an entry with its table, command, machine, versions and facts."""
    made_with = {key: value for key, value in entry.environment.items() if value}
    machine = listed({key: made_with.pop(key) for key in MACHINE if key in made_with})
    facts = {"machine": machine, "versions": listed(made_with), **entry.facts}
    facts |= {"note": entry.note} if entry.note else {}
    if entry.transcribed:
        facts["transcribed from"] = f"[{entry.transcribed}]({entry.transcribed})"
    columns = list(dict.fromkeys(column for row in entry.rows for column in row))
    cells = [[shown(row.get(column, "")) for column in columns] for row in entry.rows]
    lines = "\n".join(f"- {key}: {value}" for key, value in facts.items())
    heading = f"### {name}\n\n{entry.what[0].upper()}{entry.what[1:]}:"
    return f"{heading}\n\n```\n{entry.command}\n```\n\n{table(columns, cells)}\n\n{lines}"


def listed(facts: Object) -> str:
    """Return facts in one line."""
    return "; ".join(f"{name} {value}" for name, value in facts.items())


def shown(value: Any) -> str:
    """Return a cell: a number with separators, and two decimals if it is 1 or more."""
    if isinstance(value, str):
        return value
    if float(value).is_integer():
        return f"{value:,.0f}"
    return f"{value:,.2f}" if abs(value) >= 1 else f"{value:.3g}"


def define_flags() -> None:
    """Define the flags of the command."""
    flags.DEFINE_multi_string("add", [], "Run folder whose scores to add; repeat it for each seed.")
    flags.DEFINE_string("reference", None, "Name of evaluate's --reference whose scores to add.")
    flags.DEFINE_string("add_benchmark", None, "File with the output of a benchmark to add.")
    flags.DEFINE_string("add_table3", None, "Folder of experiments.table3 to add.")
    flags.DEFINE_string("name", None, "Name of the entry, and of its file.")
    flags.DEFINE_string("data", None, "Data of the training, or the work that was measured.")
    flags.DEFINE_string("published", "", "Published number and its source, as '41.02; Wu 2021'.")
    flags.DEFINE_string("note", "", "What a reader has to know, such as 'busy machine'.")
    flags.DEFINE_string("command", None, "Command of what is added, if no file has it.")
    meaning = "JSON file with what runs did not record of their versions, commit and machine."
    flags.DEFINE_string("environment", None, meaning)


if __name__ == "__main__":
    define_flags()
    app.run(command(main), flags_parser=parse_flags)
