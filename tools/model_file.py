"""A writer of model.bin, the file of CTranslate2, for tests that change one."""

import struct
from pathlib import Path
from typing import Any

import numpy as np


def write_model_file(
    path: Path,
    version: int,
    name: str,
    revision: int,
    variables: dict[str, Any],
    aliases: dict[str, str],
) -> None:
    """Write a model.bin from NumPy arrays.

    Before version 4 numbers of 4 bytes are float32, of 2 int16, and of 1 int8. Before version 3
    there are no aliases.
    """
    kinds = ["float32", "int8", "int16", "int32", "float16", "bfloat16"]

    def string(text: str) -> bytes:
        encoded = text.encode()
        return struct.pack("<H", len(encoded) + 1) + encoded + b"\0"

    parts = [struct.pack("<I", version), string(name), struct.pack("<II", revision, len(variables))]
    for variable, array in sorted(variables.items()):
        array = np.asarray(array)
        parts += [string(variable), struct.pack(f"<B{array.ndim}I", array.ndim, *array.shape)]
        kind, size = kinds.index(array.dtype.name), array.nbytes
        if version < 4:
            kind, size = array.itemsize, array.size
        parts += [struct.pack("<BI", kind, size), array.tobytes()]
    if version >= 3:
        parts.append(struct.pack("<I", len(aliases)))
        parts += [string(alias) + string(variable) for alias, variable in aliases.items()]
    path.write_bytes(b"".join(parts))
