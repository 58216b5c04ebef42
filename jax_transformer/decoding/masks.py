"""What may follow in an output: masks over the vocabulary, for any search and for sampling.

A mask remembers what it needs of each hypothesis and says which tokens may follow. `masked_search`
puts masks around a search, which knows nothing of them: they travel in its state, and what they
forbid gets -inf after the log-softmax. Log P stays the model's own, not renormalized. Pure.

Axes: B sentences, N = B M hypotheses or samples, P tokens of a prefix, T output positions,
V vocabulary.
"""

from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PyTree

from jax_transformer.decoding.beam_search import Hypotheses, State, Step, beam_search
from jax_transformer.types import AnyArray


class Mask(NamedTuple):
    """What a mask remembers, how a token changes it, and what may follow.

    memory: a tree of arrays of N rows, as it is before the first token.
    remember(memory, token [N], index []): the memory after the token at this index of the output.
    allowed(memory, count []): [N, V], the tokens that may follow the first `count` of the output.
    """

    memory: PyTree
    remember: Callable[[PyTree, Int[Array, " N"], Int[Array, ""]], PyTree]
    allowed: Callable[[PyTree, Int[Array, ""]], Bool[Array, "N V"]]


def masked_search(
    step: Step,
    state: State,
    max_lengths: Int[AnyArray, " B"],
    *,
    masks: Callable[[Int[Array, " N"], int], Sequence[Mask]],
    beam_size: int,
    length: int,
    search: Callable[..., Hypotheses] = beam_search,
    **settings: Any,
) -> Hypotheses:
    """Search for outputs that every mask allows.

    masks(limits [N], T): makes the masks, given the maximum length of each hypothesis.
    search: `beam_search`, or another function with its arguments, which the others are.

    A model that prefers to end at once must write another token first:

    >>> step = lambda state, token, position: (
    ...     jnp.log(jnp.array([[0.1, 0.1, 0.5, 0.2, 0.1]])), state
    ... )
    >>> best = masked_search(
    ...     step, (), jnp.array([4]),
    ...     masks=lambda limits, length: [at_least(2, limits, 5, eos_id=2)], beam_size=1,
    ...     length=4, alpha=0.0, bos_id=1, eos_id=2, pad_id=0,
    ... )
    >>> best.tokens[0, 0].tolist()
    [3, 2, 0, 0]
    """
    limits = jnp.repeat(jnp.asarray(max_lengths), beam_size)
    made = masks(limits, length)

    def remembering(
        both: State, token: Int[Array, " N"], position: Int[Array, ""]
    ) -> tuple[Array, State]:
        inner, memories, _ = both
        logits, inner = step(inner, token, position)
        written = [
            mask.remember(memory, token, position - 1)
            for mask, memory in zip(made, memories, strict=True)
        ]
        # The token at position 0 is BOS, which is no part of the output.
        written = jax.tree.map(partial(jnp.where, position > 0), written, memories)
        return logits, (inner, written, jnp.broadcast_to(position, limits.shape))

    def allowed(both: State) -> Bool[Array, "N V"]:
        _, memories, counts = both
        found = [
            mask.allowed(memory, counts[0]) for mask, memory in zip(made, memories, strict=True)
        ]
        return reduce(jnp.logical_and, found)

    return search(
        remembering,
        (state, [mask.memory for mask in made], jnp.zeros_like(limits)),
        max_lengths,
        allowed=allowed,
        beam_size=beam_size,
        length=length,
        **settings,
    )


def at_least(
    tokens: int | Int[AnyArray, " N"], limits: Int[AnyArray, " N"], size: int, *, eos_id: int
) -> Mask:
    """Forbid the end mark until it is token number `tokens`, or the last that the limit leaves.

    tokens: one number for all, or one for each hypothesis. size: V.
    """
    fewest = jnp.minimum(tokens, limits)

    def allowed(_: PyTree, count: Int[Array, ""]) -> Bool[Array, "N V"]:
        too_early = count + 1 < fewest
        return ~(too_early[:, None] & (jnp.arange(size) == eos_id)[None])

    return Mask((), _remember_nothing, allowed)


