"""Checkpoints: saved with checksums, verified when read, averaged (paper sections 5.3 and 6.1).

Orbax writes them, but restores an array with a flipped bit without an error. So the JSON item,
which is committed together with the arrays, holds the CRC-32 of each array and of itself.
"""

import errno
import json
import logging
import shutil
import sys
import threading
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from jax.experimental import multihost_utils

from jax_transformer.errors import InputError

logger = logging.getLogger(__name__)
FULL = ("No space left", "Disk quota exceeded")
_WRITERS_SECONDS = 5.0
_STILL_SECONDS = 0.3


def _worth_showing(record: logging.LogRecord) -> bool:
    """False for orbax's records below ERROR, and for failures that reach us as exceptions too."""
    text = record.getMessage() + str(record.exc_info and record.exc_info[1])
    if record.name == "asyncio":
        return not any(name in text for name in ("tensorstore", "OCDBT", "/orbax/checkpoint/"))
    told = record.levelno < logging.ERROR or any(full in text for full in FULL)
    return not (told and "/orbax/checkpoint/" in record.pathname)


def _show_unraisable(event: Any, show: Any = sys.unraisablehook) -> None:
    """All but the traceback for each file orbax was busy with when it gave up on another one."""
    if str(event.exc_value) != "Event loop is closed":
        show(event)


for name in ("absl", "asyncio"):
    logging.getLogger(name).addFilter(_worth_showing)
sys.unraisablehook = _show_unraisable


@dataclass(frozen=True)
class Saved:
    """What one checkpoint holds; the arrays are NumPy's."""

    step: int
    params: Any
    optimizer: Any
    position: dict


class Damaged(Exception):
    """A checkpoint that cannot be read, or does not hold what was saved."""


def _leaves(trees: dict[str, Any]) -> dict[str, Any]:
    """{"params/encoder/kernel": leaf, ...}"""
    leaves = jax.tree_util.tree_leaves_with_path(trees)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves}


def _kind(leaf: Any) -> str:
    return f"{np.dtype(leaf.dtype).name} {tuple(leaf.shape)}"


def _label(array: np.ndarray) -> dict[str, Any]:
    """The dtype and shape of an array and the CRC-32 of its bytes in C order."""
    content = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return {"kind": _kind(array), "crc32": zlib.crc32(content.data)}


def _sealed(record: dict[str, Any]) -> dict[str, Any]:
    """The JSON item with the CRC-32 of the rest of it."""
    rest = {name: value for name, value in record.items() if name != "crc32"}
    return rest | {"crc32": zlib.crc32(json.dumps(rest).encode())}


def _one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


def _restore(path: Path, **items: Any) -> Any:
    """These items of one checkpoint, read by this process alone; Damaged whatever goes wrong."""
    here = jax.process_index()
    alone = ocp.options.MultiprocessingOptions(
        primary_host=here, active_processes={here}, barrier_sync_key_prefix=f"reader_{here}"
    )
    options = ocp.CompositeOptions(multiprocessing_options=alone)
    handler = ocp.CompositeCheckpointHandler(composite_options=options)
    try:
        with ocp.Checkpointer(handler, multiprocessing_options=alone) as reader:
            return reader.restore(path, args=ocp.args.Composite(**items))
    except MemoryError:
        raise  # says nothing about the checkpoint
    except Exception as error:
        raise Damaged(_one_line(error)) from error


def _check_fit(path: Path, labels: dict[str, Any], trees_like: dict[str, Any]) -> None:
    """InputError naming the first leaf in which the checkpoint differs from the model."""
    wanted = {name: _kind(leaf) for name, leaf in _leaves(trees_like).items()}
    found = {n: label["kind"] for n, label in labels.items() if n.split("/")[0] in trees_like}
    for name in wanted | found:
        here, there = wanted.get(name, "absent"), found.get(name, "absent")
        if here != there:
            raise InputError(
                f"checkpoint {path} is of another model: {name} is {there} in it, {here} here: "
                "use the configuration it was trained with"
            )


def _read(folder: Path, step: int, trees_like: dict[str, Any]) -> tuple[dict[str, Any], dict]:
    """(trees, position) of one checkpoint, verified; `trees_like` names the trees wanted."""
    path = folder / str(step)
    record = _restore(path, position=ocp.args.JsonRestore())["position"]
    if not isinstance(record, dict) or record != _sealed(record) or record.get("step") != step:
        raise Damaged("position is not what was saved at this step")
    _check_fit(path, record["arrays"], trees_like)
    filled = {name: like for name, like in trees_like.items() if jax.tree.leaves(like)}
    targets = jax.tree.map(lambda x: np.broadcast_to(np.zeros((), x.dtype), x.shape), filled)
    trees = _restore(path, **{name: ocp.args.StandardRestore(t) for name, t in targets.items()})
    trees = {name: trees[name] if name in filled else like for name, like in trees_like.items()}
    for name, array in _leaves(trees).items():
        if _label(array) != record["arrays"][name]:
            raise Damaged(f"{name} is not what was saved")
    return trees, record["position"]


