"""§6.1 Beam search over a stream of sentences: one that waits takes the place of one that is done.

In a batch of its own, every sentence waits for the longest. Here a step serves B slots, each with a
sentence at its own position, and the sentences that are not done at the end of one call stay in
their slots while the next call brings others. Outputs are those of `beam_search`. Pure.

Axes: B slots, R new sentences in each call, E = R + B sentences with outputs, M hypotheses of each,
N = B M, T output positions.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from jax_transformer.config import DecodingConfig
from jax_transformer.decoding.beam_search import Beam, BeamSearch, Hypotheses, State
from jax_transformer.decoding.generate import Decoder, beam_search_of, length_limits
from jax_transformer.models.transformer import Transformer
from jax_transformer.types import AnyArray, Params

# step(memory [B, ...], state, token [N], position [N], column []) -> (logits [N, V], next state)
SlotStep = Callable[[PyTree, State, Array, Array, Array], tuple[Float[Array, "N V"], State]]


class Slots(NamedTuple):
    """The sentences in search.

    beam: as in `beam_search`, with a position for each sentence.
    memory: what the decoder remembers of each sentence's source.
    number: the number of each sentence; -1 of an empty slot.
    column: where the next step writes the cache, the same in all rows.
    """

    beam: Beam
    memory: PyTree
    number: Int[Array, " B"]
    column: Int[Array, ""]


class Queue(NamedTuple):
    """New sentences; the first `count` are real. Each has a number, 0 or more, of the caller's."""

    memory: PyTree
    max_lengths: Int[Array, " R"]
    number: Int[Array, " R"]
    count: Int[Array, ""]


class Outputs(NamedTuple):
    """The outputs of the sentences whose search has ended in a call; number -1 elsewhere."""

    number: Int[Array, " E"]
    found: Hypotheses


class _Call(NamedTuple):
    """The state of a call: the slots, and `place` in its outputs of the sentence in each."""

    slots: Slots
    taken: Int[Array, ""]  # from the queue
    steps: Int[Array, ""]  # since the queue was empty
    place: Int[Array, " B"]
    outputs: Outputs


