"""Loading of a trained model out of a run folder, or of several as an ensemble (§6)."""

import math
import os
import reprlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, overload

import jax
import numpy as np

from jax_transformer.data.manifest import check_same
from jax_transformer.data.vocabularies import read_vocabulary
from jax_transformer.data.vocabularies.base import Vocabulary
from jax_transformer.errors import InputError, did_you_mean
from jax_transformer.models.transformer import Transformer
from jax_transformer.runs.model import TrainedEnsemble, TrainedModel
from jax_transformer.runs.results import scores_of
from jax_transformer.runs.run_dir import Run, RunFolder, is_step, saved_steps
from jax_transformer.runtime import enable_compilation_cache, with_fused_attention
from jax_transformer.training.train_step import abstract_params

Folder = str | Path | RunFolder


@overload
def load(run_dir: Folder, checkpoint: str | int | None = None) -> TrainedModel: ...


@overload
def load(
    run_dir: Sequence[Folder],
    checkpoint: str | int | None = None,
    weights: Sequence[float] | None = None,
) -> TrainedEnsemble: ...


def load(
    run_dir: Folder | Sequence[Folder],
    checkpoint: str | int | None = None,
    weights: Sequence[float] | None = None,
) -> TrainedModel | TrainedEnsemble:
    """Load a trained model out of the folder of a run, or several as an ensemble.

        import jax_transformer as jt

        model = jt.load("runs/demo")
        model.translate(["The old teacher opens the door."])
        both = jt.load(["runs/demo", "runs/other"])     # the mean of their probabilities

    run_dir: the --workdir of `python -m experiments.train`, which may have been moved; an open
      RunFolder; or a list of several.
    checkpoint: "averaged", the mean of the last checkpoints (§6.1); "last"; "best", that of the
      step that training.keep_best found; or the number of a training step that has a checkpoint.
      None takes the averaged model or, if there is none yet, the last checkpoint.
    weights: the weight of each run of a list in the mean, relative to the others; None for equal
      weights. The models may differ in size and settings, not in task or vocabulary.

    Compiled functions are kept on disk for the next process, as the commands keep them: in
    $JAX_COMPILATION_CACHE_DIR, or in ~/.cache/jax_transformer.

    Every array is verified by its checksum. If the newest checkpoint is damaged, the one before it
    is loaded, with a logged warning. Raises InputError if a folder has no trained model or lacks
    this checkpoint, if the runs of a list differ in task or vocabulary, and for weights that are
    not above 0.
    """
    if not isinstance(run_dir, list | tuple):
        if weights is not None:
            raise InputError("weights: expected a list of runs, found one run; leave weights out")
        return _load_one(run_dir, checkpoint)  # type: ignore[arg-type]
    members = tuple(_load_one(run, checkpoint) for run in run_dir)
    if not members:
        raise InputError("run_dir: expected a path, found []; give the --workdir of a run")
    given: Any = [1.0] * len(members) if weights is None else weights
    relative = [*given] if isinstance(given, Iterable) else [given]
    numbers = all(isinstance(w, int | float | np.number) and 0 < w < math.inf for w in relative)
    if len(relative) != len(members) or not numbers:
        raise InputError(
            f"weights: expected {len(members)} numbers above 0, one for each run, found {relative}"
        )
    first = members[0]
    paths = [run.path if isinstance(run, RunFolder) else run for run in run_dir]
    for run, member in zip(paths, members, strict=True):
        same = (
            member.run.task is first.run.task
            and member.vocabulary.fingerprint == first.vocabulary.fingerprint
            and member.target_vocabulary.fingerprint == first.target_vocabulary.fingerprint
        )
        if not same:
            raise InputError(
                f"{run}: expected the task and the vocabulary of {paths[0]}, found others; train "
                "it with --vocabulary of that run, a parser on the same trees, or import it again"
            )
    return TrainedEnsemble(members, tuple(weight / sum(relative) for weight in relative))


def _load_one(run_dir: Folder, checkpoint: str | int | None) -> TrainedModel:
    # Orbax takes a second to import.
    from jax_transformer.runs.checkpoints import read_description, restore_params

    if not isinstance(run_dir, str | os.PathLike | RunFolder):
        raise InputError(
            f"run_dir: expected a path, found {reprlib.repr(run_dir)}; give the --workdir of a run"
        )
    enable_compilation_cache()
    folder = run_dir if isinstance(run_dir, RunFolder) else RunFolder(run_dir)
    run = folder.load_run()
    folder.fetch_steps(folder.averaged)
    if checkpoint not in (None, "averaged") or not saved_steps(folder.averaged):
        folder.fetch_steps(folder.checkpoints)
    if not (folder.trained_steps() or saved_steps(folder.averaged)):
        raise InputError(
            f"{folder.path}: expected a trained model, found no checkpoint; train it first with "
            f"python -m experiments.train --workdir {folder.quoted}"
        )
    checkpoint = _checkpoint_name(folder, checkpoint)
    step = int(checkpoint) if checkpoint.isdecimal() else None
    if checkpoint == "best":
        from jax_transformer.runs.best import best_checkpoint

        step = best_checkpoint(folder, run)
    if step is not None:
        folder.fetch_steps(folder.checkpoints, lambda _: [step])
    checkpoints = folder.averaged if checkpoint == "averaged" else folder.checkpoints
    origin = read_description(checkpoints, step).get("origin")
    if origin:
        check_same(folder.path, folder.manifest.copy(), origin)
    source, target = load_vocabularies(folder)
    module = build_model(run, source, target)
    steps, params = restore_params(checkpoints, abstract_params(module), step)
    for array in jax.tree.leaves(params):
        array.setflags(write=False)  # a change in place would not reach the devices
    scores = scores_of(folder, checkpoint, steps)
    return TrainedModel(run, source, target, module, params, checkpoint, steps, scores)


def _checkpoint_name(folder: RunFolder, checkpoint: str | int | None) -> str:
    """Return `averaged`, `last`, `best`, or the digits of a step."""
    averaged = bool(saved_steps(folder.averaged))  # empty if saving the first one was interrupted
    if checkpoint is None:
        return "averaged" if averaged else "last"
    name = str(checkpoint)
    if name == "averaged" and not averaged:
        raise InputError(
            f"{folder.path}: expected an averaged model, found none; make it with "
            f"python -m experiments.average --workdir {folder.quoted}"
        )
    if name not in ("averaged", "last", "best") and not is_step(name):
        raise InputError(
            f"checkpoint={name}: expected averaged, last, best or the step of a checkpoint"
            + did_you_mean(name, ["last", "averaged", "best"])
        )
    return name


def build_model(run: Run, source: Vocabulary, target: Vocabulary) -> Transformer:
    """Return the Flax module that a run's settings describe."""
    model = with_fused_attention(run.config.model)
    return run.task.module(model, run.config, source, target)


def load_vocabularies(folder: RunFolder) -> tuple[Vocabulary, Vocabulary]:
    """Return the vocabularies of source and target, the same object if one serves both.

    Raises InputError if they are not what the folder's manifest lists.
    """
    manifest, remedy = folder.manifest, "put back a copy"
    source = read_vocabulary(manifest.content(folder.vocabulary, remedy))
    if folder.target_vocabulary.name in manifest.sums:
        return source, read_vocabulary(manifest.content(folder.target_vocabulary, remedy))
    return source, source
