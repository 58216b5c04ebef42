"""§6.1 Beam search with length penalty over any step function; greedy search is beam 1.

The search does not depend on translation: it carries an opaque state, and `step` gives logits.

Axes: B sentences, M hypotheses per sentence, N = B M, T output positions, V vocabulary,
K candidates per sentence: 2 M, or 1 if M is 1.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int, PyTree

from jax_transformer.checks import check_search
from jax_transformer.types import AnyArray

State = PyTree  # its leaves have the N hypotheses on their first axis
# The position of the newest tokens: the same in all sentences here, their own in `slots`.
Position = Int[Array, ""] | Int[Array, " _"]
# step(state, token [N], position) -> (logits [N, V] of what follows the token, next state);
# log P is float32, whatever the type of the logits
Step = Callable[[State, Int[Array, " N"], Position], tuple[Float[Array, "N V"], State]]
# penalty(|y|, alpha) -> what log P is divided by; it must not fall with |y|
LengthPenalty = Callable[[ArrayLike, float], Float[Array, "..."]]
# allowed(next state) -> the tokens that may follow
Allowed = Callable[[State], Bool[Array, "N V"]]


class Hypotheses(NamedTuple):
    """The best outputs of each sentence, best first.

    tokens: EOS ends each, PAD follows; a missing hypothesis is all PAD with score -inf. To the
      search, PAD and BOS are tokens like any other: an untrained model may write them.
    scores: log P / length penalty; of outputs that begin with given tokens, of the rest alone.
    log_probs: log P in nats of all tokens.
    complete: False if the search ran out of `length` before its stopping rule was met.
    """

    tokens: Int[Array, "B n_best T"]
    scores: Float[Array, "B n_best"]
    log_probs: Float[Array, "B n_best"]
    complete: Bool[Array, " B"]


class _Finished(NamedTuple):
    """The best hypotheses that have ended, as in `Hypotheses`."""

    tokens: Int[Array, "B M T"]
    scores: Float[Array, "B M"]
    log_probs: Float[Array, "B M"]


class Beam(NamedTuple):
    """Sentences in search: the hypotheses alive, and in `finished` the best that have ended."""

    position: Position  # the number of tokens of each that is alive
    last: Int[Array, "B M"]  # the newest token of each
    tokens: Int[Array, "B M T"]
    log_probs: Float[Array, "B M"]
    state: State
    finished: _Finished
    num_ended: Int[Array, " B"]  # the number that ended
    given_log_probs: Float[Array, " B"]  # log P of the given tokens
    max_lengths: Int[Array, " B"]
    given: Position


class _Candidates(NamedTuple):
    """Hypotheses one token longer, best first."""

    log_probs: Float[Array, "B K"]
    parent: Int[Array, "B K"]
    token: Int[Array, "B K"]


def length_penalty(length: ArrayLike, alpha: float) -> Float[Array, "..."]:
    """Return ((5 + |y|) / 6)^alpha (Wu et al. 2016, equation 14); |y| counts the end mark.

    Differs: fairseq and Marian divide by |y|^alpha instead: `length_power`.

    >>> [round(float(length_penalty(length, alpha=0.6)), 3) for length in (1, 7, 25)]
    [1.0, 1.516, 2.627]
    """
    return ((5.0 + jnp.asarray(length, jnp.float32)) / 6.0) ** alpha


def length_power(length: ArrayLike, alpha: float) -> Float[Array, "..."]:
    """Return |y|^alpha, the length penalty of Marian, fairseq and Hugging Face."""
    return jnp.asarray(length, jnp.float32) ** alpha


PENALTIES = {"gnmt": length_penalty, "length": length_power}  # by decoding.length_penalty


def beam_search(
    step: Step,
    state: State,
    max_lengths: Int[AnyArray, " B"],
    *,
    beam_size: int,
    length: int,
    alpha: float,
    bos_id: int,
    eos_id: int,
    pad_id: int,
    n_best: int = 1,
    patience: float = 0.0,
    narrowing: bool = False,
    penalty: LengthPenalty = length_penalty,
    allowed: Allowed | None = None,
    given: int | Int[AnyArray, " B"] = 0,
) -> Hypotheses:
    """Return the `n_best` outputs found for each sentence, by log P / penalty(|y|, alpha).

    step: a function (state, token [N], position) -> (logits [N, V] of what follows the token, next
      state).
    state: the first state, a tree whose leaves have N = B * beam_size rows, sentence by sentence.
    max_lengths: the maximum number of output tokens of each sentence, EOS included; a hypothesis
      that reaches its limit ends there, and its log P includes that of EOS.
    length: T, the length of the output arrays. The search stops when they are full; a sentence
      whose maximum is larger may be incomplete then.
    alpha: the exponent of the length penalty, at most 10.
    penalty: `length_penalty`, or `length_power`.
    patience: 0 (the exact rule) stops when no unfinished hypothesis can still change the answer.
      Log P never rises, so an unfinished hypothesis can score at most its log P divided by the
      penalty at the length limit. p > 0 (Kasai et al. 2022) also stops a sentence once
      p * beam_size hypotheses have ended, and a hypothesis ends only among the M best candidates of
      its step, as in other programs. Stopping early is faster, the outputs are sometimes worse, and
      with p below 1 they may be fewer than `n_best`.
    narrowing: with patience 1, a sentence of which n hypotheses have ended keeps M - n, as in
      Marian.
    allowed: a function of the next state that returns the tokens that may follow, [N, V]; others
      are never generated. Log P is not renormalized over them. A hypothesis after which nothing is
      allowed is dropped.
    given: the number of tokens at the beginning of each output that `allowed` dictates. The search
      does not choose them, so scores are log P and |y| of what follows them.

    The likeliest first token may lead to unlikely sentences; then two hypotheses beat one:

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
    max_lengths = jnp.asarray(max_lengths)
    options = {"alpha": alpha, "patience": patience, "narrowing": narrowing}
    check_search(state, max_lengths, beam_size, n_best, **options)
    search = BeamSearch(
        beam_size, length, alpha, bos_id, eos_id, pad_id, n_best, patience, narrowing, penalty
    )
    beam = search.start(state, max_lengths, jnp.asarray(given))
    return search.best(
        jax.lax.while_loop(
            lambda beam: search.goes_on(beam).any(),
            lambda beam: search.advance(beam, step, allowed),
            beam,
        )
    )