@dataclass(frozen=True)
class Stream:
    """The search of a stream of sentences of one length: `generate.translate` in slots.

    length: T. decoder: as in `translate`.
    """

    model: Transformer
    decoding: DecodingConfig
    bos_id: int
    eos_id: int
    n_best: int
    length: int
    decoder: Decoder

    @property
    def search(self) -> BeamSearch:
        """The search of each sentence."""
        ids = self.bos_id, self.eos_id, self.model.output_pad_id
        return beam_search_of(self.decoding, *ids, n_best=self.n_best, length=self.length)

    def slots(self, params: Params, source: Int[AnyArray, "R S"], size: int) -> Slots:
        """Return slots as `advance` takes them with such sources, for their shapes. size: B."""
        memory = self.decoder.remember(params, source)
        memory = jax.tree.map(lambda leaf: jnp.zeros((size, *leaf.shape[1:]), leaf.dtype), memory)
        state = self.decoder.empty_state(size * self.search.beam_size, self.length)
        numbers, zero = jnp.zeros(size, jnp.int32), jnp.zeros((), jnp.int32)
        beam = self.search.start(state, numbers, zero)
        return Slots(beam._replace(position=numbers), memory, numbers, zero)

    def advance(
        self,
        params: Params,
        slots: Slots,
        source: Int[AnyArray, "R S"],
        number: Int[AnyArray, " R"],
        steps: Int[AnyArray, ""],
        parts: int = 1,
    ) -> tuple[Slots, Outputs]:
        """Bring new sentences: see `search_in_slots`. number: -1 of rows of padding, the last.

        parts: sources go through the encoder in at most so many, of which one of padding alone does
          not.
        """
        count, rows = (number >= 0).sum(dtype=jnp.int32), len(source)
        part = -(-rows // parts)

        def remember(i: Array, memory: PyTree) -> PyTree:
            first = jnp.minimum(i * part, rows - part)
            own = self.decoder.remember(params, jax.lax.dynamic_slice_in_dim(source, first, part))
            return jax.tree.map(partial(_put, first), memory, own)

        memory = jax.tree.map(partial(_zeros, rows), slots.memory)
        memory = jax.lax.fori_loop(0, -(-count // part), remember, memory)
        limits = length_limits(self.model, source, self.decoding)
        queue = Queue(memory, limits, jnp.asarray(number), count)
        return search_in_slots(partial(self.decoder.step, params), slots, queue, steps, self.search)


def empty_slots(shapes: Slots) -> Slots:
    """Return slots without sentences, as NumPy arrays. shapes: from `jax.eval_shape`."""
    slots = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)
    slots.number[:] = -1
    slots.beam.log_probs[:] = -np.inf  # no search goes on
    return slots


def search_in_slots(
    step: SlotStep, slots: Slots, queue: Queue, steps: Int[AnyArray, ""], search: BeamSearch
) -> tuple[Slots, Outputs]:
    """Search until every new sentence has a slot, then at most `steps` steps more.

    New sentences enter once an eighth of the slots is free, because each time costs a copy of the
    memories.
    """
    size = len(slots.number)
    together = max(size // 8, 1)

    def goes_on(call: _Call) -> Bool[Array, " B"]:
        return search.goes_on(call.slots.beam)

    def refill(call: _Call) -> _Call:
        call = _collect(call, search)
        slots, free = call.slots, call.slots.number < 0
        index = call.taken + jnp.cumsum(free, dtype=jnp.int32) - 1
        new = free & (index < queue.count)
        memory, limits, number = jax.tree.map(
            lambda leaf: jnp.take(leaf, index, axis=0, mode="clip"), queue[:3]
        )
        beam = search.start(slots.beam.state, limits, slots.beam.given)
        beam = beam._replace(position=jnp.zeros_like(slots.beam.position))
        slots = Slots(
            _where(new, beam, slots.beam),
            jax.tree.map(lambda *both: _choose(new, *both), memory, slots.memory),
            jnp.where(new, number, slots.number),
            slots.column,
        )
        place = jnp.where(new, index, call.place)
        return call._replace(slots=slots, taken=call.taken + new.sum(dtype=jnp.int32), place=place)

    def advance(call: _Call) -> _Call:
        slots = call.slots

        def own(state: State, token: Array, position: Array) -> tuple[Array, State]:
            # A slot whose sentence is at its end is stepped on until another comes. Beyond the last
            # position a learned table has NaN, which would stay in the cache.
            last = search.length - 1
            rows = jnp.repeat(jnp.minimum(position, last), search.beam_size)
            return step(slots.memory, state, token, rows, slots.column)

        beam = search.advance(slots.beam, own)
        # A sentence whose search is over stays as it is.
        beam = _where(search.goes_on(slots.beam), beam, slots.beam)
        column = (slots.column + 1) % search.length
        steps = call.steps + jnp.int32(~waits(call))
        return call._replace(slots=slots._replace(beam=beam, column=column), steps=steps)

    def waits(call: _Call) -> Bool[Array, ""]:
        return call.taken < queue.count

    def has_to_advance(call: _Call) -> Bool[Array, ""]:
        busy = goes_on(call)
        enough = jnp.where(waits(call), size - busy.sum() >= together, call.steps >= steps)
        return busy.any() & ~enough

    def is_not_over(call: _Call) -> Bool[Array, ""]:
        return waits(call) | has_to_advance(call)

    def refill_and_advance(call: _Call) -> _Call:
        return jax.lax.while_loop(has_to_advance, advance, refill(call))

    best = search.best(slots.beam)
    new, zero = len(queue.number), jnp.zeros((), jnp.int32)
    every = jax.tree.map(partial(_zeros, new + size), best)
    outputs = Outputs(jnp.full(new + size, -1, jnp.int32), every)
    call = _Call(slots, zero, zero, new + jnp.arange(size, dtype=jnp.int32), outputs)
    call = _collect(jax.lax.while_loop(is_not_over, refill_and_advance, call), search)
    return call.slots, call.outputs


def _collect(call: _Call, search: BeamSearch) -> _Call:
    """Take the outputs of sentences whose search is over; their slots are free."""
    slots, outputs = call.slots, call.outputs
    over = ~search.goes_on(slots.beam) & (slots.number >= 0)
    place = jnp.where(over, call.place, len(outputs.number))  # beyond the end: dropped
    outputs = jax.tree.map(
        lambda every, own: every.at[place].set(own, mode="drop"),
        outputs,
        Outputs(slots.number, search.best(slots.beam)),
    )
    number = jnp.where(over, -1, slots.number)
    return call._replace(slots=slots._replace(number=number), outputs=outputs)


def _where(chosen: Bool[Array, " B"], new: Beam, old: Beam) -> Beam:
    """Return the new beam of the sentences that are chosen; state and `given` are the new ones."""
    each, others = (beam._replace(state=None, given=None) for beam in (new, old))
    beam = jax.tree.map(lambda *both: _choose(chosen, *both), each, others)
    return beam._replace(state=new.state, given=new.given)


def _zeros(rows: int, leaf: Array) -> Array:
    """Return rows of zeros like those of a leaf."""
    return jnp.zeros((rows, *leaf.shape[1:]), leaf.dtype)


def _put(first: Array, every: Array, rows: Array) -> Array:
    """Put rows in the place of others."""
    return jax.lax.dynamic_update_slice_in_dim(every, rows, first, axis=0)


def _choose(chosen: Bool[Array, " B"], new: Array, old: Array) -> Array:
    return jnp.where(chosen.reshape(-1, *[1] * (old.ndim - 1)), new, old)
