"""CTranslate2's model.bin of all versions, read without CTranslate2.

A model.bin is

    uint32 version | string name | uint32 revision
    uint32 count | count x (string name | uint8 rank | shape | uint8 type | uint32 size | data)
    uint32 count | count x (string alias | string name)

Numbers are little-endian. A string is uint16 length, UTF-8 and a NUL that the length counts.
Before version 4 the bytes of a number are in place of its type, and size counts numbers. Before
version 3 there are no aliases.
"""

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from jax_transformer.errors import InputError
from jax_transformer.files import read_bytes
from jax_transformer.formats.hugging_face import Settings, read_settings
from jax_transformer.formats.imported import Accepted, check_options
from jax_transformer.formats.layout import Arrays

VERSIONS = range(2, 7)  # the last is of CTranslate2 3.0, from 2022, and of all since
_TYPES = ("<f4", "i1", "<i2", "<i4", "<f2", jnp.bfloat16)  # by their number in the file
_BY_WIDTH = {4: "<f4", 2: "<i2", 1: "i1"}
_OLD_INT16_SCALE = np.float32(1000)  # of files that do not have it
# The specifications by their names, with the number of heads before a file had it.
HEADS = {"TransformerBase": 8, "TransformerBig": 16, "TransformerSpec": 8}
# Options that stood once for both stacks before revision 5.
_SHARED = {
    "encoder": ("num_heads", "pre_norm", "activation", "embeddings_merge"),
    "decoder": ("num_heads", "pre_norm", "activation", "alignment_layer", "alignment_heads"),
}
ACTIVATIONS = {0: "relu", 2: "swish", 3: "gelu"}  # the others are approximations of gelu, and tanh
_OPTIONS: Accepted = {
    "with_relative_position": [0],
    **dict.fromkeys(("encoder/num_heads", "encoder/scale_embeddings", "decoder/scale_embeddings")),
    "encoder/pre_norm": [0, 1],
    "encoder/activation": ACTIVATIONS,
    "encoder/multi_query_attention": [0],
    "decoder/alibi": [0],
    "decoder/scale_alibi": [0],
    "decoder/start_from_zero_embedding": [0, 1],
    # These change nothing without several embeddings, ALiBi, and alignments.
    **dict.fromkeys(("encoder/embeddings_merge", "decoder/alibi_use_positive_positions")),
    **dict.fromkeys(("decoder/alignment_layer", "decoder/alignment_heads")),
}


@dataclass(frozen=True)
class ModelFile:
    """The content of a model.bin.

    version: the version of the file's format.
    name, revision: the specification that the variables follow, such as TransformerSpec.
    variables: floating-point ones and those with a scale as float32, other integers as they are;
      an alias is the same array as the variable that it stands for.
    """

    version: int
    name: str
    revision: int
    variables: Arrays


def read_model_file(path: Path) -> ModelFile:
    """Return the content of a model.bin. Raises InputError if it is missing or damaged."""
    try:
        content = memoryview(read_bytes(path))
    except OSError as error:
        raise InputError(
            f"{path}: expected the model of a CTranslate2 folder, found '{error.strerror}'; give "
            "the folder that holds model.bin"
        ) from None
    if len(content) >= 4 and (found := struct.unpack_from("<I", content)[0]) not in VERSIONS:
        raise InputError(
            f"{path}: expected version {VERSIONS[0]} to version {VERSIONS[-1]}, found {found}; "
            "convert the model again, if this is a model.bin at all"
        )
    try:
        return _Reader(content).model()
    except (struct.error, ValueError, LookupError, OverflowError) as error:
        raise InputError(
            f"{path}: expected the model of a CTranslate2 folder, found it damaged: {error}; copy "
            "or convert the model again"
        ) from None