def _steps(folder: Path) -> list[int]:
    """The steps of the checkpoints in the folder, ascending; unverified."""
    paths = folder.iterdir() if folder.is_dir() else ()
    return sorted(int(p.name) for p in paths if p.name.isdecimal() and p.is_dir())


def _remove_half_written(folder: Path, step: str = "*") -> None:
    """Remove what a killed or failed save left; orbax would do so later, in a thread."""
    for path in folder.glob(f"{step}.orbax-checkpoint-tmp*"):
        shutil.rmtree(path, ignore_errors=True)


def _remove_until_still(folder: Path, step: str) -> None:
    """Remove what a failed save left, and what tensorstore's threads write after it.

    They cannot be waited for: they hold what other arrays had in flight, and make the folders
    they miss.
    """
    last = time.monotonic() + _WRITERS_SECONDS
    quiet = 0.0
    while quiet < _STILL_SECONDS and time.monotonic() < last:
        _remove_half_written(folder, step)
        time.sleep(0.02)
        quiet = 0.0 if any(folder.glob(f"{step}.orbax-checkpoint-tmp*")) else quiet + 0.02
    _remove_half_written(folder, step)


def _let_writers_end() -> None:
    """Wait for orbax's threads: each item of a save has one, and fails or goes on by itself.

    Not for ever, for one may wait in turn for what has failed.
    """
    last = time.monotonic() + _WRITERS_SECONDS
    for thread in threading.enumerate():
        if type(thread).__module__.startswith("orbax."):
            # The plain join, for theirs raises what ended the thread.
            threading.Thread.join(thread, max(last - time.monotonic(), 0.0))


def _good(folder: Path, trees_like: dict[str, Any]) -> Iterator[tuple[int, dict[str, Any], dict]]:
    """(step, trees, position) of each good checkpoint, newest first; InputError if none is."""
    steps, damaged, good = _steps(folder), {}, 0
    for step in reversed(steps):
        try:
            trees, position = _read(folder, step, trees_like)
        except Damaged as error:
            damaged[step] = error
            continue
        while damaged:
            bad, reason = damaged.popitem()
            logger.warning(
                "checkpoint %s is damaged (%s): using step %d", folder / str(bad), reason, step
            )
        good += 1
        yield step, trees, position
    if not good:
        found, remedy = "none", "save one first or give another folder"
        if damaged:
            newest = next(iter(damaged.values()))
            found = f"{steps}, all damaged (the newest: {newest})"
            remedy = "put back a copy or start in another folder"
        raise InputError(f"expected a good checkpoint in {folder}, found {found}: {remedy}")
    for bad, reason in damaged.items():
        logger.warning(
            "checkpoint %s is damaged (%s): no good one before it", folder / str(bad), reason
        )


