"""Several processes train one model: as one process would, and through signals and kills."""

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import types

import numpy as np
import pytest
from commands import (
    TIMEOUT,
    flat_params,
    metrics,
    own_lines,
    process_arguments,
    record,
    results,
    run_command,
    setting_flags,
    text_flags,
)
from refusals import refusal

from jax_transformer import runtime

STEPS, EARLY, EVERY = 8, 4, 2  # a step of two processes on two cores takes long
XLA_FLAGS = "--xla_backend_optimization_level=0 --xla_force_host_platform_device_count=4"
SETTINGS = {
    "training__steps": STEPS,
    "training__evaluate_steps": STEPS,
    "training__checkpoint_steps": EVERY,
    "training__average_last": 1,
    "decoding__beam_size": 1,
    "model__dropout_rate": 0.1,
}
# what Gloo's threads print on stdout at the same time, in pieces that may come in any order
GLOO = r"\[Gloo\] Rank|is connected to|peer ranks\.|Expected number of connected peer ranks is :|\d"


def slurm_task(index, port):
    """What srun tells a task of one node."""
    names = {"JOB_ID": 1, "STEP_NODELIST": "localhost", "STEP_NUM_NODES": 1}
    names |= {"NTASKS": 2, "PROCID": index, "LOCALID": index, "STEP_ID": 0}
    task = {f"SLURM_{name}": str(value) for name, value in names.items()}
    return task | {"JAX_COORDINATOR_PORT": str(port)}


@contextlib.contextmanager
def hosts(*arguments, by_slurm=False, disks=None):
    """Two processes of one run with four devices each; killed at the end of the block.

    disks: a folder with a cache for each of them, of what is in a bucket.
    """
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    processes = []
    try:
        for index in range(2):
            place = ["--distributed=auto"]
            if not by_slurm:
                place = [f"--coordinator_address=localhost:{port}", "--num_processes=2"]
                place += [f"--process_id={index}"]
            options = process_arguments("train", *arguments, *place)
            options["env"]["XLA_FLAGS"] = XLA_FLAGS
            if disks:
                options["env"]["XDG_CACHE_HOME"] = str(disks / str(index))
            if by_slurm:
                options["env"] |= slurm_task(index, port)
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
            processes.append(subprocess.Popen(**options, **pipes))
        yield processes
    finally:
        for process in processes:
            process.kill()


def ended(processes, codes):
    """(stdout, stderr) of each, once they have ended with these exit codes."""
    streams = [process.communicate(timeout=TIMEOUT) for process in processes]
    assert [process.returncode for process in processes] == codes, streams
    return streams


def wait_for_step(workdir, step, processes):
    end = time.monotonic() + TIMEOUT
    while max((line["step"] for line in metrics(workdir)), default=0) < step:
        assert all(process.poll() is None for process in processes), ended(processes, [0])
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def checkpoints(workdir):
    return sorted(int(path.name) for path in (workdir / "checkpoints").iterdir())


@pytest.fixture(scope="module")
def flags(text):
    second = [f"--train_source={text}/dev.en", f"--train_target={text}/dev.de"]
    settings = setting_flags(**SETTINGS, data__train_weights="3,1")
    return ["--experiment=base", "--seed=7", *text_flags(text), *second, *settings]


@pytest.fixture(scope="module")
def shared(made_once, flags):
    """A run of 2 processes with 4 devices each; copy it before changing it."""

    def train(folder):
        with hosts(f"--workdir={folder / 'run'}", *flags) as processes:
            streams = ended(processes, [0, 0])
        assert "8 x cpu (cpu), 2 processes" in streams[0][1]
        assert "BLEU" in streams[0][0]
        assert re.sub(GLOO, "", streams[1][0]).strip() == ""
        assert own_lines(streams[1][1]) == []

    return made_once("two hosts", train) / "run"


@pytest.fixture(scope="module")
def one(made_once, flags):
    """The same run in one process with eight devices."""

    def train(folder):
        run_command("train", f"--workdir={folder / 'run'}", *flags)

    return made_once("one host", train) / "run"


def assert_trained_alike(workdir, other, step):
    """Up to this step, but for the order in which devices are summed."""
    params, expected = flat_params(workdir, step)[1], flat_params(other, step)[1]
    np.testing.assert_allclose(params, expected, rtol=0, atol=1e-6)
    for line, wanted in zip(metrics(workdir)[:step], metrics(other)[:step], strict=True):
        assert line["step"] == wanted["step"]
        assert line["loss"] == pytest.approx(wanted["loss"], rel=1e-5)


TWO = """
import sys
from jax_transformer import parallel, runtime
parallel.compiler_options = lambda *_: {"xla_cpu_enable_fast_math": False}
runtime.start_processes(sys.argv[1], 2, int(sys.argv[2]))
print(parallel.Devices().count)
runtime.end_process(0)
"""


