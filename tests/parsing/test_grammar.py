"""The automaton against `delinearize` on every short string."""

import itertools

import jax
import numpy as np
import pytest

from jax_transformer.errors import InputError
from jax_transformer.parsing.grammar import (
    advance,
    allowed_symbols,
    initial_state,
    max_depth,
    tree_grammar,
)
from jax_transformer.parsing.linearize import delinearize

BOS, EOS = 1, 2
# Two labels, a tag, and what may never be written.
SYMBOLS = ["<pad>", "<s>", "</s>", "(A", "/A", "(B", "/B", "x", ""]
LONGEST = 7


def words_of(symbols):
    """How many words the string is a tree of; None if of none."""
    count = sum(symbol[:1] not in ("(", "/") for symbol in symbols)
    try:
        delinearize(symbols, ["w"] * count)
    except InputError:
        return None
    return count


def depth_of(symbols):
    steps = [(symbol[:1] == "(") - (symbol[:1] == "/") for symbol in symbols]
    return max(itertools.accumulate(steps))


@pytest.fixture(scope="module")
def trees():
    """{symbols: words} of every tree of up to LONGEST symbols, out of all strings."""
    found = {}
    for length in range(1, LONGEST + 1):
        for symbols in itertools.product(["(A", "/A", "(B", "/B", "x"], repeat=length):
            balanced = symbols.count("(A") == symbols.count("/A")  # most are not: saves time
            if balanced and (count := words_of(symbols)) is not None:
                found[symbols] = count
    return found


def allowed_after(prefixes, words, limits, capacity):
    """allowed_symbols after each prefix, as [prefixes, V]."""
    grammar = tree_grammar(["", "", "", *SYMBOLS[3:]], EOS)  # the others have no names
    ids = {symbol: id for id, symbol in enumerate(SYMBOLS)}
    # BOS changes nothing, so it fills short prefixes up.
    tokens = np.full((len(prefixes), LONGEST + 1), BOS)
    for row, prefix in enumerate(prefixes):
        tokens[row, : len(prefix)] = [ids[symbol] for symbol in prefix]

    @jax.jit
    def run(tokens, words, limits):
        state = initial_state(words, limits, capacity)
        state, _ = jax.lax.scan(lambda s, t: (advance(grammar, s, t), None), state, tokens.T)
        return allowed_symbols(grammar, state)

    return np.asarray(run(tokens, np.array(words), np.array(limits)))


@pytest.mark.parametrize("capacity", [1, max_depth(LONGEST + 1)])
def test_a_symbol_is_allowed_exactly_where_some_tree_continues_with_it(trees, capacity):
    rows, expected = [], []
    for words, limit in itertools.product(range(6), range(1, LONGEST + 2)):
        language = [
            (*symbols, "</s>")
            for symbols, count in trees.items()
            if count == words and len(symbols) < limit and depth_of(symbols) <= capacity
        ]
        # Nothing at all is allowed where there is no tree.
        follow: dict[tuple, set] = {(): set()}
        for output in language:
            for end in range(len(output)):
                follow.setdefault(output[:end], set()).add(output[end])
            follow[output] = set()
        rows += [(prefix, words, limit) for prefix in follow]
        expected += [[symbol in after for symbol in SYMBOLS] for after in follow.values()]
    assert len(rows) > 200
    prefixes, words, limits = zip(*rows, strict=True)
    found = allowed_after(prefixes, words, limits, capacity)
    for row, allowed, wanted in zip(rows, found, np.array(expected), strict=True):
        assert allowed.tolist() == wanted.tolist(), row


def test_max_depth_forbids_no_tree_of_its_length_and_is_no_larger_than_needed(trees):
    depths: list[int] = []
    for length in range(2, LONGEST + 2):
        depths = [depth_of(symbols) for symbols in trees if len(symbols) < length]
        assert max(depths) <= max_depth(length)
    assert max(depths) == max_depth(LONGEST + 1) == 3
