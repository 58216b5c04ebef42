"""The beginning and the end of a run of several processes, without training."""

import signal
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from refusals import refusal

from jax_transformer.config import Config
from jax_transformer.parallel import Devices
from jax_transformer.runs import pipeline
from jax_transformer.runs.checkpoints import Checkpoint
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


@pytest.mark.parametrize("saved", [None, Checkpoint(2, {}, (), {"seconds": 1.0})])
def test_processes_that_find_different_checkpoints_do_not_train_together(saved, tmp_path):
    """One of them has a checkpoint in its copy of a bucket that was never put."""
    trainer: Any = SimpleNamespace(
        abstract_params={},
        optimizer=SimpleNamespace(init=lambda _: ()),
        folder=SimpleNamespace(in_turn=lambda _: nullcontext(), checkpoints=tmp_path),
        # The number of the other process is 7.
        devices=SimpleNamespace(largest=lambda n: lambda: max(n, 7 if n > 0 else -7), process=1),
        _checkpoints=SimpleNamespace(restore_latest=lambda *_: saved),
    )
    error = refusal(Trainer._start, trainer)
    assert f"found {'step 2' if saved else 'none'} on process 1" in error
