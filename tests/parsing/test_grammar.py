"""The automaton against `delinearize`: on every short string, and on trees and their ruins."""

import itertools
from random import Random

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from trees import deep_tree, random_trees

from jax_transformer.errors import InputError
from jax_transformer.parsing.grammar import (
    advance,
    allowed_symbols,
    initial_state,
    max_depth,
    tree_grammar,
)
from jax_transformer.parsing.linearize import delinearize, linearize
from jax_transformer.parsing.trees import leaves

BOS, EOS = 1, 2
RESERVED = ["<pad>", "<s>", "</s>"]
# Two labels, a tag, and what may never be written.
SYMBOLS = [*RESERVED, "(A", "/A", "(B", "/B", "x", ""]
LONGEST = 7


def grammar_of(symbols):
    """The reserved ids have no names, as in `LabelVocabulary`."""
    return tree_grammar(["" if symbol in RESERVED else symbol for symbol in symbols], EOS)


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
    grammar = grammar_of(SYMBOLS)
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


def spoilt(symbols, random):
    """One symbol dropped, doubled, moved or made another; sometimes still a tree."""
    symbols, place = list(symbols), random.randrange(len(symbols))
    kind = random.randrange(4)
    if kind == 0:
        del symbols[place]
    elif kind == 1:
        symbols.insert(place, symbols[place])
    elif kind == 2:
        symbols.insert(random.randrange(len(symbols)), symbols.pop(place))
    else:
        symbols[place] = random.choice(symbols)
    return symbols


@jax.jit
def accepted(grammar, tokens, words):
    """Whether the automaton allows every symbol of each row up to its first EOS."""
    length = tokens.shape[1]

    def follow(carry, token):
        state, valid, ended = carry
        fits = jnp.take_along_axis(allowed_symbols(grammar, state), token[:, None], axis=1)[:, 0]
        ended_now = ended | (token == EOS)
        return (advance(grammar, state, token), valid & (fits | ended), ended_now), None

    state = initial_state(words, jnp.full_like(words, length), max_depth(length))
    valid = jnp.ones(words.shape, bool)
    (_, valid, ended), _ = jax.lax.scan(follow, (state, valid, ~valid), tokens.T)
    return valid & ended


def test_random_trees_are_accepted_and_other_strings_rejected_as_delinearize_does():
    random = Random(5)
    whole = [linearize(tree) for tree in [*random_trees(3, 300), *map(deep_tree, range(40))]]
    counts = [len(leaves(tree)) for tree in [*random_trees(3, 300), *map(deep_tree, range(40))]]
    ruins = [spoilt(symbols, random) for symbols in whole for _ in range(3)]
    ruins = [symbols for symbols in ruins if symbols]
    known = [*RESERVED, *sorted({symbol for symbols in whole for symbol in symbols})]
    ids = {symbol: id for id, symbol in enumerate(known)}
    strings = [*whole, *whole, *ruins]
    words = [*counts, *(count + 1 for count in counts)]
    words += [words_of(symbols) or random.randint(1, 4) for symbols in ruins]
    tokens = np.zeros((len(strings), max(map(len, strings)) + 2), np.int32)
    for row, symbols in enumerate(strings):
        tokens[row, : len(symbols) + 1] = [*(ids[symbol] for symbol in symbols), EOS]
    grammar = grammar_of(known)
    found = accepted(grammar, tokens, np.array(words))
    expected = [words_of(symbols) == count for symbols, count in zip(strings, words, strict=True)]
    assert expected[: len(whole)] == [True] * len(whole)
    assert not any(expected[len(whole) : 2 * len(whole)])
    assert 20 < sum(expected[2 * len(whole) :]) < len(ruins) - 200
    assert np.asarray(found).tolist() == expected