class Checkpoints:
    """The last `keep` checkpoints of a training run, in one folder, with one writer.

    Opening removes what a killed save left half-written; leaving the `with` block waits for the
    save under way. With several processes, all of them make the same calls.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        keep: int = 20,
        asynchronous: bool = True,
    ):
        if keep < 1:
            raise InputError(f"expected to keep at least 1 checkpoint, found keep={keep}: raise it")
        self._folder = Path(folder).absolute()
        self._saving, self._needed = 0, 0  # step and bytes of the last save
        options = ocp.CheckpointManagerOptions(
            max_to_keep=keep, enable_async_checkpointing=asynchronous
        )
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            _remove_half_written(self._folder)
            self._manager = ocp.CheckpointManager(self._folder, options=options)
        except OSError as error:
            raise InputError(
                f"expected a folder for checkpoints, found {folder}: {error.strerror or error}: "
                "give another folder"
            ) from error

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.wait()
        finally:
            self._manager.close()

    def steps(self) -> list[int]:
        """The steps of the finished checkpoints, ascending; unverified."""
        return _steps(self._folder)

    def wait(self) -> None:
        """Wait for the save under way; OSError if it failed."""
        with self._naming_failure():
            self._manager.wait_until_finished()

    def save(self, step: int, params: Any, optimizer: Any, position: dict) -> None:
        """Save trees of NumPy arrays and a JSON position; they may change once this returns.

        Errors: InputError if `step` is not after the last one there; OSError if this save, or the
        asynchronous one before, failed: the finished checkpoints are then as they were.
        """
        trees = {"params": params, "optimizer": optimizer}
        leaves = _leaves(trees)
        assert all(isinstance(leaf, np.ndarray) for leaf in leaves.values()), "use jax.device_get"
        labels = {name: _label(leaf) for name, leaf in leaves.items()}
        record = _sealed({"step": step, "position": position, "arrays": labels})
        self.wait()
        if any(there >= step for there in self.steps()):
            raise InputError(
                f"expected only checkpoints before step {step} in {self._folder}, found "
                f"{self.steps()}: resume from the last or give another folder"
            )
        items: dict[str, Any] = {"position": ocp.args.JsonSave(record)}
        items |= {n: ocp.args.StandardSave(t) for n, t in trees.items() if jax.tree.leaves(t)}
        self._saving, self._needed = step, sum(leaf.nbytes for leaf in leaves.values())
        with self._naming_failure():
            if self._free() < self._needed:
                raise OSError(FULL[0])
            saved = self._manager.save(step, args=ocp.args.Composite(**items), force=True)
            assert saved, f"orbax did not save step {step}"

    def _free(self) -> int:
        return shutil.disk_usage(self._folder).free

    @contextmanager
    def _naming_failure(self) -> Iterator[None]:
        """Turn what orbax raises for a failed save into one OSError and remove the remains."""
        try:
            yield
        except (OSError, ValueError, RuntimeError) as error:
            path = self._folder / str(self._saving)
            _let_writers_end()
            _remove_until_still(self._folder, path.name)
            self._manager.reload()  # forgets this step, remembers those it was about to delete
            code, cause, reason, remedy = errno.EIO, error, _one_line(error), "mend that"
            if any(text in str(error) for text in FULL):
                reason = f"disk full, {self._needed:,} bytes needed, {self._free():,} free"
                code, cause, remedy = errno.ENOSPC, None, "free space or keep fewer"
            raise OSError(
                code,
                f"checkpoint {path} was not saved: {reason}: {remedy}, then resume "
                f"(finished before it: {self.steps()})",
            ) from cause

    def restore_latest(self, params_like: Any, optimizer_like: Any) -> Saved | None:
        """The newest good checkpoint; None in a folder without any.

        Damaged ones after it are renamed to `N.corrupt`, so that step N can be saved again.
        Errors: InputError if all are damaged (none is renamed) or of another model.
        """
        self.wait()
        if not self.steps():
            return None
        trees_like = {"params": params_like, "optimizer": optimizer_like}
        step, trees, position = next(_good(self._folder, trees_like))
        self._set_aside([later for later in self.steps() if later > step], step)
        return Saved(step, trees["params"], trees["optimizer"], position)

    def _set_aside(self, damaged: list[int], used: int) -> None:
        """Rename the damaged checkpoints once all processes agree on the one used."""
        multihost_utils.assert_equal(np.int32(used), "processes restored different checkpoints")
        for path in [self._folder / str(step) for step in damaged if jax.process_index() == 0]:
            names = (path.with_name(f"{path.name}.corrupt{i or ''}") for i in count())
            renamed = path.rename(next(name for name in names if not name.exists()))
            logger.warning("damaged checkpoint %s is kept as %s", path, renamed.name)
        multihost_utils.sync_global_devices("damaged checkpoints set aside")
        self._manager.reload()


def restore_params(
    folder: str | Path, params_like: Any, step: int | None = None
) -> tuple[int, Any]:
    """(step, params) of one checkpoint, the newest good one unless `step` is given."""
    folder, trees_like = Path(folder).absolute(), {"params": params_like}
    if step is None:
        step, trees, _ = next(_good(folder, trees_like))
        return step, trees["params"]
    steps = _steps(folder)
    if step not in steps:
        raise InputError(f"expected checkpoint {step} in {folder}, found {steps}: ask for another")
    try:
        return step, _read(folder, step, trees_like)[0]["params"]
    except Damaged as error:
        raise InputError(
            f"expected a good checkpoint {folder / str(step)}, found it damaged ({error}): "
            f"ask for another of {steps}"
        ) from error


def average(folder: str | Path, params_like: Any, last: int) -> tuple[list[int], Any]:
    """(steps, params): the mean of the `last` newest good checkpoints (paper section 6.1).

    mean = (params_1 + ... + params_n) / n, summed in float64, returned in the params' dtype.
    Skips damaged ones, takes fewer where there are fewer, and reports both.
    """
    if last < 1:
        raise InputError(f"expected to average at least 1 checkpoint, found {last}: raise it")
    folder, steps = Path(folder).absolute(), []
    total = jax.tree.map(lambda leaf: np.zeros(leaf.shape, np.float64), params_like)
    for step, trees, _ in islice(_good(folder, {"params": params_like}), last):
        total = jax.tree.map(lambda s, x: np.add(s, x, out=s), total, trees["params"])
        steps.insert(0, step)
    n = len(steps)
    if n < last:
        logger.warning("expected %d checkpoints of %s to average, found %d good", last, folder, n)
    total = jax.tree.map(lambda s: np.divide(s, n, out=s), total)
    return steps, jax.tree.map(lambda s, x: s.astype(x.dtype), total, params_like)


def save_average(folder: str | Path, params: Any, steps: Sequence[int]) -> None:
    """Save an averaged model in a folder of its own; the one before goes when this is complete."""
    with Checkpoints(folder, keep=1, asynchronous=False) as averages:
        averages.save(max(averages.steps(), default=0) + 1, params, (), {"steps": list(steps)})


def restore_average(folder: str | Path, params_like: Any) -> tuple[list[int], Any]:
    """(steps, params): the averaged model and the steps it is the mean of."""
    found = _good(Path(folder).absolute(), {"params": params_like})
    _, trees, position = next(found)
    return position["steps"], trees["params"]
