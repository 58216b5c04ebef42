"""The beginning and the end of a run of several processes, without training."""

import signal
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from letters import write_letters
from refusals import refusal

from jax_transformer.config import Config
from jax_transformer.parallel import Devices
from jax_transformer.runs import pipeline
from jax_transformer.runs.checkpoints import Checkpoint, Checkpoints
from jax_transformer.runs.request import requested_run
from jax_transformer.runs.run_dir import Run, RunFolder
from jax_transformer.runs.trainer import Trainer


def test_the_other_processes_wait_until_the_last_checkpoint_is_in_the_bucket(tmp_path, monkeypatch):
    """JAX ends all of them 20 seconds after the first one has left."""
    done = []

    @contextmanager
    def written(_):
        yield
        done.append("copied")

    class Stopped:
        def __init__(self, *_):
            self.describe = list

        def train(self, *_, **__):
            return signal.SIGTERM

    monkeypatch.setattr(RunFolder, "written", written)
    monkeypatch.setattr(Devices, "largest", lambda *_: lambda: done.append("met") or 0)
    monkeypatch.setattr(pipeline, "Trainer", Stopped)
    monkeypatch.setattr(pipeline, "prepare_run", lambda *_, **__: SimpleNamespace())
    outcome = pipeline.train_run(Run("demo", 1, Config()), RunFolder(tmp_path / "run"))
    assert outcome.stopped_by is signal.SIGTERM
    assert done[-2:] == ["copied", "met"]


@pytest.mark.parametrize(
    ("saved", "initial", "found"),
    [
        (None, None, "none"),
        (Checkpoint(2, {}, (), {"seconds": 1.0}), None, "step 2"),
        (None, {"scale": np.ones(3, np.float32)}, "another model"),
    ],
)
def test_processes_that_begin_from_different_parameters_do_not_train_together(
    saved, initial, found, tmp_path
):
    """One of them has a checkpoint in its copy of a bucket that was never put."""
    trainer: Any = SimpleNamespace(
        abstract_params={},
        _initial=initial,
        optimizer=SimpleNamespace(init=lambda _: ()),
        folder=SimpleNamespace(in_turn=lambda _: nullcontext(), checkpoints=tmp_path),
        # The number of the other process is 7.
        devices=SimpleNamespace(largest=lambda n: lambda: max(n, 7 if n > 0 else -7), process=1),
        _checkpoints=SimpleNamespace(restore_latest=lambda *_: saved),
    )
    error = refusal(Trainer._start, trainer)
    assert f"found {found} on process 1" in error


def test_the_parameters_that_a_run_continues_from_are_compared_over_the_processes(tmp_path):
    """Each process reads them itself, and another host may read a newer checkpoint."""
    numbers = []
    for value in (1.0, 1.0, 2.0):
        trainer: Any = SimpleNamespace(
            abstract_params={},
            _initial={"scale": np.full(3, value, np.float32)},
            optimizer=SimpleNamespace(init=lambda _: ()),
            folder=SimpleNamespace(in_turn=lambda _: nullcontext(), checkpoints=tmp_path),
            devices=SimpleNamespace(
                largest=lambda n: lambda: numbers.append(n) or 1,
                process=1,  # pyright: ignore
            ),
            _checkpoints=SimpleNamespace(restore_latest=lambda *_: None),
        )
        refusal(Trainer._start, trainer)
    first, same, other = numbers[::2]
    assert first == same != other


def test_a_signal_during_the_last_save_ends_a_run_before_it_is_scored(tmp_path, monkeypatch):
    write_letters(tmp_path)
    sides = {"source": "en", "target": "de"}
    given = {
        f"{split}_{side}": str(tmp_path / f"{split}.{language}")
        for split in ("train", "dev")
        for side, language in sides.items()
    }
    settings = ["num_layers=1", "d_model=8", "d_ff=8", "num_heads=2"]
    settings = [f"model.{setting}" for setting in settings]
    settings += ["training.steps=1", "training.batch_tokens=512", "data.max_length=64"]
    settings += ["data.vocabulary_size=60", "data.vocabulary_up_to=true", "data.buckets=1"]
    folder = RunFolder(tmp_path / "run")
    run = requested_run(folder, "base", changes=settings, given=given)

    def signalled(*arguments):
        if not signals:
            signals.append(signal.raise_signal(signal.SIGTERM))
        save(*arguments)

    signals, save = [], Checkpoints.save
    monkeypatch.setattr(Checkpoints, "save", signalled)
    outcome = pipeline.train_run(run, folder)
    assert outcome.stopped_by is signal.SIGTERM
    assert folder.trained_steps() == [1]
    assert not folder.averaged.exists()
