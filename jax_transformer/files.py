"""Small files: atomic writes, and JSON that is validated when it is read."""

import contextlib
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from jax_transformer.errors import InputError

T = TypeVar("T")

_DESCRIPTORS = ("/dev/fd/", "/dev/stdin", "/proc/self/fd/")


def check_regular(path: str | Path, *, once: bool = False) -> None:
    """Raise InputError if there is a pipe or a device at the path: reading it may never end.

    once: True if the file is read once from beginning to end; a pipe that the shell has opened,
    such as /dev/fd/63 for <(command), is then accepted.
    """
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return  # opening it will raise
    opened = once and stat.S_ISFIFO(mode) and str(path).startswith(_DESCRIPTORS)
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or opened):
        raise InputError(
            f"{path}: expected a file, found a pipe or a device; write what it gives into a file "
            "first"
        )


def read_bytes(path: Path) -> bytes:
    """Return the content of a file. Raises InputError for a pipe or a device, else OSError."""
    check_regular(path)
    return path.read_bytes()


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file and the folders above it; a reader sees the old content or the new."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        with naming(path), partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)  # still there only after an interruption or a full disk


@contextlib.contextmanager
def naming(path: Path | str) -> Iterator[None]:
    """Give the path to each OSError of the block that has none: those of open files."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno:
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


def remove_partial(paths: Iterable[Path]) -> None:
    """Remove what processes killed in `write_bytes` of these files have left."""
    for path in paths:
        for partial in path.parent.glob(f"{path.name}.*.partial"):
            owner = partial.name.removeprefix(f"{path.name}.").removesuffix(".partial")
            if owner.isdecimal() and not _runs(int(owner)):
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


def write_text(path: Path, text: str) -> None:
    """Write text in UTF-8 by `write_bytes`; line ends stay as they are."""
    write_bytes(path, text.encode("utf-8"))


def write_json(path: Path, content: object) -> None:
    """Write JSON by `write_bytes`, one value a line."""
    write_bytes(path, lines_of_json(content))


def lines_of_json(content: object) -> bytes:
    """Return JSON, one value a line."""
    return msgspec.json.format(encode_json(content), indent=1) + b"\n"


def encode_json(content: object) -> bytes:
    """Return JSON on one line, with null for a number that is not finite."""
    return msgspec.json.encode(content, enc_hook=lambda scalar: scalar.item())  # NumPy's scalars


def read_json(
    path: Path, kind: type[T], remedy: str, expected: str = "a file that this program wrote"
) -> T | None:
    """Return the content of a JSON file; None if the file does not exist.

    Raises InputError, which ends with the remedy, for anything but UTF-8 JSON of this type.
    """
    check_regular(path)
    try:
        return parse_json(path.read_bytes(), kind)
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
    try:
        return msgspec.json.decode(content, type=kind)
    except RecursionError:
        raise ValueError("brackets nested too deep") from None


def cache_folder() -> Path:
    """Return `~/.cache/jax_transformer`, or the folder `jax_transformer` in $XDG_CACHE_HOME."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(home) / "jax_transformer"
