"""Models of other programs as they come in, and the run folder that is made of one."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

import jax
import numpy as np

from jax_transformer.config import Config, DataConfig, DecodingConfig, Language, ModelConfig
from jax_transformer.data.vocabulary import Vocabulary
from jax_transformer.errors import InputError
from jax_transformer.formats.arrays import Arrays, our_layout
from jax_transformer.runs.loading import build_model
from jax_transformer.runs.run_dir import IMPORTED, Run, RunFolder
from jax_transformer.runs.saving import write_model
from jax_transformer.training.train_step import abstract_params
from jax_transformer.types import Params

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ImportedModel:
    """A model that a reader of formats/ has read.

    arrays: the parameters, by the names of `torch_layout`.
    source, target: the vocabularies, the same object if one serves both sides.
    max_length: the maximum number of source tokens, EOS included.
    languages: the codes of source_language and target_language, if they are known.
    """

    model: ModelConfig
    decoding: DecodingConfig
    arrays: Arrays
    source: Vocabulary
    target: Vocabulary
    max_length: int
    languages: Mapping[str, str] | None = None

    def config(self) -> Config:
        """Return all settings; those of training are the paper's."""
        data: dict[str, Any] = {"max_length": self.max_length}
        # Settings name the languages alone that sacremoses has rules for.
        known = get_args(Language)
        data |= {name: code for name, code in (self.languages or {}).items() if code in known}
        data["vocabulary_size"] = max(self.source.size, 5)
        return Config(model=self.model, decoding=self.decoding, data=DataConfig(**data))


def parameters(imported: ImportedModel, run: Run) -> Params:
    """Return the parameters as the tree that the run's model has.

    Raises InputError if an array is missing, is of another shape, is not expected, or has numbers
    that are not finite; the message names it.
    """
    model = build_model(run, imported.source, imported.target)
    params = our_layout(imported.arrays, imported.model)
    expected, found = (
        {"/".join(part.key for part in path): leaf.shape for path, leaf in leaves}
        for leaves in map(jax.tree_util.tree_leaves_with_path, (abstract_params(model), params))
    )
    for name in sorted(expected.keys() | found.keys()):
        if expected.get(name) != found.get(name):
            raise InputError(
                f"{name}: expected an array of shape {expected.get(name, 'none')}, found "
                f"{found.get(name, 'none')}: the vocabulary or the settings do not fit the arrays; "
                "give the files of one model"
            )
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        if not np.isfinite(leaf).all():
            name = "/".join(part.key for part in path)
            raise InputError(f"{name}: expected finite numbers, found others; fetch the file again")
    return params


def write_run_folder(imported: ImportedModel, folder: RunFolder, name: str, origin: str) -> Run:
    """Make a run folder of the model: settings, vocabularies, manifest and the averaged model.

    name: the experiment's. origin: the files that it came from, for config.json.

    Raises InputError if the folder has files of a run, or the model does not fit together; nothing
    is left behind then.
    """
    files = {"imported_from": origin, **(imported.languages or {})}
    run = Run(name, 0, imported.config(), files=files, corpus=IMPORTED)
    params = parameters(imported, run)
    write_model(folder, run, imported.source, imported.target, params, [0])
    return run
