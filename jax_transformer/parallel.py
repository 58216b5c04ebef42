"""§5.2 Data parallelism: pmap over the devices of all processes; no other file calls it.

Every device holds a copy of the parameters and takes its share of each batch's rows. The pure
functions stay the same: the train step gets `psum` as its `reduce`, and the index of its replica
for its dropout key. On one device the same functions are jitted. Several processes, one for each
host, run the same program in step: each makes its own rows of every batch.
"""

import os
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any, TypeVar

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import PyTree

from jax_transformer.errors import InputError, install_command

Tree = TypeVar("Tree")  # a pytree of arrays

AXIS = "devices"
AGREE_STEPS = 8  # a few steps, because a signal waits for them twice, and an exchange costs time


def this_process() -> tuple[int, int]:
    """Return this process's number and the number of processes."""
    return jax.process_index(), jax.process_count()


_first_user: list[int] = []  # the id of the process that has used the devices


def check_not_forked() -> None:
    """Raise InputError in a forked child of a process that has used the devices.

    XLA's threads are not in the child, which would wait for them for ever.
    """
    if _first_user and _first_user != [os.getpid()]:
        raise InputError(
            f"process {os.getpid()}: expected a process that uses its own devices, found a fork of "
            f"process {_first_user[0]}, which has used them; start it with multiprocessing's "
            "spawn, or load the model only in the children"
        )


def check_devices() -> None:
    """Raise InputError if JAX has no device; JAX's own error is many lines, or an empty one.

    Also raises what `check_not_forked` raises.
    """
    check_not_forked()
    try:
        jax.devices()
        _first_user[:] = [os.getpid()]
    except (AssertionError, RuntimeError) as error:
        found = " ".join(str(error).split()).partition(" (set JAX_PLATFORMS")[0] or "none"
        if not (given := os.environ.get("JAX_PLATFORMS")):
            raise InputError(
                f"expected a device to compute on, found {found}; end the program that uses it, or "
                "set JAX_PLATFORMS=cpu"
            ) from None
        raise InputError(
            f"JAX_PLATFORMS={given}: expected a device of this kind, found {found}; unset "
            f"JAX_PLATFORMS, or install JAX for it, as with {install_command('cuda')}"
        ) from None


def compiler_options(dtype: str, device: Any = None) -> dict[str, Any] | None:
    """Return XLA's options for a function with products of this dtype; None are the usual ones.

    On a GPU, XLA compiles and tries dozens of Triton's kernels for each shape of product. Those of
    full float32 precision take minutes, and cuBLAS has its own. Several processes are told so by
    `runtime.without_triton`.
    """
    device = device or jax.devices()[0]
    if device.platform == "gpu" and dtype == "float32":
        return {"xla_gpu_enable_triton_gemm": False}
    return None


