"""Nothing is lost by SIGTERM or kill -9, in whatever way rows of training are made."""

import json
import os
import re
import shutil
import signal

import pytest
from commands import (
    EVERY,
    STEPS,
    TIMEOUT,
    flat_params,
    metrics,
    record,
    run_command,
    setting_flags,
    started,
    text_flags,
    wait_for,
)

from jax_transformer.data import resampling


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
def test_kill_9_and_sigterm_change_nothing_and_a_stop_says_how_to_go_on(flags, trained, tmp_path):
    workdir = tmp_path / "run"
    flags = [f"--workdir={workdir}", *flags]
    # After the first checkpoints, and between those that will be averaged.
    for kind, code, place in (
        (signal.SIGKILL, -signal.SIGKILL, 2 * EVERY + 3),
        (signal.SIGTERM, 143, STEPS - 2 * EVERY + 2),
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
            assert checkpoints(workdir)[-1] == last_step(workdir) < STEPS
            flags = flags[:1]  # as the message says: the folder is enough
    saved = checkpoints(workdir)[-1]
    assert f"from step {saved} to {STEPS}" in run_command("train", *flags).stderr
    assert_as_without_interruption(workdir, trained)
    starts = (workdir / "starts.jsonl").read_text(encoding="utf-8").splitlines()
    first, killed, stopped = (json.loads(line)["step"] for line in starts)
    assert (first, killed % EVERY, stopped) == (0, 0, saved)


@pytest.mark.release
def test_a_terminal_that_is_closed_and_ctrl_c_lose_nothing(run):
    master, terminal = os.openpty()
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), terminal)
    own_terminal = {"preexec_fn": lambda: os.login_tty(os.dup(0))}
    long = "--set=training.steps=100000"
    with started("train", f"--workdir={run}", long, **streams, **own_terminal) as process:
        os.close(terminal)
        wait_for(lambda: last_step(run) > STEPS + 3, process)
        os.close(master)
        assert process.wait(TIMEOUT) == 128 + signal.SIGHUP
    stopped = checkpoints(run)[-1]
    assert stopped == last_step(run)
    with started("train", f"--workdir={run}", long) as process:
        wait_for(lambda: last_step(run) > stopped + 3, process)
        process.send_signal(signal.SIGINT)
        process.communicate()
    assert process.returncode == 130
    assert stopped < checkpoints(run)[-1] == last_step(run)


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


FEW = {"training__steps": 24, "training__checkpoint_steps": 1, "training__keep_checkpoints": 24}
FEW |= {"training__evaluate_steps": 24, "decoding__beam_size": 1}


@pytest.mark.release
def test_a_run_goes_on_in_the_middle_of_an_epoch_with_batches_cut_otherwise(trained, tmp_path):
    workdir = tmp_path / "run"
    shutil.copytree(trained, workdir)
    changes = f"--set=training.steps={STEPS + 3}", "--set=training.accumulate=2"
    done = run_command("train", f"--workdir={workdir}", *changes)
    assert "continuing  with" in done.stderr
    assert "training.accumulate=2" in done.stderr
    lines = metrics(workdir)
    assert [line["step"] for line in lines[-4:]] == [*range(STEPS, STEPS + 4)]
    assert lines[-1]["loss"] < 2 * lines[STEPS - 1]["loss"]


@pytest.mark.release
def test_checkpoints_are_saved_by_the_clock(text, tmp_path):
    settings = setting_flags(**FEW | {"training__checkpoint_minutes": 1e-9})
    settings += ["--set=training.checkpoint_steps=1000"]
    run_command("train", "--experiment=base", *text_flags(text), *settings, f"--workdir={tmp_path}")
    assert checkpoints(tmp_path) == [*range(1, FEW["training__steps"] + 1)]


def assert_a_kill_changes_nothing(whole, step, run):
    """Train on as if `whole` was killed after this step."""
    shutil.copytree(whole, run)
    for later in checkpoints(run):
        if later > step:
            shutil.rmtree(run / "checkpoints" / str(later))
    shutil.rmtree(run / "averaged")
    assert f"from step {step} to" in run_command("train", f"--workdir={run}").stderr
    steps = checkpoints(whole)[-1]
    assert record(run, steps) == record(whole, steps)
    for ours, theirs in zip(metrics(run), metrics(whole), strict=True):
        assert (ours["loss"], ours["epoch"]) == (theirs["loss"], theirs["epoch"])


@pytest.mark.release
def test_training_on_packed_rows_goes_on_with_the_same_numbers(text, tmp_path):
    settings = setting_flags(
        **FEW, training__batch_tokens=128, data__packing="true", data__buckets=4
    )
    command = ["train", "--experiment=base", "--seed=7", *text_flags(text), *settings]
    whole = tmp_path / "whole"
    stderr = run_command(*command, f"--workdir={whole}").stderr
    ((pairs, rows),) = re.findall(r"packing     (\d+) pairs in (\d+) rows", stderr)
    assert int(pairs) == 120
    assert int(rows) < 60
    (padding,) = re.findall(r"padding     ([\d.]+)% of the tokens computed", stderr)
    epoch = [line for line in metrics(whole) if line["epoch"] == 0]
    real = sum(line["tokens_per_second"] * line["step_seconds"] for line in epoch)
    computed = sum(line["tokens_per_second_with_padding"] * line["step_seconds"] for line in epoch)
    assert 1 - real / computed == pytest.approx(float(padding) / 100, abs=0.005)
    assert_a_kill_changes_nothing(whole, 13, tmp_path / "run")


@pytest.mark.release
def test_training_on_text_that_is_cut_anew_goes_on_in_a_part_and_at_its_end(
    text, tmp_path, monkeypatch
):
    monkeypatch.setattr(resampling, "PART", 43)  # three parts an epoch
    steps, whole = 24, tmp_path / "whole"
    second = [f"--train_source={text}/dev.en", f"--train_target={text}/dev.de"]
    settings = setting_flags(
        **FEW, data__subword_dropout=0.3, data__max_length=16, data__train_weights="1,1"
    )
    command = ["train", "--experiment=base", "--seed=7", *text_flags(text), *second, *settings]
    logged = run_command(*command, f"--workdir={whole}").stderr
    assert "resegment   in 3 parts in each epoch, into about " in logged
    numbers = {step: record(whole, step)["position"]["epoch"] for step in range(1, steps + 1)}
    lines = metrics(whole)
    assert [line["epoch"] for line in lines] == [number // 3 for number in numbers.values()]
    assert numbers[steps] >= 3  # in the second epoch
    assert {line["compilations"] > 0 for line in lines[1:]} == {False}
    last = next(step for step in range(2, steps) if numbers[step] > numbers[step - 1])
    middle = next(step for step in range(last + 1, steps) if numbers[step] == numbers[step - 1])
    for step in (last, middle):
        assert_a_kill_changes_nothing(whole, step, tmp_path / f"from {step}")
