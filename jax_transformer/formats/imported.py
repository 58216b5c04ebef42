"""What readers share: checks of options and arrays, the model, and the run folder made of it."""

import importlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jax_transformer.config import Config, DataConfig, DecodingConfig, ModelConfig
from jax_transformer.data.vocabularies.base import Vocabulary
from jax_transformer.errors import InputError, install_command, shown
from jax_transformer.formats.layout import Arrays, named_leaves, our_layout
from jax_transformer.runs.load import build_model
from jax_transformer.runs.model import write_model
from jax_transformer.runs.run_dir import IMPORTED, Run, RunFolder
from jax_transformer.training.train_step import abstract_params
from jax_transformer.types import Params

Accepted = Mapping[str, Collection[Any] | None]  # setting -> its values, None for any

_FLOATS = ("float16", "bfloat16", "float32", "float64")


def first_refused(values: Mapping[str, Any], accepted: Accepted) -> str | None:
    """Return the first value that is not accepted, with its name and the values that are.

    A name that is not listed is not accepted.
    """
    for name, value in values.items():
        legal = accepted.get(name, ())
        if legal is not None and value not in legal:
            plain = type(value) is str and value.isidentifier() and len(value) < 40
            found = value if plain else shown(value)
            expected = _listed(legal) or "no such option"
            return f"{shown(name)[1:-1]}={found}: expected {expected}"
    return None


def _listed(values: Collection[object]) -> str:
    """Return `1 to 8` for a range, else the values with commas between."""
    if isinstance(values, range):
        return f"{values.start} to {values.stop - 1}"
    texts = [str(value) or '""' for value in values]
    return f"{'one of ' if len(texts) > 1 else ''}{', '.join(texts)}"


def check_options(path: Path, options: Mapping[str, Any], accepted: Accepted) -> None:
    """Raise InputError that names the first option of another program that is not supported."""
    if reason := first_refused(options, accepted):
        raise InputError(f"{path}: {reason}; this model cannot be imported")


def is_file_name(name: object) -> bool:
    """Return True for the name of a file in a folder, without a path to it."""
    return (
        isinstance(name, str)
        and name not in (".", "..")
        and "/" not in name
        and name.isprintable()
        and 0 < len(name.encode(errors="replace")) < 256
    )


def require(package: str, purpose: str, extra: str = "export") -> None:
    """Raise InputError, which begins with the purpose, if a package of an extra does not load."""
    try:
        importlib.import_module(package)
    except ImportError as error:
        raise InputError(
            f"{purpose}: expected the package {package}, found none that loads ({error}); install "
            f"it with {install_command(extra)}"
        ) from None


class Unread:
    """The arrays of a file that no part of our model has taken yet, by their names there."""

    def __init__(self, arrays: Mapping[str, Any], path: Path) -> None:
        """Keep the arrays. path: of the file or the folder, for messages."""
        self.left, self.path = dict(arrays), path

    def __contains__(self, name: str) -> bool:
        """Return True if there is an array of this name that was not taken."""
        return name in self.left

    def take(self, name: str, axes: int, default: np.ndarray | None = None) -> np.ndarray:
        """Return an array of floating-point numbers, in float32, or else the default.

        Raises InputError if there is neither, or the array has another number of axes.
        """
        array = self.left.pop(name, default)
        kind = getattr(array, "dtype", type(array).__name__)
        if str(kind) not in _FLOATS or array.ndim != axes or not array.size:
            found = "none" if array is None else f"{kind} of shape {getattr(array, 'shape', ())}"
            raise InputError(
                f"{self.path}: expected floating-point numbers with {axes} axes as {name}, found "
                f"{found}; the model cannot be imported, or its file is damaged"
            )
        with np.errstate(over="ignore"):  # an infinite number is refused later, by our name
            return array.astype(np.float32, copy=False)

    def refuse_rest(self) -> None:
        """Raise InputError that names an array that was not taken."""
        if self.left:
            name, array = min(self.left.items(), key=lambda item: item[0])
            raise InputError(
                f"{self.path}: {name:.200}, of shape {getattr(array, 'shape', ())}: expected no "
                "such array, because this Transformer has no such part; the model cannot be "
                "imported"
            )


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


def parameters(imported: ImportedModel, run: Run) -> Params:
    """Return the parameters as the tree that the run's model has.

    Raises InputError if an array is missing, is of another shape, is not expected, or has numbers
    that are not finite; the message names it.
    """
    model = build_model(run, imported.source, imported.target)
    params = our_layout(imported.arrays, imported.model)
    expected, found = named_leaves(abstract_params(model)), named_leaves(params)
    for name in sorted(expected.keys() | found.keys()):
        shapes = [getattr(leaves.get(name), "shape", "none") for leaves in (expected, found)]
        if shapes[0] != shapes[1]:
            raise InputError(
                f"{name}: expected an array of shape {shapes[0]}, found {shapes[1]}: the "
                "vocabulary or the settings do not fit the arrays; give the files of one model"
            )
        if not np.isfinite(found[name]).all():
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
