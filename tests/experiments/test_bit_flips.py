"""Flip random bits of a run folder, then translate, evaluate and resume: no difference is silent.

The run is one that was killed after its last checkpoint but one. A flip must be harmless (all
results are the same) or detected: a command is refused, or writes a line that it does not write
without the flip. TRANSFORMER_TEST_FLIPS is the number of bits, 6 unless it is given.
"""

import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from commands import metrics, record, results, run_command, setting_flags, text_flags
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
UNUSUAL = ("error: ", "warning: ", "continuing ")  # beginnings of lines
COMMANDS = ("translate", "evaluate", "train")


@pytest.fixture(scope="module")
def killed(tmp_path_factory) -> Path:
    """A run folder as a kill after the last checkpoint but one leaves it."""
    folder = tmp_path_factory.mktemp("flips")
    write_letters(folder / "text", train=40)
    run = folder / "run"
    flags = ["--experiment=base", *text_flags(folder / "text"), *setting_flags(**SETTINGS)]
    run_command("train", f"--workdir={run}", *flags)
    run_command("evaluate", f"--workdir={run}")
    shutil.rmtree(run / "checkpoints" / str(LAST))
    return run


def outcome(run: Path, command: str) -> tuple[Any, set[str]]:
    """The results of a command, None if it is refused, and its lines about what is unusual."""
    done = run_command(command, f"--workdir={run}", stdin=b"a b c\nd e\n", fails=None)
    lines = {line.replace(str(run), "RUN") for line in done.stderr.splitlines()}
    found = {
        "translate": lambda: done.stdout,
        "evaluate": lambda: [entry["score"] for entry in results(run)[-6:]],
        "train": lambda: trained(run),
    }
    return found[command]() if done.code == 0 else None, {
        line for line in lines if line.startswith(UNUSUAL)
    }


def trained(run: Path) -> Any:
    """The last checkpoint, the average, and the scores of dev and of the end."""
    (path,) = (run / "averaged").glob("*/description/metadata")
    average = json.loads(path.read_text(encoding="utf-8"))["content"]["arrays"]
    dev = {name: value for name, value in metrics(run, "dev")[-1].items() if name != "seconds"}
    return record(run, LAST), average, dev, results(run)[-1]["score"]


@pytest.mark.release
def test_no_flipped_bit_changes_a_result_without_a_word(killed, tmp_path):
    choose = random.Random(3)
    files = sorted(path for path in killed.rglob("*") if path.is_file() and path.stat().st_size)
    choose.shuffle(files)
    expected = {}
    for command in COMMANDS:
        expected[command] = outcome(shutil.copytree(killed, tmp_path / command), command)
    for number in range(int(os.environ.get("TRANSFORMER_TEST_FLIPS", "6"))):
        command, path = COMMANDS[number % len(COMMANDS)], files[number % len(files)]
        copy = shutil.copytree(killed, tmp_path / "copy")
        flipped = copy / path.relative_to(killed)
        content = bytearray(flipped.read_bytes())
        content[choose.randrange(len(content))] ^= 1 << choose.randrange(8)
        flipped.write_bytes(content)
        found, lines = outcome(copy, command)
        wanted, usual = expected[command]
        assert found == wanted or lines - usual, (path, number, command)
        shutil.rmtree(copy)
