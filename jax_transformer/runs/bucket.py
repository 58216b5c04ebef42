"""A run folder in a bucket: a copy on the local disk, and what changes in it is copied back.

A run appends to files, renames folders and maps tokens into memory; a bucket has none of that. So
a process works on its copy, and `push` brings new files to the bucket, and removes there what this
process has removed here, by `note_removed`: what else is missing in the copy stays in the bucket.
"""

import contextlib
import logging
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

import fsspec

from jax_transformer.data.manifest import NAME as MANIFEST
from jax_transformer.data.urls import bucket_errors, bucket_version
from jax_transformer.errors import InputError
from jax_transformer.files import cache_folder, read_json, write_json
from jax_transformer.runs.lock import exclusive

logger = logging.getLogger(__name__)

# These are copied only when a command needs them.
LARGE = ("checkpoints/", "tensorboard/", "tokens/train", "tokens/extra")
# Names of files that are still being written: they are not copied.
UNFINISHED = (".partial", ".building", ".linking", ".orbax-checkpoint-tmp")
SECONDS = 30.0
RECORD = ".bucket.json"  # the version and the stamp of each file when both copies were the same

_removed: set[Path] = set()  # files and folders, until a push has removed them too

File = tuple[str, list[int]]  # (version in the bucket, [bytes, time of change] of the copy)


def note_removed(path: Path) -> None:
    """Note that this process has removed a file or a folder, for the next `push`."""
    _removed.add(path)


class Bucket:
    """A folder in a bucket and its copy on this machine, which all processes here share."""

    def __init__(self, url: str) -> None:
        """Open the folder at a URL and name its local copy; nothing is copied yet.

        url: an address such as gs://bucket/folder or s3://bucket/folder, of any kind that fsspec
          can open. Raises InputError if it cannot.
        """
        self.url = url.rstrip("/")
        with bucket_errors(url):
            self._files, self._root = fsspec.core.url_to_fs(self.url)
        self.local = cache_folder() / "buckets" / self.url.replace("://", "/")

    def holds_run(self) -> bool:
        """Return True if the folder has a config.json, and False if it is empty or missing.

        Raises InputError if it has other files and no config.json.
        """
        others = []
        with bucket_errors(self.url), contextlib.suppress(FileNotFoundError):
            self._files.invalidate_cache()
            if self._files.exists(f"{self._root}/config.json"):
                return True
            others = self._files.ls(self._root, detail=False)
        if others := [name for name in others if name.rstrip("/") != self._root.rstrip("/")]:
            raise InputError(
                f"{self.url}: expected a run folder with a config.json, or an empty one for a new "
                f"run, found none and {len(others):,} other files or folders; give the --workdir "
                "of a run"
            )
        return False

    def pull(self, large: Sequence[str] = ()) -> None:
        """Copy what has changed in the bucket to this machine, and remove what was deleted there.

        large: the parts of LARGE to copy as well.

        A file that has changed in the copy and not in the bucket stays as it is: an interrupted
        push has left it.
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
                    path = self.local / name
                    path.unlink()
                    with contextlib.suppress(OSError):  # the folder holds something else
                        os.removedirs(path.parent)

    def push(self) -> None:
        """Send what has changed in the copy to the bucket, and delete there what was removed."""
        with self._record() as known:
            removed = {path for path in _removed if path.is_relative_to(self.local)}
            here = self._here()
            # The manifest after the files that it lists; a changed config.json after the manifest.
            order = [MANIFEST, *(["config.json"] if "config.json" in known else [])]
            for name in sorted(here, key=lambda name: order.index(name) if name in order else -1):
                stamp = here[name]
                if name in known and known[name][1] == stamp:
                    continue
                if version := self._send(name):
                    known[name] = (version, stamp)
                    # At once: what was sent before an interruption must not be fetched again.
                    write_json(self.local / RECORD, known)
            for name in set(known) - set(here):
                if removed.isdisjoint([self.local / name, *(self.local / name).parents]):
                    continue  # somebody has freed space
                with bucket_errors(self.url), contextlib.suppress(FileNotFoundError):
                    self._files.rm_file(f"{self._root}/{name}")
                del known[name]
            _removed.difference_update(removed)

    @contextlib.contextmanager
    def pushed(self) -> Iterator[None]:
        """Push twice a minute while the block runs, and once when it ends."""
        done = threading.Event()

        def push() -> None:
            while not done.wait(SECONDS):
                try:
                    self.push()
                except (InputError, OSError) as error:
                    logger.warning("%s; it will be tried again", error)

        thread = threading.Thread(target=push, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()
            self.push()

    def _fetch(self, name: str) -> list[int]:
        """Copy one file to this machine, whole or not at all, and return its stamp."""
        path = self.local / name
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f"{path.name}.partial")  # one process at a time is here
        try:
            with bucket_errors(self.url):
                self._files.get_file(f"{self._root}/{name}", str(partial))
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
        return _stamp(path)

    def _send(self, name: str) -> str | None:
        """Copy one file to the bucket and return its version there.

        Returns None if the file is gone: it belonged to an old checkpoint that was just deleted.
        """
        path, there = self.local / name, f"{self._root}/{name}"
        try:
            with bucket_errors(self.url):
                try:
                    self._files.put_file(str(path), there)
                except FileNotFoundError:
                    if not (path.exists() and self._make_folder(there)):
                        raise
                    self._files.put_file(str(path), there)
                self._files.invalidate_cache()
                return bucket_version(self._files.info(there))
        except FileNotFoundError:
            if path.exists():
                raise InputError(
                    f"{self.url}: expected a bucket, found nothing; create it"
                ) from None
            return None

    def _make_folder(self, there: str) -> bool:
        """Make the folder of a file, where folders are more than names; False for a new bucket."""
        if not any(map(self._files.exists, map(str, PurePosixPath(there).parents[:-1]))):
            return False
        self._files.makedirs(there.rpartition("/")[0], exist_ok=True)
        return True

    def _there(self) -> dict[str, str]:
        """Return the version of each file in the bucket."""
        with bucket_errors(self.url):
            self._files.invalidate_cache()
            found = self._files.find(self._root, detail=True)
        return {path[len(self._root) + 1 :]: bucket_version(info) for path, info in found.items()}

    def _here(self) -> dict[str, list[int]]:
        """Return the stamp of each finished file in the copy."""
        found = {}
        for folder, _, names in os.walk(self.local):  # it skips folders that vanish meanwhile
            for path in [Path(folder, name) for name in names]:
                name = path.relative_to(self.local).as_posix()
                unfinished = any(part in name for part in UNFINISHED)
                if name != RECORD and not name.endswith("lock") and not unfinished:
                    with contextlib.suppress(FileNotFoundError):
                        found[name] = _stamp(path)
        return dict(sorted(found.items()))

    @contextlib.contextmanager
    def _record(self) -> Iterator[dict[str, File]]:
        """Yield the record, to be changed; one process and one thread at a time holds it."""
        # The compilation cache, in the same folder, needs this mode.
        cache_folder().mkdir(mode=0o700, parents=True, exist_ok=True)
        self.local.mkdir(parents=True, exist_ok=True)
        with exclusive(self.local / f"{RECORD}.lock"):
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
    """Return [bytes, time of change in ns] of a file."""
    status = path.stat()
    return [status.st_size, status.st_mtime_ns]
