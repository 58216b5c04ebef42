"""§6.3 Beam search whose outputs are trees, over any step function.

Axes: B sentences, M outputs asked for, N = B beam_size, T output positions.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from jax_transformer.decoding.beam_search import Hypotheses, State, Step, beam_search, no_hypotheses
from jax_transformer.parsing.grammar import TreeGrammar, deepest, is_tree, start, within


class Parses(NamedTuple):
    """The linearised trees of each sentence, and whether they took any help.

    unaided: whether the best output of the search without a grammar was a tree already (False
    for a row of no words); None where there was no grammar to ask.
    """

    hypotheses: Hypotheses
    unaided: Bool[Array, " B"] | None


def tree_search(
    step: Step,
    state: State,
    words: Int[Array, " B"],
    max_lengths: Int[Array, " B"],
    grammar: TreeGrammar,
    *,
    beam_size: int,
    length: int,
    pad_id: int,
    free_first: bool = True,
    **settings: Any,
) -> Parses:
    """The best trees over each sentence of so many words, by log P / length_penalty.

    words: 0 for a row that only fills the batch, which gets what the search without a grammar
    gives it.  max_lengths: as for `beam_search`, like the other settings; with fewer than
    words + 3, or 2 for a single word, there is no tree and the row has no output.

    Two searches: where the first, without a grammar, ends in a tree, that is the first output.
    Pruning alone would not promise it, for in the places of what it forbids other hypotheses
    live on and may push this one out. The second writes nothing but trees. It is made for the
    rows of which some output is none, and not at all where there is no such row; its outputs
    come behind a first one that was a tree. Pure.

    free_first: False leaves the first search out, where its outputs are known to be no trees.
    """

    def search(step: Step, state: State, limits: Int[Array, " B"], **more: Any) -> Hypotheses:
        return beam_search(
            step,
            state,
            limits,
            beam_size=beam_size,
            length=length,
            pad_id=pad_id,
            **settings,
            **more,
        )

    def constrained(needy: Bool[Array, " B"]) -> Hypotheses:
        # A row that needs no tree has no words, so nothing is legal and it ends at once.
        limits = jnp.where(needy, max_lengths, 1)
        left = jnp.repeat(jnp.where(needy, words, 0), beam_size)
        tree = start(left, jnp.repeat(limits, beam_size), deepest(length))
        follow, both, legal = within(grammar, tree, step, state)
        return search(follow, both, limits, legal=legal)

    if not free_first:
        return Parses(constrained(words > 0), jnp.zeros(words.shape, bool))
    free = search(step, state, max_lengths)
    trees = is_tree(grammar, free.tokens, words[:, None])  # [B, M]
    fillers = words == 0
    needy = ~trees.all(axis=1) & ~fillers
    nothing = no_hypotheses(len(words), trees.shape[1], length, pad_id)
    found = jax.lax.cond(needy.any(), constrained, lambda _: nothing, needy)
    return Parses(_joined(free, trees | fillers[:, None], found, pad_id), trees[:, 0])


def _joined(
    free: Hypotheses, trees: Bool[Array, "B M"], found: Hypotheses, pad_id: int
) -> Hypotheses:
    """The outputs of `free` that are trees and those `found`, each once, the best M of them.

    None stands before the first of `free` where that is a tree.
    """
    same = (found.tokens[:, :, None] == free.tokens[:, None]).all(axis=-1)  # [B, M found, M free]
    known = (same & trees[:, None]).any(axis=-1)
    ahead = found.scores > jnp.where(trees[:, :1], free.scores[:, :1], jnp.inf)
    kept = jnp.concatenate([trees, ~known & ~ahead], axis=1)  # [B, 2 M]
    pool = Hypotheses(
        *(jnp.concatenate(leaves, axis=1) for leaves in zip(free, found, strict=True))
    )
    scores, best = jax.lax.top_k(jnp.where(kept, pool.scores, -jnp.inf), trees.shape[1])
    there = scores > -jnp.inf
    tokens = jnp.take_along_axis(pool.tokens, best[:, :, None], axis=1)
    log_probs = jnp.take_along_axis(pool.log_probs, best, axis=1)
    return Hypotheses(
        jnp.where(there[:, :, None], tokens, pad_id),
        jnp.where(there, scores, -jnp.inf),
        jnp.where(there, log_probs, -jnp.inf),
    )
