"""Where devices are named: pmap, replicas and shards (§5.2), a CPU's cores, the process's memory.

The pure step is the same on one device, where it is jitted, and on several, where it is
pmapped with sums over the "devices" axis. JAX keeps pmap in maintenance mode, so this is
the one file in which to exchange it.
"""

import contextlib
import ctypes
import gc
import glob
import hashlib
import os
import platform
import re
import time
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from operator import itemgetter
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jax_transformer.kept import KeptFunction, keep_in
from jax_transformer.machine import cores, processor_flags

AXIS = "devices"
_LEAST_ROWS = 8  # that a thread gets: of fewer a product takes as long as of 8
# Up to so many vectors, products with more bytes of parameters than caches hold are bound by
# reading these, and threads that each multiply their own vectors all read them. Measured on two
# cores with AVX2; with AVX-512 one of these cases was even.
_FEW_VECTORS, _IN_CACHE = 32, 64 * 2**20
_CUDA_VERSIONS = (12, 13)  # that JAX has plugins for
_KEPT_DAYS = 30  # that a compiled function stays without being used


class Devices:
    """The local devices that share every batch."""

    def __init__(self, count: int | None = None) -> None:
        """All local devices, or the first `count` of them."""
        self.devices = jax.local_devices()[:count]

    @property
    def count(self) -> int:
        """How many devices share a batch; its rows are a multiple of this."""
        return len(self.devices)

    def describe(self) -> str:
        """Such as `8 x cpu (cpu)`."""
        first = self.devices[0]
        return f"{self.count} x {first.device_kind} ({first.platform})"

    def replicate(self, tree: Any) -> Any:
        """A copy of every leaf on each device."""
        if self.count == 1:
            return jax.device_put(tree, self.devices[0], may_alias=False)
        # Leaves are stacked by hand: jax 0.12 has no device_put_replicated any more.
        return jax.pmap(lambda _, leaves: leaves, in_axes=(0, None), devices=self.devices)(
            np.zeros(self.count), tree
        )

    def first(self, tree: Any) -> Any:
        """The replicated tree as NumPy arrays, taken from one device."""
        if self.count == 1:
            return jax.device_get(tree)
        # [0, ...] and not [0], which would make scalars of 0-d leaves.
        return jax.tree.map(lambda leaf: np.asarray(leaf.addressable_data(0))[0, ...], tree)

    def shard(self, tree: Any) -> Any:
        """Rows dealt out over the devices: [B, ...] -> [devices, B / devices, ...]."""
        if self.count == 1:
            return tree
        return jax.tree.map(lambda leaf: leaf.reshape(self.count, -1, *leaf.shape[1:]), tree)

    def train_step(self, step: Callable[..., Any]) -> Callable[[Any, Any], Any]:
        """`(replicated state, host batch) -> (state, replicated metrics)`; donates the state."""
        if self.count == 1:
            return KeptFunction(
                lambda state, batch: step(state, batch), self.devices[0], donate_argnums=0
            )

        def on_each(state: Any, batch: Any) -> Any:
            return step(
                state, batch, lambda tree: jax.lax.psum(tree, AXIS), jax.lax.axis_index(AXIS)
            )

        mapped = jax.pmap(on_each, axis_name=AXIS, devices=self.devices, donate_argnums=0)
        return lambda state, batch: mapped(state, self.shard(batch))

    def sum_over(self, function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        """`(replicated params, host batch) -> sums over all rows`, as NumPy scalars."""
        if self.count == 1:
            kept = KeptFunction(function, self.devices[0])
            return lambda params, batch: jax.device_get(kept(params, batch))
        mapped = jax.pmap(
            lambda params, batch: jax.lax.psum(function(params, batch), AXIS),
            axis_name=AXIS,
            devices=self.devices,
        )
        return lambda params, batch: self.first(mapped(params, self.shard(batch)))

    def map_rows(
        self, function: Callable[[Any, Any], Any], hypotheses: int | None = None
    ) -> "RowMap":
        """The pure function of params and rows, whose results have the same rows.

        hypotheses: of a search, how many it keeps for each row, which is what a step multiplies
        with the parameters; None: there is more to multiply.
        Where there is one device and it is a CPU, its rows are dealt out over the cores, a thread
        for each: most operations of a search are too small to be faster on several cores. Not so
        the products of few hypotheses with many parameters, which each thread would read.
        """
        if self.count == 1 and self.devices[0].platform == "cpu":
            options = _options_on_cores(hypotheses)
            kept = KeptFunction(function, self.devices[0], compiler_options=options)
            return RowMap(_OnCores(kept, hypotheses).begin)
        mapped = jax.jit(function)
        if self.count > 1:
            mapped = jax.pmap(function, axis_name=AXIS, devices=self.devices)

        def begin(params: Any, rows: Any) -> Begun:
            return Begun(partial(fetch, mapped(params, self.shard(rows))))

        def fetch(result: Any) -> Any:
            if self.count == 1:
                return jax.device_get(result)
            return jax.tree.map(
                lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), jax.device_get(result)
            )

        return RowMap(begin)


