"""The arrays in the model.bin of a CTranslate2 folder, read without CTranslate2.

    uint32 version | string name | uint32 revision
    uint32 count | count x (string name | uint8 rank | shape | uint8 type | uint32 size | data)
    uint32 count | count x (string alias | string name)

Numbers are little-endian. A string is uint16 length, UTF-8 and a NUL that the length counts.
"""

import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from jax_transformer.errors import InputError
from jax_transformer.files import check_regular
from jax_transformer.formats.arrays import Arrays

VERSIONS = range(4, 7)
# By their number in the file; bfloat16 is read as its 16 bits.
_TYPES = ("float32", "int8", "int16", "int32", "float16", "bfloat16")
_SIZES = {"float32": 4, "int8": 1, "int16": 2, "int32": 4, "float16": 2, "bfloat16": 2}
_HIGHEST_RANK = 8
_SMALLEST_ENTRY = 6  # bytes of an alias with two empty names


@dataclass(frozen=True)
class ModelFile:
    """What a model.bin holds.

    name, revision: of the specification that the variables follow, such as TransformerSpec.
    variables: floating-point ones and those with a scale as float32, other integers as they are;
      an alias is the same array as the variable that it stands for.
    """

    version: int
    name: str
    revision: int
    variables: Arrays


def read_model_file(path: Path) -> ModelFile:
    """Return the content of a model.bin.

    Raises InputError if the file is missing, cut off, or not a model.bin of these versions.
    """
    check_regular(path)
    try:
        with path.open("rb") as file:
            return _Reader(file, path).model()
    except OSError as error:
        raise InputError(
            f"{path}: expected the model of a CTranslate2 folder, found '{error.strerror}'; give "
            "the folder that holds model.bin"
        ) from None


class _Reader:
    """A position in the file. Nothing is allocated before the file is known to be long enough."""

    def __init__(self, file: BinaryIO, path: Path):
        self.file, self.path = file, path
        self.left = file.seek(0, 2)
        file.seek(0)

    def model(self) -> ModelFile:
        version = self.number("I", "the version")
        if version not in VERSIONS:
            raise self.damaged(
                f"version {VERSIONS[0]} to {VERSIONS[-1]}, found {version}",
                "convert the model again with a newer ctranslate2, if this is a model.bin at all",
            )
        name, revision = self.string("the name"), self.number("I", "the revision")
        stored: Arrays = {}
        for _ in range(self.count("variables")):
            variable = self.string("a variable's name")
            if variable in stored:
                raise self.damaged(f"different names, found {variable!r} twice")
            stored[variable] = self.array(variable)
        aliases = {}
        for _ in range(self.count("aliases")):
            alias = self.string("an alias")
            aliases[alias] = self.string(f"the name that {alias!r} stands for")
        if self.left:
            raise self.damaged(f"the end after the aliases, found {self.left:,} bytes more")
        variables = self.as_float32(stored)
        for alias, variable in aliases.items():
            if alias in variables or variable not in variables:
                raise self.damaged(f"{alias!r} to stand for another variable, found {variable!r}")
            variables[alias] = variables[variable]
        return ModelFile(version, name, revision, variables)

    def count(self, what: str) -> int:
        count = self.number("I", f"the number of {what}")
        if count * _SMALLEST_ENTRY > self.left:
            raise self.damaged(f"{count:,} {what}, found {self.left:,} bytes for them")
        return count

    def array(self, name: str) -> np.ndarray:
        rank = self.number("B", f"the rank of {name!r}")
        if rank > _HIGHEST_RANK:
            raise self.damaged(f"at most {_HIGHEST_RANK} axes, found {rank} of {name!r}")
        shape = [self.number("I", f"the shape of {name!r}") for _ in range(rank)]
        number = self.number("B", f"the type of {name!r}")
        if number >= len(_TYPES):
            raise self.damaged(f"a type below {len(_TYPES)}, found {number} of {name!r}")
        kind, size = _TYPES[number], self.number("I", f"the size of {name!r}")
        expected = math.prod(shape) * _SIZES[kind]
        if size != expected or not size:
            raise self.damaged(
                f"{expected:,} bytes for {name!r}, {kind} of shape {shape}, found {size:,}"
            )
        data = self.read(size, name)
        if kind == "bfloat16":  # the upper half of a float32
            bits = np.frombuffer(data, "<u2").astype(np.uint32) << 16
            return bits.view(np.float32).reshape(shape)
        array = np.frombuffer(data, np.dtype(kind).newbyteorder("<")).reshape(shape)
        return array.astype(np.float32) if kind == "float16" else array

    def as_float32(self, stored: Arrays) -> Arrays:
        """Return the variables, those that have a scale divided by it, without the scales."""
        scales = {
            f"{name}_scale": name for name, array in stored.items() if array.dtype.kind == "i"
        }
        result = {}
        for name in [name for name in stored if name not in scales]:
            array = stored[name]
            if array.dtype.kind == "i" and f"{name}_scale" in stored:
                array = self.divided(name, array, stored[f"{name}_scale"])
            if array.dtype == np.float32 and not np.isfinite(array).all():
                raise self.damaged(f"finite numbers, found others in {name!r}")
            result[name] = array
        return result

    def divided(self, name: str, array: np.ndarray, scale: np.ndarray) -> np.ndarray:
        """Return array / scale: int16 has one scale, int8 one for each row.

        As CTranslate2 does, multiply by 1 / scale in float32, which need not be the quotient.
        """
        rows = len(array) if array.ndim else 1
        if scale.dtype != np.float32 or scale.size not in (1, rows):
            raise self.damaged(
                f"a float32 scale for each of the {rows:,} rows of {name!r}, found {scale.dtype} "
                f"of shape {list(scale.shape)}"
            )
        with np.errstate(all="ignore"):
            factor = np.float32(1) / scale.reshape(-1, *[1] * (array.ndim - 1))
            return array.astype(np.float32) * factor

    def string(self, what: str) -> str:
        length = self.number("H", f"the length of {what}")
        data = self.read(length, what)
        if not data.endswith(b"\0"):
            raise self.damaged(f"{what} that a NUL ends, found {bytes(data[-20:])!r}")
        try:
            return data[:-1].decode("utf-8")
        except UnicodeDecodeError:
            raise self.damaged(f"{what} in UTF-8, found {bytes(data[:20])!r}") from None

    def number(self, code: str, what: str) -> int:
        (result,) = struct.unpack(f"<{code}", self.read(struct.calcsize(f"<{code}"), what))
        return result

    def read(self, size: int, what: str) -> bytes:
        if size > self.left:
            raise self.damaged(f"{size:,} bytes of {what}, found {self.left:,}")
        data = self.file.read(size)
        if len(data) != size:  # the file has become shorter
            raise self.damaged(f"{size:,} bytes of {what}, found {len(data):,}")
        self.left -= size
        return data

    def damaged(self, expected: str, remedy: str = "copy or convert the model again") -> InputError:
        return InputError(f"{self.path}: expected {expected}; {remedy}")
