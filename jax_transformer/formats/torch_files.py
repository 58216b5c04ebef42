"""Files that torch.save wrote, read without torch: nothing in them is imported or called.

Since version 1.6 torch writes a zip with a pickle, data.pkl, and one member for the numbers of each
storage. Before, it wrote five pickles, the fourth of which is the object, and then the numbers.

A pickle is a program that can name any function and call it, set the state of any object, and add
items to it. Here Python's Unpickler gets only the opcodes that torch.save writes, and the names in
NAMES with our stand-ins for them. Nothing can be changed by these: functions are in a `_Function`,
and each class takes its state in a `__setstate__` of its own, which keeps Python from setting
attributes by name.
"""

import io
import math
import os
import pickle  # noqa: TID251, for a reader that knows no names but those of our stand-ins
import pickletools
import re
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from jax_transformer.errors import InputError, damage_named, located
from jax_transformer.files import check_regular

# NumPy has no bfloat16. Its 16 bits are read as "<u2", which no storage of torch has.
_BFLOAT16 = np.dtype("<u2")
STORAGES = {
    "torch.DoubleStorage": np.dtype("<f8"),
    "torch.FloatStorage": np.dtype("<f4"),
    "torch.HalfStorage": np.dtype("<f2"),
    "torch.BFloat16Storage": _BFLOAT16,
    "torch.LongStorage": np.dtype("<i8"),
    "torch.IntStorage": np.dtype("<i4"),
    "torch.ShortStorage": np.dtype("<i2"),
    "torch.CharStorage": np.dtype("i1"),
    "torch.ByteStorage": np.dtype("u1"),
    "torch.BoolStorage": np.dtype("?"),
}
_LEAVES = (str, bytes, int, float, bool, type(None))
_LARGEST = 2_000_000  # values of a file; its settings are hundreds, its arrays thousands
# An expanded tensor repeats its numbers. A copy of it may have this many.
_MOST_REPEATED = 1 << 26


class _Function:
    """A function that a pickle may call."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    def __call__(self, *arguments: Any) -> Any:
        return self._call(*arguments)

    def __setstate__(self, state: Any) -> None:
        raise TypeError("a function with a state")


class _Dictionary(dict):
    """A dictionary of a class of its own, such as OrderedDict, whose attributes are left out."""

    __slots__ = ()

    def __setstate__(self, state: Any) -> None:
        pass


class _Attributes(dict):
    """An object as the dictionary of its attributes."""

    __slots__ = ()

    def __setstate__(self, state: Any) -> None:
        self.update(**state)


class _Configuration:
    """An object of OmegaConf, of which the content alone counts: a container or one value."""

    __slots__ = ("content",)

    def __setstate__(self, state: Any) -> None:
        self.content = state["_content"] if "_content" in state else state["_val"]


class _NumberType:
    """A type of NumPy's numbers, little-endian."""

    __slots__ = ("text",)

    def __init__(self, kind: str, *copying: Any) -> None:
        if not re.fullmatch("[iu][1248]|f[248]|b1", kind):
            raise ValueError(f"numbers of type {kind}")
        self.text = f"<{kind}"

    def __setstate__(self, state: Any) -> None:
        if state[1] not in ("<", "|"):
            raise ValueError("numbers that are not little-endian")


def _number(kind: Any, content: bytes) -> Any:
    """Return a number of NumPy as one of Python."""
    [number] = np.frombuffer(content, kind.text).tolist()
    return number


def _encoded(text: str, encoding: str) -> bytes:
    """Return bytes, which protocol 2 writes as text."""
    if encoding != "latin1":
        raise ValueError("bytes in another encoding than latin1")
    return str.encode(text, encoding)


def _tensor(
    storage: Any,
    offset: int,
    size: tuple[int, ...],
    stride: tuple[int, ...],
    gradient: Any = None,
    hooks: Any = None,
    marks: Any = None,
) -> np.ndarray:
    """Return a view of a storage [numbers]; offset and stride count numbers."""
    if marks:
        raise InputError("expected plain tensors, found a negated or conjugated view; clone() it")
    if not all(type(number) is int and number >= 0 for number in (offset, *size, *stride)):
        raise ValueError("a tensor with an impossible shape")
    if 0 in size:
        return np.zeros(size, storage.dtype)
    # NumPy compares a view with its storage too, but by products that may overflow.
    last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    if last >= len(storage) or math.prod(size) > max(len(storage), _MOST_REPEATED):
        raise ValueError("a tensor outside its storage")
    steps = [step * storage.itemsize for step in stride]
    return np.ndarray(size, storage.dtype, storage, offset * storage.itemsize, steps)