@dataclass(frozen=True)
class BeamSearch:
    """The settings of `beam_search`, and the parts that it is made of."""

    beam_size: int
    length: int
    alpha: float
    bos_id: int
    eos_id: int
    pad_id: int
    n_best: int = 1
    patience: float = 0.0
    narrowing: bool = False
    penalty: LengthPenalty = length_penalty

    def start(self, state: State, max_lengths: Int[Array, " B"], given: Position) -> Beam:
        """Return the beam of sentences that have one hypothesis each, the empty one."""
        shape = max_lengths.shape[0], self.beam_size
        missing = jnp.full(shape, -jnp.inf, jnp.float32)
        no_tokens = jnp.full((*shape, self.length), self.pad_id, jnp.int32)
        return Beam(
            position=jnp.zeros((), jnp.int32),
            last=jnp.full(shape, self.bos_id, jnp.int32),
            tokens=no_tokens,
            log_probs=missing.at[:, 0].set(0.0),
            state=state,
            finished=_Finished(no_tokens, missing, missing),
            num_ended=jnp.zeros(shape[0], jnp.int32),
            given_log_probs=jnp.zeros(shape[0], jnp.float32),
            max_lengths=max_lengths,
            given=given,
        )

    def goes_on(self, beam: Beam) -> Bool[Array, " B"]:
        """Return whether each search goes on: its answer may change, and T allows more tokens."""
        return self._can_improve(beam) & (beam.position < self.length)

    def best(self, beam: Beam) -> Hypotheses:
        """Return the best that have been found so far."""
        found = (leaf[:, : self.n_best] for leaf in beam.finished)
        return Hypotheses(*found, complete=~self._can_improve(beam))

    def advance(self, beam: Beam, step: Step, allowed: Allowed | None = None) -> Beam:
        """Make the hypotheses of each sentence one token longer."""
        # Rounded, because 25 * 2.2 is a little more than 55.
        enough_ended = max(math.ceil(round(self.beam_size * self.patience, 6)), 1)
        best = beam.log_probs[:, 0]
        all_given = (beam.position == beam.given) & (best > -jnp.inf)
        beam = beam._replace(given_log_probs=jnp.where(all_given, best, beam.given_log_probs))
        logits, state = step(beam.state, beam.last.reshape(-1), beam.position)
        logits = logits.astype(jnp.float32)
        log_probs = logits - jax.nn.logsumexp(logits, axis=-1, keepdims=True)  # [N, V]
        if allowed is not None:
            log_probs = jnp.where(allowed(state), log_probs, -jnp.inf)
        at_limit = beam.position + 1 >= beam.max_lengths
        candidates = _best_candidates(beam.log_probs, log_probs, at_limit, self.eos_id)
        if self.patience:  # hypotheses end only among the M best
            rank = jnp.arange(candidates.token.shape[1], dtype=jnp.int32)[None]
            late = (candidates.token == self.eos_id) & (rank >= self.beam_size)
            if self.narrowing:  # and go on only there too
                late = rank >= self.beam_size - beam.num_ended[:, None]
            left = jnp.where(late, -jnp.inf, candidates.log_probs)
            candidates = candidates._replace(log_probs=left)
        scores = self._scores(candidates.log_probs, beam.position + 1, beam)
        beam = _extend(beam, candidates, scores, state, self.eos_id)
        if not self.patience:
            return beam
        # A sentence without a hypothesis that is alive cannot improve, so it stops.
        stopped = (beam.num_ended >= enough_ended)[:, None]
        return beam._replace(log_probs=jnp.where(stopped, -jnp.inf, beam.log_probs))

    def _scores(
        self, log_probs: Float[Array, "B _"], lengths: Position, beam: Beam
    ) -> Float[Array, "B _"]:
        chosen = log_probs - beam.given_log_probs[:, None]
        penalties = self.penalty(jnp.maximum(lengths - beam.given, 1), self.alpha)
        return chosen / penalties.reshape(-1, 1)

    def _can_improve(self, beam: Beam) -> Bool[Array, " B"]:
        # The bound needs a penalty that never falls with length.
        bound = self._scores(beam.log_probs[:, :1], beam.max_lengths, beam)[:, 0]
        return bound > beam.finished.scores[:, self.n_best - 1]


