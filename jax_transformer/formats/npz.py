"""Arrays of a NumPy archive (.npz)."""

import tokenize
import zipfile
import zlib
from pathlib import Path

import numpy as np

from jax_transformer.errors import InputError
from jax_transformer.formats.arrays import Arrays

_TYPES = ("float32", "float16", "int8")


def read_npz(path: Path) -> Arrays:
    """Return the arrays of an archive by name, each as it is stored; pickles are refused.

    Raises InputError if the file is missing or damaged, or if an array is neither float32, float16
    nor int8.
    """
    try:
        archive = np.load(path, allow_pickle=False)  # noqa: TID251, pickles are refused
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise ValueError("a single array")
        with archive:
            arrays = dict(archive.items())
    except FileNotFoundError:
        raise InputError(f"expected a model at {path}, found none; check the path") from None
    # For damaged files zipfile and numpy raise all of these.
    except (
        *(OSError, EOFError, ValueError, KeyError, TypeError, SyntaxError, RuntimeError),
        *(MemoryError, OverflowError, tokenize.TokenError, zipfile.BadZipFile, zlib.error),
    ) as error:
        raise InputError(
            f"{path}: expected an archive of arrays (.npz), found a damaged or another file "
            f"({' '.join(str(error).split())[:200]}); copy it again"
        ) from None
    for name, array in arrays.items():
        if array.dtype not in _TYPES:
            raise InputError(
                f"{path}: expected {name} in float32, float16 or int8, found {array.dtype}; "
                "convert the model to float32"
            )
    return arrays
