"""Flip one bit of a run folder, then translate, evaluate and resume: is a difference ever silent?

PYTHONPATH=.:tests python tests/experiments/bit_flips.py 300     # prints a table

The run is one that was killed after its last checkpoint but one. A flip is `detected` where a
command is refused, or goes on with a line that it does not write without the flip; `harmless` where
all results are the same and no line is new; `silent` where a result differs and no line is new.
"""

import json
import random
import shutil
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from commands import Done, metrics, record, results, run_command, setting_flags, text_flags
from letters import write_letters

LAST, EVERY = 80, 20
SETTINGS = {
    "training__steps": LAST,
    "training__checkpoint_steps": EVERY,
    "training__evaluate_steps": EVERY,
    "training__average_last": 2,
    "training__keep_checkpoints": 3,
    "training__log_steps": 10,
}
TOLD = ("error: ", "warning: ", "continuing ")  # beginnings of lines about what is unusual
LINES = b"a b c\nd e\n"
COMMANDS = ("translate", "evaluate", "train")


class Flip(NamedTuple):
    """One bit of one file."""

    path: Path  # in the run folder
    byte: int
    bit: int

    def apply(self, folder: Path) -> None:
        """To the file of this folder."""
        content = bytearray((folder / self.path).read_bytes())
        content[self.byte] ^= 1 << self.bit
        (folder / self.path).write_bytes(content)

    @property
    def kind(self) -> str:
        """Of the file: its name, or for one of a folder with many the name of the folder."""
        top = self.path.parts[0]
        return top if len(self.path.parts) == 1 else f"{top}/"


class Outcome(NamedTuple):
    """Results, and lines that a user sees beside them."""

    results: dict[str, Any]
    lines: frozenset[str]


def make_run(folder: Path) -> Path:
    """A run folder as a kill after the last checkpoint but one leaves it."""
    write_letters(folder / "text", train=40)
    run = folder / "run"
    flags = ["--experiment=base", *text_flags(folder / "text"), *setting_flags(**SETTINGS)]
    run_command("train", f"--workdir={run}", *flags)
    run_command("evaluate", f"--workdir={run}")
    shutil.rmtree(run / "checkpoints" / str(LAST))
    return run


def random_flips(run: Path, count: int, seed: int) -> list[Flip]:
    """As many of every file as of any other, or one more; bytes and bits uniform in each."""
    choose = random.Random(seed)
    files = sorted(path for path in run.rglob("*") if path.is_file() and path.stat().st_size)
    choose.shuffle(files)
    chosen = [files[i % len(files)] for i in range(count)]
    return [
        Flip(path.relative_to(run), choose.randrange(path.stat().st_size), choose.randrange(8))
        for path in chosen
    ]


def outcome(run: Path, commands: Sequence[str] = COMMANDS) -> Outcome:
    """What these commands do in a folder, one after another."""
    found: dict[str, Any] = {}
    lines: set[str] = set()
    for command in commands:
        done = run_command(command, f"--workdir={run}", stdin=LINES, fails=None)
        told = [line.replace(str(run), "RUN") for line in done.stderr.splitlines()]
        lines.update(line for line in told if line.startswith(TOLD))
        if done.code == 0:
            found[command] = RESULTS[command](run, done)
    return Outcome(found, frozenset(lines))


def training_results(run: Path) -> dict[str, Any]:
    """Of the last checkpoint, the average, the dev text and the final score."""
    dev = metrics(run, "dev")[-1]
    return {
        "checkpoint": record(run, LAST),
        "average": average_arrays(run),
        "dev": {name: value for name, value in dev.items() if name != "seconds"},
        "score": results(run)[-1]["score"],
    }


def evaluation_results(run: Path) -> dict[str, float]:
    """Every score of the last evaluation."""
    return {entry["metric"]: entry["score"] for entry in results(run)[-8:]}


def average_arrays(run: Path) -> Any:
    """The checksums of the averaged arrays."""
    (path,) = (run / "averaged").glob("*/description/metadata")
    return json.loads(path.read_text(encoding="utf-8"))["content"]["arrays"]


RESULTS: dict[str, Callable[[Path, Done], Any]] = {
    "translate": lambda run, done: done.stdout,
    "evaluate": lambda run, done: evaluation_results(run),
    "train": lambda run, done: training_results(run),
}


def trial(
    run: Path, place: Path, flip: Flip, expected: Outcome, commands: Sequence[str] = COMMANDS
) -> tuple[str, str]:
    """(harmless, detected, silent or traceback; why) of a flip in a copy of the run at `place`."""
    copy = shutil.copytree(run, place)
    try:
        flip.apply(copy)
        found = outcome(copy, commands)
    except Exception:
        return "traceback", traceback.format_exc()
    finally:
        shutil.rmtree(place, ignore_errors=True)
    new = found.lines - expected.lines
    differing = [name for name in commands if found.results.get(name) != expected.results[name]]
    if new:
        return "detected", f"{sorted(new)[0]}; other or missing: {differing}"
    return ("silent" if differing else "harmless"), str(differing)


def main() -> None:
    """Print what became of each flip, and a table of the kinds of files."""
    count = int(sys.argv[1])
    table: Counter[tuple[str, str]] = Counter()
    with tempfile.TemporaryDirectory() as name:
        run = make_run(Path(name))
        expected = outcome(shutil.copytree(run, Path(name) / "sound"))
        for number, flip in enumerate(random_flips(run, count, seed=1), start=1):
            result, why = trial(run, Path(name) / "copy", flip, expected)
            table[flip.kind, result] += 1
            print(number, flip.path, flip.byte, flip.bit, result, why, flush=True)
    results = ("detected", "harmless", "silent", "traceback")
    print(f"| file | {' | '.join(results)} |\n|---|---|---|---|---|")
    for kind in sorted({kind for kind, _ in table}):
        print(f"| `{kind}` | {' | '.join(str(table[kind, result]) for result in results)} |")


if __name__ == "__main__":
    main()
