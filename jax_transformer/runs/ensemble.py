"""Several trained models that translate or parse together: `load(["runs/a", "runs/b"])`."""

import math
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import NoReturn

from jax_transformer.config import ModelConfig
from jax_transformer.decoding.generate import Ensemble
from jax_transformer.errors import InputError
from jax_transformer.models.transformer import Transformer
from jax_transformer.runs.loading import TrainedModel
from jax_transformer.runs.loading import load as load_one
from jax_transformer.runs.run_dir import RunFolder
from jax_transformer.types import Params


class TrainedEnsemble(TrainedModel):
    """Trained models whose probabilities are averaged at each token.

    It translates, scores and parses as a `TrainedModel` does, with the settings of the first. What
    belongs to one model it refuses: module, params, checkpoint, steps, and the methods that need
    them. Attributes of its own:

      members: the models
      weights: the weight of each in the mean; their sum is 1
    """

    members: tuple[TrainedModel, ...]
    weights: tuple[float, ...]

    def __init__(self, members: Sequence[TrainedModel], weights: Sequence[float]) -> None:
        """Take models of one task and vocabulary, and a weight for each."""
        first = members[0]
        own = {name: getattr(first, name) for name in ("run", "vocabulary", "target_vocabulary")}
        own |= {"members": tuple(members), "weights": tuple(weights)}
        self.__dict__ |= own | {"scores": [], "_translators": {}}

    def __getattr__(self, name: str) -> NoReturn:
        """Refuse what one model has, by its name."""
        if name in ("module", "params", "checkpoint", "steps"):
            self._refuse(name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __repr__(self) -> str:
        """Describe each member in one line."""
        return f"<TrainedEnsemble of {', '.join(map(repr, self.members))}>"

    @property
    def description(self) -> str:
        """The descriptions of all members."""
        return "an ensemble of " + " and ".join(member.description for member in self.members)

    @property
    def decoded(self) -> tuple[Transformer | Ensemble, Params]:
        """The ensemble and the list of its members' parameters."""
        modules = tuple(member.module for member in self.members)
        return Ensemble(modules, self.weights), [member.params for member in self.members]

    @cached_property
    def on_devices(self) -> Params:
        """The copies of its members."""
        return [member.on_devices for member in self.members]

    @property
    def model_configs(self) -> list[ModelConfig]:
        """The settings of each member's module."""
        return [member.config.model for member in self.members]

    def with_params(self, params: Params) -> NoReturn:
        """Refuse."""
        self._refuse("with_params")

    def save(self, folder: str | Path) -> NoReturn:
        """Refuse."""
        self._refuse("save")

    def attention_maps(self, source: str, target: str) -> NoReturn:
        """Refuse."""
        self._refuse("attention_maps")

    def _refuse(self, what: str) -> NoReturn:
        raise InputError(
            f"{what}: expected one model, found an ensemble of {len(self.members)}; use one of its "
            "members"
        )


def load(
    run_dir: str | Path | RunFolder | Sequence[str | Path | RunFolder],
    checkpoint: str | int | None = None,
    weights: Sequence[float] | None = None,
) -> TrainedModel:
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
    weights: of each run of a list in the mean, relative to one another; None for equal ones. The
      models may differ in size and settings, not in task or vocabulary.

    Compiled functions are kept on disk for the next process, as the commands keep them: in
    $JAX_COMPILATION_CACHE_DIR, or in ~/.cache/jax_transformer.

    Every array is verified by its checksum. If the newest checkpoint is damaged, the one before it
    is loaded, with a logged warning. Raises InputError if a folder has no trained model, or does
    not have this checkpoint, for another vocabulary, and for weights that are not above 0.
    """
    if isinstance(run_dir, list | tuple):
        return _load_ensemble(run_dir, checkpoint, weights)
    if weights is not None:
        raise InputError("weights: expected a list of runs, found one run; leave weights out")
    return load_one(run_dir, checkpoint)  # type: ignore[arg-type]


def _load_ensemble(
    run_dirs: Sequence[str | Path | RunFolder],
    checkpoint: str | int | None,
    weights: Sequence[float] | None,
) -> TrainedEnsemble:
    members = tuple(load_one(run_dir, checkpoint) for run_dir in run_dirs)
    if not members:
        raise InputError("run_dir: expected a path, found []; give the --workdir of a run")
    relative = [1.0] * len(members) if weights is None else list(weights)
    if len(relative) != len(members) or not all(0 < w < math.inf for w in relative):
        raise InputError(
            f"weights: expected {len(members)} numbers above 0, one a run, found {relative}"
        )
    first = members[0]
    for run_dir, member in zip(run_dirs, members, strict=True):
        same = (
            member.config.data.task == first.config.data.task
            and member.vocabulary.fingerprint == first.vocabulary.fingerprint
            and member.target_vocabulary.fingerprint == first.target_vocabulary.fingerprint
        )
        if not same:
            raise InputError(
                f"{run_dir}: expected the task and the vocabulary of {run_dirs[0]}, found others; "
                "train it with --vocabulary of that run"
            )
    return TrainedEnsemble(members, [weight / sum(relative) for weight in relative])
