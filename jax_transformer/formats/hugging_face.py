"""What folders of Hugging Face have in common: JSON settings, and weights in two kinds of files."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import jax.numpy as jnp
import numpy as np

from jax_transformer.errors import InputError
from jax_transformer.files import read_bytes, read_json
from jax_transformer.formats.arrays import Arrays
from jax_transformer.formats.imported import require

Kind = TypeVar("Kind")
_REQUIRED: Any = object()

# By safetensors' names.
_FLOATS = {"BF16": jnp.bfloat16, "F16": np.float16, "F32": np.float32, "F64": np.float64}
_KINDS = {
    bool: "true or false",
    float: "a number",
    int: "a whole number",
    list: "a list",
    str: "a text",
}

# Settings of `generate` that change outputs, with the values at which they do nothing.
_NEUTRAL: dict[str, Sequence[Any]] = {
    **dict.fromkeys(("exponential_decay_length_penalty", "forced_bos_token_id"), (None,)),
    **dict.fromkeys(("begin_suppress_tokens", "suppress_tokens", "sequence_bias"), (None, [])),
    **dict.fromkeys(("do_sample", "diversity_penalty", "penalty_alpha"), (None, 0)),
    **dict.fromkeys(("min_length", "min_new_tokens", "no_repeat_ngram_size"), (None, 0)),
    "encoder_no_repeat_ngram_size": (None, 0),
    **dict.fromkeys(("encoder_repetition_penalty", "repetition_penalty"), (None, 1)),
    "num_beam_groups": (None, 1),
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
            raise self.refusal(name, _KINDS[kind])
        return value

    def whole(self, name: str, default: int | None = None, low: int = 1) -> int:
        """Return a whole number of at least `low`."""
        value = self.get(name, int, _REQUIRED if default is None else default)
        if not low <= value < 2**31:
            raise self.refusal(name, f"a whole number of at least {low}")
        return value

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
    values = read_json(path, dict[str, Any], "fetch it again", "a JSON object")
    if values is not None:
        return Settings(path, values)
    if missing is None:
        raise InputError(f"{path}: expected a file, found none; give the whole folder")
    return missing


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
    kind = str(tensor.dtype) if isinstance(tensor, np.ndarray) else type(tensor).__name__
    if kind not in ("float16", "bfloat16", "float32", "float64"):
        raise InputError(f"{path}: expected floating-point numbers as {name}, found {kind}")
    with np.errstate(over="ignore"):  # an infinite number is refused later, by its array's name
        return np.asarray(tensor, np.float32)


def read_safetensors(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of a file by the library safetensors.

    Raises InputError if the library is missing, the file is damaged, or an array has no floats.
    """
    require("safetensors", str(path))
    from safetensors import SafetensorError, deserialize

    try:
        found = deserialize(read_bytes(path))
    except SafetensorError as error:
        raise InputError(
            f"{path}: expected a file of safetensors, found it damaged: {error}; fetch it again"
        ) from None
    arrays = {}
    for name, tensor in found:
        if tensor["dtype"] not in _FLOATS:
            raise InputError(
                f"{path}: expected floating-point numbers as {name}, found {tensor['dtype']}"
            )
        numbers = np.frombuffer(tensor["data"], _FLOATS[tensor["dtype"]])
        arrays[name] = numbers.reshape(tensor["shape"])
    return arrays


def search_settings(search: Settings, config: Settings) -> dict[str, Any]:
    """Return the settings of the search that `generate` does by default.

    search: generation_config.json. config: config.json, which older folders have them in.

    early_stopping "never" is our exact rule, and true is patience 1. false, the default, stops when
    the beam's worst finished score is at least what the best unfinished hypothesis scores now; it
    has no equal here. The exact rule comes nearest: of 700 outputs of a trained model one differed
    from it, and has a higher score here; 33 with patience 1.

    Raises InputError for a setting that would change outputs and has no counterpart here.
    """

    def first(name: str, kind: type, default: Any) -> Any:
        return search.get(name, kind, config.get(name, kind, default))

    for settings, (name, values) in itertools.product((search, config), _NEUTRAL.items()):
        settings.expect(name, values, "our search has no such rule; delete it")
    alpha = float(first("length_penalty", float, 1.0))
    if not 0 <= alpha <= 10:
        raise search.refusal("length_penalty", "a number from 0 to 10")
    early = search.values.get("early_stopping", config.values.get("early_stopping"))
    if early not in (None, False, True, "never"):
        raise search.refusal("early_stopping", "false, true or never")
    return {
        "beam_size": first("num_beams", int, 1),
        "alpha": alpha,
        "length_penalty": "length",
        "patience": 1.0 if early is True else 0.0,
    }