@dataclass(frozen=True)
class Begun:
    """Work under way: what waits for its results, and what leaves out all that can be."""

    results: Callable[[], Any]
    cancel: Callable[[], None] = lambda: None


class RowMap:
    """`(replicated params, host rows) -> results`, row by row in order, as NumPy arrays."""

    def __init__(self, begin: Callable[[Any, Any], Begun]) -> None:
        """begin: of params and rows; compiles, and does not wait for the results."""
        self._begin = begin

    def __call__(self, params: Any, rows: Any) -> Any:
        """The results of these rows."""
        return self._begin(params, rows).results()

    def over(
        self, params: Any, batches: Iterable[tuple[Any, Any]]
    ) -> Generator[tuple[Any, Any], None, None]:
        """(label, results) of each (label, rows) in turn.

        The next batch is made, traced and compiled while a CPU is busy with the last one, or any
        device that works without holding up the thread that asked. Who stops early does not
        wait for it.
        """
        under_way: deque[tuple[Any, Begun]] = deque()
        try:
            for label, rows in batches:
                under_way.append((label, self._begin(params, rows)))
                if len(under_way) > 1:
                    label, begun = under_way.popleft()
                    yield label, begun.results()
            while under_way:
                label, begun = under_way.popleft()
                yield label, begun.results()
        finally:
            for _, begun in under_way:
                begun.cancel()


