"""The speed in lines of metrics is that of the steps alone, for steps that take a known time."""

import time
from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest
from commands import STEPS, metrics

from jax_transformer.config import override
from jax_transformer.parallel import Devices
from jax_transformer.runs.checkpoints import Checkpoints
from jax_transformer.runs.pipeline import prepare_run
from jax_transformer.runs.run_dir import RunFolder
from jax_transformer.runs.trainer import Trainer

PAUSE = 0.2  # seconds of a save, and of an evaluation
MORE = 24  # steps


def compute(number):
    """Some 20 ms on one core; the call returns before, as on other devices."""
    matrix = jnp.full((400, 400), number)
    return jax.lax.fori_loop(0, 10, lambda _, x: jnp.tanh(x @ x), matrix).mean()


def shortest_compute():
    """Seconds of the work alone."""
    work, times = jax.jit(compute), []
    for _ in range(5):
        start = time.perf_counter()
        jax.block_until_ready(work(jnp.float32(1)))
        times.append(time.perf_counter() - start)
    return min(times)


def slow_down(monkeypatch):
    """Have each step do some work, and each evaluation and save pause."""
    train_step = Devices.train_step

    def slow_train_step(devices, step):
        def slow_step(state, batch, *replica):
            state, found = step(state, batch, *replica)
            norm = found.gradient_norm
            return state, found._replace(gradient_norm=norm + 1e-9 * compute(norm))

        return train_step(devices, slow_step)

    def pause(*_, **__):
        time.sleep(PAUSE)

    monkeypatch.setattr(Devices, "train_step", slow_train_step)
    monkeypatch.setattr(Trainer, "_evaluate_dev", pause)
    monkeypatch.setattr(Checkpoints, "save", pause)


@pytest.mark.slow
def test_each_line_of_metrics_has_the_seconds_of_its_own_steps(run, monkeypatch, caplog):
    slow_down(monkeypatch)
    caplog.set_level("INFO", logger="jax_transformer")
    folder = RunFolder(run)
    resumed = folder.load_run()
    prepared = prepare_run(resumed, folder)
    often = "log_steps=5", "checkpoint_steps=8", "evaluate_steps=12", f"steps={STEPS + MORE}"
    changed = override(resumed.config, *(f"training.{setting}" for setting in often))
    before = metrics(run)[-1]["total_seconds"]
    start = time.perf_counter()
    Trainer(replace(resumed, config=changed), folder, prepared, Devices(1)).train()
    elapsed = time.perf_counter() - start
    assert "were 8 before" in caplog.text

    lines = [line for line in metrics(run) if line["step"] > STEPS]
    assert [line["step"] - STEPS for line in lines] == [5, 8, 10, 12, 15, 16, 20, 24]
    step = shortest_compute()
    for line in lines:
        assert line["step_seconds"] > step / 2
    # Two saves and an evaluation came before the last line.
    others = lines[-1]["total_seconds"] - before - sum(line["seconds"] for line in lines)
    assert others > 2.9 * PAUSE
    assert lines[-1]["total_seconds"] - before < elapsed
