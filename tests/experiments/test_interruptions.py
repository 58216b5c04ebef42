"""Nothing is lost: Ctrl-C, SIGTERM, kill -9, a second process."""

import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
from commands import (
    EVERY,
    STEPS,
    TIMEOUT,
    flat_params,
    metrics,
    record,
    run_command,
    started,
    wait_for,
)
from letters import write_letters

from jax_transformer.data.manifest import NAME


def last_step(workdir):
    return max((line["step"] for line in metrics(workdir)), default=0)


def checkpoints(workdir):
    names = [path.name for path in (workdir / "checkpoints").iterdir()]
    return sorted(int(name) for name in names if name.isdecimal())


def assert_as_without_interruption(workdir, trained):
    assert record(workdir, STEPS) == record(trained, STEPS)
    assert checkpoints(workdir) == checkpoints(trained)
    for step in checkpoints(trained):
        assert record(workdir, step) == record(trained, step)
    (steps, averaged), (expected, params) = (
        flat_params(folder, "averaged") for folder in (workdir, trained)
    )
    assert steps == expected
    assert averaged.tobytes() == params.tobytes()
    ours, theirs = metrics(workdir), metrics(trained)
    assert [line["step"] for line in ours] == list(range(1, STEPS + 1))
    for line, other in zip(ours, theirs, strict=True):
        assert (line["loss"], line["epoch"]) == (other["loss"], other["epoch"])
    assert [line["step"] for line in metrics(workdir, "dev")] == [STEPS // 2, STEPS]


@pytest.mark.slow
def test_kill_9_sigterm_and_ctrl_c_change_nothing_and_a_stop_says_how_to_go_on(
    flags, trained, tmp_path
):
    workdir = tmp_path / "run"
    flags = [f"--workdir={workdir}", *flags]
    # Before any checkpoint, after the first ones, and between those that will be averaged.
    for kind, code, place in (
        (signal.SIGKILL, -signal.SIGKILL, EVERY // 2),
        (signal.SIGKILL, -signal.SIGKILL, 2 * EVERY + 3),
        (signal.SIGTERM, 143, STEPS - 3 * EVERY + 2),
        (signal.SIGINT, 130, STEPS - EVERY + 2),
    ):
        with started("train", *flags) as process:
            wait_for(lambda place=place: last_step(workdir) >= place, process)
            process.send_signal(kind)
            out, err = process.communicate()
        assert process.returncode == code, err
        assert "Traceback" not in err
        if kind == signal.SIGKILL:
            # What a kill in the middle of a line leaves.
            with (workdir / "metrics.jsonl").open("a", encoding="utf-8") as file:
                file.write('{"step": 2')
        else:
            assert f"experiments.train --workdir {workdir}" in out
            assert checkpoints(workdir)[-1] == last_step(workdir)
            assert checkpoints(workdir)[-1] % EVERY
            flags = flags[:1]  # as the message says: the folder is enough
    saved = checkpoints(workdir)[-1]
    assert f"from step {saved} to {STEPS}" in run_command("train", *flags).stderr
    assert_as_without_interruption(workdir, trained)


@pytest.mark.slow
@pytest.mark.release
def test_a_terminal_that_is_closed_loses_nothing(run):
    master, terminal = os.openpty()
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), terminal)
    own_terminal = {"preexec_fn": lambda: os.login_tty(os.dup(0))}
    long = "--set=training.steps=100000"
    with started("train", f"--workdir={run}", long, **streams, **own_terminal) as process:
        os.close(terminal)
        wait_for(lambda: last_step(run) > STEPS + 3, process)
        os.close(master)
        assert process.wait(TIMEOUT) == 128 + signal.SIGHUP
    assert checkpoints(run)[-1] == last_step(run)


@pytest.mark.slow
@pytest.mark.release
def test_checkpoints_that_are_removed_while_they_are_saved_end_in_one_line(flags, tmp_path):
    workdir = tmp_path / "run"
    often = [*flags, "--set=training.steps=100000", "--set=training.checkpoint_steps=1"]
    with started(
        "train", f"--workdir={workdir}", *often, stderr=(tmp_path / "err").open("w")
    ) as process:
        wait_for(lambda: last_step(workdir) > 1, process)
        while process.poll() is None:
            shutil.rmtree(workdir / "checkpoints", ignore_errors=True)
            time.sleep(0.05)
    assert process.returncode == 2
    lines = (tmp_path / "err").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if line.startswith("error: ")] == lines[-1:]
    assert f"checkpoint {workdir}/checkpoints/" in lines[-1]
    assert not any("Traceback" in line for line in lines)


def test_the_other_failed_tasks_of_a_save_are_not_reported():
    # Whether asyncio reports them before the process ends is chance, so they are made here.
    program = """
import asyncio, gc, logging
from experiments.log_lines import show_log_lines

async def save():
    raise ValueError("cannot be written")

async def save_all():
    task = asyncio.create_task(save())
    await asyncio.sleep(0)

show_log_lines()
asyncio.run(save_all())
gc.collect()
logging.getLogger("asyncio").error("a line")
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.returncode == 0
    assert result.stderr.splitlines()[-1] == "error: a line"
    assert "Traceback" not in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "code"), [(signal.SIGTERM, -signal.SIGTERM), (signal.SIGINT, 130)]
)
@pytest.mark.release
def test_a_signal_during_preparation_leaves_no_half_store(flags, tmp_path, kind, code):
    write_letters(tmp_path / "text", train=50_000)
    workdir = tmp_path / "run"
    long = [f"--train_source={tmp_path}/text/train.en", f"--train_target={tmp_path}/text/train.de"]
    long += ["--set=training.steps=100000"]  # it does not end by itself if a signal is lost
    sample = "--set=data.vocabulary_sample=300"
    with started("train", f"--workdir={workdir}", *flags, *long, sample) as process:
        wait_for((workdir / "tokens" / "train.building").exists, process)
        process.send_signal(kind)
        try:
            process.communicate(timeout=5)
        except subprocess.TimeoutExpired:  # Python may lose a Ctrl-C inside a destructor: again
            process.send_signal(kind)
            process.communicate()
    assert process.returncode == code
    there = {path.name for path in workdir.iterdir()}
    assert there == {"config.json", "lock", "vocabulary.model", NAME, "text", "tokens"}
    assert [path.name for path in (workdir / "tokens").iterdir()] == ["train.building"]


def test_an_evaluation_that_a_stop_came_before_is_made_up_for(trained, tmp_path):
    workdir = tmp_path / "run"
    shutil.copytree(trained, workdir)
    lines = (workdir / "metrics.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (workdir / "metrics.jsonl").write_text("".join(lines[:-1]), encoding="utf-8")
    assert [line["step"] for line in metrics(workdir, "dev")] == [STEPS // 2]
    run_command("train", f"--workdir={workdir}")
    ours, theirs = metrics(workdir, "dev"), metrics(trained, "dev")
    assert [(line["step"], line["nll"]) for line in ours] == [
        (line["step"], line["nll"]) for line in theirs
    ]