def _best_candidates(
    so_far: Float[Array, "B M"],
    next_log_probs: Float[Array, "N V"],
    at_limit: Bool[Array, " B"],
    eos_id: int,
) -> _Candidates:
    """Return the likeliest continuations; at the limit of a sentence only EOS may follow."""
    batch, beam_size = so_far.shape
    vocabulary_size = next_log_probs.shape[1]
    next_log_probs = next_log_probs.reshape(batch, beam_size, vocabulary_size)
    log_probs = so_far[:, :, None] + next_log_probs  # [B, M, V]
    is_eos = jnp.arange(vocabulary_size) == eos_id
    log_probs = jnp.where(at_limit[:, None, None] & ~is_eos[None, None], -jnp.inf, log_probs)
    # Each hypothesis can end in one way, so of 2 M candidates at least M go on. With M = 1 only
    # the best is taken; otherwise the search would go on with the runner-up after EOS.
    count = 2 * beam_size if beam_size > 1 else 1
    best, index = top_k(log_probs.reshape(batch, beam_size * vocabulary_size), count)
    return _Candidates(best, index // vocabulary_size, index % vocabulary_size)


def top_k(
    values: Float[AnyArray, "B n"], k: int, chunk: int = 128
) -> tuple[Float[Array, "B k"], Int[Array, "B k"]]:
    """Return (values, indices) of the k largest of each row, largest first, as `jax.lax.top_k`.

    Each of the k largest is in one of the k chunks with the largest maxima, so only those chunks
    are sorted: a vocabulary is long, and k small. Equal values come in the order of their indices.

    >>> top_k(jnp.array([[3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0]]), k=1, chunk=2)[1].tolist()
    [[5]]
    """
    batch, size = values.shape
    whole = size - size % chunk
    if whole <= 2 * k * chunk:
        found, place = jax.lax.top_k(values, k)
        return found, place
    maxima = values[:, :whole].reshape(batch, whole // chunk, chunk).max(axis=2)
    best = jnp.sort(jax.lax.top_k(maxima, k)[1], axis=1)  # in order, for ties
    offset = jnp.arange(chunk, dtype=jnp.int32)[None, None]
    index = (best[:, :, None] * chunk + offset).reshape(batch, k * chunk)
    rest = jnp.broadcast_to(jnp.arange(whole, size, dtype=jnp.int32)[None], (batch, size - whole))
    index = jnp.concatenate([index, rest], axis=1)
    found, place = jax.lax.top_k(jnp.take_along_axis(values, index, axis=1), k)
    return found, jnp.take_along_axis(index, place, axis=1).astype(jnp.int32)


def _extend(
    beam: Beam, candidates: _Candidates, scores: Float[Array, "B K"], state: State, eos: int
) -> Beam:
    """Make the beam one token longer: some hypotheses end, the best of the others live on."""
    beam_size = beam.log_probs.shape[1]
    log_probs, parent, token = candidates
    tokens = _choose(beam.tokens, parent)  # [B, K, T]
    column = jnp.arange(tokens.shape[2], dtype=jnp.int32)[None, None]
    here = column == beam.position.reshape(-1, 1, 1)
    tokens = jnp.where(here, token[:, :, None], tokens)
    ends = token == eos

    ended_log_probs = jnp.where(ends, log_probs, -jnp.inf)
    ended = _Finished(tokens, jnp.where(ends, scores, -jnp.inf), ended_log_probs)
    pool = jax.tree.map(lambda *leaves: jnp.concatenate(leaves, axis=1), beam.finished, ended)
    _, best = jax.lax.top_k(pool.scores, beam_size)
    finished = _Finished(*(_choose(leaf, best) for leaf in pool))
    count = (ended_log_probs[:, :beam_size] > -jnp.inf).sum(axis=1, dtype=jnp.int32)

    alive, best = jax.lax.top_k(jnp.where(ends, -jnp.inf, log_probs), beam_size)
    if beam_size > 1:  # a single hypothesis is its own parent
        state = _reorder(state, _choose(parent, best))
    return beam._replace(
        position=beam.position + 1,
        last=_choose(token, best),
        tokens=_choose(tokens, best),
        log_probs=alive,
        state=state,
        finished=finished,
        num_ended=beam.num_ended + count,
    )


def _reorder(state: State, parents: Int[Array, "B M"]) -> State:
    """Let hypothesis m of each sentence continue what was hypothesis parents[b, m]."""
    batch, beam_size = parents.shape
    rows = (parents + beam_size * jnp.arange(batch, dtype=jnp.int32)[:, None]).reshape(-1)
    return jax.tree.map(lambda leaf: jnp.take(leaf, rows, axis=0), state)


def _choose(leaf: Array, index: Int[Array, "B M"]) -> Array:
    """Return leaf[b, index[b, m]] of a leaf [B, K, ...]."""
    return jnp.take_along_axis(leaf, index.reshape(*index.shape, *(1,) * (leaf.ndim - 2)), axis=1)
