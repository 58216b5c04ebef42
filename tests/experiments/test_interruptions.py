"""Nothing is lost: Ctrl-C, SIGTERM, kill -9, a second process."""

import os
import shutil
import signal
import subprocess
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
def test_after_kill_9_at_two_places_the_same_command_ends_bit_identical(flags, trained, tmp_path):
    command = ["train", f"--workdir={tmp_path / 'run'}", *flags]
    for place in (EVERY // 2, STEPS // 2 + 3):
        with started(*command) as process:
            wait_for(lambda place=place: last_step(tmp_path / "run") >= place, process)
            process.kill()
            process.communicate()
        assert process.returncode == -signal.SIGKILL
    saved = checkpoints(tmp_path / "run")
    assert saved
    assert saved[-1] < STEPS
    # What a kill in the middle of a line leaves.
    with (tmp_path / "run" / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"step": 2')
    done = run_command(*command)
    assert f"from step {saved[-1]} to {STEPS}" in done.stderr
    assert_as_without_interruption(tmp_path / "run", trained)


@pytest.mark.slow
def test_sigterm_and_ctrl_c_save_say_how_to_go_on_and_change_nothing(flags, trained, tmp_path):
    workdir = tmp_path / "run"
    flags = [f"--workdir={workdir}", *flags]
    # Between the checkpoints that will be averaged.
    places = (STEPS - 3 * EVERY + 2, STEPS - EVERY + 2)
    for kind, code, place in zip((signal.SIGTERM, signal.SIGINT), (143, 130), places, strict=True):
        with started("train", *flags) as process:
            wait_for(lambda place=place: last_step(workdir) >= place, process)
            process.send_signal(kind)
            out, err = process.communicate()
        assert process.returncode == code, err
        assert "Traceback" not in err
        assert f"experiments.train --workdir {workdir}" in out
        assert checkpoints(workdir)[-1] == last_step(workdir)
        assert checkpoints(workdir)[-1] % EVERY
        flags = flags[:1]  # as the message says: the folder is enough
    run_command("train", *flags)
    assert_as_without_interruption(workdir, trained)


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "code"), [(signal.SIGTERM, -signal.SIGTERM), (signal.SIGINT, 130)]
)
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
