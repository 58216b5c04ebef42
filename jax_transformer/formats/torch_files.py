"""Files that torch.save wrote, read without torch: nothing in them is imported or called.

Since version 1.6 torch writes a zip with a pickle, data.pkl, and one member for the numbers of each
storage. Before, it wrote five pickles, the fourth of which is the object, and then the numbers.

A pickle is a program that can name any function and call it. Here Python's Unpickler gets only the
stand-ins of torch_objects.py, and only the opcodes that torch.save writes.
"""

import io
import os
import pickle  # noqa: TID251, for a reader that knows no names but those of our stand-ins
import pickletools
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from jax_transformer.errors import InputError, damage_named, located
from jax_transformer.files import check_regular
from jax_transformer.formats.torch_objects import NAMES, STORAGES, plain

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

    Raises InputError for a file that is not whole or not torch's, or names anything else.
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
    file: BinaryIO, most_bytes: int, names: Mapping[str, Any] = NAMES
) -> tuple[Any, dict[str, np.ndarray]]:
    """Return the value of a pickle and its storages, which are not filled yet, by their keys.

    file: an open file at the beginning of the pickle, after this call at its end.
    most_bytes: the most bytes of the storages together.
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
    def __init__(self, file: BinaryIO, most_bytes: int, names: Mapping[str, Any]) -> None:
        super().__init__(file, encoding="utf-8")
        self.storages: dict[str, np.ndarray] = {}
        self._bytes_left, self._names = most_bytes, names

    def find_class(self, module: str, name: str) -> Any:
        """Return our stand-in for a name. Raises InputError if there is none."""
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
