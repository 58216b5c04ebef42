"""Storages and tensors of torch, and arrays and numbers of NumPy, from their descriptions."""

import math
import re
from typing import Any

import numpy as np

from jax_transformer.errors import InputError
from jax_transformer.formats.pickled_objects import Record

Arguments = tuple[Any, ...]

# The type of numbers on disk by the type of storage, and by the type of tensor.
STORAGE_TYPES = {
    "torch.DoubleStorage": "<f8",
    "torch.FloatStorage": "<f4",
    "torch.HalfStorage": "<f2",
    "torch.BFloat16Storage": "bfloat16",
    "torch.LongStorage": "<i8",
    "torch.IntStorage": "<i4",
    "torch.ShortStorage": "<i2",
    "torch.CharStorage": "|i1",
    "torch.ByteStorage": "|u1",
    "torch.BoolStorage": "|b1",
    "torch.UntypedStorage": "|u1",
    "torch.storage.UntypedStorage": "|u1",
}
TENSOR_TYPES = {
    "torch.float64": "<f8",
    "torch.float32": "<f4",
    "torch.float16": "<f2",
    "torch.int64": "<i8",
    "torch.int32": "<i4",
    "torch.int16": "<i2",
    "torch.int8": "|i1",
    "torch.uint64": "<u8",
    "torch.uint32": "<u4",
    "torch.uint16": "<u2",
    "torch.uint8": "|u1",
}
# An expanded tensor repeats its numbers. A copy of it may have this many.
MOST_REPEATED = 1 << 26
_MOST_AXES = 64
_NUMPY_TYPE = "b1|[iu][1248]|f[248]"


def type_on_disk(kind: str) -> np.dtype:
    """Return the type of a storage's numbers in a little-endian file."""
    return np.dtype("<u2" if STORAGE_TYPES[kind] == "bfloat16" else STORAGE_TYPES[kind])


def type_in_memory(kind: str) -> np.dtype:
    """Return the type of a storage's array: float32 for bfloat16, which NumPy does not have."""
    return np.dtype("<f4" if STORAGE_TYPES[kind] == "bfloat16" else STORAGE_TYPES[kind])


def as_numbers(stored: np.ndarray, kind: str) -> np.ndarray:
    """Return the array of a storage: the stored one if the processor can use it, else a copy."""
    if STORAGE_TYPES[kind] == "bfloat16":
        wide = stored.astype(np.uint32)
        wide <<= 16
        return wide.view(np.float32)
    if STORAGE_TYPES[kind] == "|b1":
        return stored.view(np.uint8) != 0  # a damaged file may have other bytes than 0 and 1
    usable = stored.dtype.isnative and stored.flags.aligned
    return stored if usable else stored.astype(stored.dtype.newbyteorder("="))


def described_storage(found: Any) -> tuple[str, str, int, Any]:
    """Return the type, the key and the count of numbers of a storage, and which part is meant."""
    match found:
        case (str(what), str(kind), str(key), str(), int(count), *rest) if len(rest) <= 1:
            if what == "storage" and kind in STORAGE_TYPES and count >= 0:
                return kind, key, count, rest[0] if rest else None
    raise InputError("found an unknown description of a storage; the file is damaged: get it again")


def strided(storage: np.ndarray, offset: int, size: Arguments, stride: Arguments) -> np.ndarray:
    """Return a view of a storage [numbers]; offset and stride count numbers.

    Raises InputError for a view that leaves the storage, or repeats it too often.
    """
    whole = all(type(number) is int and number >= 0 for number in (offset, *stride))
    if not whole or len(size) != len(stride):
        raise InputError("found a tensor with an impossible offset or stride; get the file again")
    _check_shape(size, storage.itemsize)
    if 0 in size:
        return np.zeros(size, storage.dtype)
    last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    count = math.prod(size)
    if last >= len(storage) or count > max(len(storage), MOST_REPEATED):
        raise InputError(
            f"found a tensor of {short(count)} numbers, up to number {short(last)} of a storage "
            f"of {len(storage):,}; the file is damaged: get it again"
        )
    # An axis of 1 may have any stride, even one that no pointer can hold.
    steps = [step * storage.itemsize if n > 1 else 0 for n, step in zip(size, stride, strict=True)]
    return np.ndarray(size, storage.dtype, storage, offset * storage.itemsize, steps)


def short(number: int) -> str:
    """Return the digits of a number, unless they fill the screen."""
    return f"{number:,}" if number < 1 << 64 else "more than 2^64"