class Devices:
    """The devices that share every batch, those of other processes included.

    >>> import jax.numpy as jnp
    >>> devices = Devices(1)
    >>> double = devices.map_rows(lambda factor, rows: factor * rows)
    >>> devices.gather(double(devices.replicate(jnp.array(2)), jnp.array([1, 2, 3])))
    array([2, 4, 6], dtype=int32)
    """

    def __init__(self, count: int | None = None, dtype: str = "float32") -> None:
        """Take all devices of all processes, or the first `count` of the only process.

        dtype: the type of the functions' matrix products, as in model.compute_dtype.
        Raises InputError if the processes have different numbers of devices, or the devices are of
        several kinds, which pmap does not allow.
        """
        check_devices()
        # A process's rows stand together, in whatever order JAX has its devices.
        order = sorted(jax.devices(), key=lambda device: (device.process_index, device.id))
        self.devices = order[:count]
        kinds = Counter(device.device_kind for device in self.devices)
        if len(kinds) > 1:
            found = " and ".join(f"{number} x {kind}" for kind, number in kinds.items())
            raise InputError(
                f"expected devices of one kind, found {found}; choose some of them, as with "
                "CUDA_VISIBLE_DEVICES=0"
            )
        self.process, self.processes = this_process()
        # Not with several processes: what pmap compiles there takes arrays of all processes.
        self.options = compiler_options(dtype, order[0]) if self.processes == 1 else None
        self.local = [d for d in self.devices if d.process_index == self.process]
        if len(self.local) * self.processes != self.count:
            raise InputError(
                f"expected the same number of devices on each of {self.processes} processes, found "
                f"{len(self.local)} of {self.count} on process {self.process}; start them alike"
            )
        self.largest(0)()  # connects the processes, while all of them are here

    @property
    def count(self) -> int:
        """The number of devices; a batch's rows are a multiple of it."""
        return len(self.devices)

    @property
    def is_first(self) -> bool:
        """Return True on process 0, which alone writes files and logs."""
        return self.process == 0

    def describe(self) -> str:
        """Return a text such as `8 x cpu (cpu)`."""
        first = self.devices[0]
        processes = f", {self.processes} processes" if self.processes > 1 else ""
        return f"{self.count} x {first.device_kind} ({first.platform}){processes}"

    @property
    def prefer_few_arrays(self) -> bool:
        """Return True if a training state should be stacked: see `runs.step`.

        False on a TPU: its compiler then takes more than twice as long, for more bytes a step.
        """
        return self.devices[0].platform != "tpu"

    @property
    def prefer_transposed(self) -> bool:
        """Return True if a search should have E^T besides E: see `as_computed`.

        On a CPU a product with E copies it into another order first, which takes as long as the
        product with some ten rows.
        """
        return self.devices[0].platform == "cpu"

    @property
    def compile_flops(self) -> float:
        """The FLOPs that take about as long as compiling a small model's search for one more shape.

        On a CPU: 0.7 s with a warm cache, and 40 GFLOP/s on two cores. Not measured on others.
        """
        return 3e10 if self.devices[0].platform == "cpu" else 1e14

    def replicate(self, tree: Tree) -> Tree:
        """Copy every array to each device: [...] -> [local devices, ...], or [...] on one."""
        check_not_forked()
        if self.count == 1:
            # A copy, because the train step donates it, and the caller may still use the original.
            return jax.device_put(tree, self.devices[0], may_alias=False)
        if not jax.tree.leaves(tree):
            return tree  # which pmap of several processes cannot return
        return self._replicate(tree, np.zeros(len(self.local)))

    @cached_property
    def _replicate(self) -> Callable[[Any, Any], Any]:
        # Compiled once for a tree; flax's function stacks the copies of each leaf on one device.
        # pmap requires an argument with an axis.
        return self._pmap(lambda tree, _: tree, in_axes=(None, 0))

    def on_each(self, function: Callable[[PyTree], Tree]) -> Callable[[PyTree], Tree]:
        """Return `replicated tree -> replicated tree`: the function on every device's own copy."""
        return self._jit(function) if self.count == 1 else self._pmap(function)

    def unreplicate(self, tree: PyTree) -> PyTree:
        """Return a replicated tree as NumPy arrays, copied from one device without a computation.

        A computation would wait for everything that was dispatched before it.
        """
        if self.count == 1:
            return jax.device_get(tree)
        first = jax.device_get(jax.tree.map(lambda leaf: leaf.addressable_data(0), tree))
        return jax.tree.map(lambda leaf: leaf.squeeze(0), first)

    def shard(self, tree: Tree) -> Tree:
        """Split this process's rows: [B, ...] -> [local devices, B / local devices, ...].

        On one device the rows stay [B, ...]. Raises ValueError if B is not a multiple of the
        number of devices.
        """
        if self.count == 1:
            return tree
        return jax.tree.map(lambda leaf: leaf.reshape(len(self.local), -1, *leaf.shape[1:]), tree)

    def put_rows(self, tree: Tree) -> Tree:
        """Split rows as `shard` does, and start the copy to the devices without waiting for it."""
        return jax.device_put(self.shard(tree), self._row_sharding)

    @cached_property
    def _row_sharding(self) -> Any:
        if self.count == 1:
            return self.devices[0]
        # The sharding of pmap's arguments; with another one each call would move them.
        return NamedSharding(Mesh(self.local, (AXIS,)), PartitionSpec(AXIS))

    def put_each(self, tree: Tree) -> Tree:
        """Copy NumPy arrays to each device, as `replicate` does, without compiling for it."""
        if self.count > 1:
            shape = len(self.local)
            tree = jax.tree.map(lambda leaf: np.broadcast_to(leaf, (shape, *leaf.shape)), tree)
        return jax.device_put(tree, self._row_sharding, may_alias=False)  # it will be donated

    def own_rows(self, tree: Tree) -> Tree:
        """Return this process's rows of a whole batch: [B, ...] -> [B / processes, ...]."""
        if self.processes == 1:
            return tree
        return jax.tree.map(lambda leaf: np.split(leaf, self.processes)[self.process], tree)

    def gather(self, tree: PyTree) -> PyTree:
        """Wait for the results of `map_rows`; return them as NumPy arrays [B, ...]."""
        tree = jax.device_get(tree) if self.processes == 1 else self.unreplicate(tree)
        if self.count == 1:
            return tree
        return jax.tree.map(lambda leaf: leaf.swapaxes(0, 1).reshape(-1, *leaf.shape[2:]), tree)

    def _deal(self, tree: Tree) -> Tree:
        """Give this process's devices every `count`-th row: [B, ...] -> [local devices, ...].

        Rows are sorted by length, so the devices have about the same work.
        """
        if self.count == 1:
            return tree
        first = self.process * len(self.local)

        def dealt(leaf: Any) -> Any:
            rows = leaf.reshape(-1, self.count, *leaf.shape[1:])
            return rows[:, first : first + len(self.local)].swapaxes(0, 1)

        return jax.tree.map(dealt, tree)

    def train_step(self, step: Callable[..., Tree]) -> Callable[[PyTree, PyTree], Tree]:
        """Return `(replicated state, batch from put_rows) -> (state, metrics)`, both replicated.

        step: a function from `make_train_step`. The state that is passed in is donated, so it
        cannot be used again.
        """
        if self.count == 1:
            return self._jit(step, donate_argnums=0)

        def replica_step(state: PyTree, batch: PyTree) -> Tree:
            return step(state, batch, _sum_over_devices, jax.lax.axis_index(AXIS))

        return self._pmap(replica_step, donate_argnums=0)

    def eval_step(self, step: Callable[..., Tree]) -> Callable[[PyTree, PyTree], Tree]:
        """Return `(replicated params, host batch) -> sums over all rows`, as NumPy scalars.

        Every process gives the whole batch, and has the same result.
        step: a function of parameters and rows, as from `make_loss`, that returns sums over rows.
        """
        if self.count == 1:
            jitted = self._jit(step)
            return lambda params, batch: jax.device_get(jitted(params, batch))
        mapped = self._pmap(lambda params, batch: _sum_over_devices(step(params, batch)))
        return lambda params, batch: self.unreplicate(
            mapped(params, self.shard(self.own_rows(batch)))
        )

    def map_rows(
        self, function: Callable[[PyTree, PyTree], Tree]
    ) -> Callable[[PyTree, PyTree], Tree]:
        """Return `(replicated params, host rows) -> results`, which `gather` fetches.

        function: a pure function; each row of its results depends only on the same row of its
        second argument.
        The call returns as soon as the work is dispatched. Every process gives all rows, computes
        its own, and has all results.
        """
        if self.count == 1:
            return self._jit(function)

        mapped = self._pmap(lambda params, rows: self._everywhere(function(params, rows)))
        return lambda params, rows: mapped(params, self._deal(rows))

    def carry(
        self, function: Callable[[PyTree, Tree, PyTree], tuple[Tree, PyTree]]
    ) -> Callable[[PyTree, Tree, PyTree], tuple[Tree, PyTree]]:
        """Return `map_rows` of a function that also gets its own first result of the call before.

        function: `(params, carried, rows) -> (carried, results)`. What is carried stays on its
        device and is donated; the first comes from `put_each`.
        """
        if self.count == 1:
            return self._jit(function, donate_argnums=1)

        def everywhere(params: PyTree, carried: Tree, rows: PyTree) -> tuple[Tree, PyTree]:
            carried, results = function(params, carried, rows)
            return carried, self._everywhere(results)

        mapped = self._pmap(everywhere, donate_argnums=1)
        return lambda params, carried, rows: mapped(params, carried, self._deal(rows))

    def _everywhere(self, results: Tree) -> Tree:
        """Let every process have all devices' results."""
        return results if self.processes == 1 else jax.lax.all_gather(results, AXIS)

    def largest(self, number: int) -> Callable[[], int]:
        """Find the largest number that a process gives; the result is a function that waits."""
        if self.processes == 1:
            return lambda: number
        largest = self._largest(np.full(len(self.local), number, np.int32))
        return lambda: int(self.unreplicate(largest))

    @cached_property
    def _largest(self) -> Callable[[Any], Any]:
        return self._pmap(lambda value: jax.lax.pmax(value, AXIS))

    def check_same(self, name: str, place: Any, *values: PyTree) -> None:
        """Raise InputError unless every process gives the same bytes, numbers and arrays.

        name, place: what they are, and where they are from.
        """
        if self.processes == 1:
            return
        found = 0
        for leaf in jax.tree.leaves(values):
            content = leaf if isinstance(leaf, bytes) else np.ascontiguousarray(leaf)
            found = zlib.crc32(content, found)
        found >>= 1  # a signed number of 32 bits
        if self.largest(found)() + self.largest(-found)():
            raise InputError(
                f"{place}: expected the same on all hosts, found {name} on process {self.process} "
                "that another process does not have; start them again, with a --workdir that all "
                "hosts share, or remove their copies of a bucket"
            )

    @contextmanager
    def in_turn(self) -> Iterator[None]:
        """Let process 0 run the block first, then the others; all leave it together.

        Raises InputError if another process failed in it.
        """
        failed = 1  # until the block has ended
        if not self.is_first:
            self._check()  # waits until process 0 is through
        try:
            yield
            failed = 0
        finally:
            if self.is_first:
                self._check(failed)  # lets the others in, or ends them
            if not (self.is_first and failed):  # else they have ended
                self._check(failed)  # waits until all are through

    def _check(self, failed: int = 0) -> None:
        if self.largest(failed)() and not failed:
            raise InputError(
                f"process {self.process} ends, because another process has failed; see its log"
            )

    def _jit(self, function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        return jax.jit(function, compiler_options=self.options, **options)

    def _pmap(self, function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        mapped = jax.pmap(function, axis_name=AXIS, devices=self.devices, **options)
        return _Compiled(mapped, self.options) if self.options else mapped


class _Compiled:
    """A mapped function that is compiled with options, which pmap does not take."""

    def __init__(self, mapped: Any, options: dict[str, Any]) -> None:
        self._mapped, self._options = mapped, options
        self._compiled: dict[Any, Callable[..., Any]] = {}

    def __call__(self, *args: Any) -> Any:
        leaves, structure = jax.tree.flatten(args)
        key = structure, *map(jax.typeof, leaves)
        if key not in self._compiled:
            lowered = self._mapped.lower(*args)
            self._compiled[key] = lowered.compile(compiler_options=self._options)
        return self._compiled[key](*args)


def _sum_over_devices(tree: Any) -> Any:
    return jax.lax.psum(tree, AXIS)


class Agreement:
    """A number that every process gets at the same step: the largest that any process gave.

    Call it once a step. With several processes it exchanges the number of every eighth step, and
    returns the result eight steps later, so that no step waits for another process; 0 in between.
    """

    def __init__(self, devices: Devices) -> None:
        self._devices, self._steps, self._pending = devices, 0, lambda: 0

    def __call__(self, number: int) -> int:
        """Return the number agreed on, or on one process the number itself."""
        if self._devices.processes == 1:
            return number
        self._steps += 1
        if self._steps % AGREE_STEPS:
            return 0
        agreed = self._pending()
        self._pending = self._devices.largest(number)
        return agreed
