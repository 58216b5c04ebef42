"""Trained models in the formats of other programs, checked before anything is written."""

import importlib
from typing import Literal, get_args

from jax_transformer.config import Config, ModelConfig
from jax_transformer.errors import InputError
from jax_transformer.formats import ctranslate2, marian, safetensors
from jax_transformer.formats.arrays import inexpressible

Format = Literal["ctranslate2", "marian", "safetensors"]
FORMATS: tuple[Format, ...] = get_args(Format)

_MODULES = {"ctranslate2": ctranslate2, "marian": marian, "safetensors": safetensors}
_LIBRARIES = {"ctranslate2": "ctranslate2", "marian": "safetensors", "safetensors": "safetensors"}


def refusals(model: ModelConfig) -> dict[str, str]:
    """Return the formats that cannot express a model, each with a setting and its legal values."""
    reasons = {
        target: inexpressible(model, _MODULES[target].accepted_settings(model))
        for target in FORMATS
    }
    return {target: reason for target, reason in reasons.items() if reason}


def check_exportable(config: Config, target: Format) -> None:
    """Raise InputError that names a setting which `target` cannot express, or a missing library."""
    if config.data.task == "parsing":
        raise InputError(
            "data.task=parsing: expected a model that translates, because no exported vocabulary "
            "can spell trees; parse with python -m experiments.translate"
        )
    refused = refusals(config.model)
    if target in refused:
        others = [f"--format={form}" for form in FORMATS if form not in refused]
        remedy = f"export with {' or '.join(others)}" if others else "no other format can either"
        raise InputError(f"--format={target}: {refused[target]}; {remedy}")
    package = _LIBRARIES[target]
    try:
        importlib.import_module(package)
    except ImportError as error:
        raise InputError(
            f"--format={target}: expected the package {package}, found none that loads "
            f"({error}); install it with python -m pip install -e '.[export]'"
        ) from None
