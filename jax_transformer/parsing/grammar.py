"""§6.3 Which symbols may come next, so that what is written ends as a tree over the words.

A pushdown automaton over the strings of `parsing.linearise`, for N hypotheses at once and in
fixed shapes, so that a search can carry it through jit. It allows exactly what `parsing.rebuild`
accepts: one tag for each word, within the symbols that may still be written.

Axes: N hypotheses, V symbols, D open constituents at most.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from jax_transformer.decoding.beam_search import Legal, State, Step
from jax_transformer.errors import InputError
from jax_transformer.parsing.linearize import closing, opening

_NEVER, _TAG, _OPENING, _CLOSING, _END = range(5)
# A tree needs no more symbols than its words have tags, and this: one constituent and EOS.
OUTERMOST = 3


class TreeGrammar(NamedTuple):
    """What each symbol of the target vocabulary does: arrays made by `tree_grammar`.

    kind: 0 never written, 1 tag, 2 opening, 3 closing, 4 EOS.
    label: the same number for an opening and its closing, -1 for all else.
    """

    kind: Int[Array, " V"]
    label: Int[Array, " V"]


class TreeState(NamedTuple):
    """Where each hypothesis stands. Every leaf has the hypotheses first.

    words: words that have no tag yet.  depth: open constituents, their labels in
    stack[:, :depth].  opened: whether the last symbol was an opening.  left: symbols that
    may still be written, EOS included.  complete: whether the tree has been closed.
    """

    words: Int[Array, " N"]
    depth: Int[Array, " N"]
    stack: Int[Array, "N D"]
    opened: Bool[Array, " N"]
    left: Int[Array, " N"]
    complete: Bool[Array, " N"]


def tree_grammar(symbols: Sequence[str], *, pad_id: int, bos_id: int, eos_id: int) -> TreeGrammar:
    """The grammar of a closed list of symbols, the index of each its id.

    The three reserved ids are no symbols whatever stands there; of them EOS alone is ever
    written. A label that cannot be closed is never opened.

    Raises:
      InputError: there is no tag among the symbols, or no label that opens and closes, so
        that not every sentence would have a tree.
    """
    own = {id: symbol for id, symbol in enumerate(symbols) if id not in (pad_id, bos_id, eos_id)}
    known = set(own.values())
    openings = sorted(symbol for symbol in known if symbol[:1] == "(")
    labels = [symbol[1:] for symbol in openings if closing(symbol[1:]) in known]
    marks = {opening(label): (_OPENING, number) for number, label in enumerate(labels)}
    marks |= {closing(label): (_CLOSING, number) for number, label in enumerate(labels)}
    marks |= {symbol: (_TAG, -1) for symbol in known if symbol[:1] not in ("", "(", "/")}
    found = np.full((2, len(symbols)), [[_NEVER], [-1]], np.int32)
    for id, symbol in own.items():
        found[:, id] = marks.get(symbol, (_NEVER, -1))
    found[:, eos_id] = _END, -1
    for kind, what in ((_TAG, "tag such as NN"), (_OPENING, "label to open and close, (S and /S")):
        if kind not in found[0]:
            raise InputError(
                f"the {len(symbols):,} symbols: expected at least one {what}, found none; take "
                "the symbols of trees, as parsing.linearise writes them"
            )
    return TreeGrammar(*map(jnp.asarray, found))


def deepest(length: int) -> int:
    """D with which the depth is limited by `length` alone, the symbols of an output with EOS.

    Each open constituent takes two of them, and one tag and EOS are left. A row of the stack
    is then no longer than the output itself, little beside the keys and values of a decoder.
    """
    return max((length - 2) // 2, 1)


def start(words: Int[Array, " N"], max_lengths: Int[Array, " N"], capacity: int) -> TreeState:
    """Nothing written yet.

    words: words of each sentence; 0 has no tree, and nothing is legal.  max_lengths: most
    symbols of each output, EOS included. A tree of n words needs n + OUTERMOST, one of a
    single word 2; with fewer nothing is legal.  capacity: D, see `deepest`.
    """
    assert capacity >= 1
    none = jnp.zeros(words.shape, jnp.int32)
    no = jnp.zeros(words.shape, bool)
    stack = jnp.zeros((*words.shape, capacity), jnp.int32)
    return TreeState(words.astype(jnp.int32), none, stack, no, max_lengths.astype(jnp.int32), no)


def advance(grammar: TreeGrammar, state: TreeState, token: Int[Array, " N"]) -> TreeState:
    """The state after one more symbol, a legal one or BOS; BOS changes nothing.

    What follows an illegal symbol means nothing. After EOS nothing is legal.
    """
    kind, label = grammar.kind[token], grammar.label[token]
    tags, opens, closes = kind == _TAG, kind == _OPENING, kind == _CLOSING
    depth = state.depth + opens - closes
    above = jnp.arange(state.stack.shape[1])[None] == state.depth[:, None]  # [N, D]
    written = kind != _NEVER
    return TreeState(
        words=state.words - tags,
        depth=depth,
        stack=jnp.where(above & opens[:, None], label[:, None], state.stack),
        opened=jnp.where(written, opens, state.opened),
        left=jnp.where(kind == _END, 0, state.left - written),
        complete=state.complete | ((tags | closes) & (depth == 0)),
    )


def legal(grammar: TreeGrammar, state: TreeState) -> Bool[Array, "N V"]:
    """The symbols after which each output can still end as a tree.

    To end takes a tag for each word left, a closing for each open constituent, and EOS; an
    opening adds itself and its closing.
    """
    spare = state.left - state.words - state.depth - 1
    enough, inside, some = spare >= 0, state.depth > 0, state.words > 0
    kinds = jnp.stack(
        [
            jnp.zeros_like(enough),
            # A tag by itself is a tree, of one word.
            enough & some & ~state.complete & (inside | (state.words == 1)),
            (spare >= 2) & some & ~state.complete & (state.depth < state.stack.shape[1]),
            # The outermost constituent closes behind the last word.
            enough & inside & ~state.opened & ((state.depth > 1) | ~some),
            enough & state.complete,
        ],
        axis=1,
    )  # [N, 5]
    top = jnp.take_along_axis(state.stack, jnp.maximum(state.depth - 1, 0)[:, None], axis=1)
    fits = (grammar.kind != _CLOSING)[None] | (grammar.label[None] == top)
    return kinds[:, grammar.kind] & fits


def within(
    grammar: TreeGrammar, tree: TreeState, step: Step, state: State
) -> tuple[Step, State, Legal]:
    """A step function, its first state and its legal tokens, that write trees alone.

    tree: from `start`, a row for each hypothesis. The three are for `search.beam_search`.
    """

    def follow(both: State, token: Int[Array, " N"], position: Int[Array, ""]) -> tuple:
        tree, state = both
        logits, state = step(state, token, position)
        assert logits.shape[-1] == len(grammar.kind), "the grammar is of other symbols"
        return logits, (advance(grammar, tree, token), state)

    return follow, (tree, state), lambda both: legal(grammar, both[0])


def is_tree(
    grammar: TreeGrammar, tokens: Int[Array, "... T"], words: Int[Array, "..."]
) -> Bool[Array, "..."]:
    """Whether each output, up to its first EOS, is a tree over so many words.

    words: of the shape of `tokens` without T, or one that broadcasts to it.
    """
    *shape, length = tokens.shape
    count = jnp.broadcast_to(words, shape).reshape(-1)  # [N]
    state = start(count, jnp.full_like(count, length), deepest(length))
    none = jnp.zeros(count.shape, bool)

    def follow(carry: tuple, token: Int[Array, " N"]) -> tuple[tuple, None]:
        state, wrong, ended = carry
        fits = jnp.take_along_axis(legal(grammar, state), token[:, None], axis=1)[:, 0]
        wrong |= ~fits & ~ended
        ended |= grammar.kind[token] == _END
        return (advance(grammar, state, token), wrong, ended), None

    by_position = tokens.reshape(-1, length).T  # [T, N]
    (_, wrong, ended), _ = jax.lax.scan(follow, (state, none, none), by_position)
    return (ended & ~wrong).reshape(shape)
