"""The automaton against `parsing.rebuild`: on every short string, and on trees and their ruins."""

import itertools
from random import Random

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_transformer.errors import InputError
from jax_transformer.parsing.grammar import advance, deepest, is_tree, legal, start, tree_grammar
from jax_transformer.parsing.linearize import linearise, rebuild
from jax_transformer.parsing.trees import leaves
from tests.random_trees import deep_tree, random_trees

IDS = {"pad_id": 0, "bos_id": 1, "eos_id": 2}
RESERVED = ["<pad>", "<s>", "</s>"]
# Two labels, a tag, and what may never be written: an opening without its closing, a closing
# without its opening, and no symbol at all.
SYMBOLS = [*RESERVED, "(A", "/A", "(B", "/B", "x", "(C", "/D", ""]
LONGEST = 7


def words_of(symbols):
    """How many words the string is a tree of; None if of none."""
    count = sum(symbol[:1] not in ("(", "/") for symbol in symbols)
    try:
        rebuild(symbols, ["w"] * count)
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
        for symbols in itertools.product(["(A", "/A", "(B", "/B", "x", "(C"], repeat=length):
            balanced = symbols.count("(A") == symbols.count("/A")  # most are not: saves time
            if balanced and (count := words_of(symbols)) is not None:
                found[symbols] = count
    return found


def after(prefixes, words, limits, capacity):
    """legal() behind each prefix, as [prefixes, V]."""
    grammar = tree_grammar(SYMBOLS, **IDS)
    ids = {symbol: id for id, symbol in enumerate(SYMBOLS)}
    # BOS changes nothing, so it fills short prefixes up.
    tokens = np.full((len(prefixes), LONGEST + 1), IDS["bos_id"])
    for row, prefix in enumerate(prefixes):
        tokens[row, : len(prefix)] = [ids[symbol] for symbol in prefix]

    @jax.jit
    def run(tokens, words, limits):
        state = start(words, limits, capacity)
        state, _ = jax.lax.scan(lambda s, t: (advance(grammar, s, t), None), state, tokens.T)
        return legal(grammar, state)

    return np.asarray(run(tokens, np.array(words), np.array(limits)))


@pytest.mark.parametrize("capacity", [1, 2, deepest(LONGEST + 1)])
def test_a_symbol_is_legal_where_some_tree_goes_on_with_it_and_nowhere_else(trees, capacity):
    rows, expected = [], []
    for words, limit in itertools.product(range(6), range(1, LONGEST + 2)):
        language = [
            (*symbols, "</s>")
            for symbols, count in trees.items()
            if count == words and len(symbols) < limit and depth_of(symbols) <= capacity
        ]
        follow: dict[tuple, set] = {
            (): set()
        }  # so that nothing at all is legal where there is no tree
        for output in language:
            for end in range(len(output)):
                follow.setdefault(output[:end], set()).add(output[end])
            follow[output] = set()
        rows += [(prefix, words, limit) for prefix in follow]
        expected += [[symbol in legal for symbol in SYMBOLS] for legal in follow.values()]
    assert len(rows) > 200
    prefixes, words, limits = zip(*rows, strict=True)
    found = after(prefixes, words, limits, capacity)
    for row, allowed, wanted in zip(rows, found, np.array(expected), strict=True):
        assert allowed.tolist() == wanted.tolist(), row


def test_the_capacity_chosen_for_a_length_forbids_no_tree_of_that_length(trees):
    depths: list[int] = []
    for length in range(2, LONGEST + 2):
        depths = [depth_of(symbols) for symbols in trees if len(symbols) < length]
        assert max(depths) <= deepest(length)
    assert max(depths) == deepest(LONGEST + 1) == 3  # and is no larger than it must be


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


def test_random_trees_and_their_ruins_are_told_apart_as_rebuild_does():
    random = Random(5)
    whole = [linearise(tree) for tree in [*random_trees(3, 300), *map(deep_tree, range(40))]]
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
        tokens[row, : len(symbols) + 1] = [*(ids[symbol] for symbol in symbols), IDS["eos_id"]]
    grammar = tree_grammar(known, **IDS)
    found = jax.jit(lambda tokens, words: is_tree(grammar, tokens, words))(tokens, np.array(words))
    expected = [words_of(symbols) == count for symbols, count in zip(strings, words, strict=True)]
    assert expected[: len(whole)] == [True] * len(whole)
    assert not any(expected[len(whole) : 2 * len(whole)])
    assert 20 < sum(expected[2 * len(whole) :]) < len(ruins) - 200
    assert np.asarray(found).tolist() == expected


def test_an_output_is_a_tree_only_with_its_end_mark_and_whatever_lies_behind_that():
    grammar = tree_grammar(SYMBOLS, **IDS)
    a, end, x, eos = (SYMBOLS.index(symbol) for symbol in ("(A", "/A", "x", "</s>"))
    tokens = [
        [[a, x, end, eos, 0], [a, x, end, eos, x], [x, eos, eos, a, 9]],
        [[a, x, end, 0, 0], [a, x, end, 0, eos], [a, x, end, 1, eos]],
        [[a, x, eos, 0, 0], [eos, 0, 0, 0, 0], [0, 0, 0, 0, 0]],
    ]
    run = jax.jit(lambda words: is_tree(grammar, jnp.array(tokens), words))
    assert run(jnp.array([[1]] * 3)).tolist() == [[True, True, True], [False] * 3, [False] * 3]
    assert not run(jnp.array([[0]] * 3)).any()


def test_reserved_ids_are_no_symbols_whatever_stands_there_and_wherever_they_are():
    symbols = ["x", "(A", "/A", "(B", "y", "/B", "z"]
    grammar = tree_grammar(symbols, pad_id=4, bos_id=5, eos_id=0)  # y, /B and x are reserved
    state = start(jnp.array([1]), jnp.array([9]), capacity=3)
    state = advance(grammar, state, jnp.array([1]))
    may_follow = [symbols[id] for id in np.flatnonzero(legal(grammar, state)[0])]
    assert may_follow == ["(A", "z"]  # and (B, which cannot be closed, is not among them
    state = advance(grammar, state, jnp.array([6]))
    assert np.flatnonzero(legal(grammar, state)[0]).tolist() == [2]
    with pytest.raises(InputError, match=r"at least one tag such as NN, found none"):
        tree_grammar(["(A", "/A", "x", "y", "z"], pad_id=2, bos_id=3, eos_id=4)


def test_a_list_of_symbols_without_tag_or_without_label_is_refused():
    with pytest.raises(InputError, match=r"the 5 symbols: expected at least one tag"):
        tree_grammar([*RESERVED, "(A", "/A"], **IDS)
    with pytest.raises(InputError, match=r"expected at least one label to open and close"):
        tree_grammar([*RESERVED, "x", "(A", "/B"], **IDS)
