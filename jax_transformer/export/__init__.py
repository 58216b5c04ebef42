"""Trained models in the formats of other programs, checked before anything is written."""

import importlib
from typing import Literal

from jax_transformer.config import Config
from jax_transformer.errors import InputError, this_python
from jax_transformer.export.arrays import inexpressible

Format = Literal["ctranslate2", "marian", "safetensors"]

_LIBRARIES = {"ctranslate2": "ctranslate2", "marian": "safetensors", "safetensors": "safetensors"}


def check_exportable(config: Config, target: Format) -> None:
    """InputError that names the setting which `target` cannot express, or a missing library.

    "safetensors" keeps our own names and layouts, so it takes every model that translates.
    """
    if config.data.task == "parsing":
        raise InputError(
            "data.task=parsing: expected a model that translates, because no exported vocabulary "
            f"can spell trees; parse with {this_python()} -m experiments.translate"
        )
    reason = None if target == "safetensors" else inexpressible(config.model)
    if reason:
        raise InputError(f"--format={target}: {reason}; export with --format=safetensors")
    package = _LIBRARIES[target]
    try:
        importlib.import_module(package)
    except ImportError as error:
        raise InputError(
            f"--format={target}: expected the package {package}, found none that loads "
            f"({error}); install it with {this_python()} -m pip install -e '.[export]'"
        ) from None
