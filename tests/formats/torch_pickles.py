"""Files of torch.save put together by hand, with anything in them."""

import io
import pickle
import struct
import zipfile
from pathlib import Path
from typing import Any

MAGIC, VERSION = 0x1950A86A20F9469CFC6C, 1001
SYSTEM = {"protocol_version": 1001, "little_endian": True, "type_sizes": {"int": 4}}


def body(value: Any) -> bytes:
    """The opcodes that push a value."""
    return pickle.dumps(value, protocol=2)[2:-1]


def whole(content: bytes) -> bytes:
    """The pickle with these opcodes."""
    return b"\x80\x02" + content + b"."


def named(module: str, name: str) -> bytes:
    """The opcodes that push a class or a function."""
    return f"c{module}\n{name}\n".encode()


def called(module: str, name: str, *arguments: bytes) -> bytes:
    """The opcodes that call a function."""
    return named(module, name) + b"(" + b"".join(arguments) + b"tR"


def storage(kind: str, count: int, *view: bytes, key: str = "0") -> bytes:
    """The opcodes that stand for a storage, or for a view of it."""
    parts = [body("storage"), named("torch", kind), body(key), body("cpu"), body(count), *view]
    return b"(" + b"".join(parts) + b"tQ"


def tensor(stored: bytes, size: Any, stride: Any, offset: Any = 0, marks: bytes = b"") -> bytes:
    """The opcodes that make a tensor."""
    parts = [stored, body(offset), body(size), body(stride), body(False)]
    hooks = called("collections", "OrderedDict")
    return called("torch._utils", "_rebuild_tensor_v2", *parts, hooks, marks)


def zipped(members: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    """A zip with these members."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


def zip_form(content: bytes, storages: dict[str, bytes] | None = None, **members: bytes) -> bytes:
    """The file with this pickle, these storages by their keys, and further members."""
    numbers = {f"data/{key}": stored for key, stored in (storages or {}).items()}
    parts = {"data.pkl": content, **numbers, **members}
    return zipped({f"archive/{name}": part for name, part in parts.items()})


def older_form(
    content: bytes, storages: dict[str, tuple[int, bytes]] | None = None, **pickles: bytes
) -> bytes:
    """The file with this pickle, and storages, each with its count of numbers, by their keys.

    pickles: other ones than torch's: magic, version, system or keys.
    """
    storages = storages or {}
    plain = {"magic": MAGIC, "version": VERSION, "system": SYSTEM, "keys": [*storages]}
    parts = {name: pickle.dumps(value, protocol=2) for name, value in plain.items()} | pickles
    before = parts["magic"] + parts["version"] + parts["system"] + content + parts["keys"]
    stored = [struct.pack("<q", count) + numbers for count, numbers in storages.values()]
    return before + b"".join(stored)


def written(folder: Path, content: Any) -> Path:
    """The path of a new file with this content."""
    path = folder / "model.pt"
    path.write_bytes(bytes(content))
    return path
