"""Files: what somebody gave is checked when it is opened, and what is written is written whole."""

import contextlib
import logging
import os
import re
import shutil
import stat
import zipfile
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, TypeVar

from jax_transformer.declared import input_error
from jax_transformer.errors import InputError, shown, warn_once

try:
    import fcntl
except ImportError as error:
    raise ImportError("expected Linux, macOS or WSL, found a system without fcntl") from error
if TYPE_CHECKING:
    from pydantic import TypeAdapter

logger = logging.getLogger(__name__)

T = TypeVar("T")

BYTE_ORDER_MARK = b"\xef\xbb\xbf"

DESCRIPTORS = ("/dev/fd/", "/dev/stdin", "/proc/self/fd/")
_POINTER = re.compile(rb"(?:\xef\xbb\xbf)?version https://[\w.-]+\.github\.com/spec/v\d+\r?\n")
_MOST_PACKED = 100  # bytes that one byte of a zip may stand for
_LARGEST_POINTER = 1024  # bytes; a larger file is not a pointer


def check_regular(path: str | Path, *, once: bool = False) -> None:
    """Raise InputError for a pipe or a device, which may never end, and for a pointer of Git LFS.

    once: True if the file is read once from beginning to end; a pipe that the shell has opened,
    such as /dev/fd/63 for <(command), is then accepted.
    """
    if 0 < _size(path, once) <= _LARGEST_POINTER:
        with contextlib.suppress(OSError), open(path, "rb") as file:  # reading it will raise
            check_pointer(file.read(), path)


def _size(path: str | Path, once: bool = False) -> int:
    """Return the bytes of a file, 0 for anything else. Raises InputError for a pipe or a device."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return 0  # opening it will raise
    opened = once and stat.S_ISFIFO(status.st_mode) and str(path).startswith(DESCRIPTORS)
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode) or opened):
        raise InputError(
            f"{path}: expected a file, found a pipe or a device; write what it gives into a file "
            "first"
        )
    return status.st_size if stat.S_ISREG(status.st_mode) else 0


def check_pointer(beginning: bytes, path: object) -> None:
    """Raise InputError if a file begins as a pointer of Git LFS, which is not the file itself."""
    if _POINTER.match(beginning):
        raise InputError(
            f"{path}: expected the file itself, found a pointer of Git LFS; fetch the file with "
            "git lfs pull, or hf download"
        )


def read_bytes(path: Path) -> bytes:
    """Return the content of a file. Raises what `check_regular` does, else OSError."""
    _size(path)
    content = path.read_bytes()
    check_pointer(content, path)
    return content


def file_lines(path: Path) -> list[str]:
    """Return the lines of a small file in UTF-8, such as a table; a last one may lack its end.

    Lines end at line feeds, before which a carriage return is dropped. Raises what `read_bytes`
    does, and InputError for anything but UTF-8.
    """
    try:
        text = read_bytes(path).removeprefix(BYTE_ORDER_MARK).decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: expected UTF-8, found {error}; convert it") from None
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file and the folders above it; a reader sees the old content or the new."""
    with whole_file(path) as file:
        file.write(content)


def append_bytes(path: Path, content: bytes) -> None:
    """Append to a file, which is made if it is missing. Raises OSError if it is a link."""

    def open_file(name: str, flags: int) -> int:
        return os.open(name, flags | os.O_NOFOLLOW, 0o666)

    with naming(path), open(path, "ab", opener=open_file) as file:
        file.write(content)


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """Yield a file to fill, whose content is in the file `path` at the end, or nowhere."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        partial.unlink(missing_ok=True)  # a process that had this number was killed
        with naming(path), partial.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        if error.filename == str(partial):
            error.filename = str(path)
        raise
    finally:  # it is still there only after an interruption or a full disk
        with contextlib.suppress(OSError):
            partial.unlink()


@contextlib.contextmanager
def naming(path: Path | str) -> Iterator[None]:
    """Give the path to each OSError of the block that has none: those of open files."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno:
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


@contextlib.contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """Yield a folder to fill, whose content is in the folder `path` at the end, or nowhere.

    Raises OSError, which names the path, if a file cannot be written.
    """
    path = path.resolve()
    remove_partial([path])
    there = path.is_dir()  # it may be where a disk is mounted: it cannot be replaced
    building = (path if there else path.parent) / f"{path.name[:100]}.{os.getpid()}.partial"
    try:
        building.mkdir(parents=True)
        yield building
        if there:
            for part in sorted(building.iterdir(), key=lambda part: part.name == "config.json"):
                part.replace(path / part.name)
        else:
            building.replace(path)
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error
    finally:
        shutil.rmtree(building, ignore_errors=True)


