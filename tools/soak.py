"""Train the demo while things go wrong, and compare it bit for bit with an undisturbed run.

python -m tools.soak --minutes=60 --lines=1000000 --output=/tmp/soak

About every half minute, at random, training is killed (SIGKILL), stopped (SIGTERM), or its disk is
full for some seconds; then the same command starts again. All the time one process translates with
the folder, and one evaluates it. After the minutes, training goes on to its next checkpoint, and
another run takes the same number of steps undisturbed. At last a process translates many lines.

Every fault is printed, with exit status 1: a traceback, an exit status that is not the documented
one, a difference between the runs, or memory that grows. Needs Linux; without the right to mount a
file system of its own (tmpfs) the full disk is left out.
"""

import contextlib
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import jax
from absl import app, flags

import jax_transformer as jt
from benchmarks.measuring import header, table
from experiments.cli import command, parse_flags
from jax_transformer import demo
from jax_transformer.errors import InputError
from jax_transformer.runs.run_dir import saved_steps

MINUTES = flags.DEFINE_float("minutes", 60, "Minutes in which things go wrong.", lower_bound=0.1)
SECONDS = flags.DEFINE_float("seconds", 30, "Average seconds between disturbances.", lower_bound=1)
LINES = flags.DEFINE_integer("lines", 1_000_000, "Lines translated at the end.", lower_bound=1000)
OUTPUT = flags.DEFINE_string("output", "runs/soak", "A new folder for the runs and their logs.")
SEED = flags.DEFINE_integer("seed", 1, "Seed of the disturbances, and of the runs.")

CHECKPOINT_STEPS = 20
SETTINGS = [
    f"--set=training.checkpoint_steps={CHECKPOINT_STEPS}",
    "--set=training.keep_checkpoints=6",
    "--set=training.log_steps=1",
]
DISK_MEGABYTES = 300  # six checkpoints take a third of it
# Errors that a reader may print for a folder in which training has just begun, or a full disk.
EXPECTED_ERRORS = ("no checkpoint", "no such folder", "none in it", "found none", "space")
GROWTH_ALLOWED = 1.2  # there are single steps of 40 MiB; 100 bytes a line would be 95 MiB

counts: Counter[str] = Counter()
faults: list[str] = []


def main() -> int:
    """Do all of it, and print the tables."""
    output = Path(OUTPUT.value).absolute()
    if output.exists():
        raise InputError(f"--output={output}: expected a new folder, found one; name another")
    (output / "logs").mkdir(parents=True)
    with small_disk(output / "disk") as mounted:
        disturbed = output / "disk" / "disturbed"
        subprocess.run(experiment("prepare", *run_flags(disturbed)), check=True)
        with readers(disturbed):
            disturb(disturbed, mounted)
        steps = max(saved_steps(disturbed / "checkpoints"), default=0)
        steps = (steps // CHECKPOINT_STEPS + 1) * CHECKPOINT_STEPS
        for folder in (disturbed, output / "undisturbed"):
            finish(folder, steps)
        compare(disturbed, output / "undisturbed")
    memory = translate_lines(output / "undisturbed")
    print(header())
    if not mounted:
        print("full disk   left out: a file system cannot be mounted here")
    print(f"\n{table(['what', 'count'], [[what, f'{n:,}'] for what, n in counts.items()])}")
    print(f"\n{table(['lines translated', 'seconds', 'resident MiB'], memory)}\n")
    print("\n".join(f"fault: {fault}" for fault in faults) or "no faults")
    return bool(faults)


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[bool]:
    """Mount a small file system at `folder`; yield False if it is an ordinary folder instead."""
    folder.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={DISK_MEGABYTES}m", "tmpfs", str(folder)]
    mounted = subprocess.run(["mount", *options], capture_output=True).returncode == 0
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)


def experiment(name: str, *arguments: str) -> list[str]:
    """Return the command line of a command of experiments/."""
    return [sys.executable, "-m", f"experiments.{name}", *arguments]


def run_flags(folder: Path) -> list[str]:
    """Return the flags of both runs, without the number of steps."""
    return [f"--workdir={folder}", "--experiment=demo", f"--seed={SEED.value}", *SETTINGS]


def train(folder: Path, steps: int) -> tuple[subprocess.Popen, Path]:
    """Start training; return the process, and the file with its output."""
    counts["starts of training"] += 1
    log = Path(OUTPUT.value) / "logs" / f"train-{counts['starts of training']}"
    with log.open("w") as file:
        call = experiment("train", *run_flags(folder), f"--set=training.steps={steps}")
        return subprocess.Popen(call, stdout=file, stderr=subprocess.STDOUT), log


def disturb(folder: Path, mounted: bool) -> None:
    """Train, and let things go wrong, until the minutes are over."""
    chance, end = random.Random(SEED.value), time.monotonic() + 60 * MINUTES.value
    kinds = ["kill -9", "SIGTERM", *(["full disk"] if mounted else [])]
    statuses = {"kill -9": {-9}, "SIGTERM": {143, -15}, "full disk": {2}}
    while time.monotonic() < end:
        (process, log), happened = train(folder, 2**31 - 1), set()
        while process.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(SECONDS.value * chance.uniform(0, 2))
                break
            kind = chance.choice(kinds) if time.monotonic() < end else "SIGTERM"
            counts[kind] += 1
            happened.add(kind)
            if kind == "full disk":
                fill_disk(folder.parent, chance.uniform(1, SECONDS.value))
            else:
                process.send_signal(signal.SIGKILL if kind == "kill -9" else signal.SIGTERM)
                process.wait()
        counts[f"ended with status {process.returncode}"] += 1
        text = log.read_text()
        if process.returncode not in set().union(*(statuses[kind] for kind in happened)):
            faults.append(f"{log}: status {process.returncode} after {sorted(happened)}")
        if process.returncode == 2 and "space" not in text.splitlines()[-1]:
            faults.append(f"{log}: {text.splitlines()[-1]}")
        if "Traceback" in text:
            faults.append(f"{log}: a traceback")


