"""Checkpoints: saved asynchronously, and verified when read (§6.1).

Orbax writes and reads the arrays, but it restores an array with a flipped bit without an error. So
every checkpoint has a description, a JSON item that is committed together with the arrays: the
dtype, shape and CRC-32 of each array, the position in the data, a copy of the run's manifest (the
origin of the model), and the SHA-256 of all that.
"""

import errno
import logging
import os
import shutil
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np
import orbax.checkpoint as ocp

from jax_transformer.data.manifest import differences, digest_of
from jax_transformer.errors import InputError, reason_of, warn_once
from jax_transformer.files import check_regular, encode_json, naming
from jax_transformer.parallel import check_devices, this_process
from jax_transformer.runs.run_dir import saved_steps

logger = logging.getLogger(__name__)

T = TypeVar("T")

DISK_FULL = ("No space left", "Disk quota exceeded")


class Checkpoint(NamedTuple):
    """The content of one checkpoint; the leaves are NumPy arrays."""

    step: int
    params: Any
    optimizer: Any
    position: dict  # JSON: the next batch of training


class CorruptCheckpoint(Exception):
    """A checkpoint whose files can be read but do not hold what was saved."""


class Checkpoints:
    """The last `keep` checkpoints of a training run, in one folder, with one writer.

    Leaving the block, by an exception too, waits for the save under way.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        keep: int = 20,
        regular: Callable[[int], bool] = lambda _: True,
        asynchronous: bool = True,
    ) -> None:
        """Open the folder, and remove what a killed process left half-written.

        keep: the number of regular checkpoints to keep.
        regular: a predicate for the steps that count for `keep`. Another step, saved because
          training was stopped there, stays until the next one is saved.
        asynchronous: False for a `save` that returns only when everything is written.

        Older checkpoints are removed at the next `wait`, but none before this object has saved one.
        Of several processes all may open, save and restore, and only process 0 writes.
        """
        check_devices()
        _ignore_late_errors()
        self._folder = Path(folder).absolute()
        self._manager = None
        if this_process()[0]:
            return
        self._keep, self._regular = keep, regular
        self._last_save: tuple[int, int] | None = None  # step, bytes
        self._has_saved = False
        self._best: tuple[int, int] | None = None
        options = ocp.CheckpointManagerOptions(
            enable_async_checkpointing=asynchronous,
            cleanup_tmp_directories=True,
            create=False,
            multiprocessing_options=_alone(),
        )
        self._folder.mkdir(parents=True, exist_ok=True)
        self._manager = ocp.CheckpointManager(self._folder, options=options)

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(self, *_: object) -> None:
        if self._manager:
            try:
                self.wait()
            finally:
                with self._failure_as_os_error():
                    self._manager.close()

    def steps(self) -> list[int]:
        """Return the steps of the finished checkpoints, ascending; unverified."""
        return saved_steps(self._folder)

    def wait(self) -> None:
        """Wait for the save under way, then remove old checkpoints.

        Raises OSError if a save failed.
        """
        if self._manager:
            with self._failure_as_os_error():
                self._manager.wait_until_finished()
            if self._has_saved:
                self._remove_old(self._manager)

    def keep_best(self, step: int, count: int) -> None:
        """Keep from now on also this step, and `count` - 1 regular checkpoints before it."""
        self._best = step, count

    def _remove_old(self, manager: ocp.CheckpointManager) -> None:
        """Remove what need not be kept; the newest checkpoint of all is kept."""
        steps = sorted(manager.all_steps())
        if self._best and self._best[0] > steps[-1]:
            return  # it is not saved yet, and the best before it may be the one to remove
        regular = [step for step in steps if self._regular(step)]
        kept = {*regular[-self._keep :], *steps[-1:]}
        if self._best:
            best, count = self._best
            up_to = [s for s in steps if s == best or (s < best and self._regular(s))]
            kept |= {*up_to[-count:]}
        for step in steps:
            if step not in kept:
                try:
                    manager.delete(step)
                except OSError as error:  # on NFS, another process may be reading it
                    logger.warning(f"checkpoint {self._folder / str(step)} stays: {error}")

    def save(self, step: int, params: Any, optimizer: Any, position: dict, origin: dict) -> None:
        """Start saving trees of NumPy arrays; they may change once this returns.

        Raises InputError if `step` is not after the last one in the folder, and OSError if this
        save or the one before it failed, for example on a full disk. The finished checkpoints are
        then as they were.
        """
        if not self._manager:
            return
        given = {"params": params, "optimizer": optimizer}
        trees = {name: tree for name, tree in given.items() if jax.tree.leaves(tree)}
        leaves = _leaves(trees)
        self.wait()
        if any(there >= step for there in self.steps()):
            raise InputError(
                f"expected only checkpoints before step {step} in {self._folder}, found "
                f"{self.steps()}: resume from the last or give another folder"
            )
        with ThreadPoolExecutor() as pool:  # training waits for this; zlib leaves Python's lock
            arrays = dict(zip(leaves, pool.map(_summary, leaves.values()), strict=True))
        content = {"step": step, "position": position, "origin": origin, "arrays": arrays}
        description = {"content": content, "sha256": digest_of(encode_json(content))}
        items: dict[str, Any] = {"description": ocp.args.JsonSave(description)}
        items |= {name: ocp.args.StandardSave(tree) for name, tree in trees.items()}
        size = sum(leaf.nbytes for leaf in leaves.values())
        self._last_save = (step, size)
        with self._failure_as_os_error():
            disk = shutil.disk_usage(self._folder)
            if disk.total and disk.free < size:  # some file systems report nothing: all zeros
                raise OSError(DISK_FULL[0])
            self._manager.save(step, args=ocp.args.Composite(**items), force=True)
        self._has_saved = True

    def restore_latest(self, params_like: Any, optimizer_like: Any) -> Checkpoint | None:
        """Return the newest good checkpoint, or None if the folder has no checkpoint.

        Corrupt ones after it are quarantined: renamed to `N.corrupt`, so that step N can be saved
        again. Raises InputError if all are corrupt (none is renamed) or of another model, and
        OSError if one cannot be read (permissions, a failing disk).
        """
        self.wait()
        if not self.steps():
            return None
        trees_like = {"params": params_like, "optimizer": optimizer_like}
        step, trees, description = next(good_checkpoints(self._folder, trees_like, self.steps()))
        if self._manager:  # orbax must not take the corrupt ones for its own
            for path in [self._folder / str(later) for later in self.steps() if later > step]:
                names = (path.with_name(f"{path.name}.corrupt{i or ''}") for i in count())
                renamed = path.rename(next(name for name in names if not name.exists()))
                logger.warning("corrupt checkpoint %s is now %s", path, renamed.name)
            self._manager.reload()
        return Checkpoint(step, trees["params"], trees["optimizer"], description["position"])

    @contextmanager
    def _failure_as_os_error(self) -> Iterator[None]:
        """Turn whatever orbax raises for a failed save into an OSError of one line."""
        try:
            yield
        except (OSError, ValueError, RuntimeError) as error:
            step, size = self._last_save or (0, 0)
            code, reason = errno.EIO, f"{reason_of(error)}: mend that"
            if any(text in str(error) for text in DISK_FULL):
                code = errno.ENOSPC
                reason = (
                    f"disk full, it takes more than {size:,} bytes: free space for it, and lower "
                    "training.keep_checkpoints if there is none for later ones"
                )
            raise OSError(
                code,
                f"checkpoint {self._folder / str(step)} was not saved: {reason}, then resume "
                f"(finished before it: {[s for s in self.steps() if s != step]})",
            ) from error


def read_description(folder: str | Path, step: int | None = None) -> Mapping[str, Any]:
    """Return the description of a checkpoint: its `step`, `position`, `origin` and `arrays`.

    step: the step of the checkpoint; without it, the newest that has a good description. Returns an
    empty mapping if there is no such checkpoint. Raises InputError if none has a good description.
    """
    folder = Path(folder).absolute()

    def read(steps: list[int]) -> dict[str, Any]:
        wanted = [saved for saved in steps if step in (None, saved)]
        return next(good_checkpoints(folder, {}, wanted))[2] if wanted else {}

    return settled(folder, read)


def restore_params(
    folder: str | Path, params_like: Any, step: int | None = None
) -> tuple[list[int], Any]:
    """Return (steps, params) of one checkpoint, the newest good one unless `step` is given.

    The steps are those that an averaged model is the mean of, else one. Raises InputError if there
    is no such checkpoint, or it is corrupt or of another model.
    """
    folder = Path(folder).absolute()

    def read(saved: list[int]) -> tuple[list[int], Any]:
        if step not in (None, *saved):
            raise InputError(
                f"expected checkpoint {step} in {folder}, found {saved}; choose one of these"
            )
        wanted = saved if step is None else [step]
        found, trees, description = next(good_checkpoints(folder, {"params": params_like}, wanted))
        return description["position"].get("steps", [found]), trees["params"]

    return settled(folder, read)


def settled(folder: Path, read: Callable[[list[int]], T]) -> T:
    """Return what `read` makes of the steps in a folder.

    If it fails and the steps are others by then, it reads again: another process has saved a newer
    checkpoint, and removed the older one that was being read.
    """
    while True:
        steps = saved_steps(folder)
        try:
            return read(steps)
        except (InputError, OSError):
            if saved_steps(folder) == steps:
                raise


def good_checkpoints(
    folder: Path, trees_like: dict[str, Any], steps: Sequence[int]
) -> Iterator[tuple[int, dict[str, Any], dict]]:
    """Yield (step, trees, description) of each good one of some checkpoints, newest first.

    A corrupt one is named in a warning, once. Raises InputError if all are corrupt, or if they are
    not of one run.
    """
    check_devices()  # without one each checkpoint would seem corrupt
    corrupt: dict[int, CorruptCheckpoint] = {}
    newest: dict[str, Any] = {}
    before = saved_steps(folder)

    def warn(instead: str) -> None:
        for bad, reason in corrupt.items():
            warn_once(logger, f"checkpoint {folder / str(bad)} is corrupt ({reason}): {instead}")

    for step in reversed(steps):
        try:
            trees, description = _read(folder, step, trees_like)
        except CorruptCheckpoint as error:
            if saved_steps(folder) != before:
                raise InputError(f"{folder}: changed while it was read; try again") from error
            corrupt[step] = error
            continue
        warn(f"using step {step}")
        corrupt.clear()
        newest = newest or description
        if found := differences(description["origin"], newest["origin"]):
            raise InputError(
                f"expected checkpoints of one run in {folder}, found step {step} unlike step "
                f"{newest['step']}: {'; '.join(found)}; move those of the other run away"
            )
        yield step, trees, description
    if newest:
        warn("left out")
        return
    found, remedy = "none", "save one first or give another folder"
    if steps:
        others = [step for step in before if step not in steps]
        remedy = f"take another of {others}" if others else "start in another folder"
        if folder.name == "averaged":  # of a run folder
            remedy = "make it again with experiments.average"
        remedy = f"put back a copy or {remedy}"
        found = f"{steps}, all corrupt (the newest: {corrupt[steps[-1]]})"
    raise InputError(f"expected a good checkpoint in {folder}, found {found}: {remedy}")


def _read_description(folder: Path, step: int) -> dict[str, Any]:
    """Return the description of one checkpoint, verified."""
    item = _restore(folder / str(step), description=ocp.args.JsonRestore())["description"]
    content = item.get("content") if isinstance(item, dict) else None
    if not isinstance(content, dict) or digest_of(encode_json(content)) != item.get("sha256"):
        raise CorruptCheckpoint("its description is not what was saved")
    if content["step"] != step:
        raise CorruptCheckpoint(f"it was saved as step {content['step']}")
    return content


def _read(folder: Path, step: int, trees_like: dict[str, Any]) -> tuple[dict[str, Any], dict]:
    """Return (trees, description) of one checkpoint, verified; `trees_like` names the trees."""
    path, description = folder / str(step), _read_description(folder, step)
    if not trees_like:
        return {}, description
    _check_fit(path, description["arrays"], trees_like)
    # NumPy targets restore as NumPy arrays; these take no memory.
    targets = jax.tree.map(lambda x: np.broadcast_to(np.zeros((), x.dtype), x.shape), trees_like)
    items = {name: ocp.args.StandardRestore(target) for name, target in targets.items()}
    trees = dict(_restore(path, **items).items())
    for name, array in _leaves(trees).items():
        if _summary(array) != description["arrays"][name]:
            raise CorruptCheckpoint(f"{name} is not what was saved")
    return trees, description


@cache
def _ignore_late_errors() -> None:
    """Ignore from now on what TensorStore's threads report after orbax closed its event loop.

    Orbax does so when reading or writing fails, while they go on for it.
    """
    show = sys.unraisablehook

    def show_others(unraisable: Any) -> None:
        if str(unraisable.exc_value) != "Event loop is closed":
            show(unraisable)

    sys.unraisablehook = show_others


def _restore(path: Path, **items: Any) -> Any:
    _ignore_late_errors()
    try:
        for file in path.rglob("*"):
            check_regular(file)
        handler = ocp.CompositeCheckpointHandler()
        with ocp.Checkpointer(handler, multiprocessing_options=_alone()) as reader:
            return reader.restore(path, args=ocp.args.Composite(**items))
    except MemoryError:
        raise  # the checkpoint may well be good
    except Exception as error:  # orbax and tensorstore raise all kinds for damaged files
        _check_readable(path)
        raise CorruptCheckpoint(reason_of(error)) from error


def _check_readable(folder: Path) -> None:
    """Raise OSError naming the first file that cannot be read; its content may well be good."""

    def refuse(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError | NotADirectoryError):
            raise error

    for parent, _, names in os.walk(folder, onerror=refuse):
        for path in [Path(parent, name) for name in names]:
            with naming(path):
                if path.is_file():
                    with path.open("rb") as file:
                        while file.read(2**20):
                            pass


def _alone() -> Any:
    """Return options with which orbax does not wait for other processes.

    Each process restores by itself, and process 0 alone saves.
    """
    index, count = this_process()
    options = ocp.options.MultiprocessingOptions
    return options() if count == 1 else options(primary_host=index, active_processes={index})


def _check_fit(path: Path, arrays: dict[str, Any], trees_like: dict[str, Any]) -> None:
    """Raise InputError naming the first leaf in which the checkpoint differs from the model."""
    expected = {name: _kind(leaf) for name, leaf in _leaves(trees_like).items()}
    found = {n: entry["kind"] for n, entry in arrays.items() if n.split("/")[0] in trees_like}
    for name in expected | found:
        here, there = expected.get(name, "absent"), found.get(name, "absent")
        if here != there:
            raise InputError(
                f"checkpoint {path} is of another model: {name} is {there} in it, {here} here: "
                "use the configuration it was trained with"
            )


def _leaves(trees: dict[str, Any]) -> dict[str, Any]:
    """Return every leaf by its name, such as `params/encoder/kernel`."""
    leaves = jax.tree_util.tree_leaves_with_path(trees)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves}


def _kind(leaf: Any) -> str:
    return f"{np.dtype(leaf.dtype).name} {tuple(leaf.shape)}"


def _summary(array: np.ndarray) -> dict[str, Any]:
    """Return the dtype and shape of an array and the CRC-32 of its bytes in C order."""
    content = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return {"kind": _kind(array), "crc32": zlib.crc32(content.data)}
