"""Constraints on outputs: masks over the vocabulary, for any search and for sampling.

A mask is an automaton: it has a state for each hypothesis, and gives the tokens that may follow.
`masked_search` puts masks around a search, which does not depend on them: they travel in its state,
and forbidden tokens get -inf after the log-softmax. Log P stays the model's own, not renormalized.
`CONSTRAINTS` makes options of masks: a new one is its mask, a row of that table, and a field of
`request.Request` and of `request.TextOptions`. Pure.

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
    """A constraint: its initial state, how a token updates it, and the tokens it allows next.

    memory: a tree of arrays of N rows, as it is before the first token.
    remember(memory, token [N], index []): the memory after the token at this index of the output.
    allowed(memory, count []): [N, V], the tokens that may follow the first `count` of the output.
    """

    memory: PyTree
    remember: Callable[[PyTree, Int[Array, " N"], Int[Array, ""]], PyTree]
    allowed: Callable[[PyTree, Int[Array, ""]], Bool[Array, "N V"]]


class Space(NamedTuple):
    """The outputs of a search that masks are made for.

    limits: the maximum length of each hypothesis. given: the length of its prefix.
    length: T. size: V.
    """

    limits: Int[AnyArray, " N"]
    given: Int[AnyArray, " N"]
    length: int
    size: int
    eos_id: int


def masked_search(
    step: Step,
    state: State,
    max_lengths: Int[AnyArray, " B"],
    *,
    masks: Callable[[Space], Sequence[Mask]],
    size: int,
    beam_size: int,
    length: int,
    eos_id: int,
    given: int | Int[AnyArray, " B"] = 0,
    search: Callable[..., Hypotheses] = beam_search,
    **settings: Any,
) -> Hypotheses:
    """Search for outputs that every mask allows.

    masks: a function that makes the masks. size: V.
    search: `beam_search`, or another function with its arguments, which the others are.

    A model that prefers to end at once must write another token first:

    >>> step = lambda state, token, position: (
    ...     jnp.log(jnp.array([[0.1, 0.1, 0.5, 0.2, 0.1]])), state
    ... )
    >>> best = masked_search(
    ...     step, (), jnp.array([4]),
    ...     masks=lambda space: [at_least(2, space)], size=5, beam_size=1,
    ...     length=4, alpha=0.0, bos_id=1, eos_id=2, pad_id=0,
    ... )
    >>> best.tokens[0, 0].tolist()
    [3, 2, 0, 0]
    """
    limits = jnp.repeat(jnp.asarray(max_lengths), beam_size)
    fixed = jnp.repeat(jnp.broadcast_to(given, len(max_lengths)), beam_size)
    made = masks(Space(limits, fixed, length, size, eos_id))

    def remembering(
        both: State, token: Int[Array, " N"], position: Int[Array, ""]
    ) -> tuple[Array, State]:
        inner, memories, _ = both
        logits, inner = step(inner, token, position)
        written = [
            mask.remember(memory, token, position - 1)
            for mask, memory in zip(made, memories, strict=True)
        ]
        # The token at position 0 is BOS, which is not part of the output.
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
        eos_id=eos_id,
        given=given,
        **settings,
    )


def at_least(tokens: int | Int[AnyArray, " N"], space: Space) -> Mask:
    """Forbid the end mark until it is token number `tokens`, or the last that the limit leaves.

    tokens: one number for all, or one for each hypothesis.
    """
    fewest = jnp.minimum(tokens, space.limits)

    def allowed(_: PyTree, count: Int[Array, ""]) -> Bool[Array, "N V"]:
        too_early = count + 1 < fewest
        return ~(too_early[:, None] & (jnp.arange(space.size) == space.eos_id)[None])

    return Mask((), _remember_nothing, allowed)


def no_repeated_ngram(n: int, space: Space) -> Mask:
    """Forbid every token that would complete an n-gram that is in the output already."""
    rows, length, size = len(space.limits), space.length, space.size

    def remember(
        tokens: Int[Array, "N T"], token: Int[Array, " N"], index: Int[Array, ""]
    ) -> Int[Array, "N T"]:
        return tokens.at[:, index].set(token)

    def allowed(tokens: Int[Array, "N T"], count: Int[Array, ""]) -> Bool[Array, "N V"]:
        # Window i holds tokens i to i + n - 1; it forbids its last if the others are the newest.
        starts = jnp.arange(length - n + 1, dtype=jnp.int32)
        same = jnp.broadcast_to((starts + n <= count) & (count >= n), (rows, len(starts)))
        for offset in range(n - 1):
            newest = jnp.take(tokens, count - (n - 1) + offset, axis=1, mode="clip")
            same &= tokens[:, offset : offset + len(starts)] == newest[:, None]
        lasts = jnp.where(same, tokens[:, n - 1 :], size)  # an id that is dropped
        row = jnp.arange(rows, dtype=jnp.int32)[:, None]
        return jnp.ones((rows, size), jnp.bool_).at[row, lasts].set(False, mode="drop")

    return Mask(jnp.full((rows, length), -1, jnp.int32), remember, allowed)


class Phrases(NamedTuple):
    """An automaton that reads tokens and forbids those that complete a phrase: see `phrases.py`.

    without_ended: the state in which phrases that end with the newest token are forgotten.
    """

    next_state: Int[AnyArray, "states V"]
    forbidden: Bool[AnyArray, "states V"]
    without_ended: Int[AnyArray, " states"]


def without_phrases(phrases: Phrases, space: Space) -> Mask:
    """Forbid every token that completes a phrase.

    An output may end with one at its limit, and so may a prefix, as the next token shows.
    """

    def remember(
        states: Int[Array, " N"], token: Int[Array, " N"], index: Int[Array, ""]
    ) -> Int[Array, " N"]:
        return jnp.asarray(phrases.next_state)[states, token]

    def allowed(states: Int[Array, " N"], count: Int[Array, ""]) -> Bool[Array, "N V"]:
        after_prefix = jnp.asarray(phrases.without_ended)[states]
        states = jnp.where(count == space.given, after_prefix, states)
        forbidden = jnp.asarray(phrases.forbidden)[states]
        return ~forbidden | (count + 1 >= space.limits)[:, None]

    return Mask(jnp.zeros(len(space.limits), jnp.int32), remember, allowed)


class Constraint(NamedTuple):
    """An option that is a mask.

    mask(value, space): the mask of the option's value.
    each_line: whether lines of one batch may have other values, which must be whole numbers. The
      mask then gets an array with one for each hypothesis.
    """

    mask: Callable[[Any, Space], Mask]
    each_line: bool = False


CONSTRAINTS = {  # by the name of the option; the mask of `without` gets its automaton
    "min_length": Constraint(at_least, each_line=True),
    "no_repeat_ngram": Constraint(no_repeated_ngram),
    "without": Constraint(without_phrases),
}


def beginning_with(
    prefix: Int[AnyArray, "N P"], space: Space, may_follow: Bool[AnyArray, "N V"] | None = None
) -> Mask:
    """Force each output to begin with a prefix: token ids, then -1.

    may_follow: the tokens that may come directly after each prefix; None for all.
    """
    prefix = jnp.asarray(prefix)
    fixed = (prefix >= 0).sum(axis=1, dtype=jnp.int32)

    def allowed(_: PyTree, count: Int[Array, ""]) -> Bool[Array, "N V"]:
        given = jnp.take(prefix, jnp.minimum(count, prefix.shape[1] - 1), axis=1)
        is_given = jnp.arange(space.size, dtype=jnp.int32)[None] == given[:, None]
        after = jnp.ones((1, space.size), jnp.bool_)
        if may_follow is not None:
            after = jnp.asarray(may_follow) | ((count > fixed) | (fixed == 0))[:, None]
        return jnp.where((count < fixed)[:, None], is_given, after)

    return Mask((), _remember_nothing, allowed)


def except_in_prefix(mask: Mask, space: Space) -> Mask:
    """Apply a mask only after a prefix, which it might contradict; its state follows the prefix."""

    def allowed(memory: PyTree, count: Int[Array, ""]) -> Bool[Array, "N V"]:
        return mask.allowed(memory, count) | (count < space.given)[:, None]

    return Mask(mask.memory, mask.remember, allowed)


def _remember_nothing(memory: PyTree, token: AnyArray, index: AnyArray) -> PyTree:
    return memory
