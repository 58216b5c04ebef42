"""§6.1 Searches of a stream of sentences over all devices: batches come in, outputs go out."""

from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial

import jax
import numpy as np
from jaxtyping import Array, Int

from jax_transformer.decoding.beam_search import Hypotheses
from jax_transformer.decoding.slots import Outputs, Slots, Stream, empty_slots
from jax_transformer.parallel import Devices, check_not_forked
from jax_transformer.types import AnyArray, Params

TO_THE_END = 2**30  # steps


class StreamSearch:
    """The search of batches of token ids; sentences that take long stay for the next batches."""

    def __init__(self, devices: Devices, stream: Callable[[int], Stream]) -> None:
        """Take a function from the length of sources to their `Stream`."""

        def advance(
            parts: int, params: Params, slots: Slots, rows: tuple[AnyArray, AnyArray, AnyArray]
        ) -> tuple[Slots, Outputs]:
            source, number, steps = rows
            return stream(source.shape[1]).advance(params, slots, source, number, steps[0], parts)

        self.devices, self._stream = devices, stream
        self._advance = cache(lambda parts: devices.carry(partial(advance, parts)))
        # Empty slots, left by the newest text of one batch, where making them takes longest.
        self._spare: dict[tuple[int, int], Slots] = {}
        self._shapes: dict[tuple[int, int, int], Slots] = {}

    def __call__(
        self, params: Params, batches: Iterable[tuple[list[int], Int[np.ndarray, "B S"]]]
    ) -> Iterator[tuple[list[int], Hypotheses]]:
        """Yield (row numbers, hypotheses) of sentences that are done.

        params: on the devices. batches: row numbers and sources; rows of padding come last.
        A batch is dispatched before the results of the previous one are read, so that the devices
        have work while the host handles text.
        """
        check_not_forked()
        pending = slots = emptied = None
        calls, finite = 0, True
        remaining = iter(batches)
        following = next(remaining, None)
        while following or pending:
            outputs = None
            if following:
                (rows, source), following = following, next(remaining, None)
                shape = source.shape
                last = following is None or following[1].shape != shape
                slots = slots or self._spare.pop(shape, None)
                slots = slots or self.empty(params, shape, shape[0])
                number = np.full(len(source), -1, np.int32)
                number[: len(rows)] = rows
                steps = TO_THE_END if last else 0
                slots, outputs = self.advance(params, slots, source, number, steps)
                calls += 1
                if last:
                    emptied, slots = {shape: slots}, None
            if pending:
                _, number, found = self.ended(pending)
                finite &= not spoiled(found)
                yield number.tolist(), found
            pending = outputs
        if emptied and calls == 1 and finite:  # a cache with NaN would spoil what comes after it
            self._spare = emptied

    def advance(
        self,
        params: Params,
        slots: Slots,
        source: Int[np.ndarray, "R S"],
        number: Int[np.ndarray, " R"],
        steps: int,
        *,
        parts: int = 1,
    ) -> tuple[Slots, Outputs]:
        """Dispatch `Stream.advance` on all devices; row i goes to device i modulo their number."""
        rows = source, number, np.full(len(source), steps, np.int32)
        return self._advance(parts)(params, slots, rows)

    def ended(self, outputs: Outputs) -> tuple[np.ndarray, np.ndarray, Hypotheses]:
        """Wait for a call; return (device, number, hypotheses) of the sentences that are done."""
        number, found = self.devices.gather(outputs)
        rows = np.flatnonzero(number >= 0)
        return rows % self.devices.count, number[rows], Hypotheses(*(leaf[rows] for leaf in found))

    def length(self, width: int) -> int:
        """Return the maximum number of output tokens of sources of a length."""
        return self._stream(width).length

    def empty(self, params: Params, shape: tuple[int, int], size: int) -> Slots:
        """Return `size` empty slots on the devices. shape: that of the sources of a call."""
        devices, key = self.devices, (*shape, size)
        if key not in self._shapes:
            own = params if devices.count == 1 else jax.tree.map(_one_of, params)
            source = np.zeros((shape[0] // devices.count, shape[1]), np.int32)
            slots = partial(self._stream(shape[1]).slots, size=size // devices.count)
            self._shapes[key] = jax.eval_shape(slots, own, source)
        return devices.put_each(empty_slots(self._shapes[key]))


def spoiled(found: Hypotheses) -> bool:
    """Return True if NaN ended the search of a sentence, whose slot it may have spoiled."""
    ended = found.scores[found.complete, 0]  # of a greedy search -inf, as NaN never beats it
    return bool(np.isnan(found.scores).any() or not np.isfinite(ended).all())


def _one_of(copies: Array) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(copies.shape[1:], copies.dtype)
