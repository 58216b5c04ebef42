"""The names that may be in a file of torch.save, and our stand-ins for them.

Python's Unpickler calls what a pickle names, sets the state of any object, and adds items to it. So
nothing here can be changed by that: functions are in a `Function`, and each class takes its state
in a `__setstate__` of its own, which keeps Python from setting attributes by name.
"""

import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from jax_transformer.errors import InputError

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


class Function:
    """A function that a pickle may call."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[..., Any]) -> None:
        """Keep the function."""
        self._call = call

    def __call__(self, *arguments: Any) -> Any:
        """Return what the function returns. It may raise any exception for wrong arguments."""
        return self._call(*arguments)

    def __setstate__(self, state: Any) -> None:
        """Raise TypeError: a function has no state."""
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

    Raises ValueError for anything else and for too many values, and RecursionError for those that
    hold themselves.
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
    """Return the numbers of a tensor, those of bfloat16 in float32."""
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
    "collections.defaultdict": Function(lambda *factory: _Dictionary()),
    "torch._utils._rebuild_tensor": Function(_tensor),
    "torch._utils._rebuild_tensor_v2": Function(_tensor),
    "torch._utils._rebuild_parameter": Function(lambda tensor, gradient, hooks: tensor),
    "torch.Size": Function(lambda size: size),
    "_codecs.encode": Function(_encoded),
    "numpy.dtype": _NumberType,
    "numpy.core.multiarray.scalar": Function(_number),
    "numpy._core.multiarray.scalar": Function(_number),
}
