"""Training from Python: what `python -m experiments.train` does, as a function."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import jax
import numpy as np

from jax_transformer.errors import InputError, expect_a
from jax_transformer.runs.load import load
from jax_transformer.runs.metrics_writer import OnLine
from jax_transformer.runs.model import TrainedModel
from jax_transformer.runs.pipeline import train_run
from jax_transformer.runs.request import check_files, requested_run
from jax_transformer.runs.run_dir import RunFolder
from jax_transformer.runtime.compilation_cache import enable_compilation_cache
from jax_transformer.types import Params


def train(
    experiment: str | None = None,
    files: Mapping[str, str | os.PathLike | Sequence[str | os.PathLike]] | None = None,
    *settings: str,
    workdir: str | Path,
    seed: int | None = None,
    init_from: str | Path | TrainedModel | None = None,
    init_checkpoint: str | int | None = None,
    on_metrics: OnLine | None = None,
) -> TrainedModel:
    """Train a model, or go on training it, and return it with its `scores`.

        model = jt.train(
            "multi30k-en-de-cased",
            {"train_source": "train.en", "train_target": "train.de",
             "dev_source": "dev.en", "dev_target": "dev.de"},
            *("training.steps=1000", "training.warmup_steps=200", "training.checkpoint_steps=50"),
            workdir="runs/mine",
        )
        model.scores[-1]["score"]

    experiment: a name of `jt.experiments()`; None takes what the folder or `init_from` has, or the
      demo.
    files: the paths of text, trees and vocabularies, by the names of the flags of
      `python -m experiments.train`: "train_source", "dev_trees", "vocabulary" and so on. Each file
      of a list is a corpus for training; files of development and test text are read as one.
      subword-nmt's codes and vocabulary are a list of two.
    settings: changes of settings, as after --set.
    workdir: the run folder. After an interruption the same call goes on there, and a run that is
      trained to its last step is only scored again.
    seed: random seed of parameters, dropout and data order; None is the folder's, or 1.
    init_from: the folder of a run, or a model, to continue from as a new run; init_checkpoint:
      which checkpoint of that folder, as for `jt.load`.
    on_metrics: a function that is called with each new line of metrics.jsonl, a dict; if it
      returns True, training ends within a few steps, and the model is averaged and scored.

    Training uses all devices. Nothing of the process is changed but JAX's compilation cache, which
    `jt.load` describes: no signal is caught, so Ctrl-C loses the steps since the last checkpoint.
    Raises InputError for a mistake in the arguments or the data.
    """
    expect_a(Mapping, files=files or {})
    enable_compilation_cache()
    folder = RunFolder(workdir)
    given: dict[str, str | list[str]] = {
        name: os.fspath(value)
        if isinstance(value, str | os.PathLike)
        else [os.fspath(path) for path in value]
        for name, value in (files or {}).items()
    }
    if isinstance(init_from, TrainedModel):
        given["init_from"] = str(_saved(init_from, folder))
    elif init_from is not None:
        given["init_from"] = os.fspath(init_from)
    if init_checkpoint is not None:
        given["init_checkpoint"] = str(init_checkpoint)
    run = requested_run(folder, experiment, seed, settings, given)
    check_files(run, folder)
    train_run(run, folder, on_metrics=on_metrics, catch_signals=False)
    return load(folder)


def _saved(model: TrainedModel, folder: RunFolder) -> Path:
    """Return the folder inside of a run that holds its initial model, written there if missing."""
    if folder.bucket:
        raise InputError(
            f"init_from: expected a run's address for a run in {folder.address}, found a model; "
            "write it with model.save(address) and give that"
        )
    initial = folder.path / "initial"
    if not initial.exists():
        model.save(initial)
    elif not _same(load(initial).params, model.params):
        raise InputError(
            f"{initial}: expected the model that init_from gives, found another; give another "
            "workdir"
        )
    return initial


def _same(params: Params, others: Params) -> bool:
    pairs = zip(jax.tree.leaves(params), jax.tree.leaves(others), strict=True)
    return all(np.array_equal(ours, theirs) for ours, theirs in pairs)