class _Reader:
    """A position in the content of the file; nothing is allocated for what is not there."""

    def __init__(self, content: memoryview) -> None:
        self.content, self.at = content, 0

    def model(self) -> ModelFile:
        self.version = self.number("I")
        name, revision = self.string(), self.number("I")
        stored = {}
        for _ in range(self.number("I")):
            variable = self.string()
            stored[variable] = self.array()
        variables = _as_float32(stored)
        for _ in range(self.number("I") if self.version >= 3 else 0):
            alias, variable = self.string(), self.string()
            variables[alias] = variables[variable]
        return ModelFile(self.version, name, revision, variables)

    def array(self) -> np.ndarray:
        shape = [self.number("I") for _ in range(self.number("B"))]
        kind, size = self.number("B"), self.number("I")
        if self.version < 4:
            return np.frombuffer(self.data(size * kind), _BY_WIDTH[kind]).reshape(shape)
        return np.frombuffer(self.data(size), np.dtype(_TYPES[kind])).reshape(shape)

    def string(self) -> str:
        return bytes(self.data(self.number("H"))).decode("utf-8").removesuffix("\0")

    def number(self, code: str) -> int:
        return struct.unpack(f"<{code}", self.data(struct.calcsize(f"<{code}")))[0]

    def data(self, size: int) -> memoryview:
        start, self.at = self.at, self.at + size
        if self.at > len(self.content):
            raise ValueError(f"{size:,} bytes from byte {start:,} of {len(self.content):,}")
        return self.content[start : self.at]


def _as_float32(stored: Arrays) -> Arrays:
    """Return the variables, those that have a scale divided by it, without the scales.

    int16 has one scale, int8 one for each row. As CTranslate2 does, multiply by 1 / scale in
    float32, which need not be the quotient.
    """
    result = {}
    for name, array in stored.items():
        if name.endswith("_scale") and name.removesuffix("_scale") in stored:
            continue
        scale = stored.get(f"{name}_scale")
        if scale is None and array.dtype == np.int16 and name.endswith("/weight"):
            scale = _OLD_INT16_SCALE
        if scale is not None:
            if scale.size not in (1, *array.shape[:1]):
                raise ValueError(f"{scale.size:,} scales for {name} of shape {list(array.shape)}")
            with np.errstate(all="ignore"):  # what is not finite is refused later
                factor = np.float32(1) / scale.reshape(-1, *[1] * (array.ndim - 1))
                array = array.astype(np.float32) * factor
        result[name] = array if array.dtype.kind == "i" else array.astype(np.float32)
    return result


def of_today(file: ModelFile) -> Arrays:
    """Return the variables by their names from revision 5 on."""
    variables = dict(file.variables)
    if file.revision < 3:  # the name gives it
        variables["num_heads"] = np.array(HEADS[file.name])
    shared = {name: variables.pop(name) for name in {*sum(_SHARED.values(), ())} & {*variables}}
    for stack, names in _SHARED.items():
        variables |= {f"{stack}/{name}": shared[name] for name in names if name in shared}
    if "encoder/embeddings/weight" in variables:
        variables["encoder/embeddings_0/weight"] = variables.pop("encoder/embeddings/weight")
    return variables


def read_config(path: Path, variables: Arrays, version: int) -> Settings:
    """Return the settings of config.json; before version 6 they are taken from the variables."""
    if version >= 6:
        return read_settings(path)

    def taken(name: str, default: Any) -> Any:
        array = variables.pop(name, None)
        if array is None:
            return default
        if type(default) is str:
            return array.astype(np.uint8).tobytes().decode("utf-8", "replace")
        return bool(array.any())

    tokens = {"unk": "<unk>", "bos": "<s>", "eos": "</s>"}
    tokens = {name: taken(f"{name}_token", token) for name, token in tokens.items()}
    start = tokens["bos" if taken("with_target_bos", True) else "eos"]
    values = {
        **{f"{name}_token": token for name, token in tokens.items()},
        "add_source_bos": taken("with_source_bos", False),
        "add_source_eos": taken("with_source_eos", False),
        "decoder_start_token": None if taken("user_decoder_start_tokens", False) else start,
    }
    return Settings(path, values)


def read_options(path: Path, variables: Arrays) -> dict[str, Any]:
    """Take the variables of one number."""
    names = [name for name, array in variables.items() if array.size == 1]
    options = {name: variables.pop(name).item() for name in names}
    as_encoder = {
        f"decoder/{name}": [options.get(f"encoder/{name}")]
        for name in ("num_heads", "pre_norm", "activation")
    }
    check_options(path, options, {**_OPTIONS, **as_encoder})
    return options
