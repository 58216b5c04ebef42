"""The beginning and the end of a run of several processes, without training."""

import signal
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from letters import write_letters
from refusals import refusal

from jax_transformer.config import Config
from jax_transformer.errors import InputError
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


def beginning(tmp_path, saved: Checkpoint | None, initial: Any = None) -> list[tuple[Any, ...]]:
    """What a run compares over the processes before its first step."""
    compared = []

    def check_same(*what: Any) -> None:
        compared.append(what)
        if len(compared) == 2:
            raise InputError("the end of this test")

    trainer: Any = SimpleNamespace(
        abstract_params={},
        origin={"sums": {"vocabulary.model": "1"}},
        _initial=initial,
        optimizer=SimpleNamespace(init=lambda _: ()),
        folder=SimpleNamespace(in_turn=lambda _: nullcontext(), path=1, checkpoints=tmp_path),
        devices=SimpleNamespace(check_same=check_same),
        _checkpoints=SimpleNamespace(restore_latest=lambda *_: saved),
    )
    refusal(Trainer._start, trainer)
    return compared


def test_data_and_first_parameters_are_compared_over_the_processes(tmp_path):
    """One may have a checkpoint in its copy of a bucket that was never put."""
    data, (name, place, begin) = beginning(tmp_path, None)
    assert data == ("data", 1, b'[["vocabulary.model","1"]]')
    assert (name, place, begin) == ("a checkpoint (none)", tmp_path, None)
    initial = {"scale": np.ones(3, np.float32)}
    *_, begin = beginning(tmp_path, None, initial)[1]
    assert begin is initial
    saved = Checkpoint(2, {}, (), {"seconds": 1.0})
    name, place, begin = beginning(tmp_path, saved)[1]
    assert (name, begin) == ("a checkpoint (step 2)", [2, b'{"seconds":1.0}'])


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

    # Another process has what the first has prepared, also if the text is not there.
    for file in given.values():
        Path(file).unlink()
    prepared = pipeline._prepared(RunFolder(folder.path))
    assert prepared.vocabulary is prepared.target
    assert prepared.vocabulary.fingerprint == folder.manifest.sums["vocabulary.model"]
    assert list(prepared.stores) == ["train", "dev"]
    assert [len(store) for store in prepared.stores.values()] == [120, 6]
