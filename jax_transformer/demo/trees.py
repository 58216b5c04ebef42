"""The demo's treebank: the trees that the demo grammar derived its sentences with (§6.3)."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from jax_transformer.demo import sentences as demo_corpus
from jax_transformer.demo.constructions import bracketings
from jax_transformer.parsing.linearize import linearize
from jax_transformer.parsing.ptb import parse_trees
from jax_transformer.parsing.trees import Tree, leaves, without_root

# Sentences beyond the translations': a quarter of train, half of dev and of test.
HARDER = (10_000, 500, 500)
SEED = 2015


@dataclass(frozen=True)
class TreeSplits:
    """Penn Treebank style trees, without an outer bracket; no sentence comes twice."""

    train: list[Tree]
    dev: list[Tree]
    test: list[Tree]


def splits(
    corpus: demo_corpus.Splits | None = None, harder: tuple[int, int, int] = HARDER
) -> TreeSplits:
    """The tree of each English sentence of the corpus, and then so many harder ones.

    corpus: `demo_corpus.splits()` unless given. harder: how many in train, dev and test.

    Each split begins with the corpus's trees in its order; the rest, from `demo_constructions`,
    is English that the corpus does not translate. Train shows every word and every symbol of dev
    and test. The same on every machine, whatever the run's seed.
    """
    corpus = corpus or demo_corpus.splits()
    train, dev, test = (
        list(_parsed(example.tree for example in part))
        for part in (corpus.train, corpus.dev, corpus.test)
    )
    more = _distinct(bracketings(SEED), {_words(tree) for tree in train + dev + test})
    train += islice(more, harder[0])
    shown = {item for tree in train for item in _items(tree)}
    fair = (tree for tree in more if shown.issuperset(_items(tree)))
    dev += islice(fair, harder[1])
    test += islice(fair, harder[2])
    return TreeSplits(train, dev, test)


def _parsed(lines: Iterable[str]) -> Iterator[Tree]:
    return (without_root(tree) for tree in parse_trees(lines, "the demo grammar"))


def _words(tree: Tree) -> tuple[str, ...]:
    return tuple(word for _, word in leaves(tree))


def _items(tree: Tree) -> Iterator[tuple[str, str]]:
    """Words and symbols, told apart."""
    yield from (("word", word) for word in _words(tree))
    yield from (("symbol", symbol) for symbol in linearize(tree))


def _distinct(lines: Iterable[str], known: set[tuple[str, ...]]) -> Iterator[Tree]:
    """The trees of sentences that are not known, each of which is from then on."""
    for tree in _parsed(lines):
        words = _words(tree)
        if words not in known:
            known.add(words)
            yield tree
