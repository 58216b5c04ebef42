"""Models of other programs as they come in, and the run folder that is made of one."""

import importlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jax_transformer.config import Config, DataConfig, DecodingConfig, ModelConfig
from jax_transformer.data.vocabularies.base import Vocabulary
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
    languages: the codes of the languages of source and target; "" is unknown.
    """

    model: ModelConfig
    decoding: DecodingConfig
    arrays: Arrays
    source: Vocabulary
    target: Vocabulary
    max_length: int
    languages: tuple[str, str] = ("", "")

    def config(self) -> Config:
        """Return all settings; those of training are the paper's."""
        data = DataConfig(
            max_length=self.max_length,
            vocabulary_size=max(self.source.size, 5),
            source_language=self.languages[0],
            target_language=self.languages[1],
        )
        return Config(model=self.model, decoding=self.decoding, data=data)


class Unread:
    """The arrays of a file that no part of our model has taken yet, by their names there."""

    def __init__(self, arrays: Arrays, path: Path) -> None:
        """Keep the arrays. path: of the file or the folder, for messages."""
        self.left, self.path = dict(arrays), path

    def __contains__(self, name: str) -> bool:
        """Return True if there is an array of this name that was not taken."""
        return name in self.left

    def take(self, name: str, axes: int) -> np.ndarray:
        """Return an array of floating-point numbers, in float32.

        Raises InputError if there is none, or it has another number of axes.
        """
        array = self.left.pop(name, None)
        if array is None or array.ndim != axes or array.dtype.kind != "f" or not array.size:
            found = "none" if array is None else f"{array.dtype} of shape {array.shape}"
            raise InputError(
                f"{self.path}: expected floating-point numbers with {axes} axes as {name}, found "
                f"{found}; the model cannot be expressed, or its file is damaged"
            )
        return array.astype(np.float32, copy=False)

    def refuse_rest(self) -> None:
        """Raise InputError that names an array that was not taken."""
        if self.left:
            name = min(self.left)
            raise InputError(
                f"{self.path}: {name:.200}, of shape {self.left[name].shape}: expected no such "
                "array, because nothing of ours stands for it; this model cannot be expressed"
            )


def embedding_arrays(
    matrices: Sequence[np.ndarray], one_vocabulary: bool
) -> tuple[Arrays, dict[str, Any]]:
    """Return matrices [V, d_model] by our names, and the settings that say which of them are one.

    matrices: of source, target and logits.
    one_vocabulary: True if source and target have the same pieces.
    """
    source, target, output = matrices
    tied = np.array_equal(target, output)
    one_matrix = tied and one_vocabulary and np.array_equal(source, target)
    arrays = {"embedding/matrix": source}
    if not one_matrix:
        arrays["target_embedding/matrix"] = target
    if not tied:
        arrays["output_embedding/matrix"] = output
    tie_source = one_matrix or not (tied and one_vocabulary)  # true where it means nothing
    return arrays, {"tie_embeddings": tied, "tie_source": tie_source}


def is_file_name(name: object) -> bool:
    """Return True for the name of a file in a folder, without a path to it."""
    return (
        isinstance(name, str)
        and name not in (".", "..")
        and "/" not in name
        and name.isprintable()
        and 0 < len(name.encode(errors="replace")) < 256
    )


def require(package: str, purpose: str) -> None:
    """Raise InputError, which begins with the purpose, if a package does not load."""
    try:
        importlib.import_module(package)
    except ImportError as error:
        raise InputError(
            f"{purpose}: expected the package {package}, found none that loads ({error}); install "
            "it with python -m pip install -e '.[export]'"
        ) from None


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
    run = Run(name, 0, imported.config(), imported_from=origin, corpus=IMPORTED)
    params = parameters(imported, run)
    write_model(folder, run, imported.source, imported.target, params, [0])
    return run
