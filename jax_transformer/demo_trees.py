"""The demo's treebank: the trees that the demo grammar derived its sentences with (§6.3)."""

from collections.abc import Iterable
from dataclasses import dataclass

from jax_transformer import demo_corpus
from jax_transformer.bracketing import parse_trees
from jax_transformer.demo_grammar import Example
from jax_transformer.trees import Tree, without_root


@dataclass(frozen=True)
class TreeSplits:
    """Penn Treebank style trees, without an outer bracket; no sentence comes twice."""

    train: list[Tree]
    dev: list[Tree]
    test: list[Tree]


def splits() -> TreeSplits:
    """The tree of each English sentence of `demo_corpus.splits()`, in its order."""
    corpus = demo_corpus.splits()
    return TreeSplits(*(_trees(part) for part in (corpus.train, corpus.dev, corpus.test)))


def _trees(examples: Iterable[Example]) -> list[Tree]:
    bracketings = (example.tree for example in examples)
    return [without_root(tree) for tree in parse_trees(bracketings, "the demo grammar")]
