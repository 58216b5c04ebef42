"""A GPU or TPU in ten minutes: whether its numbers are right, and how fast it trains and searches.

python -m benchmarks.accelerator                    base and big in bfloat16, on one device
python -m benchmarks.accelerator --only=core --only=base --batch_tokens=8000

Each part is another benchmark in a process of its own. If one fails, the table has a line with the
reason, and the others go on. The results are also written as JSON, with the card, its driver, the
versions and the commit. Without a GPU or TPU, the model `smoke` shows that it works. The exit
status is 1 if the part core failed.

core       layers, gradients and training by Adam against PyTorch's recorded arrays
base, big  training steps; on a GPU with fused attention
attention  training steps of base with plain attention, on a GPU
stacking   training steps of base with parameters of one shape apart; on a TPU in one array
decode     greedy search and a beam of 4, base
torch      training steps of base by PyTorch, if it is installed; on a GPU by torch.compile too
"""

import datetime
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from absl import flags

from benchmarks.measuring import (
    FLAGS,
    command_line,
    define_trials,
    read_header,
    read_table,
    run,
    table,
)
from jax_transformer.errors import InputError

PARTS = ["core", "base", "big", "attention", "stacking", "decode", "torch"]
define_trials()
flags.DEFINE_multi_enum("only", PARTS, PARTS, "The parts to run.")
flags.DEFINE_float("minutes", 10, "The time after which nothing runs any more.", lower_bound=0.1)
flags.DEFINE_integer(
    "batch_tokens",
    25_000,
    "Tokens in a batch on each side, on a GPU or TPU; lower it if memory runs out.",
    lower_bound=64,
)
flags.DEFINE_string("output", "accelerator.json", "The file for the results.")

ROOT = Path(__file__).parents[1]
PACKAGES = ("torch", "jax_cuda13_plugin", "jax_cuda12_plugin", "libtpu")
HEADER = f"""
from benchmarks.measuring import header
from jax_transformer.parallel import check_devices
check_devices()
print(header(*{PACKAGES}))"""
# The line of a log that says what happened; JAX writes further lines below it.
ERROR = re.compile(r"(error:|[\w.]*(Error|Exception)\b)")


@dataclass(frozen=True)
class Part:
    """A benchmark with its flags, and the words for a row of its table, {columns} in braces."""

    command: list[str]
    what: str
    result: str


@dataclass(frozen=True)
class Outcome:
    """The results of a part."""

    command: str = ""
    seconds: float = 0.0
    failure: str | None = None
    rows: Sequence[dict[str, str]] = ()  # those of the benchmark's own table
    log: str = ""  # the end of standard error, after a failure


def main() -> int:
    """Run the parts and print the table; return 1 if the part core failed."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # which ends the part, too
    end = time.monotonic() + 60 * FLAGS.minutes
    facts, platform = look()
    chosen = {name: part for name, part in parts(platform).items() if name in FLAGS.only}
    outcomes: dict[str, Outcome] = {}
    for name, part in chosen.items():
        write(facts, outcomes)  # in time to find that the file cannot be written
        # If a part hangs, half of the time is left for those that follow.
        seconds = (end - time.monotonic()) / (1 if name == [*chosen][-1] else 2)
        outcomes[name] = Outcome(failure=part) if isinstance(part, str) else take(part, seconds)
        print(f"{name:<12}{outcomes[name].seconds:.0f} s", flush=True)
    write(facts, outcomes)
    rows = [line for name, part in chosen.items() for line in lines(name, part, outcomes[name])]
    print(f"\n{table(['part', 'what', 'result'], rows)}\n\nall columns: {FLAGS.output}")
    return int("core" in outcomes and outcomes["core"].failure is not None)


def look() -> tuple[dict[str, Any], str]:
    """Print the header; return its facts, the driver and the date, and JAX's platform.

    A process of its own looks, because a TPU belongs to the first process that uses it. Raises
    InputError if it finds no device.
    """
    seen = finish([sys.executable, "-c", HEADER], timeout=60 * FLAGS.minutes)
    if seen.returncode:
        raise InputError(reason(seen))
    print(seen.stdout, end="", flush=True)
    found = read_header(seen.stdout)
    card, platform = re.findall(r"\d+ x (.+) \((\w+)\)$", found["devices"])[0]
    if platform == "cpu":
        print("model       smoke, because there is no GPU or TPU")
    facts = {"date": datetime.date.today().isoformat(), "card": card, "driver": driver()}
    facts["command"] = "".join(command_line())
    return {**facts, **found}, platform


def driver() -> str | None:
    """Return the version of NVIDIA's driver, if there is one."""
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    if not shutil.which(query[0]):
        return None
    done = finish(query, timeout=30)
    return None if done.returncode else done.stdout.partition("\n")[0] or None