def _check_shape(size: Arguments, width: int) -> None:
    """Raise InputError for a shape that NumPy cannot have."""
    possible = len(size) <= _MOST_AXES and all(type(n) is int and n >= 0 for n in size)
    if not possible or math.prod(n or 1 for n in size) * width >= 1 << 63:
        raise InputError("found an array with an impossible shape; get the file again")


def tensor(arguments: Arguments) -> Any:
    """Return a tensor: storage, offset, size, stride, has a gradient, hooks, marks of a view."""
    match arguments:
        case (np.ndarray(ndim=1) as storage, int(offset), tuple(size), tuple(stride), *rest):
            unmarked = all(mark is None or (type(mark) is dict and not mark) for mark in rest[2:])
            # A mark says that all numbers are to be negated or conjugated.
            if storage.flags.c_contiguous and len(rest) <= 3 and unmarked:
                return strided(storage, offset, size, stride)
    return NotImplemented


def typed_tensor(arguments: Arguments) -> Any:
    """Return a tensor that has a storage of bytes, and the type of its numbers before the marks."""
    match arguments:
        case (np.ndarray(ndim=1) as storage, offset, size, stride, grad, hooks, str(kind), *marks):
            if kind not in TENSOR_TYPES:
                raise InputError(f"found a tensor of {kind[:100]!r}, which NumPy does not have")
            if storage.dtype == np.uint8 and storage.flags.c_contiguous:
                dtype = np.dtype(TENSOR_TYPES[kind])
                whole = len(storage) - len(storage) % dtype.itemsize
                numbers = storage[:whole].view(dtype)
                return tensor((numbers, offset, size, stride, grad, hooks, *marks))
    return NotImplemented


def parameter(arguments: Arguments) -> Any:
    """Return the tensor of a parameter."""
    match arguments:
        case (np.ndarray() as array, bool(), dict(), *rest) if len(rest) <= 1:
            return array
    return NotImplemented


TENSORS = {
    "torch._utils._rebuild_tensor": tensor,
    "torch._utils._rebuild_tensor_v2": tensor,
    "torch._utils._rebuild_tensor_v3": typed_tensor,
    "torch._utils._rebuild_parameter": parameter,
    "torch._utils._rebuild_parameter_with_state": parameter,
}


def tensor_with_attributes(arguments: Arguments) -> Any:
    """Return a tensor without its attributes."""
    match arguments:
        case (str(function), str(kind), tuple(inner), _) if function in TENSORS:
            if kind in ("torch.Tensor", "torch.nn.parameter.Parameter"):
                return TENSORS[function](inner)
    return NotImplemented


def numpy_type(arguments: Arguments) -> Any:
    """Return a type that becomes a text, such as "<f8"; the order of bytes is its state."""
    match arguments:
        case (str(kind), *_) if re.fullmatch(_NUMPY_TYPE, kind):

            def finish(state: Any) -> Any:
                match state:
                    case (int(), str(order), None, None, None, *_) if order in ("<", ">", "|"):
                        return order + kind
                return NotImplemented

            return Record("numpy.dtype", finish)
    return NotImplemented


def numpy_scalar(arguments: Arguments) -> Any:
    """Return a number of NumPy as one of Python."""
    match arguments:
        case (str(kind), bytes(content)):
            array = _numpy_numbers((), kind, content, "C")
            return NotImplemented if array is None else array.item()
    return NotImplemented


def numpy_array(arguments: Arguments) -> Any:
    """Return an array that becomes NumPy's as soon as its state is known."""

    def finish(state: Any) -> Any:
        match state:
            case (int(), tuple(shape), str(kind), int(fortran), bytes(content)):
                array = _numpy_numbers(shape, kind, content, "F" if fortran else "C")
                return NotImplemented if array is None else array
        return NotImplemented

    match arguments:
        case (str(kind), tuple(), bytes()) if kind == "numpy.ndarray":
            return Record(kind, finish)
    return NotImplemented


def _numpy_numbers(shape: Arguments, kind: str, content: bytes, order: Any) -> np.ndarray | None:
    """Return the array of a shape and a type such as "<f8", None if the content does not fit."""
    if not re.fullmatch(f"[<>|]({_NUMPY_TYPE})", kind):
        return None
    dtype = np.dtype(kind)
    _check_shape(shape, dtype.itemsize)
    if math.prod(shape) * dtype.itemsize != len(content):
        return None
    array = np.ndarray(shape, dtype, content, order=order)
    return array.view(np.uint8) != 0 if kind[1:] == "b1" else array.astype(dtype.newbyteorder("="))
