"""Files in buckets: gs://bucket/name, s3://bucket/name, and others that fsspec supports."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

from jax_transformer.errors import InputError, install_command, reason_of
from jax_transformer.files import check_utf8, expanded


def is_url(path: object) -> bool:
    """Return whether a path is in a bucket: gs://bucket/name, s3://bucket/name.

    >>> is_url("gs://bucket/runs/base"), is_url("runs/base")
    (True, False)
    """
    return "://" in str(path)


def absolute(path: str | os.PathLike[str]) -> str:
    """Return the absolute path of a file, with `~` expanded; a URL is one already.

    It has no `..`, for which TensorStore takes the folder before it away, even if that is a link.
    Raises what `expanded` and `check_utf8` do.
    """
    if is_url(path):
        return str(path)
    if not os.fspath(expanded(path)):
        raise InputError("expected a path, found an empty one; give one, or . for this folder")
    full, real = os.path.abspath(expanded(path)), os.path.realpath(expanded(path))
    full = full if os.path.realpath(full) == real else real
    check_utf8(full)
    return full


def open_url(url: str) -> IO[bytes]:
    """Open a file in a bucket for reading bytes."""
    import fsspec  # a fifth of the time of --help

    with bucket_errors(url):
        opened: Any = fsspec.open(url, "rb")
        return opened.open()


def url_version(url: str) -> str:
    """Return a text that changes whenever the file in a bucket does."""
    import fsspec

    with bucket_errors(url):
        files, path = fsspec.core.url_to_fs(url)
        return bucket_version(files.info(path))


def bucket_version(info: dict[str, Any]) -> str:
    """Return the text of `url_version`, from fsspec's description of the file."""
    names = ("size", "etag", "ETag", "mtime", "blob_id")  # the last one of hf://
    return " ".join(str(info[name]) for name in names if name in info)


@contextmanager
def bucket_errors(url: str) -> Iterator[None]:
    """Turn all errors of the libraries of buckets into InputError.

    Except for a missing file, and for a full disk.
    """
    try:
        yield
    except (FileNotFoundError, InputError):
        raise
    except Exception as error:  # each library has its own kinds, most of them not OSError
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise  # of this machine's disk
        remedy = "check the address, the network and your credentials"
        if isinstance(error, ImportError | ValueError):
            remedy = f"install what reads it, for gs:// and s3:// with {install_command('buckets')}"
        raise InputError(
            f"{url}: expected a bucket to read and write, found {reason_of(error)}; {remedy}"
        ) from error