def beginning_with(
    prefix: Int[AnyArray, "N P"], size: int, may_follow: Bool[AnyArray, "N V"] | None = None
) -> Mask:
    """Force each output to begin with a prefix: token ids, then -1.

    may_follow: the tokens that may come directly after each prefix; None for all.
    """
    prefix = jnp.asarray(prefix)
    fixed = (prefix >= 0).sum(axis=1)

    def allowed(_: PyTree, count: Int[Array, ""]) -> Bool[Array, "N V"]:
        given = jnp.take(prefix, jnp.minimum(count, prefix.shape[1] - 1), axis=1)
        is_given = jnp.arange(size)[None] == given[:, None]
        after = jnp.ones((1, size), jnp.bool_)
        if may_follow is not None:
            after = jnp.asarray(may_follow) | ((count > fixed) | (fixed == 0))[:, None]
        return jnp.where((count < fixed)[:, None], is_given, after)

    return Mask((), _remember_nothing, allowed)


def no_repeated_ngram(n: int, limits: Int[AnyArray, " N"], length: int, size: int) -> Mask:
    """Forbid every token that would complete an n-gram that is in the output already. length: T."""
    rows = len(limits)

    def remember(
        tokens: Int[Array, "N T"], token: Int[Array, " N"], index: Int[Array, ""]
    ) -> Int[Array, "N T"]:
        return tokens.at[:, index].set(token)

    def allowed(tokens: Int[Array, "N T"], count: Int[Array, ""]) -> Bool[Array, "N V"]:
        # Window i holds tokens i to i + n - 1; it forbids its last if the others are the newest.
        starts = jnp.arange(length - n + 1)
        same = jnp.broadcast_to((starts + n <= count) & (count >= n), (rows, len(starts)))
        for offset in range(n - 1):
            newest = jnp.take(tokens, count - (n - 1) + offset, axis=1, mode="clip")
            same &= tokens[:, offset : offset + len(starts)] == newest[:, None]
        lasts = jnp.where(same, tokens[:, n - 1 :], size)  # an id that is dropped
        row = jnp.arange(rows)[:, None]
        return jnp.ones((rows, size), jnp.bool_).at[row, lasts].set(False, mode="drop")

    return Mask(jnp.full((rows, length), -1, jnp.int32), remember, allowed)


class Phrases(NamedTuple):
    """An automaton that reads tokens and knows which would complete a phrase: see `phrases.py`."""

    next_state: Int[AnyArray, "states V"]
    forbidden: Bool[AnyArray, "states V"]


def without_phrases(
    phrases: Phrases,
    limits: Int[AnyArray, " N"],
    *,
    eos_id: int,
    given: int | Int[AnyArray, " N"] = 0,
) -> Mask:
    """Forbid every token that completes a phrase. At its limit an output may end with one.

    given: the number of tokens of a prefix, which may end with one, as the next token shows.
    """

    def remember(
        states: Int[Array, " N"], token: Int[Array, " N"], index: Int[Array, ""]
    ) -> Int[Array, " N"]:
        return jnp.asarray(phrases.next_state)[states, token]

    def allowed(states: Int[Array, " N"], count: Int[Array, ""]) -> Bool[Array, "N V"]:
        forbidden = jnp.asarray(phrases.forbidden)[states]
        ends_prefix = (count == given) & forbidden[:, eos_id]
        return ~forbidden | (ends_prefix | (count + 1 >= limits))[:, None]

    return Mask(jnp.zeros(len(limits), jnp.int32), remember, allowed)


def except_in_prefix(mask: Mask, prefix: Int[AnyArray, "N P"]) -> Mask:
    """Apply a mask only after a prefix, which it might contradict; it remembers the prefix too."""
    fixed = (jnp.asarray(prefix) >= 0).sum(axis=1)

    def allowed(memory: PyTree, count: Int[Array, ""]) -> Bool[Array, "N V"]:
        return mask.allowed(memory, count) | (count < fixed)[:, None]

    return Mask(mask.memory, mask.remember, allowed)


def _remember_nothing(memory: PyTree, token: AnyArray, index: AnyArray) -> PyTree:
    return memory
