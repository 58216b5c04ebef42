"""The end of a run of several processes, without training."""

import signal
from contextlib import contextmanager
from types import SimpleNamespace

from jax_transformer.config import Config
from jax_transformer.parallel import Devices
from jax_transformer.runs import pipeline
from jax_transformer.runs.run_dir import Run, RunFolder


def test_the_other_processes_wait_until_the_last_checkpoint_is_in_the_bucket(tmp_path, monkeypatch):
    """JAX ends all of them 20 seconds after the first one has left."""
    done = []

    @contextmanager
    def written(_):
        yield
        done.append("copied")

    class Trainer:
        def __init__(self, *_):
            self.describe = list

        def train(self, *_, **__):
            return signal.SIGTERM

    monkeypatch.setattr(RunFolder, "written", written)
    monkeypatch.setattr(Devices, "largest", lambda *_: lambda: done.append("met") or 0)
    monkeypatch.setattr(pipeline, "Trainer", Trainer)
    monkeypatch.setattr(pipeline, "prepare_run", lambda *_, **__: SimpleNamespace())
    outcome = pipeline.train_run(Run("demo", 1, Config()), RunFolder(tmp_path / "run"))
    assert outcome.stopped_by is signal.SIGTERM
    assert done[-2:] == ["copied", "met"]
