"""A trained model out of a run folder: what evaluate, translate and average share."""

from dataclasses import dataclass
from typing import Any

from jax_transformer.checkpoints import restore_average, restore_params
from jax_transformer.config import did_you_mean
from jax_transformer.errors import InputError
from jax_transformer.model import Transformer
from jax_transformer.run_folder import Run, RunFolder
from jax_transformer.training import abstract_params
from jax_transformer.vocabulary import Vocabulary


@dataclass(frozen=True)
class Trained:
    """A model with its parameters; `steps` are the checkpoints they are made of."""

    run: Run
    vocabulary: Vocabulary
    model: Transformer
    params: Any
    checkpoint: str
    steps: list[int]


def build_model(run: Run, vocabulary: Vocabulary) -> Transformer:
    """The model that a run's settings describe."""
    return Transformer(run.config.model, vocabulary.size, vocabulary.pad_id)


def restore(folder: RunFolder, checkpoint: str | None, report: Any) -> Trained:
    """The model of a checkpoint: `averaged`, `last` or a step; None for the best there is."""
    run = folder.need_run()
    if not folder.has_checkpoints():
        raise InputError(
            f"{folder.path}: expected a trained model, found no checkpoint; train it first with "
            f"python -m experiments.train --workdir {folder.path}"
        )
    vocabulary = Vocabulary.load(folder.vocabulary)
    model = build_model(run, vocabulary)
    like = abstract_params(model)
    if checkpoint is None:
        checkpoint = "averaged" if folder.averaged.is_dir() else "last"
    if checkpoint == "averaged":
        if not folder.averaged.is_dir():
            raise InputError(
                f"{folder.path}: expected an averaged model, found none; make it with "
                f"python -m experiments.average --workdir {folder.path}"
            )
        steps, params = restore_average(folder.averaged, like, report)
    elif checkpoint == "last" or checkpoint.isdecimal():
        step = None if checkpoint == "last" else int(checkpoint)
        step, params = restore_params(folder.checkpoints, like, step, report)
        steps = [step]
    else:
        raise InputError(
            f"--checkpoint={checkpoint}: expected last, averaged or the step of a checkpoint"
            + did_you_mean(checkpoint, ["last", "averaged"])
        )
    return Trained(run, vocabulary, model, params, checkpoint, steps)
