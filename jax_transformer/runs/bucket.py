"""A run folder in a bucket: a copy on the local disk, and what changes in it is copied back.

A run appends to files, renames folders and maps tokens into memory; a bucket has none of that. So
a process works on its copy, and `push` brings new files to the bucket and removes deleted ones.
"""

import contextlib
import fcntl
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import fsspec

from jax_transformer.data.urls import bucket_errors, bucket_version
from jax_transformer.errors import InputError
from jax_transformer.files import cache_folder, read_json, write_json

# Not copied until somebody needs them.
LARGE = ("checkpoints/", "tensorboard/", "tokens/train/")
# What is being written, and what keeps other processes of this machine out.
UNFINISHED = (".partial", ".building", ".linking", ".orbax-checkpoint-tmp")
SECONDS = 30.0
RECORD = ".bucket.json"  # of each file, how it was in the bucket and here when both were the same

File = tuple[str, list[int]]  # (version in the bucket, [bytes, time of change] here)


class Bucket:
    """A folder in a bucket and its copy on this machine, which all processes here share."""

    def __init__(self, url: str) -> None:
        """url: gs://, s3:// or whatever else fsspec knows. InputError where it does not."""
        self.url = url.rstrip("/")
        with bucket_errors(url):
            self._files, self._root = fsspec.core.url_to_fs(self.url)
        self.local = cache_folder() / "buckets" / self.url.replace("://", "/")

    def pull(self, large: Sequence[str] = ()) -> None:
        """Make the copy as the bucket is; `large`: which of LARGE too.

        A file that has changed here since, and not in the bucket, stays as it is: it is what an
        interrupted push has left.
        """
        left_out = tuple(name for name in LARGE if name not in large)
        with self._record() as known:
            there, here = self._there(), self._here()
            for name in set(known) - set(here):
                del known[name]
            for name, version in there.items():
                if name.startswith(left_out):
                    continue
                if name not in known or known[name][0] != version:
                    known[name] = (version, self._fetch(name))
            for name in set(known) - set(there):
                if known.pop(name)[1] == here.get(name):
                    (self.local / name).unlink()

    def push(self) -> None:
        """Make the bucket as the copy is."""
        with self._record() as known:
            here = self._here()
            changed = [n for n, stamp in here.items() if n not in known or known[n][1] != stamp]
            deleted = [name for name in known if name not in here]
            for name in changed:
                self._send(name)
            with bucket_errors(self.url):
                for name in deleted:
                    with contextlib.suppress(FileNotFoundError):
                        self._files.rm_file(f"{self._root}/{name}")
            if changed or deleted:
                there = self._there()
                for name in deleted:
                    del known[name]
                known |= {n: (there[n], here[n]) for n in changed if n in there}

    @contextlib.contextmanager
    def pushed(self, warn: Any) -> Iterator[None]:
        """Push twice a minute while the block runs, and once when it ends."""
        done = threading.Event()

        def push() -> None:
            while not done.wait(SECONDS):
                try:
                    self.push()
                except InputError as error:
                    warn("%s; it will be tried again", error)

        thread = threading.Thread(target=push, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()
            self.push()

    def _fetch(self, name: str) -> list[int]:
        """Copy one file here, whole or not at all."""
        path = self.local / name
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
        try:
            with bucket_errors(self.url):
                self._files.get_file(f"{self._root}/{name}", str(partial))
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
        return _stamp(path)

    def _send(self, name: str) -> None:
        path = self.local / name
        try:
            with bucket_errors(self.url):
                self._files.put_file(str(path), f"{self._root}/{name}")
        except FileNotFoundError:
            if path.exists():  # else it was an old checkpoint, just deleted
                raise InputError(
                    f"{self.url}: expected a bucket, found nothing; create it"
                ) from None

    def _there(self) -> dict[str, str]:
        """The files in the bucket, each with its version."""
        with bucket_errors(self.url):
            self._files.invalidate_cache()
            found = self._files.find(self._root, detail=True)
        return {path[len(self._root) + 1 :]: bucket_version(info) for path, info in found.items()}

    def _here(self) -> dict[str, list[int]]:
        """The finished files here, each with its stamp."""
        found = {}
        for path in sorted(self.local.rglob("*")):
            name = path.relative_to(self.local).as_posix()
            unfinished = any(part in name for part in UNFINISHED)
            if name != RECORD and not name.endswith("lock") and not unfinished:
                with contextlib.suppress(FileNotFoundError):
                    if path.is_file():
                        found[name] = _stamp(path)
        return found

    @contextlib.contextmanager
    def _record(self) -> Iterator[dict[str, File]]:
        """The record, to be changed; one process and one thread at a time has it."""
        self.local.mkdir(parents=True, exist_ok=True)
        with (self.local / f"{RECORD}.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                known = read_json(self.local / RECORD, dict[str, File], "") or {}
            except InputError:
                known = {}  # then everything is copied again
            before = dict(known)
            try:
                yield known
            finally:
                if known != before:
                    write_json(self.local / RECORD, known)


def _stamp(path: Path) -> list[int]:
    status = path.stat()
    return [status.st_size, status.st_mtime_ns]