def plain(value: Any, left: Iterator[int] | None = None) -> Any:
    """Return what was read as dictionaries, lists, tuples, texts, numbers and arrays.

    left: an item for each value that may still come; a value that is shared comes several times.
    """
    left = left or iter(range(_LARGEST))
    if next(left, None) is None:
        raise ValueError(f"more than {_LARGEST:,} values")
    if isinstance(value, _Configuration):
        return plain(value.content, left)
    if isinstance(value, dict):
        return {_leaf(key): plain(item, left) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(plain(item, left) for item in value)
    return _array(value) if isinstance(value, np.ndarray) else _leaf(value)


def _array(array: np.ndarray) -> np.ndarray:
    if array.dtype == _BFLOAT16:
        return (array.astype(np.uint32) << 16).view(np.float32)
    if array.dtype == bool:
        return array.view(np.uint8) != 0  # a damaged file may have other bytes than 0 and 1
    return array


def _leaf(value: Any) -> Any:
    if type(value) not in _LEAVES:
        raise ValueError(f"a {type(value).__name__} where a text or a number should be")
    if type(value) is str:
        value.encode()  # raises for half of a surrogate pair, which cannot be printed
    return value


_METERS = [f"{kind}Meter" for kind in ("Average", "Stopwatch", "Sum", "Time")]
_ATTRIBUTES = [
    "argparse.Namespace",
    "omegaconf.base.Metadata",
    "omegaconf.base.ContainerMetadata",
    *(f"fairseq.{module}.{meter}" for module in ("meters", "logging.meters") for meter in _METERS),
]
_NODES = ("Any", "Boolean", "Bytes", "Float", "Integer", "InterpolationResult", "String")
_CONFIGURATIONS = [
    "omegaconf.dictconfig.DictConfig",
    "omegaconf.listconfig.ListConfig",
    "omegaconf.base.UnionNode",
    *(f"omegaconf.nodes.{kind}Node" for kind in _NODES),
]
_TYPES = ("bool", "dict", "float", "int", "list", "long", "object", "str", "tuple")
_BUILTINS = ("builtins", "__builtin__")  # the second is Python 2's name, which protocol 2 has
_FAIRSEQ_CONFIGS = [
    *("Checkpoint", "CommonEval", "Common", "Dataset", "DistributedTraining", "EMA", "EvalLM"),
    *("Fairseq", "FairseqBMUF", "Generation", "Interactive", "Optimization"),
]
# Names that are values only, such as the types that OmegaConf's objects mention: they become text.
_TEXTS = [
    *STORAGES,
    *(f"typing.{name}" for name in ("Any", "Dict", "List", "Optional", "Tuple", "Union")),
    *(f"{module}.{name}" for module in _BUILTINS for name in _TYPES),
    *(f"fairseq.dataclass.configs.{name}Config" for name in _FAIRSEQ_CONFIGS),
]
NAMES: dict[str, Any] = {
    **{text: text for text in _TEXTS},
    **dict.fromkeys(_ATTRIBUTES, _Attributes),
    **dict.fromkeys(_CONFIGURATIONS, _Configuration),
    "collections.OrderedDict": _Dictionary,
    "collections.defaultdict": _Function(lambda *factory: _Dictionary()),
    "torch._utils._rebuild_tensor": _Function(_tensor),
    "torch._utils._rebuild_tensor_v2": _Function(_tensor),
    "torch._utils._rebuild_parameter": _Function(lambda tensor, gradient, hooks: tensor),
    "torch.Size": _Function(lambda size: size),
    "_codecs.encode": _Function(_encoded),
    "numpy.dtype": _NumberType,
    "numpy.core.multiarray.scalar": _Function(_number),
    "numpy._core.multiarray.scalar": _Function(_number),
}

# The first two pickles of the older form: what the file is, and the version of the form.
_OLDER = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03."
_OPCODES = {
    *("PROTO", "FRAME", "STOP", "MARK", "BINPUT", "LONG_BINPUT", "MEMOIZE"),
    *("BINGET", "LONG_BINGET", "NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2"),
    *("LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE", "BINSTRING", "SHORT_BINSTRING"),
    *("BINBYTES", "SHORT_BINBYTES", "EMPTY_TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "TUPLE"),
    *("EMPTY_LIST", "APPEND", "APPENDS", "EMPTY_DICT", "SETITEM", "SETITEMS"),
    *("GLOBAL", "STACK_GLOBAL", "REDUCE", "NEWOBJ", "BUILD", "BINPERSID"),
}


def read_torch(path: str | Path) -> Any:
    """Return what torch.save wrote into a file, with NumPy arrays instead of tensors.

    Arrays of bfloat16 are widened to float32; all may share memory. Dictionaries of all kinds,
    argparse's namespaces and OmegaConf's objects become plain dictionaries and lists. OmegaConf's
    interpolations stay texts.

    A crafted file can take time and memory, or end the process, but cannot run anything.
    """
    check_regular(path)
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        with damage_named(path, "a whole file of torch.save", "get it again"), located(path):
            is_zip = file.peek(4)[:4] == b"PK\3\4"
            return plain(_read_zip(file, size) if is_zip else _read_older_form(file, size))


def _read_zip(file: BinaryIO, size: int) -> Any:
    with zipfile.ZipFile(file) as archive:
        names = archive.namelist()
        pickles = [name for name in names if name.endswith("/data.pkl") and name.count("/") == 1]
        if len(pickles) != 1:
            raise InputError(
                f"expected a file of torch.save, found a zip with {names[:3]!r:.100}; give another"
            )
        if any(member.compress_type != zipfile.ZIP_STORED for member in archive.infolist()):
            raise InputError(
                "expected a zip as torch.save writes it, found a compressed one; give the original"
            )
        folder = pickles[0].removesuffix("data.pkl")
        if f"{folder}byteorder" in names and archive.read(f"{folder}byteorder") != b"little":
            raise InputError(
                "expected little-endian numbers, found others; save the file on another machine"
            )
        value, storages = _unpickle(io.BytesIO(archive.read(pickles[0])), size)
        for key, storage in storages.items():
            _fill(storage, archive.read(f"{folder}data/{key}"))
    return value


def _read_older_form(file: BinaryIO, size: int) -> Any:
    beginning = file.read(len(_OLDER))
    if beginning != _OLDER:
        raise InputError(
            f"expected a file of torch.save, found one that begins with {beginning}; get it again"
        )
    _unpickle(file, 0, {})  # what the writer's machine was like, which changes nothing
    value, storages = _unpickle(file, size)
    keys, _ = _unpickle(file, 0, {})
    if type(keys) is not list or sorted(keys) != sorted(storages):
        raise ValueError("a list of other storages than the tensors have")
    for key in keys:
        if int.from_bytes(file.read(8), "little") != len(storages[key]):
            raise ValueError("a storage with two sizes")
        _fill(storages[key], file.read(storages[key].nbytes))
    return value


def _fill(storage: np.ndarray, content: bytes) -> None:
    if len(content) != storage.nbytes:
        raise ValueError(f"{len(content):,} bytes of a storage of {storage.nbytes:,}")
    storage.view(np.uint8)[:] = np.frombuffer(content, np.uint8)


def _unpickle(
    file: BinaryIO, most_bytes: int, names: dict[str, Any] = NAMES
) -> tuple[Any, dict[str, np.ndarray]]:
    """Return the value of a pickle and its storages, which are not filled yet, by their keys.

    file: is at the beginning of the pickle, and then at its end. most_bytes: of all storages.
    """
    start = file.tell()
    for count, (opcode, argument, at) in enumerate(pickletools.genops(file)):
        # Unpickler makes a list of the memo, so one large index would fill the memory.
        too_far = "PUT" in opcode.name and argument > count  # pyright: ignore[reportOptionalOperand]
        if opcode.name not in _OPCODES or too_far:
            raise ValueError(f"opcode {opcode.name} at byte {at}, which torch.save does not write")
    file.seek(start)
    unpickler = _Unpickler(file, most_bytes, names)
    return unpickler.load(), unpickler.storages


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: BinaryIO, most_bytes: int, names: dict[str, Any]) -> None:
        super().__init__(file, encoding="utf-8")
        self.storages: dict[str, np.ndarray] = {}
        self._bytes_left, self._names = most_bytes, names

    def find_class(self, module: str, name: str) -> Any:
        text = f"{module}.{name}"
        if text not in self._names:
            raise InputError(
                f"expected the names of tensors and plain settings, found {text!r:.100}, and "
                "called nothing; if you trust the file, load it with torch and save the "
                "state_dict() alone"
            )
        return self._names[text]

    def persistent_load(self, pid: Any) -> np.ndarray:
        """Return the array [numbers] of a storage, to be filled later."""
        match pid:
            case ("storage", str(kind), str(key), str(), int(count), *view) if view in ([], [None]):
                if key not in self.storages:
                    self._bytes_left -= count * STORAGES[kind].itemsize
                    if self._bytes_left < 0:
                        raise ValueError("fewer bytes than the tensors need")
                    self.storages[key] = np.empty(count, STORAGES[kind])
                storage = self.storages[key]
                if storage.dtype == STORAGES[kind] and len(storage) == count:
                    return storage
        raise ValueError("an unknown description of a storage")
