"""A run folder in a bucket: files are fetched to a copy on this disk, and what changes is put back.

A run appends to files, renames folders and maps tokens into memory; a bucket cannot do that, so a
process works on the copy. Nothing is ever deleted in the bucket. A copied file has a time of change
before 2001 that stands for its version in the bucket; every other file was written here.
"""

import contextlib
import logging
import os
import shutil
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from jax_transformer.data.manifest import NAME as MANIFEST
from jax_transformer.data.urls import bucket_errors, bucket_version
from jax_transformer.errors import InputError
from jax_transformer.files import cache_folder, exclusive

logger = logging.getLogger(__name__)

# Parts of names of files that are not put: unfinished, damaged, or of this machine alone.
LOCAL = (".partial", ".building", ".linking", ".orbax-checkpoint-tmp", ".corrupt", ".lock", "/lock")
# These are fetched only on request.
LARGE = ("checkpoints/", "averaged/", "tensorboard/", "tokens/train", "tokens/extra")
LAST = "description/metadata"  # a checkpoint's file that is put when all others are there
SECONDS = 30.0
VERSIONS = 10**9  # seconds: copies have a time of change below it


class Bucket:
    """A folder in a bucket and its copy on this machine, which all processes here share."""

    def __init__(self, url: str) -> None:
        """Open the folder at a URL and name its local copy; nothing is copied yet.

        url: an address such as gs://bucket/folder or s3://bucket/folder, of any kind that fsspec
          can open. Raises InputError if it cannot.
        """
        import fsspec

        self.url = url.rstrip("/")
        parts = self.url.replace("://", "/").split("/")
        if ".." in parts or not parts[0]:  # the copy would be outside of its folder
            raise InputError(f"{url}: expected an address without '..'; write the whole path")
        on_disk: dict[str, Any] = {"auto_mkdir": True} if url.startswith("file:") else {}
        with bucket_errors(url):
            self._files, self._root = fsspec.core.url_to_fs(self.url, **on_disk)
        self.local = cache_folder() / "buckets" / self.url.replace("://", "/")

    def holds_run(self) -> bool:
        """Return True if the folder has a config.json, and False if it is empty or missing.

        Raises InputError if it has other files and no config.json.
        """
        names = {*self._list("")} - {""}
        if names and "config.json" not in names:
            raise InputError(
                f"{self.url}: expected a run folder with a config.json, or an empty one for a new "
                f"run, found none and {len(names):,} other files or folders; give the --workdir "
                "of a run"
            )
        return bool(names)

    def steps(self, folder: str) -> list[int]:
        """Return the steps in a folder of checkpoints in the bucket that are there as a whole."""
        path = f"{self._root}/{folder}"
        with bucket_errors(self.url), contextlib.suppress(FileNotFoundError):
            self._files.invalidate_cache()
            names = [name[len(path) + 1 :].split("/", 1) for name in self._files.find(path)]
            return sorted(int(step) for step, *rest in names if rest == [LAST] and step.isdecimal())
        return []

    def _list(self, folder: str) -> list[str]:
        path = f"{self._root}/{folder}".rstrip("/")
        with bucket_errors(self.url), contextlib.suppress(FileNotFoundError):
            self._files.invalidate_cache()
            found = self._files.ls(path, detail=False)
            return [name.rstrip("/")[len(path) + 1 :] for name in found]
        return []

    def fetch(self, wanted: Callable[[str], bool]) -> None:
        """Copy files that are new in the bucket to this machine; remove copies of what is gone.

        wanted: a predicate for the names of files to copy. Of a file that was written on both
        sides the newer one stays.
        """
        with self._alone(), bucket_errors(self.url):
            self._files.invalidate_cache()
            found = self._files.find(self._root, detail=True)
            names = {path[len(self._root) + 1 :]: info for path, info in found.items()}
            # Without the marks that consoles put for folders, which end in a slash, and without
            # names that lead out of the folder, which object stores allow.
            there = {
                name: info
                for name, info in names.items()
                if not {*name.split("/")} & {"", ".", ".."}
            }
            for name, info in there.items():
                if wanted(name) and self._is_behind(name, info):
                    path = self.local / name
                    path.parent.mkdir(parents=True, exist_ok=True)
                    partial = path.with_name(f"{path.name}.partial")
                    try:
                        self._files.get_file(f"{self._root}/{name}", str(partial))
                        os.utime(partial, (0, _version(info)))
                        partial.replace(path)
                    finally:
                        partial.unlink(missing_ok=True)
            for name, changed in self._here():
                if changed < VERSIONS and name not in there:
                    (self.local / name).unlink()
                    with contextlib.suppress(OSError):  # the folder holds something else
                        os.removedirs((self.local / name).parent)

    def _is_behind(self, name: str, info: dict[str, Any]) -> bool:
        """Return True if the copy of a file is missing or older than the file in the bucket."""
        try:
            changed = (self.local / name).stat().st_mtime
        except FileNotFoundError:
            return True
        if changed < VERSIONS:
            return int(changed) != _version(info)
        return self._files.modified(f"{self._root}/{name}").timestamp() > changed

    def put(self) -> None:
        """Copy what was written here to the bucket."""
        with self._alone(), bucket_errors(self.url):
            # The manifest after the files that it lists, and a changed config.json after it.
            begun = self._files.exists(f"{self._root}/config.json")
            order = {MANIFEST: 2, "config.json": 3 if begun else -1}

            def place(file: tuple[str, float]) -> int:
                return order.get(file[0], int(file[0].endswith(f"/{LAST}")))

            written = [file for file in self._here() if file[1] >= VERSIONS]
            for name, _ in sorted(written, key=place):
                path, there = self.local / name, f"{self._root}/{name}"
                try:
                    if path.stat().st_nlink > 1:  # tokens of several runs: the time is to be ours
                        partial = path.with_name(f"{path.name}.partial")
                        try:
                            shutil.copy2(path, partial)
                            partial.replace(path)
                        finally:  # of a full disk
                            partial.unlink(missing_ok=True)
                    before = path.stat()
                    self._files.put_file(str(path), there)
                    self._files.invalidate_cache()
                    version = _version(self._files.info(there))
                    after = path.stat()
                    # Clocks of files may be coarse, so that the size has to tell.
                    same = (before.st_mtime, before.st_size) == (after.st_mtime, after.st_size)
                    # Else it is put again, and is newer than what is there until then.
                    os.utime(path, (0, version if same else time.time()))
                except FileNotFoundError:
                    if path.exists():  # else it belonged to an old checkpoint, deleted meanwhile
                        raise InputError(
                            f"{self.url}: expected a bucket, found none; create it"
                        ) from None

    @contextlib.contextmanager
    def putting(self) -> Iterator[None]:
        """Put twice a minute while the block runs, and once when it ends."""
        ended = threading.Event()

        def put() -> None:
            while not ended.wait(SECONDS):
                try:
                    self.put()
                except (InputError, OSError) as error:
                    logger.warning("%s; it will be tried again", error)

        thread = threading.Thread(target=put, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            self.put()

    def _here(self) -> Iterator[tuple[str, float]]:
        """Yield (name, time of change) of each file in the copy, ascending."""
        for folder, _, names in sorted(os.walk(self.local)):  # it skips folders that vanish
            for path in sorted(Path(folder, name) for name in names):
                name = path.relative_to(self.local).as_posix()
                local = any(part in f"/{name}" for part in LOCAL)
                if name.startswith("translations/"):  # named after files of the user
                    local = name.endswith(".partial")
                with contextlib.suppress(FileNotFoundError):
                    if not local:
                        yield name, path.stat().st_mtime

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Let one process, and one thread, at a time copy files."""
        # The compilation cache, in the same folder, needs this mode.
        cache_folder().mkdir(mode=0o700, parents=True, exist_ok=True)
        self.local.mkdir(parents=True, exist_ok=True)
        with exclusive(self.local / "bucket.lock"):
            yield


def _version(info: dict[str, Any]) -> int:
    """Return a number that changes whenever a file in the bucket does."""
    return zlib.crc32(bucket_version(info).encode()) % VERSIONS
