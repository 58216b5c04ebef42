"""§5.2 Data parallelism: pmap over the devices of this process. Nothing else names a device.

Every device holds a copy of the parameters and takes its share of each batch's rows. The pure
functions do not know it: the train step gets `psum` as its `reduce`, and the index of its replica
for its dropout key. On one device the same functions are jitted.
"""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import jax
from flax import jax_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jax_transformer.errors import InputError

AXIS = "devices"


class Devices:
    """The devices that share every batch.

    >>> devices = Devices(1)
    >>> double = devices.map_rows(lambda factor, rows: factor * rows)
    >>> devices.gather(double(devices.replicate(jnp.array(2)), jnp.array([1, 2, 3])))
    array([2, 4, 6], dtype=int32)
    """

    def __init__(self, count: int | None = None) -> None:
        """All devices of this process, or its first `count`.

        Raises InputError where JAX runs on several hosts.
        """
        if jax.process_count() > 1:
            raise InputError(
                f"expected JAX in one process, found {jax.process_count()}: training on several "
                "hosts is not supported; start one process on one host"
            )
        self.devices = jax.local_devices()[:count]

    @property
    def count(self) -> int:
        """The number of devices; a batch's rows are a multiple of it."""
        return len(self.devices)

    def describe(self) -> str:
        """Such as `8 x cpu (cpu)`."""
        first = self.devices[0]
        return f"{self.count} x {first.device_kind} ({first.platform})"

    def replicate(self, tree: Any) -> Any:
        """A copy of every array on each device: [...] -> [devices, ...], or [...] on one."""
        if self.count == 1:
            # A copy, because the train step donates it, and the original stays the caller's.
            return jax.device_put(tree, self.devices[0], may_alias=False)
        return jax_utils.replicate(tree, self.devices)

    def unreplicate(self, tree: Any) -> Any:
        """The replicated tree as NumPy arrays, from one device."""
        return jax.device_get(tree if self.count == 1 else jax_utils.unreplicate(tree))

    def shard(self, tree: Any) -> Any:
        """Split rows over the devices: [B, ...] -> [devices, B / devices, ...]; on one, [B, ...].

        Raises ValueError where B is no multiple of the devices.
        """
        if self.count == 1:
            return tree
        return jax.tree.map(lambda leaf: leaf.reshape(self.count, -1, *leaf.shape[1:]), tree)

    def put_rows(self, tree: Any) -> Any:
        """`shard` on the devices: the copy is under way when this returns."""
        return jax.device_put(self.shard(tree), self._row_sharding)

    @cached_property
    def _row_sharding(self) -> Any:
        if self.count == 1:
            return self.devices[0]
        # That of pmap's arguments, or each call would move them.
        return NamedSharding(Mesh(self.devices, (AXIS,)), PartitionSpec(AXIS))

    def gather(self, tree: Any) -> Any:
        """What `shard` split, together again, as NumPy arrays [B, ...]; waits for the devices."""
        tree = jax.device_get(tree)
        if self.count == 1:
            return tree
        return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), tree)

    def train_step(self, step: Callable[..., Any]) -> Callable[[Any, Any], Any]:
        """`(replicated state, batch from put_rows) -> (state, metrics)`, both replicated.

        step: from `make_train_step`. The state that is passed in is donated: it is gone.
        """
        if self.count == 1:
            return jax.jit(step, donate_argnums=0)

        def replica_step(state: Any, batch: Any) -> Any:
            return step(state, batch, _sum_over_devices, jax.lax.axis_index(AXIS))

        return self._pmap(replica_step, donate_argnums=0)

    def eval_step(self, step: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        """`(replicated params, host batch) -> sums over all rows`, as NumPy scalars.

        step: sums over the rows that it is given, as from `make_loss`.
        """
        if self.count == 1:
            jitted = jax.jit(step)
            return lambda params, batch: jax.device_get(jitted(params, batch))
        mapped = self._pmap(lambda params, batch: _sum_over_devices(step(params, batch)))
        return lambda params, batch: self.unreplicate(mapped(params, self.shard(batch)))

    def map_rows(self, function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        """`(replicated params, host rows) -> results`, which `gather` fetches.

        function: pure; each row of its results depends on that row of its second argument alone.
        The call returns as soon as the work is dispatched.
        """
        if self.count == 1:
            return jax.jit(function)
        mapped = self._pmap(function)
        return lambda params, rows: mapped(params, self.shard(rows))

    def _pmap(self, function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        return jax.pmap(function, axis_name=AXIS, devices=self.devices, **options)


def _sum_over_devices(tree: Any) -> Any:
    return jax.lax.psum(tree, AXIS)
