"""Files that torch.save wrote, read without torch: nothing in them is imported or called.

Since version 1.6 torch writes a zip with a pickle, `data.pkl`, and one member for the numbers of
each storage. Before, it wrote five pickles, the fourth of which is the object, and the numbers.
"""

import mmap
import os
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from jax_transformer.errors import InputError
from jax_transformer.files import check_regular, naming
from jax_transformer.formats.pickles import Persistent, read_pickle
from jax_transformer.formats.torch_names import NAMES
from jax_transformer.formats.torch_tensors import (
    as_numbers,
    described_storage,
    short,
    type_in_memory,
    type_on_disk,
)

_MAGIC, _PROTOCOL = 0x1950A86A20F9469CFC6C, 1001
_BLOCK = 1 << 18  # numbers
_BEGINNINGS = {
    b"\x89HDF": "an HDF5 file",
    b"\x1f\x8b": "a gzip file, to be unpacked first",
    b"\xfd7zXZ": "an xz file, to be unpacked first",
    b"version https://git-lfs": "a pointer of Git LFS, which stands for the file: get that",
    b"{": "JSON",
    b"<": "a web page or XML",
}


def read_torch(path: str | Path) -> Any:
    """Return what torch.save wrote into a file, with NumPy arrays instead of tensors.

    Arrays of bfloat16 are widened to float32; all may share memory and be read-only. Dictionaries
    of all kinds, argparse's namespaces and OmegaConf's objects become plain dictionaries and lists.
    Types and devices become texts, such as "torch.float32", and OmegaConf's interpolations stay
    texts. The file must not change as long as an array is in use.

    Raises InputError for a file that is not whole or not torch's, or names anything else.
    """
    check_regular(path)
    with naming(path), open(path, "rb") as file:
        if not os.fstat(file.fileno()).st_size:
            raise InputError(f"{path}: expected a file of torch.save, found an empty file")
        # Numbers are read from the disk when they are used.
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    try:
        return _read_zip(data) if data[:4] == b"PK\3\4" else _read_older_form(data)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _not_torch(found: str) -> InputError:
    return InputError(f"expected a file of torch.save, found {found}")


def _read_zip(data: mmap.mmap) -> Any:
    members = _members(data)
    pickles = [name for name in members if name.endswith("/data.pkl") and name.count("/") == 1]
    if len(pickles) != 1:
        arrays = members and all(name.endswith(".npy") for name in members)
        raise _not_torch("a .npz file of NumPy" if arrays else "another zip file")
    folder = pickles[0].removesuffix("data.pkl")
    if f"{folder}constants.pkl" in members:
        raise _not_torch("a program of TorchScript; save its state_dict() with torch.save")
    _check_members(members, len(data))
    order = b"little"
    if byteorder := members.get(f"{folder}byteorder"):
        order = data[_content(data, byteorder)]
    if order not in (b"little", b"big"):
        raise _not_torch("an order of bytes that is neither little nor big; get it again")
    storages = _zip_storages(data, members, f"{folder}data/", big=order == b"big")
    return read_pickle(data[_content(data, members[pickles[0]])], 0, NAMES, storages)[0]


def _members(data: mmap.mmap) -> dict[str, zipfile.ZipInfo]:
    """Return the members of a zip by their names. Raises InputError if two have the same name."""
    try:
        with zipfile.ZipFile(data) as archive:  # pyright: ignore[reportCallIssue,reportArgumentType]
            found = archive.infolist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError, struct.error, OverflowError):
        raise _not_torch("a zip that is damaged or cut short; get it again") from None
    members = {member.orig_filename: member for member in found}
    if len(members) != len(found):
        raise _not_torch("a zip with two members of the same name")
    return members


def _check_members(members: dict[str, zipfile.ZipInfo], size: int) -> None:
    """Raise InputError for members that torch does not write."""
    for name, member in members.items():
        reasons = {
            "a path outside of the zip": ".." in name.split("/") or name.startswith("/"),
            "a name that is not a path": not {"\\", ":", "\0"}.isdisjoint(name),
            "encrypted content": member.flag_bits & 0x41,
            "compressed content": member.compress_type != zipfile.ZIP_STORED,
            "two sizes": member.compress_size != member.file_size,
        }
        for reason, wrong in reasons.items():
            if wrong:
                raise _not_torch(f"a zip in which the member {name[:100]!r} has {reason}")
    if sum(member.file_size for member in members.values()) > size:
        raise _not_torch("a zip whose members are larger than itself; get it again")