def parts(platform: str) -> dict[str, Part | str]:
    """Return each part by its name, or why it is left out."""
    on_gpu, on_cpu = platform == "gpu", platform == "cpu"
    trials = f"--trials={FLAGS.trials}"
    base, big = (f"--model={name}" for name in (["smoke"] * 2 if on_cpu else ["base", "big"]))
    usual = [trials] if on_cpu else [trials, "--set=model.compute_dtype=bfloat16"]
    batch = usual if on_cpu else [*usual, f"--batch_tokens={FLAGS.batch_tokens}"]
    fused = ["--set=model.fused_attention=true"] if on_gpu else []
    attention = "fused attention" if on_gpu else "plain attention"

    def steps(what: str, *given: str) -> Part:
        result = (
            "{target tokens/s} target tokens/s, {ms/step} ms, "
            "MFU {of peak} of {peak GFLOP/s} GFLOP/s, {memory GB} GB"
        )
        return Part(["train_step", "--devices=1", *batch, *given], f"{{model}}, {what}", result)

    stacked, apart = ("stacked parameters", "--stacked"), ("parameters apart", "--nostacked")
    compare: Part | str = Part(
        ["vs_torch", "--steps=5", base, *batch, *fused, *(["--compile"] if on_gpu else [])],
        "{model}, {trainer}",
        "{target tokens/s} target tokens/s, {ms/step} ms, speed {speed}",
    )
    if find_spec("torch") is None:
        compare = "left out, because PyTorch is not installed"
    elif not (on_gpu or on_cpu):
        compare = "left out, because PyTorch does not use this device"
    return {
        "core": Part(
            ["numerical_core"],
            "{numbers}, {dtype}",
            "difference {difference}, {allowed} allowed: {passed}",
        ),
        "base": steps(attention, base, *fused),
        "big": steps(attention, big, *fused),
        "attention": steps("plain attention", base, "--set=model.fused_attention=false")
        if on_gpu
        else "left out, because fused attention needs an NVIDIA GPU",
        "stacking": steps(*(stacked if platform == "tpu" else apart), base, *fused),
        "decode": Part(
            ["decode", base, *usual, "--beam_size=1", "--beam_size=4", "--batch_size=256"],
            "{model}, beam {beam}",
            "{sentences/s} sentences/s, {output tokens/s} output tokens/s, {ms/batch} ms",
        ),
        "torch": compare,
    }


def take(part: Part, timeout: float) -> Outcome:
    """Run a part for at most `timeout` seconds."""
    command = ["python", "-m", f"benchmarks.{part.command[0]}", *part.command[1:]]
    start = time.monotonic()
    done = finish([sys.executable, *command[1:]], timeout)
    seconds = round(time.monotonic() - start, 1)
    log = done.stderr[-4000:] if done.returncode else ""
    failure = reason(done) if done.returncode else None
    return Outcome(" ".join(command), seconds, failure, read_table(done.stdout), log)


def finish(command: list[str], timeout: float) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, or kill it and what it started, such as torch.compile's workers."""
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=ROOT, start_new_session=True, **pipes) as process:
        late = ""
        try:
            output, log = process.communicate(timeout=timeout)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            output, log = process.communicate()
            late = f"\nerror: stopped after {max(timeout, 0):.0f} s, because of --minutes"
    return subprocess.CompletedProcess(command, process.returncode, output, log + late)


def reason(done: subprocess.CompletedProcess[str]) -> str:
    """Return the line of the log that says why a command failed."""
    found = [line for line in done.stderr.splitlines() if line.strip()]
    errors = [line for line in found if ERROR.match(line)]
    text = [f"exit status {done.returncode}", *found[-1:], *errors][-1].strip()
    return text.removeprefix("error: ").removeprefix(f"{InputError.__module__}.InputError: ")


def lines(name: str, part: Part | str, outcome: Outcome) -> list[list[str]]:
    """Return the lines of the table for a part."""
    if isinstance(part, str):
        return [[name, "", part]]
    found = [
        [name, *(text.format_map(row) for text in (part.what, part.result))] for row in outcome.rows
    ]
    return [*found, *([[name, "failed", outcome.failure]] if outcome.failure else [])]


def write(facts: dict[str, Any], outcomes: dict[str, Outcome]) -> None:
    """Write what is known so far, with numbers in place of the tables' text."""
    results = {name: asdict(outcome) for name, outcome in outcomes.items()}
    for result in results.values():
        result["rows"] = [
            {column: value(cell) for column, cell in row.items()} for row in result["rows"]
        ]
    text = json.dumps({**facts, "parts": results}, indent=1)
    Path(FLAGS.output).write_text(text + "\n", encoding="utf-8")


def value(cell: str) -> float | str:
    """Return the number in a cell, a percentage as a share of 1, or the text of another cell."""
    number = cell.replace(",", "").replace("%", "e-2")
    try:
        found = float(number)
    except ValueError:
        return cell
    return found if math.isfinite(found) else cell  # JSON has no other numbers


if __name__ == "__main__":
    run(main)
