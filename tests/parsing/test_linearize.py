"""Trees <-> linearized symbols, §6.3."""

import pytest
from trees import deep_tree, random_trees

from jax_transformer.errors import InputError
from jax_transformer.parsing.linearize import delinearize, linearize, tag_symbol
from jax_transformer.parsing.treebank import read_trees
from jax_transformer.parsing.trees import Tree, leaves, normalize, without_root, write_tree


def words(tree: Tree) -> list[str]:
    return [word for _, word in leaves(tree)]


def reference_symbols(text: str) -> list[str]:
    """By the paper's code: a stack over the pieces that spaces part in the text of a tree.

    Its openings have no bracket and its text no words with one. Brackets are put before those that
    another bracket follows.
    """
    pieces, stack, symbols = text.split(" "), [], []
    for piece, following in zip(pieces, [*pieces[1:], ""], strict=True):
        if piece[0] == "(":
            stack.append(piece[1:])
            symbols.append(piece if following[:1] == "(" else piece[1:])
        else:
            stack.pop()
            symbols += ["/" + stack.pop() for _ in range(len(piece) - len(piece.rstrip(")")) - 1)]
    assert not stack
    return symbols


@pytest.mark.parametrize("split", [pytest.param("train", marks=pytest.mark.release), "dev"])
def test_all_of_craft_survives_the_round_trip_and_reads_as_by_the_papers_code(craft, split):
    count = 0
    for tree in read_trees(craft / f"{split}.mrg.txt"):
        for form in (without_root(tree), normalize(tree)):
            assert form is not None
            symbols = linearize(form)
            assert delinearize(symbols, words(form)) == form
            assert symbols == reference_symbols(write_tree(form))
        count += 1
    assert count == {"train": 25_095, "dev": 3_123}[split]


def test_random_trees_survive_the_round_trip():
    for tree in random_trees(1, 1_000):
        assert delinearize(linearize(tree), words(tree)) == tree


def test_tags_that_look_like_openings_or_closings_are_escaped():
    tree: Tree = ("NP", (("/NP", "a"), ("(NP", "b"), ("\\/NP", "c"), ("", "d")))
    symbols = linearize(tree)
    assert symbols[0] == "(NP"
    assert symbols[-1] == "/NP"
    assert all(symbol[0] == "\\" for symbol in symbols[1:-1])
    assert len(set(symbols)) == 6
    assert delinearize(symbols, list("abcd")) == tree
    assert tag_symbol("-LRB-") == "-LRB-"


def test_a_tree_of_depth_5000_survives_the_round_trip():
    tree = deep_tree(5_000)
    symbols = linearize(tree)
    assert len(symbols) == 10_001
    again = delinearize(symbols, ["dog"])
    assert linearize(again) == symbols
    assert write_tree(again) == write_tree(tree)


# Symbols, the number of words, and the place of the first wrong symbol.
MALFORMED = [
    ("", 0, "symbol 1:"),
    ("(S", 0, "symbol 2:"),
    ("(S NN /NP", 1, "symbol 3:"),
    ("/S", 0, "symbol 1:"),
    ("NN NN", 2, "symbol 2:"),
    ("(S NN NN /S", 1, "symbol 3:"),
    ("(S NN  /S", 2, "symbol 3:"),
    ("(S NN /S", 2, "2 tags"),
]


def test_symbols_that_are_not_a_tree_are_refused_with_the_place():
    for text, count, place in MALFORMED:
        with pytest.raises(InputError, match=place):
            delinearize(text.split(" ") if text else [], ["dog"] * count)


def test_delinearize_inverts_linearize_on_whatever_it_accepts():
    """Every string of up to six of these symbols, over each number of words."""
    accepted = 0
    strings: list[list[str]] = [[]]
    for _ in range(6):
        strings = [[*s, symbol] for s in strings for symbol in ("(A", "(B", "/A", "/B", "N")]
        for symbols in strings:
            try:
                tree = delinearize(symbols, ["w"] * symbols.count("N"))
            except InputError:
                continue
            assert linearize(tree) == symbols
            accepted += 1
    # Trees with n symbols: t(n) of them alone, f(n) of forests; two labels to choose from.
    trees, forests = [0], [1]
    for n in range(1, 7):
        inside = forests[n - 2] if n >= 3 else 0
        trees.append((n == 1) + 2 * inside)
        forests.append(sum(trees[k] * forests[n - k] for k in range(1, n + 1)))
    assert accepted == sum(trees)