def _content(data: mmap.mmap, member: zipfile.ZipInfo) -> slice:
    """Return where the content of a member is in the file."""
    begin = member.header_offset
    header = data[begin : begin + 30] if begin >= 0 else b""
    if len(header) < 30 or header[:4] != b"PK\3\4":
        raise _not_torch("a zip that is damaged or cut short; get it again")
    begin += 30 + sum(struct.unpack("<HH", header[26:]))
    if begin + member.file_size > len(data):
        raise _not_torch("a zip that is damaged or cut short; get it again")
    return slice(begin, begin + member.file_size)


def _zip_storages(
    data: mmap.mmap, members: dict[str, zipfile.ZipInfo], folder: str, big: bool
) -> Persistent:
    """Return the function from what stands for a storage in data.pkl to an array [numbers]."""
    known: dict[tuple[str, str], np.ndarray] = {}

    def storage(found: Any) -> np.ndarray:
        kind, key, count, _ = described_storage(found)
        if big and "Untyped" in kind:
            raise _not_torch("untyped storages of a big-endian machine, whose order is unknown")
        member = members.get(folder + key)
        width = type_on_disk(kind).itemsize
        if member is None or member.file_size != count * width:
            size = "none" if member is None else f"{member.file_size:,} bytes"
            raise InputError(
                f"expected {short(count)} numbers of {width} bytes in {folder + key[:100]!r}, "
                f"found {size}; the file is damaged: get it again"
            )
        if (key, kind) not in known:
            begin = _content(data, member).start
            dtype = type_on_disk(kind).newbyteorder(">" if big else "<")
            known[key, kind] = as_numbers(np.ndarray(count, dtype, data, begin), kind)
        return known[key, kind]

    return storage


def _read_older_form(data: mmap.mmap) -> Any:
    if data[8:9] == b"{":
        raise _not_torch("a safetensors file")
    beginning = data[:512].lstrip()
    for start, kind in _BEGINNINGS.items():
        if beginning.startswith(start):
            raise _not_torch(kind)
    if data[257:262] == b"ustar":
        raise _not_torch("a tar file, as torch before 0.1.10 wrote, or another one")
    if data[:1] != b"\x80":
        raise _not_torch("no pickle at its beginning")
    magic, at = read_pickle(data, 0, {})
    if magic != _MAGIC:
        raise _not_torch("a pickle of another program")
    version, at = read_pickle(data, at, {})
    if version != _PROTOCOL:
        raise _not_torch("another version of its older form than 1001; get it again")
    # The third says in which order the writer's bytes were; the file is always little-endian.
    _, at = read_pickle(data, at, {})
    storages = _LaterStorages(len(data))
    value, at = read_pickle(data, at, NAMES, storages)
    storages.fill(data, at)
    return value


class _LaterStorages:
    """Storages whose numbers come after the pickle that names them: arrays that are filled then."""

    def __init__(self, most_bytes: int) -> None:
        self._kinds: dict[str, tuple[str, int]] = {}
        self._arrays: dict[str, np.ndarray] = {}
        self._bytes_left = most_bytes

    def __call__(self, found: Any) -> np.ndarray:
        """Return the array [numbers] for what stands for a storage."""
        kind, key, count, part = described_storage(found)
        if key not in self._arrays:
            self._bytes_left -= count * type_on_disk(kind).itemsize
            if self._bytes_left < 0:
                raise _not_torch(
                    "fewer bytes than its tensors need: it was cut short; get it again"
                )
            self._kinds[key] = kind, count
            self._arrays[key] = np.empty(count, type_in_memory(kind))
        if self._kinds[key] != (kind, count):
            raise _not_torch("a storage with two types or sizes, which cannot be read")
        match part:
            case None:
                return self._arrays[key]
            case (str(), int(offset), int(size)) if 0 <= offset <= offset + size <= count:
                return self._arrays[key][offset : offset + size]
        raise _not_torch("a part of a storage that is not in it; get it again")

    def fill(self, data: mmap.mmap, at: int) -> None:
        """Read the list of keys at this place, and the count and numbers of each after it."""
        keys, at = read_pickle(data, at, {})
        if type(keys) is not list or not all(type(key) is str for key in keys):
            raise _not_torch("no list of its storages; get it again")
        if sorted(keys) != sorted(self._kinds):
            raise _not_torch("a list of other storages than its tensors have; get it again")
        for key in keys:
            kind, count = self._kinds[key]
            dtype = type_on_disk(kind)
            end = at + 8 + count * dtype.itemsize
            if end > len(data):
                raise _not_torch("its end before the last numbers: cut short; get it again")
            if int.from_bytes(data[at : at + 8], "little") != count:
                raise _not_torch("a storage with two sizes; the file is damaged: get it again")
            stored = np.ndarray(count, dtype, data, at + 8)
            for begin in range(0, count, _BLOCK):  # not all at once, because of the copies
                block = slice(begin, begin + _BLOCK)
                self._arrays[key][block] = as_numbers(stored[block], kind)
            at = end
