"""§6.1 Beam search with length penalty over any step function; greedy search is beam 1.

The search knows nothing of translation: it carries an opaque state and asks `step` for logits.
Leaves of the state have the hypotheses on their first axis; parts that reorder themselves may
have any.

Axes: B sentences, M hypotheses a sentence, N = B M, T output positions, V vocabulary.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jax_transformer.models.products import FEW_ROWS

State = Any
# step(state, token [N], position []) -> (logits [N, V] of what follows the token, next state)
Step = Callable[[State, Int[Array, " N"], Int[Array, ""]], tuple[Float[Array, "N V"], State]]
# allowed(state that a step returned) -> the tokens that may follow
Allowed = Callable[[State], Bool[Array, "N V"]]


@runtime_checkable
class Managed(Protocol):
    """A part of a state that reorders itself, and that grows with the outputs."""

    def reorder(self, parents: Int[Array, "B M"]) -> Any:
        """The part whose hypothesis m goes on from what was hypothesis parents[b, m]."""
        ...

    def grow(self, length: int) -> Any:
        """The part with room for so many positions, and what it has kept."""
        ...

    def select(self, sentences: Int[Array, " b"]) -> Any:
        """The part of these sentences alone."""
        ...


class Hypotheses(NamedTuple):
    """The best outputs of each sentence, best first.

    tokens: EOS ends each, PAD follows; a missing hypothesis is all PAD with score -inf.
    scores: log P / length_penalty.  log_probs: log P in nats.  Both are 0 where greedy search was
    not asked for them.
    """

    tokens: Int[Array, "B M T"]
    scores: Float[Array, "B M"]
    log_probs: Float[Array, "B M"]


class _Beam(NamedTuple):
    """What the loop carries. Alive hypotheses have not ended; finished ones have."""

    position: Int[Array, ""]
    max_lengths: Int[Array, " B"]
    tokens: Int[Array, "B M T"]
    log_probs: Float[Array, "B M"]
    state: State
    finished: Hypotheses
    ended: Int[Array, " B"]  # how many ended among the M likeliest of their step


def length_penalty(length: Float[Array, "..."] | float, alpha: float) -> Float[Array, "..."]:
    """((5 + |y|) / 6)^alpha (Wu et al. 2016, equation 14); |y| counts the end mark.

    Differs: fairseq and Marian divide by |y|^alpha.

    >>> [round(float(length_penalty(length, alpha=0.6)), 3) for length in (1, 7, 25)]
    [1.0, 1.516, 2.627]
    """
    return ((5.0 + jnp.asarray(length, jnp.float32)) / 6.0) ** alpha


def no_hypotheses(batch: int, beam_size: int, length: int, pad_id: int) -> Hypotheses:
    """All missing: tokens [batch, beam_size, length], scores and log P [batch, beam_size]."""
    nothing = jnp.full((batch, beam_size), -jnp.inf)
    return Hypotheses(jnp.full((batch, beam_size, length), pad_id, jnp.int32), nothing, nothing)


def beam_search(
    step: Step,
    state: State,
    max_lengths: Int[Array, " B"],
    *,
    beam_size: int,
    length: int,
    alpha: float,
    bos_id: int,
    eos_id: int,
    pad_id: int,
    n_best: int = 1,
    early_stop: bool = True,
    patience: float = 0.0,
    allowed: Allowed | None = None,
    scores: bool = True,
    room: int | None = None,
    compact: int | None = None,
) -> Hypotheses:
    """The `n_best` outputs found for each sentence, by log P / length_penalty.

    state: leaves of N = B * beam_size rows, sentence by sentence, and `Managed` parts.
    max_lengths: most tokens of each sentence's output, EOS included, at most `length`;
    an output that gets so far ends there, at the price of EOS.
    length: T.  room, compact: all sentences go on together for `room` positions, or until no
    more than `compact` of them are unfinished; these go on by themselves, so many at a
    time, with all the room that `length` needs. So long outputs cost the short ones nothing.
    early_stop: leave when no unfinished hypothesis can still change the answer. Log P only
    falls, so one with log P now ends at best with log P over its largest penalty.
    patience: above 0, a sentence is also left when beam_size * patience of its hypotheses have
    ended, n_best at least, each among the M likeliest of its step (Kasai et al. 2022); what is
    unfinished then might have been better.
    allowed: tokens that may follow; the others are never written. Log P stays that of `step`
    over all tokens, and a sentence that nothing may follow has no output.
    scores: False spares greedy search the sums of exponentials, which its outputs do not depend
    on; scores and log P are 0 then, and -inf still of what is missing.

    Where the likeliest first token leads to unlikely sentences, two hypotheses beat one:

    >>> after = jnp.log(jnp.array([  # P(next token | last token), ids PAD BOS EOS 3 4
    ...     [0.2, 0.2, 0.2, 0.2, 0.2],
    ...     [0.0, 0.0, 0.0, 0.6, 0.4],
    ...     [0.2, 0.2, 0.2, 0.2, 0.2],
    ...     [0.0, 0.0, 0.4, 0.3, 0.3],
    ...     [0.0, 0.0, 1.0, 0.0, 0.0],
    ... ]))
    >>> def step(state, token, position):
    ...     return after[token], state
    >>> ids = {"bos_id": 1, "eos_id": 2, "pad_id": 0}
    >>> for beam_size in (1, 2):
    ...     best = beam_search(
    ...         step, (), jnp.array([4]), beam_size=beam_size, length=4, alpha=0.0, **ids
    ...     )
    ...     print(best.tokens[0, 0].tolist(), round(float(jnp.exp(best.log_probs[0, 0])), 3))
    [3, 2, 0, 0] 0.24
    [4, 2, 0, 0] 0.4
    """
    assert alpha >= 0, "the bound of early stopping needs a penalty that grows"
    assert 1 <= n_best <= beam_size
    assert scores or beam_size == 1, "several hypotheses are told apart by log P"
    batch = max_lengths.shape[0]
    # Rounded, for 25 * 2.2 is a little more than 55; more than all can never end.
    asked = min(math.ceil(round(beam_size * patience, 6)), beam_size * length)
    enough_ended = max(asked, n_best)

    def prospect(beam: _Beam) -> Float[Array, " B"]:
        """By how much an unfinished hypothesis may at best surpass the answer; of none, -inf."""
        bound = beam.log_probs[:, 0] / length_penalty(beam.max_lengths, alpha)
        alive = beam.log_probs[:, 0] > -jnp.inf
        return jnp.where(alive, bound - beam.finished.scores[:, n_best - 1], -jnp.inf)

    def unfinished(beam: _Beam) -> Bool[Array, " B"]:
        return prospect(beam) > (0.0 if early_stop else -jnp.inf)

    def body(beam: _Beam) -> _Beam:
        last = jnp.where(
            beam.position == 0, bos_id, beam.tokens[:, :, jnp.maximum(beam.position - 1, 0)]
        )
        logits, state = step(beam.state, last.reshape(-1), beam.position)
        mask = None if allowed is None else allowed(state)
        before = beam.log_probs.reshape(-1)
        found = scored(logits.astype(jnp.float32), before, mask, summed=scores)
        candidates = _candidates(beam, found, logits.shape[1], eos_id)
        beam = _extend(beam, candidates, state, eos_id=eos_id, alpha=alpha)
        if not patience:
            return beam
        # Nothing goes on, so that no answer depends on how long others of the batch take.
        left = (beam.ended >= enough_ended)[:, None]
        return beam._replace(log_probs=jnp.where(left, -jnp.inf, beam.log_probs))

    nothing = no_hypotheses(batch, beam_size, length, pad_id)
    beam = _Beam(
        jnp.zeros((), jnp.int32),
        max_lengths,
        nothing.tokens,
        nothing.log_probs.at[:, 0].set(0.0),  # one hypothesis, the empty one
        state,
        nothing,
        jnp.zeros(batch, jnp.int32),
    )

    size = min(compact or batch, batch)

    def advanced(beam: _Beam, room: int, enough: int) -> _Beam:
        """Until no more than `enough` are unfinished, or all the room is written."""
        return jax.lax.while_loop(
            lambda beam: (unfinished(beam).sum() > enough) & (beam.position < room),
            body,
            beam._replace(state=_grown(beam.state, room)),
        )

    together = advanced(beam, min(room or length, length), size if size < batch else 0)
    # Those that may go on for long stand together, and those that are finished come last.
    order = jnp.argsort(-prospect(together))

    def finish(index: Int[Array, ""], found: Hypotheses) -> Hypotheses:
        kept = jax.lax.dynamic_slice_in_dim(order, index * size, size)
        apart = advanced(_selected(together, kept), length, 0)
        return jax.tree.map(lambda all, some: all.at[kept].set(some), found, apart.finished)

    found = together.finished
    if size < batch or (room or length) < length:
        times = -(-unfinished(together).sum() // size)
        found = jax.lax.fori_loop(0, times, finish, found)
    tokens, *values = (leaf[:, :n_best] for leaf in found)
    if not scores:
        values = (jnp.where(jnp.isfinite(value), 0.0, value) for value in values)
    return Hypotheses(tokens, *values)


class _Candidates(NamedTuple):
    """Ways to go on, best first."""

    log_probs: Float[Array, "B K"]
    parent: Int[Array, "B K"]
    token: Int[Array, "B K"]


class Scored(NamedTuple):
    """Logits of the next token, and what makes log P of them.

    parts: in chunks of about 32 tokens, -inf behind the last token; tokens stand one below
    another where `next_logits` of so many hypotheses has them so.  tops: the largest of each
    chunk.  before: log P of the tokens so far.  spread: log of the sum of exp(logit - largest)
    over the vocabulary, or 0 where that was not summed.
    """

    parts: Float[Array, "N C n"] | Float[Array, "C n N"]
    tops: Float[Array, "N C"]
    before: Float[Array, "N 1"]
    largest: Float[Array, "N 1"]
    spread: Float[Array, "N 1"]

    def maxima(self) -> Float[Array, "N C"]:
        """Log P of the likeliest token of each chunk."""
        return self.before + ((self.tops - self.largest) - self.spread)

    def of_chunks(self, row: Int[Array, " K"], chunk: Int[Array, " K"]) -> Float[Array, "K n"]:
        """Log P of the tokens of chunk[k] as they follow hypothesis row[k]."""
        few = len(self.before) <= FEW_ROWS
        some = self.parts[chunk, :, row] if few else self.parts[row, chunk]
        # Where one logit is smaller than another, log P is not larger, rounding included.
        return self.before[row] + ((some - self.largest[row]) - self.spread[row])

    def of_token(self, token: int) -> Float[Array, " N"]:
        """Log P of one token after each hypothesis."""
        chunk, place = divmod(token, self.parts.shape[1 if len(self.before) <= FEW_ROWS else 2])
        every = jnp.arange(len(self.before))
        return self.of_chunks(every, jnp.full_like(every, chunk))[:, place]


def scored(
    logits: Float[Array, "N V"],
    before: Float[Array, " N"],
    allowed: Bool[Array, "N V"] | None = None,
    *,
    summed: bool = True,
) -> Scored:
    """All logits count for log P, but those that are not allowed become -inf.

    summed: False leaves `spread` 0, so that the likeliest token adds nothing to `before`.
    """
    parts = _in_chunks(logits, -jnp.inf)
    tops = _tops(parts, len(logits))
    largest = tops.max(axis=1, keepdims=True)
    if not summed:
        spread = jnp.zeros_like(largest)
    elif len(logits) <= FEW_ROWS:  # along tokens as they stand, for turned round they cost more
        spread = jnp.log(jnp.exp(parts - largest.T[None]).sum(axis=(0, 1))[:, None])
    else:
        spread = jnp.log(jnp.exp(logits - largest).sum(axis=1, keepdims=True))
    if allowed is not None:
        # Without the barrier XLA computes them anew for each of their uses.
        some = jnp.where(_in_chunks(allowed, False), parts, -jnp.inf)
        parts = jax.lax.optimization_barrier(some)
        tops = _tops(parts, len(logits))
    return Scored(parts, tops, before[:, None], largest, spread)


def _in_chunks(values: Array, filler: Any) -> Array:
    """[N, V] as `Scored.parts`."""
    rows, size = values.shape
    near = [chunk for chunk in range(24, 49) if size % chunk == 0]  # these need no filler
    chunk = min(near, key=lambda chunk: abs(chunk - 32), default=32)
    padded = jnp.pad(values, ((0, 0), (0, -size % chunk)), constant_values=filler)
    if rows <= FEW_ROWS:
        return padded.T.reshape(-1, chunk, rows)
    return padded.reshape(rows, -1, chunk)


def _tops(parts: Array, rows: int) -> Float[Array, "N C"]:
    """`Scored.tops`. Behind a barrier, or XLA takes their maximum from all logits once more."""
    tops = parts.max(axis=1).T if rows <= FEW_ROWS else parts.max(axis=2)
    return jax.lax.optimization_barrier(tops)


def _candidates(beam: _Beam, logits: Scored, size: int, eos_id: int) -> _Candidates:
    """Those of the largest log P among `size` tokens for each hypothesis."""
    beam_size = beam.log_probs.shape[1]
    # Each hypothesis has one way to end, so of 2 M candidates at least M go on. With one
    # hypothesis that would keep a second best alive after EOS won; greedy search stops.
    count = min(2 * beam_size, beam_size * size) if beam_size > 1 else 1
    log_probs, parent, token = _likeliest(logits, beam_size, count)
    # Where there is no more room, EOS is all that may follow.
    ends = logits.of_token(eos_id).reshape(-1, beam_size)
    ends = jnp.pad(ends, ((0, 0), (0, count - beam_size)), constant_values=-jnp.inf)
    ends, ending = jax.lax.top_k(ends, count)
    at_limit = (beam.position + 1 >= beam.max_lengths)[:, None]
    return _Candidates(
        jnp.where(at_limit, ends, log_probs),
        jnp.where(at_limit, jnp.minimum(ending, beam_size - 1), parent),
        jnp.where(at_limit, eos_id, jnp.minimum(token, size - 1)),
    )


def _likeliest(logits: Scored, beam_size: int, count: int) -> _Candidates:
    """`largest_of`; of one hypothesis by its logits, with scores or without, however P rounds."""
    if beam_size > 1:
        return largest_of(logits, beam_size, count)
    zero = jnp.zeros_like(logits.before)
    best = largest_of(logits._replace(before=zero, largest=zero, spread=zero), 1, count)
    log_probs = logits.before + ((best.log_probs - logits.largest) - logits.spread)
    return best._replace(log_probs=log_probs)


def largest_of(logits: Scored, beam_size: int, count: int) -> _Candidates:
    """The largest of all M V log P of each sentence; of equal ones those that come first.

    As `jax.lax.top_k` of them, but only those few are computed that can be among them: each
    of the largest is in one of the `count` chunks with the largest maxima. Where less
    than `count` are finite, the others are anything.
    """
    maxima = logits.maxima()
    chunks = maxima.shape[1]
    maxima = maxima.reshape(-1, beam_size * chunks)
    if maxima.shape[1] > 2 * count:
        best = jnp.sort(jax.lax.top_k(maxima, count)[1], axis=1)  # in order, for the equal ones
    else:
        best = jnp.broadcast_to(jnp.arange(maxima.shape[1]), maxima.shape)
    parent, place = best // chunks, best % chunks
    row = beam_size * jnp.arange(len(maxima))[:, None] + parent
    chosen = logits.of_chunks(row.reshape(-1), place.reshape(-1))
    size = chosen.shape[1]
    log_probs, index = jax.lax.top_k(chosen.reshape(len(maxima), -1), count)
    parent, place = (jnp.take_along_axis(leaf, index // size, axis=1) for leaf in (parent, place))
    return _Candidates(log_probs, parent, place * size + index % size)


def _extend(
    beam: _Beam, candidates: _Candidates, state: State, *, eos_id: int, alpha: float
) -> _Beam:
    """The beam one token longer: some hypotheses end, the best of the others live on."""
    beam_size = beam.log_probs.shape[1]
    candidate_log_probs, parent, token = candidates
    tokens = jnp.take_along_axis(beam.tokens, parent[:, :, None], axis=1)  # [B, 2 M, T]
    tokens = jax.lax.dynamic_update_slice_in_dim(tokens, token[:, :, None], beam.position, 2)
    ends = token == eos_id

    finished_log_probs = jnp.where(ends, candidate_log_probs, -jnp.inf)
    scores = finished_log_probs / length_penalty(beam.position + 1, alpha)
    pool = Hypotheses(
        jnp.concatenate([beam.finished.tokens, tokens], axis=1),
        jnp.concatenate([beam.finished.scores, scores], axis=1),
        jnp.concatenate([beam.finished.log_probs, finished_log_probs], axis=1),
    )
    _, best = jax.lax.top_k(pool.scores, beam_size)
    finished = Hypotheses(*(_choose(leaf, best) for leaf in pool))

    alive = jnp.where(ends, -jnp.inf, candidate_log_probs)
    log_probs, best = jax.lax.top_k(alive, beam_size)
    if beam_size > 1:  # else each row is its own parent
        state = _reordered(state, _choose(parent, best))
    tokens = _choose(tokens, best)
    ended = beam.ended + (finished_log_probs[:, :beam_size] > -jnp.inf).sum(axis=1)
    return _Beam(beam.position + 1, beam.max_lengths, tokens, log_probs, state, finished, ended)


def _reordered(state: State, parents: Int[Array, "B M"]) -> State:
    """Hypothesis m of each sentence goes on from what was hypothesis parents[b, m]."""
    batch, beam_size = parents.shape
    rows = (parents + beam_size * jnp.arange(batch)[:, None]).reshape(-1)
    return jax.tree.map(
        lambda part: part.reorder(parents) if _is_managed(part) else jnp.take(part, rows, axis=0),
        state,
        is_leaf=_is_managed,
    )


def _grown(state: State, length: int) -> State:
    return jax.tree.map(
        lambda part: part.grow(length) if _is_managed(part) else part, state, is_leaf=_is_managed
    )


def _selected(beam: _Beam, sentences: Int[Array, " b"]) -> _Beam:
    """The beam of these sentences alone."""
    batch = len(beam.log_probs)

    def of_state(part: Any) -> Any:
        if _is_managed(part):
            return part.select(sentences)
        rows = part.reshape(batch, -1, *part.shape[1:])[sentences]
        return rows.reshape(-1, *part.shape[1:])

    return _Beam(
        beam.position,
        beam.max_lengths[sentences],
        beam.tokens[sentences],
        beam.log_probs[sentences],
        jax.tree.map(of_state, beam.state, is_leaf=_is_managed),
        Hypotheses(*(leaf[sentences] for leaf in beam.finished)),
        beam.ended[sentences],
    )


def _is_managed(part: Any) -> bool:
    return isinstance(part, Managed)


def _choose(leaf: Array, index: Int[Array, "B M"]) -> Array:
    """leaf[b, index[b, m]] for a leaf [B, K, ...]."""
    return jnp.take_along_axis(leaf, index.reshape(*index.shape, *(1,) * (leaf.ndim - 2)), axis=1)
