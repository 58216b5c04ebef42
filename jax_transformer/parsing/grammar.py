"""§6.3 The symbols that may come next if the output has to end as a tree over the words.

A pushdown automaton over the strings of `linearize`, for N hypotheses at once and in fixed
shapes, so that a jitted search can carry its state. It accepts exactly what `delinearize`
accepts: one tag a word, in no more symbols than the output may have.

Axes: N hypotheses, V symbols, D open constituents at most.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from jax_transformer.parsing.linearize import is_tag

_NEVER, _TAG, _OPENING, _CLOSING, _END = range(5)


class TreeGrammar(NamedTuple):
    """The role of each symbol of the target vocabulary; `tree_grammar` makes it.

    kind: 0 never written, 1 tag, 2 opening, 3 closing, 4 EOS.
    label: the same number for an opening and its closing, -1 for all other symbols.
    """

    kind: Int[Array, " V"]
    label: Int[Array, " V"]


class TreeState(NamedTuple):
    """The automaton's state of each hypothesis."""

    words_left: Int[Array, " N"]  # without a tag
    symbols_left: Int[Array, " N"]  # to write at most, EOS included
    depth: Int[Array, " N"]
    stack: Int[Array, "N D"]  # the labels of open constituents, stack[:, :depth]
    opened: Bool[Array, " N"]  # whether the last symbol was an opening
    complete: Bool[Array, " N"]


def tree_grammar(names: Sequence[str], eos_id: int) -> TreeGrammar:
    """Return the grammar of `LabelVocabulary.names`, by id; empty ones are never written."""
    kinds = {"": _NEVER, "(": _OPENING, "/": _CLOSING}
    kind = [kinds.get(name[:1], _TAG) for name in names]
    kind[eos_id] = _END
    labels = sorted({name[1:] for name in names if not is_tag(name)})
    label = [-1 if is_tag(name) else labels.index(name[1:]) for name in names]
    return TreeGrammar(jnp.array(kind, jnp.int32), jnp.array(label, jnp.int32))


def max_depth(length: int) -> int:
    """Return the most constituents that can be open at once in `length` symbols with EOS.

    Each takes two symbols, and a tag and EOS are needed too.
    """
    return max((length - 2) // 2, 1)


def initial_state(
    words: Int[Array, " N"], max_lengths: Int[Array, " N"], max_depth: int
) -> TreeState:
    """Return the state before the first symbol.

    words, max_lengths: as in `constrained_search`. max_depth: D, 1 or more.
    """
    zeros, false = jnp.zeros(words.shape, jnp.int32), jnp.zeros(words.shape, bool)
    return TreeState(
        words_left=words.astype(jnp.int32),
        symbols_left=max_lengths.astype(jnp.int32),
        depth=zeros,
        stack=jnp.zeros((*words.shape, max_depth), jnp.int32),
        opened=false,
        complete=false,
    )


def advance(grammar: TreeGrammar, state: TreeState, token: Int[Array, " N"]) -> TreeState:
    """Return the state after one more symbol: an allowed one, or BOS, which changes nothing.

    After EOS nothing is allowed.
    """
    kind, label = grammar.kind[token], grammar.label[token]
    tags, opens, closes = kind == _TAG, kind == _OPENING, kind == _CLOSING
    depth = state.depth + jnp.int32(opens) - jnp.int32(closes)
    top = jnp.arange(state.stack.shape[1], dtype=jnp.int32)[None] == state.depth[:, None]  # [N, D]
    written = kind != _NEVER
    return TreeState(
        words_left=state.words_left - jnp.int32(tags),
        symbols_left=jnp.where(kind == _END, 0, state.symbols_left - jnp.int32(written)),
        depth=depth,
        stack=jnp.where(top & opens[:, None], label[:, None], state.stack),
        opened=jnp.where(written, opens, state.opened),
        complete=state.complete | ((tags | closes) & (depth == 0)),
    )


def allowed_symbols(grammar: TreeGrammar, state: TreeState) -> Bool[Array, "N V"]:
    """Return the symbols after which the output can still end as a tree.

    The end takes a tag for each word left, a closing for each open constituent, and EOS; an
    opening adds itself and its closing.
    """
    spare = state.symbols_left - state.words_left - state.depth - 1
    fits, inside, words = spare >= 0, state.depth > 0, state.words_left > 0
    by_kind = jnp.stack(
        [
            jnp.zeros_like(fits),
            # A tag outside all constituents is a whole tree, of one word.
            fits & words & ~state.complete & (inside | (state.words_left == 1)),
            (spare >= 2) & words & ~state.complete & (state.depth < state.stack.shape[1]),
            # The outermost constituent closes after the last word.
            fits & inside & ~state.opened & ((state.depth > 1) | ~words),
            fits & state.complete,
        ],
        axis=1,
    )  # [N, 5]
    top = jnp.take_along_axis(state.stack, jnp.maximum(state.depth - 1, 0)[:, None], axis=1)
    matches = (grammar.kind != _CLOSING)[None] | (grammar.label[None] == top)  # [N, V]
    return by_kind[:, grammar.kind] & matches