def fill_disk(disk: Path, seconds: float) -> None:
    """Leave no space on the disk for some seconds."""
    path, block = disk / "filling", b"0" * 2**16
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(block):
            pass
    time.sleep(seconds)
    path.unlink()


@contextlib.contextmanager
def readers(folder: Path) -> Iterator[None]:
    """Translate with the folder and evaluate it, again and again, in two processes at a time."""
    done, lines = threading.Event(), "The old teacher opens the door.\n" * 20

    def read(name: str, *arguments: str) -> None:
        while not done.is_set():
            # At a lower priority; otherwise training would make little progress on few cores.
            call = ["nice", "-n", "9", *experiment(name, f"--workdir={folder}", *arguments)]
            ended = subprocess.run(call, input=lines, capture_output=True, text=True)
            last = "".join(ended.stderr.splitlines()[-1:])
            whole = name != "translate" or ended.stdout.count("\n") == 20
            if ended.returncode == 0 and whole:
                counts[f"{name}: good"] += 1
            elif ended.returncode == 2 and any(text in last for text in EXPECTED_ERRORS):
                counts[f"{name}: refused, no checkpoint yet or no space"] += 1
            else:
                faults.append(f"{name}: status {ended.returncode}: {last}")
            if "Traceback" in ended.stderr:
                faults.append(f"{name}: a traceback: {ended.stderr}")
            time.sleep(1)

    threads = [
        threading.Thread(target=read, args=("translate",)),
        threading.Thread(target=read, args=("evaluate", "--split=dev", "--checkpoint=last")),
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        done.set()
        for thread in threads:
            thread.join()


def finish(folder: Path, steps: int) -> None:
    """Train to the end, without a disturbance."""
    process, log = train(folder, steps)
    if process.wait():
        faults.append(f"{log}: status {process.returncode} without a disturbance")


def compare(disturbed: Path, undisturbed: Path) -> None:
    """Add a fault for each difference between the two runs."""
    ours, theirs = content(disturbed), content(undisturbed)
    counts["steps of either run"] = max(saved_steps(undisturbed / "checkpoints"))
    counts["compared: checkpoints"] = len(theirs) - 2  # and their average, and all losses
    for name in ours | theirs:
        if ours.get(name) != theirs.get(name):
            faults.append(f"{name} of {disturbed} is not that of {undisturbed}")


def content(folder: Path) -> dict[str, object]:
    """Return a run's checkpoints' checksums, averaged parameters and losses, by name."""
    lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    found: dict[str, object] = {
        "losses": [(line["step"], line["loss"]) for line in lines if line["split"] == "train"],
        "average": [leaf.tobytes() for leaf in jax.tree.leaves(jt.load(folder, "averaged").params)],
    }
    for path in (folder / "checkpoints").iterdir():
        saved = json.loads((path / "description" / "metadata").read_text())["content"]
        place = saved["position"]["epoch"], saved["position"]["index"]
        found[f"checkpoint {path.name}"] = place, saved["arrays"]  # their CRC-32
    return found


def translate_lines(folder: Path) -> list[list[str]]:
    """Stream distinct short lines through one process; return its memory after each tenth."""
    words = sorted({word for pair in demo.sentence_pairs("train") for word in pair[0].split()})
    lines = itertools.islice(map(" ".join, itertools.product(words, repeat=3)), LINES.value)
    short = ["--set=decoding.beam_size=1", "--set=decoding.max_extra_length=2"]
    call = experiment("translate", f"--workdir={folder}", *short)
    process = subprocess.Popen(call, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    stdin, stdout = process.stdin, process.stdout
    assert stdin is not None
    assert stdout is not None

    def feed() -> None:
        with contextlib.suppress(BrokenPipeError), stdin:
            stdin.writelines(f"{line}\n" for line in lines)

    threading.Thread(target=feed).start()
    start, rows, memory, number = time.monotonic(), [], [], 0
    for number, _ in enumerate(stdout, start=1):
        if number % (LINES.value // 10) == 0:
            pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
            memory.append(pages * os.sysconf("SC_PAGE_SIZE") / 2**20)
            rows.append([f"{number:,}", f"{time.monotonic() - start:,.0f}", f"{memory[-1]:,.0f}"])
            print("translated", *rows[-1], flush=True)
    if process.wait() or number != LINES.value:
        faults.append(f"translate: status {process.returncode} after {number:,} lines")
    warm = memory[:2][-1:]  # all shapes are compiled by then
    if memory and max(memory) > GROWTH_ALLOWED * warm[0]:
        faults.append(f"translate: memory grew from {warm[0]:,.0f} to {max(memory):,.0f} MiB")
    return rows


if __name__ == "__main__":
    app.run(command(main), flags_parser=parse_flags)
