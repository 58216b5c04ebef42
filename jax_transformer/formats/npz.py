"""Arrays of a NumPy archive (.npz), read without numpy.load, which can run code."""

import re
import zipfile
import zlib
from pathlib import Path

import numpy as np

from jax_transformer.errors import InputError
from jax_transformer.formats.arrays import Arrays

_MAGIC = b"\x93NUMPY\x01\x00"  # version 1.0: two bytes with the header's length follow
_HEADER = re.compile(
    r"\{'descr': '([<|][a-z]\d+)', 'fortran_order': False, 'shape': \(((?:\d+, ?)*\d*)\), \}\s*"
)
_TYPES = {"<f4", "<f2", "|i1", "<i1"}  # Marian writes "<i1"


def read_npz(path: Path) -> Arrays:
    """Return the arrays of an archive by name, each as it is stored.

    Raises InputError if the file is missing or damaged, or if an array is neither float32, float16
    nor int8.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            return {
                name.removesuffix(".npy"): _array(name, archive.read(name))
                for name in archive.namelist()
            }
    except OSError as error:
        raise InputError(
            f"expected a model at {path}, found '{error.strerror}'; check the path"
        ) from None
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    # zipfile raises RuntimeError for an encrypted file, NotImplementedError for a method unknown.
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise InputError(
            f"{path}: expected an archive of arrays (.npz), found a damaged or another file "
            f"({error}); copy it again"
        ) from None


def _array(name: str, content: bytes) -> np.ndarray:
    """Return the array of a .npy file. Raises InputError if it has another form."""
    start = len(_MAGIC) + 2
    end = start + int.from_bytes(content[len(_MAGIC) : start], "little")
    header = _HEADER.fullmatch(content[start:end].decode("latin-1"))
    if not content.startswith(_MAGIC) or not header or header[1] not in _TYPES:
        raise InputError(
            f"expected {name} to be an array in float32, float16 or int8, found the header "
            f"{content[:end][:80]!r}; convert the model to float32"
        )
    shape = tuple(int(size) for size in header[2].replace(" ", "").split(",") if size)
    array = np.frombuffer(content, np.dtype(header[1]), offset=end)
    if array.size != np.prod(shape, dtype=object):
        raise InputError(
            f"expected {name} to have the shape {shape}, found {array.size:,} numbers; copy the "
            "file again"
        )
    return array.reshape(shape)