@pytest.mark.slow
def test_options_for_the_compiler_do_not_prevent_several_hosts():
    """A GPU gets some for float32."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    options = process_arguments("train")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    processes = []
    for index in range(2):
        options["args"] = [sys.executable, "-c", TWO, address, str(index)]
        processes.append(subprocess.Popen(**options, **pipes))
    ended(processes, [0, 0])


def test_float32_on_several_hosts_with_cuda_does_without_tritons_products(monkeypatch):
    plugins = [types.SimpleNamespace(name="tpu")]
    monkeypatch.setattr(runtime, "entry_points", lambda group: plugins)
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    monkeypatch.setenv("XLA_FLAGS", "--a")
    runtime.without_triton()
    assert os.environ["XLA_FLAGS"] == "--a"
    plugins.append(types.SimpleNamespace(name="xla_cuda13"))
    runtime.without_triton()
    assert os.environ["XLA_FLAGS"] == "--a --xla_gpu_enable_triton_gemm=false"
    monkeypatch.setenv("XLA_FLAGS", "/home/me/xla.flags")
    assert "XLA_FLAGS=/home/me/xla.flags: expected flags" in refusal(runtime.without_triton)


@pytest.mark.slow
def test_two_hosts_of_four_devices_train_as_one_of_eight(shared, one):
    """With dropout: each of the eight devices has the same key everywhere."""
    assert_trained_alike(shared, one, EARLY)
    [dev], [expected] = metrics(shared, "dev"), metrics(one, "dev")
    assert dev["nll"] == pytest.approx(expected["nll"], rel=1e-5)
    assert checkpoints(shared) == checkpoints(one) == [EVERY, EARLY, EARLY + EVERY, STEPS]
    assert [entry["sentences"] for entry in results(shared)] == [6]


@pytest.mark.release
def test_a_run_of_two_hosts_goes_on_with_one(shared, tmp_path):
    workdir = shutil.copytree(shared, tmp_path / "run")
    for step in checkpoints(workdir)[2:]:
        shutil.rmtree(workdir / "checkpoints" / str(step))
    stderr = run_command("train", f"--workdir={workdir}").stderr
    assert f"from step {EARLY} to {STEPS}" in stderr
    assert "cut otherwise" not in stderr
    assert_trained_alike(workdir, shared, EARLY + EVERY)


@pytest.mark.release
def test_two_hosts_continue_from_a_model_and_agree_on_the_best_step(shared, flags, tmp_path):
    run = tmp_path / "run"
    # A rate that grows until it ruins the model.
    changes = {"steps": 10 * STEPS, "learning_rate": 50, "keep_best": "loss", "stop_after": 1}
    changes |= {"evaluate_steps": EVERY, "evaluate_average": "true", "average_last": 2}
    settings = [f"--set=training.{name}={value}" for name, value in changes.items()]
    with hosts(f"--workdir={run}", f"--init_from={shared}", *flags, *settings) as processes:
        streams = ended(processes, [0, 0])
    start, *dev = metrics(run, "dev")
    assert start["nll"] == pytest.approx(metrics(shared, "dev")[-1]["nll"])
    losses = {line["step"]: line["loss"] for line in dev}
    best = min(losses, key=lambda step: losses[step])
    assert [*losses] == [*range(EVERY, best + 2 * EVERY, EVERY)]  # one evaluation after the best
    assert f"at step {best}; training ends" in streams[0][1]
    assert flat_params(run, "averaged")[0] == [step for step in (best - EVERY, best) if step]
    assert flat_params(run, "best")[0] == [best]


@pytest.mark.release
def test_kill_9_or_sigterm_at_one_process_ends_both_and_a_restart_changes_nothing(
    shared, flags, tmp_path
):
    workdir = tmp_path / "run"
    with hosts(f"--workdir={workdir}", "--heartbeat_seconds=5", *flags) as processes:
        wait_for_step(workdir, EVERY + 1, processes)
        processes[1].kill()
        start = time.monotonic()
        ended(processes, [-signal.SIGABRT, -signal.SIGKILL])  # JAX aborts the other
        assert time.monotonic() - start < 60
    # Long before the end, for the hosts agree on a step to stop after.
    with hosts(f"--workdir={workdir}", "--set=training.steps=5000") as processes:
        wait_for_step(workdir, STEPS, processes)
        processes[1].send_signal(signal.SIGTERM)
        streams = ended(processes, [143] * 2)
    assert f"experiments.train --workdir {workdir}" in streams[0][0]
    assert checkpoints(workdir)[-1] == metrics(workdir)[-1]["step"] < 5000
    losses, expected = ([line["loss"] for line in metrics(run)] for run in (workdir, shared))
    assert losses[:STEPS] == expected
    assert record(workdir, STEPS) == record(shared, STEPS)


@pytest.mark.release
def test_a_failure_at_process_0_before_training_ends_the_other_in_one_line(flags, tmp_path):
    (tmp_path / "empty").write_text("", encoding="utf-8")
    empty = [f"--train_{side}={tmp_path / 'empty'}" for side in ("source", "target")]
    command = [f"--workdir={tmp_path / 'run'}", *flags, *empty, "--set=data.train_weights="]
    with hosts(*command, by_slurm=True) as processes:
        processes[1].wait(TIMEOUT)
        first = ""  # a launcher may kill it now, so its line is there; if it ended, JAX might abort
        while "\nerror: " not in first:  # the other before
            assert processes[0].poll() is None
            first += os.read(processes[0].stderr.fileno(), 10_000).decode()
        assert processes[0].poll() is None
        streams = ended(processes, [2, 2])
    last = [stderr.splitlines()[-1] for stderr in (first, streams[1][1])]
    assert last[0].startswith("error: ")
    assert str(tmp_path / "empty") in last[0]
    assert last[1] == "error: process 1 ends, because another process has failed; see its log"
