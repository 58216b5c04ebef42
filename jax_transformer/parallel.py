"""Where devices are named: pmap, replicas and shards (§5.2).

The pure step is the same on one device, where it is jitted, and on several, where it is
pmapped with sums over the "devices" axis. JAX keeps pmap in maintenance mode, so this is
the one file in which to exchange it.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np

AXIS = "devices"


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
            return jax.jit(lambda state, batch: step(state, batch), donate_argnums=0)

        def on_each(state: Any, batch: Any) -> Any:
            return step(
                state, batch, lambda tree: jax.lax.psum(tree, AXIS), jax.lax.axis_index(AXIS)
            )

        mapped = jax.pmap(on_each, axis_name=AXIS, devices=self.devices, donate_argnums=0)
        return lambda state, batch: mapped(state, self.shard(batch))

    def sum_over(self, function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        """`(replicated params, host batch) -> sums over all rows`, as NumPy scalars."""
        if self.count == 1:
            jitted = jax.jit(function)
            return lambda params, batch: jax.device_get(jitted(params, batch))
        mapped = jax.pmap(
            lambda params, batch: jax.lax.psum(function(params, batch), AXIS),
            axis_name=AXIS,
            devices=self.devices,
        )
        return lambda params, batch: self.first(mapped(params, self.shard(batch)))

    def map_rows(self, function: Callable[[Any, Any], Any]) -> "RowMap":
        """The pure function of params and rows, whose results have the same rows."""
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
