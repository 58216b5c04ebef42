"""What folders of Hugging Face have in common: JSON settings, and weights in two kinds of files."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from jax_transformer.errors import InputError
from jax_transformer.files import parse_json, read_bytes
from jax_transformer.formats.arrays import Arrays

Kind = TypeVar("Kind")
_REQUIRED: Any = object()

# Settings of `generate` that change outputs, with the values at which they do nothing.
NEUTRAL: dict[str, Sequence[Any]] = {
    "begin_suppress_tokens": [None, []],
    "diversity_penalty": [None, 0],
    "do_sample": [None, False],
    "encoder_no_repeat_ngram_size": [None, 0],
    "encoder_repetition_penalty": [None, 1],
    "exponential_decay_length_penalty": [None],
    "forced_bos_token_id": [None],
    "min_length": [None, 0],
    "min_new_tokens": [None, 0],
    "no_repeat_ngram_size": [None, 0],
    "num_beam_groups": [None, 1],
    "penalty_alpha": [None, 0],
    "repetition_penalty": [None, 1],
    "sequence_bias": [None],
    "suppress_tokens": [None, []],
}


class Settings:
    """The values of a JSON file, read with the types that they must have."""

    def __init__(self, path: Path, values: dict[str, Any]) -> None:
        """Keep the values. path: the file, for messages."""
        self.path, self.folder, self.values = path, path.parent, values

    def get(self, name: str, kind: type[Kind], default: Any = _REQUIRED) -> Any:
        """Return a value of this kind; a missing or null one is the default.

        Raises InputError if it is of another kind, or missing without a default.
        """
        value = self.values.get(name)
        if value is None and default is not _REQUIRED:
            return default
        kinds = (int, float) if kind is float else (kind,)
        if type(value) not in kinds:
            raise self.refusal(name, f"a {kind.__name__}")
        return value

    def whole(self, name: str, default: int | None = None, low: int = 1) -> int:
        """Return a whole number of at least `low`."""
        value = self.get(name, int, _REQUIRED if default is None else default)
        if not low <= value < 2**31:
            raise self.refusal(name, f"a whole number of at least {low}")
        return value

    def rate(self, name: str, default: float) -> float:
        """Return a rate of dropout: at least 0 and below 1."""
        value = self.get(name, float, default)
        if not 0 <= value < 1:
            raise self.refusal(name, "a number of at least 0 and below 1")
        return float(value)

    def expect(self, name: str, values: Sequence[Any], reason: str) -> None:
        """Raise InputError that ends with a reason unless the value is among those listed."""
        if self.values.get(name) not in values:
            raise self.refusal(name, f"{' or '.join(map(str, values))} ({reason})")

    def refusal(self, name: str, expected: str) -> InputError:
        """Return the error that says what was expected and what was found."""
        found = repr(self.values[name])[:80] if name in self.values else "none"
        return InputError(f"{self.path}: expected {expected} as {name}, found {found}")


def read_settings(path: Path, missing: Settings | None = None) -> Settings:
    """Read a JSON object. missing: what a file that is not there stands for.

    Raises InputError if the file is missing, or is not a JSON object.
    """
    try:
        content = read_bytes(path)
    except FileNotFoundError:
        if missing is not None:
            return missing
        raise InputError(f"{path}: expected a file, found none; give the whole folder") from None
    try:
        return Settings(path, parse_json(content, dict[str, Any]))
    except ValueError as error:
        raise InputError(
            f"{path}: expected a JSON object, found something else: {error}; fetch it again"
        ) from None


def read_weights(folder: Path) -> Arrays:
    """Return the arrays of model.safetensors, or else of pytorch_model.bin, in float32.

    Nothing in the files is executed. Raises InputError if there is neither, or it is damaged.
    """
    safe, pickled = folder / "model.safetensors", folder / "pytorch_model.bin"
    if safe.is_file():
        tensors = read_safetensors(safe)
    elif pickled.is_file():
        from jax_transformer.formats.torch_files import read_torch

        tensors = read_torch(pickled)
    else:
        raise InputError(
            f"{folder}: expected {safe.name} or {pickled.name}, found neither; give a folder with "
            "the weights in one file"
        )
    if not isinstance(tensors, dict):
        raise InputError(f"{folder}: expected named arrays, found a {type(tensors).__name__}")
    return {name: widened(folder, name, tensor) for name, tensor in tensors.items()}


def widened(path: Path, name: str, tensor: Any) -> np.ndarray:
    """Return an array of floating-point numbers in float32.

    Raises InputError for anything else.
    """
    if not isinstance(tensor, np.ndarray) or str(tensor.dtype) not in (
        "float16",
        "bfloat16",
        "float32",
        "float64",
    ):
        kind = tensor.dtype if isinstance(tensor, np.ndarray) else type(tensor).__name__
        raise InputError(f"{path}: expected floating-point numbers as {name}, found {kind}")
    with np.errstate(over="ignore"):  # an infinite number is refused later, by its array's name
        return np.asarray(tensor, np.float32)


def read_safetensors(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of a file by the library safetensors.

    Raises InputError if the library is missing, or the file is damaged.
    """
    try:
        from safetensors import SafetensorError
        from safetensors.flax import load
    except ImportError as error:
        raise InputError(
            f"{path}: expected the package safetensors, found none that loads ({error}); install "
            "it with python -m pip install -e '.[export]'"
        ) from None
    try:
        return {name: np.asarray(array) for name, array in load(read_bytes(path)).items()}
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path}: expected a file of safetensors, found it damaged: {error}; fetch it again"
        ) from None


def search_settings(search: Settings, config: Settings) -> dict[str, Any]:
    """Return the settings of the search that `generate` does by default.

    search: generation_config.json. config: config.json, which older folders have them in.
    """

    def first(name: str, kind: type, default: Any) -> Any:
        return search.get(name, kind, config.get(name, kind, default))

    for settings in (search, config):
        for name, values in NEUTRAL.items():
            if settings.values.get(name) not in values:
                raise settings.refusal(name, "none, because our search has no such rule; delete it")
    alpha = float(first("length_penalty", float, 1.0))
    beam_size = first("num_beams", int, 1)
    if not (math.isfinite(alpha) and 0 <= alpha <= 10):
        raise search.refusal("length_penalty", "a number from 0 to 10")
    early = search.values.get("early_stopping", config.values.get("early_stopping"))
    if early not in (None, False, True, "never"):
        raise search.refusal("early_stopping", "false, true or never")
    return {
        "beam_size": beam_size,
        "alpha": alpha,
        "length_penalty": "length",
        "patience": 1.0 if early is True else 0.0,
    }
