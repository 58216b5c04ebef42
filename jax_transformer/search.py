"""§6.1 Beam search with length penalty over any step function; greedy search is beam 1.

The search knows nothing of translation: it carries an opaque state whose leaves have the
hypotheses on their first axis, and asks `step` for logits.

Axes: B sentences, M hypotheses a sentence, N = B M, T output positions, V vocabulary.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

State = Any
# step(state, token [N], position []) -> (logits [N, V] of what follows the token, next state)
Step = Callable[[State, Int[Array, " N"], Int[Array, ""]], tuple[Float[Array, "N V"], State]]
# legal(state of a step just made) -> the tokens that may follow
Legal = Callable[[State], Bool[Array, "N V"]]


class Hypotheses(NamedTuple):
    """The best outputs of each sentence, best first.

    tokens: EOS ends each, PAD follows; a missing hypothesis is all PAD with score -inf.
    scores: log P / length_penalty.  log_probs: log P in nats.
    """

    tokens: Int[Array, "B M T"]
    scores: Float[Array, "B M"]
    log_probs: Float[Array, "B M"]


class _Beam(NamedTuple):
    """What the loop carries. Alive hypotheses have not ended; finished ones have."""

    position: Int[Array, ""]
    tokens: Int[Array, "B M T"]
    log_probs: Float[Array, "B M"]
    state: State
    finished: Hypotheses


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
    legal: Legal | None = None,
    room: int | None = None,
) -> Hypotheses:
    """The `n_best` outputs found for each sentence, by log P / length_penalty.

    state: N = B * beam_size rows, sentence by sentence.
    max_lengths: most tokens of each sentence's output, EOS included, at most `length`;
    an output that gets so far ends there, at the price of EOS.
    length: T, and how many positions the state has room for, if `room` does not say less:
    then a sentence whose answer could still change after `room` positions has no output. So
    a caller pays for long outputs where they occur, by searching for those again.
    early_stop: leave when no unfinished hypothesis can still change the answer. Log P only
    falls, so one with log P now ends at best with log P over its largest penalty.
    legal: tokens that may follow; the others are never written. Log P stays that of `step`
    over all tokens, and a sentence that nothing may follow has no output.

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
    batch = max_lengths.shape[0]

    def unfinished(beam: _Beam) -> Bool[Array, ""]:
        bound = beam.log_probs[:, 0] / length_penalty(max_lengths, alpha)
        can_change = bound > beam.finished.scores[:, n_best - 1]
        alive = beam.log_probs[:, 0] > -jnp.inf
        return (can_change | (not early_stop)) & alive

    def body(beam: _Beam) -> _Beam:
        last = jnp.where(
            beam.position == 0, bos_id, beam.tokens[:, :, jnp.maximum(beam.position - 1, 0)]
        )
        logits, state = step(beam.state, last.reshape(-1), beam.position)
        log_probs = jax.nn.log_softmax(logits.astype(jnp.float32))
        if legal is not None:
            log_probs = jnp.where(legal(state), log_probs, -jnp.inf)
        at_limit = (beam.position + 1 >= max_lengths)[:, None, None]
        must_end = at_limit & (jnp.arange(logits.shape[-1]) != eos_id)[None, None, :]
        log_probs = log_probs.reshape(batch, beam_size, -1)
        total = jnp.where(must_end, -jnp.inf, beam.log_probs[:, :, None] + log_probs)
        return _extend(beam, total, state, eos_id=eos_id, alpha=alpha)

    nothing = no_hypotheses(batch, beam_size, length, pad_id)
    start = _Beam(
        jnp.zeros((), jnp.int32),
        nothing.tokens,
        nothing.log_probs.at[:, 0].set(0.0),  # one hypothesis, the empty one
        state,
        nothing,
    )

    end = length if room is None else min(room, length)
    beam = jax.lax.while_loop(
        lambda beam: unfinished(beam).any() & (beam.position < end), body, start
    )
    found = beam.finished
    if end < length:
        found = without(found, unfinished(beam), pad_id)
    return Hypotheses(*(leaf[:, :n_best] for leaf in found))


def without(found: Hypotheses, rows: Bool[Array, " B"], pad_id: int) -> Hypotheses:
    """The hypotheses, but all missing in some rows."""
    batch, beam_size, length = found.tokens.shape
    nothing = no_hypotheses(batch, beam_size, length, pad_id)
    return Hypotheses(
        *(
            jnp.where(rows.reshape(-1, *(1,) * (leaf.ndim - 1)), empty, leaf)
            for empty, leaf in zip(nothing, found, strict=True)
        )
    )


def _extend(
    beam: _Beam, total: Float[Array, "B M V"], state: State, *, eos_id: int, alpha: float
) -> _Beam:
    """The beam one token longer: some hypotheses end, the best of the others live on."""
    batch, beam_size, size = total.shape
    # Each hypothesis has one way to end, so of 2 M candidates at least M go on. With one
    # hypothesis that would keep a second best alive after EOS won; greedy search stops.
    count = min(2 * beam_size, beam_size * size) if beam_size > 1 else 1
    candidate_log_probs, index = jax.lax.top_k(total.reshape(batch, -1), count)  # [B, 2 M]
    parent, token = index // size, index % size
    tokens = jnp.take_along_axis(beam.tokens, parent[:, :, None], axis=1)  # [B, 2 M, T]
    tokens = tokens.at[:, :, beam.position].set(token)
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
    rows = _choose(parent, best) + beam_size * jnp.arange(batch)[:, None]  # [B, M] in N
    if (
        beam_size > 1
    ):  # else each row is its own parent, and a copy of the state would be for nothing
        state = jax.tree.map(lambda leaf: jnp.take(leaf, rows.reshape(-1), axis=0), state)
    return _Beam(beam.position + 1, _choose(tokens, best), log_probs, state, finished)


def _choose(leaf: Array, index: Int[Array, "B M"]) -> Array:
    """leaf[b, index[b, m]] for a leaf [B, K, ...]."""
    return jnp.take_along_axis(leaf, index.reshape(*index.shape, *(1,) * (leaf.ndim - 2)), axis=1)
