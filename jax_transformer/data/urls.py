"""Files in buckets: gs://bucket/name, s3://bucket/name, and what else fsspec knows."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import fsspec

from jax_transformer.errors import InputError


def is_url(path: Any) -> bool:
    """Whether a path is in a bucket: gs://bucket/name, s3://bucket/name.

    >>> is_url("gs://bucket/runs/base"), is_url("runs/base")
    (True, False)
    """
    return "://" in str(path)


def absolute(path: str) -> str:
    """The absolute path of a file; a URL is one."""
    return path if is_url(path) else os.path.abspath(path)


def open_url(url: str) -> Any:
    """A file in a bucket, for reading bytes."""
    with bucket_errors(url):
        opened: Any = fsspec.open(url, "rb")
        return opened.open()


def url_version(url: str) -> str:
    """What changes whenever the file in a bucket does."""
    with bucket_errors(url):
        files, path = fsspec.core.url_to_fs(url)
        return bucket_version(files.info(path))


def bucket_version(info: dict[str, Any]) -> str:
    """`url_version`, from fsspec's description of the file."""
    names = ("size", "etag", "ETag", "mtime")
    return " ".join(str(info[name]) for name in names if name in info)


@contextmanager
def bucket_errors(url: str) -> Iterator[None]:
    """One InputError for whatever the libraries of buckets raise, but for a missing file."""
    try:
        yield
    except (FileNotFoundError, InputError):
        raise
    except Exception as error:  # each has its own kinds, most of them no OSError
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        remedy = "check the address, the network and your credentials"
        if isinstance(error, ImportError | ValueError):
            remedy = "install what reads it, for gs:// and s3:// with pip install -e '.[buckets]'"
        raise InputError(
            f"{url}: expected a bucket to read and write, found {reason}; {remedy}"
        ) from error