class _OnCores:
    """A function of params and rows on a CPU, whose rows are dealt out over threads."""

    def __init__(self, function: KeptFunction, hypotheses: int | None = None) -> None:
        """hypotheses: as `Devices.map_rows` has it."""
        self._function, self._hypotheses = function, hypotheses
        self._threads = cores()
        self._pool = ThreadPoolExecutor(self._threads)

    def begin(self, params: Any, rows: Any) -> Begun:
        """Compile if need be, and hand all rows to the threads."""
        count = self._parts(params, len(jax.tree.leaves(rows)[0]))
        parts = [jax.tree.map(itemgetter(slice(i, None, count)), rows) for i in range(count)]
        compiled = self._function.compiled(params, parts[0])  # before several threads call it
        futures = [self._pool.submit(_fetched, compiled, params, part) for part in parts]

        def results() -> Any:
            found = [future.result() for future in futures]
            return jax.tree.map(lambda *leaves: _interleaved(leaves), *found)

        def cancel() -> None:
            for future in futures:
                future.cancel()

        return Begun(results, cancel)

    def _parts(self, params: Any, rows: int) -> int:
        """As many as there are threads, where all are of one size and not too small."""
        least = _LEAST_ROWS
        if self._hypotheses and sum(leaf.nbytes for leaf in jax.tree.leaves(params)) > _IN_CACHE:
            least = max(least, _FEW_VECTORS // self._hypotheses + 1)
        most = min(self._threads, rows // least)
        return next((count for count in range(most, 1, -1) if rows % count == 0), 1)


def _fetched(function: Callable[[Any, Any], Any], params: Any, rows: Any) -> Any:
    return jax.device_get(function(params, rows))


def _options_on_cores(hypotheses: int | None) -> dict[str, Any] | None:
    """XLA's options for a search in a thread for each core, but those that XLA_FLAGS names.

    With AVX2 and without AVX-512, a search for several hypotheses is faster where no operation is
    spread over threads again, which with AVX-512 gained nothing, and without YNNPACK's
    reductions, which was not measured there. Greedy search gains little, so it keeps how these
    round. Measured on two cores.
    """
    flags, given = processor_flags(), os.environ.get("XLA_FLAGS", "")
    if (hypotheses or 1) == 1 or "avx2" not in flags or "avx512f" in flags:
        return None
    kinds = "LIBRARY_FUSION_TYPE_DOT,LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT"
    options = {"xla_cpu_experimental_ynn_fusion_type": kinds, "xla_cpu_multi_thread_eigen": False}
    return {name: value for name, value in options.items() if name not in given}


def _interleaved(parts: Sequence[np.ndarray]) -> np.ndarray:
    """What was `[i::len(parts)]` of an array, together again."""
    return np.stack(parts, axis=1).reshape(-1, *parts[0].shape[1:])


def prepare_process(*, kept: bool = True) -> None:
    """What a process does before JAX allocates and compiles: see the three functions.

    kept: compiled functions are kept on disk, which measuring how long they take must not have.
    What is loaded by then stays, so Python's garbage collector need not look through it again
    each time that a trace has made many objects: that was a quarter of the time it takes.
    """
    gc.freeze()
    keep_freed_memory()
    overlap_exchange()
    if kept:
        keep_compiled()


def overlap_exchange() -> None:
    """Have XLA exchange some gradients between NVIDIA GPUs while it computes the others.

    Its scheduler for that is off there unless XLA_FLAGS asks for it. Said before JAX looks for
    devices; what XLA_FLAGS says of it already stays.
    """
    name, given = "--xla_gpu_enable_latency_hiding_scheduler", os.environ.get("XLA_FLAGS", "")
    if name not in given and has_cuda_plugin():
        os.environ["XLA_FLAGS"] = f"{given} {name}=true".strip()


def has_cuda_plugin() -> bool:
    """Whether JAX could use an NVIDIA GPU if there is one; asks without looking for devices."""
    return any(find_spec(f"jax_cuda{n}_plugin") for n in _CUDA_VERSIONS)


def keep_compiled() -> Path | None:
    """Keep compiled functions on disk, so that the next process need not compile them again.

    In ~/.cache/jax_transformer (or under $XDG_CACHE_HOME), apart for each kind of processor
    and version of JAX; what was not used for a month is removed, and what a killed process
    wrote by half when it is met. Where JAX was told of another place, that is used and left as it
    is, and where none can be written nothing is kept; None comes back.
    """
    told: Any = jax.config
    keep_in(None)
    if not told.jax_enable_compilation_cache:
        return None
    runs_on = _machine(), cores()  # of which XLA knows when it deals out work
    if told.jax_compilation_cache_dir:
        if "://" not in told.jax_compilation_cache_dir:
            with contextlib.suppress(OSError):
                folder = Path(told.jax_compilation_cache_dir)
                folder.mkdir(parents=True, exist_ok=True)
                keep_in(folder, *runs_on, days=_KEPT_DAYS)
        return None
    place = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = Path(place) / "jax_transformer" / _machine()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        old = time.time() - _KEPT_DAYS * 86_400
        for path in folder.iterdir():
            # Another process may be removing the same.
            with contextlib.suppress(FileNotFoundError):
                if max(path.stat().st_atime, path.stat().st_mtime) < old:
                    path.unlink()
        if not os.access(folder, os.W_OK):
            return None
    except OSError:
        return None
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    _remove_when_damaged(folder)
    keep_in(folder, *runs_on, days=_KEPT_DAYS)
    return folder


def _remove_when_damaged(folder: Path) -> None:
    """Have JAX's warning of an entry that cannot be read remove it.

    JAX compiles the function then, and writes no entry in the place of one that is there: each
    start would compile it anew.
    """
    warning = "Error reading persistent compilation cache entry for '(.+?)': "
    show = warnings.showwarning

    def remove_or_show(message: Warning | str, *rest: Any, **named: Any) -> None:
        if told := re.match(warning, str(message)):
            for path in folder.glob(f"{glob.escape(told[1])}-*"):
                path.unlink(missing_ok=True)
        else:
            show(message, *rest, **named)

    warnings.showwarning = remove_or_show
    warnings.filterwarnings("always", message=warning)


def _machine() -> str:
    """A name for the kind of processor: code compiled for one may not run on another."""
    own = [platform.machine(), platform.processor(), *sorted(processor_flags())]
    described = " ".join(own)
    mark = hashlib.blake2b(described.encode(), digest_size=4).hexdigest()
    return f"jax-{jax.__version__}-{mark}"


def keep_freed_memory() -> bool:
    """Tell glibc to keep freed memory instead of returning it between steps.

    Page faults on memory that comes back are a hidden cost of CPU training. Call it
    before JAX allocates; True where it took effect, False where the C library is not
    glibc.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    trim_threshold, mmap_max, arena_max = -1, -4, -8  # mallopt's names for its parameters
    libc = ctypes.CDLL(None)
    # -1 is glibc's "never": the largest int would give back what is over 2 GiB, each step.
    settings = [(mmap_max, 0), (trim_threshold, -1), (arena_max, 1)]
    return all(libc.mallopt(name, value) == 1 for name, value in settings)