def check_packed(archive: zipfile.ZipFile, size: int) -> None:
    """Raise ValueError if a zip of `size` bytes would become very large, or hides how large.

    Python reads other methods than deflate a whole block at a time, whatever the zip says.
    """
    methods = {member.compress_type for member in archive.infolist()}
    if methods - {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
        raise ValueError("parts that are packed by another method than deflate")
    whole = sum(member.file_size for member in archive.infolist())
    if whole > _MOST_PACKED * size:
        raise ValueError(f"{whole:,} bytes that were packed into few")


def remove_partial(paths: Iterable[Path]) -> None:
    """Remove what processes killed in `write_bytes` or `whole_folder` of these paths have left."""
    for path in paths:
        for partial in [*path.parent.glob(f"{path.name}.*.partial"), *path.glob("*.partial")]:
            owner = partial.name.removeprefix(f"{path.name}.").removesuffix(".partial")
            if owner.isdecimal() and not _runs(int(owner)):
                if partial.is_dir():
                    shutil.rmtree(partial, ignore_errors=True)
                else:
                    partial.unlink(missing_ok=True)


def _runs(process: int) -> bool:
    """Return whether another process of this number exists."""
    try:
        os.kill(process, 0)
    except PermissionError:
        return True  # another user's
    except (ProcessLookupError, OverflowError):
        return False
    # This process has not begun to write: a file with its number is from an older process.
    return process != os.getpid()


@contextlib.contextmanager
def exclusive(path: Path, *, wait: bool = True) -> Iterator[None]:
    """Hold the lock of a file during the block; the file is made if it is missing.

    wait: False to raise BlockingIOError if another process has the lock.

    Some network file systems do not have locks: the block then runs without one, with a warning.
    """
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise
        except OSError as error:
            warn_once(
                logger,
                f"{path.parent}: this file system has no locks ({error.strerror}); do not let two "
                "commands write into this folder at once",
            )
        yield


def write_text(path: Path, text: str) -> None:
    """Write text in UTF-8 by `write_bytes`; line ends stay as they are."""
    write_bytes(path, text.encode("utf-8"))


def write_json(path: Path, content: object) -> None:
    """Write JSON by `write_bytes`, one value a line."""
    write_bytes(path, lines_of_json(content))


def lines_of_json(content: object) -> bytes:
    """Return JSON, one value a line."""
    return encode_json(content, indent=1) + b"\n"


def encode_json(content: object, indent: int | None = None) -> bytes:
    """Return JSON, on one line without an indent, with null for a number that is not finite."""
    from pydantic_core import to_json

    # `item` gives the Python number of a scalar of NumPy's.
    return to_json(
        content, indent=indent, inf_nan_mode="null", fallback=lambda scalar: scalar.item()
    )


def read_json(
    path: Path, kind: type[T], remedy: str, expected: str = "a file that this program wrote"
) -> T | None:
    """Return the content of a JSON file; None if the file does not exist.

    Raises InputError, which ends with the remedy, for anything but UTF-8 JSON of this type.
    """
    try:
        return parse_json(read_bytes(path).removeprefix(BYTE_ORDER_MARK), kind)
    except InputError:
        raise  # a ValueError too
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        found = error.strerror
    except ValueError as error:
        found = str(error)
    raise InputError(f"{path}: expected {expected}, found: {found}; {remedy}")


def parse_json(content: bytes, kind: type[T]) -> T:
    """Return JSON as a value of this type, without conversions: neither 1.0 nor true is an int.

    Raises ValueError, which names the place, for anything else.
    """
    from pydantic import ValidationError

    try:
        return _reader(kind).validate_json(content, strict=True)
    except ValidationError as error:
        raise ValueError(str(input_error(error)).removeprefix(": ")) from None


@cache
def _reader(kind: type) -> "TypeAdapter":
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def expanded(path: str | os.PathLike[str]) -> str:
    """Return a path with `~` expanded, as a shell does.

    Raises InputError if there is no such home folder, or for anything but a path.
    """
    if not isinstance(path, str | os.PathLike):
        raise InputError(f"expected a path, found {shown(path)}; give a str or a Path")
    found = os.path.expanduser(os.fspath(path))
    if found.startswith("~"):
        raise InputError(
            f"{path}: expected a home folder for ~, found no such user, or no HOME; write ./{path} "
            "for a file of this name"
        )
    return found


def check_utf8(path: str | Path) -> None:
    """Raise InputError for a path that is not UTF-8, which neither JSON nor orbax can write."""
    if re.search("[\ud800-\udfff]", str(path)):
        raise InputError(f"expected names in UTF-8, found {str(path)!r}; rename the file or folder")


def cache_folder() -> Path:
    """Return `~/.cache/jax_transformer`, or the folder `jax_transformer` in $XDG_CACHE_HOME.

    As the XDG standard says, a relative path in XDG_CACHE_HOME does not count. Raises InputError if
    there is no home folder either.
    """
    for home in (os.environ.get("XDG_CACHE_HOME", ""), "~/.cache"):
        if os.path.isabs(home := os.path.expanduser(home)):
            return Path(home) / "jax_transformer"
    raise InputError(
        "expected a home folder for the cache, found none; set HOME or XDG_CACHE_HOME to a folder"
    )
