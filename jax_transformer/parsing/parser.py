"""§6.3 A parser of lines of words to bracketed trees, in length buckets over all devices."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np

from jax_transformer.data.vocabularies.labels import LabelVocabulary
from jax_transformer.decoding.batches import Program
from jax_transformer.decoding.beam_search import Hypotheses
from jax_transformer.decoding.line_search import (
    Hypothesis,
    Line,
    LineSearch,
    Sentence,
    Translation,
    distinct,
    hypotheses,
    not_finite,
    warn,
)
from jax_transformer.decoding.request import Request
from jax_transformer.errors import InputError, located
from jax_transformer.parsing.constrained_search import constrained_search
from jax_transformer.parsing.grammar import tree_grammar
from jax_transformer.parsing.linearize import delinearize, is_tag, linearize
from jax_transformer.parsing.ptb import parse_tree
from jax_transformer.parsing.trees import Tree, normalize, with_root, write_tree
from jax_transformer.parsing.typed_words import TypedWords
from jax_transformer.types import AnyArray, Params

_SPACE = re.compile(r"\s+", re.ASCII)


@dataclass(frozen=True)
class Words(Sentence):
    """A line's words: those that the model reads as tokens, and the rest of a line too long."""

    words: Sequence[str] = ()
    rest: Sequence[str] = ()


class Parser(LineSearch):
    """A trained parser: a tree over exactly the words of each line, whatever the model writes.

    Every line is searched without a grammar first. Lines whose output is not a tree, mostly few,
    are searched again with `constrained_search`. Words beyond the maximum length get the most
    frequent tag of the training trees.
    """

    usual_ratio = 3  # a tree has a tag for each word and two brackets for each phrase

    def __init__(self, *model: Any, target_vocabulary: LabelVocabulary, **settings: Any) -> None:
        """Take the arguments of `LineSearch`; the target's vocabulary are the labels of trees."""
        super().__init__(*model, target_vocabulary=target_vocabulary, **settings)
        self.labels = labels = target_vocabulary
        self._typed = TypedWords(self.vocabulary)
        grammar = tree_grammar(labels.names, labels.eos_id)

        def trees(params: Params, rows: tuple[AnyArray, AnyArray], n_best: int) -> Hypotheses:
            source, words = rows
            search = partial(constrained_search, words=words, grammar=grammar)
            return self.found(params, source, search=search, n_best=n_best)

        self._parsed_for = cache(
            lambda n_best: self.devices.map_rows(partial(trees, n_best=n_best))
        )

    def warm_up(self) -> Iterator[tuple[int, int]]:
        """Compile the search that the grammar constrains; yield each shape."""
        for shape in self.batches.shapes():
            padding = np.full(shape, self.vocabulary.pad_id, np.int32)
            self.devices.gather(
                self._parsed_for(1)(self.params, (padding, np.zeros(shape[0], np.int32)))
            )
            yield shape

    def program(self, request: Request) -> Program:
        """Return what the search of a request is compiled for."""
        return Program(request.n_best)

    def source_lines(self, sources: Sequence[str]) -> list[str]:
        """Return sentences with the treebank's forms of their words."""
        return [" ".join(self._typed.forms(words_of(line))) for line in sources]

    @staticmethod
    def target_lines(references: Sequence[str]) -> list[str]:
        """Linearize gold trees: symbols separated by spaces, blank for a tree without words."""
        lines = []
        for number, gold in enumerate(references):
            with located(f"targets[{number}]"):
                tree = normalize(parse_tree(gold)) if gold.strip() else None
            lines.append(" ".join(linearize(tree)) if tree else "")
        return lines

    def shown(self, reference: str) -> str:
        """Write a gold tree as the parser is trained to write it."""
        return normalized(reference, self.labels.root)

    def read(self, lines: Sequence[Line]) -> list[Sentence]:
        """Return the words of each line; words beyond the maximum are left over, with a warning."""
        sentences = [self._sentence(line) for line in lines]
        warn(
            [sentence.line.place for sentence in sentences if sentence.rest],
            f"expected at most {self.max_source - 1:,} tokens, found more; parsed the first words "
            f"alone, and put the others after their tree as {self._common_tag}",
        )
        return [*sentences]

    def written(self, sentence: Any, found: Sequence[Hypothesis]) -> list[Translation | None]:
        """Return the bracketings of one line; None for what is not a tree over its words.

        Words beyond the maximum follow the tree of the others inside the outer bracket.
        """
        trees: list[Translation | None] = []
        for tokens, score, log_prob in found:
            names = self.labels.decode(tokens).split(" ")  # a no-break space is part of one
            try:
                tree = delinearize(names, sentence.words)
            except InputError:
                trees.append(None)
                continue
            text = self._written(tree, sentence.rest)
            trees.append(Translation(text, score, log_prob, len(names) + 1))
        return trees

    def completed(
        self, sentences: Sequence[Any], outputs: Sequence[Sequence[Translation | None]]
    ) -> list[list[Translation]]:
        """Return trees of each line: those with an output that is not a tree are searched again.

        Raises InputError if the model's scores are not finite.
        """
        n_best = sentences[0].line.request.n_best if sentences else 1
        # Two outputs that differ in their outer bracket alone are written alike.
        free = [[tree for tree in own if tree] if own and own[0] else [] for own in outputs]
        trees = [distinct(own) for own in free]
        second = [
            each.tokens if None in own else [] for each, own in zip(sentences, outputs, strict=True)
        ]
        for row, found in self._constrained(second, sentences, n_best):
            other = distinct([tree for tree in self.written(sentences[row], found) if tree])
            if not other:
                raise not_finite(sentences[row].line.place, "an output")
            trees[row] = _merged(trees[row], other)[:n_best]
        return trees

    def _constrained(
        self, encoded: Sequence[list[int]], sentences: Sequence[Words], n_best: int
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        """Yield (line index, its trees) of each line that has tokens in `encoded`."""

        def batches() -> Iterator[tuple[list[int], tuple[np.ndarray, np.ndarray]]]:
            for rows, source in self.batches.of(encoded):
                words = np.zeros(len(source), np.int32)
                words[: len(rows)] = [len(sentences[row].words) for row in rows]
                yield rows, (source, words)

        for rows, found in self.map_batches(self._parsed_for(n_best), batches()):
            yield from zip(rows, hypotheses(found), strict=False)  # rows of padding come last

    def _sentence(self, line: Line) -> Words:
        """Split the words where their tokens exceed max_length, after one word at least."""
        words = words_of(line.text)
        forms = self._typed.forms(words)
        words = words if self.keeps_words else forms
        encoded = self.vocabulary.encode_words(forms)
        most = self.max_source - 1
        ends = np.cumsum([len(tokens) for tokens in encoded])
        count = max(int((ends <= most).sum()), 1)
        tokens = [token for tokens in encoded[:count] for token in tokens]
        return Words(line, tokens[:most], words=words[:count], rest=words[count:])

    def _written(self, tree: Tree, rest: Sequence[str]) -> str:
        """Write a tree and the rest of the words in the outer bracket of the training trees."""
        root = self.labels.root
        if rest:
            tags = tuple[Tree, ...]((self._common_tag, word) for word in rest)
            label, children = with_root(tree, "TOP" if root is None else root)
            return write_tree((label, (*children, *tags)))
        return write_tree(tree if root is None else with_root(tree, root))

    @property
    def _common_tag(self) -> str:
        """The most frequent tag of the training trees."""
        tags = (name for name in self.labels.names if name and is_tag(name))
        return next(tags).removeprefix("\\")


def _merged(free: list[Translation], constrained: list[Translation]) -> list[Translation]:
    """Merge the trees of both searches; the first of `free` stays first, whatever `n_best` is."""
    if not free:
        return [replace(tree, constrained=True) for tree in constrained]
    known = {tree.text for tree in free}
    others = [
        tree for tree in constrained if tree.text not in known and tree.score <= free[0].score
    ]
    return sorted([*free, *others], key=lambda tree: -tree.score)


def flat_tree(words: Sequence[str]) -> str:
    """Return a bracketing with one constituent over all words."""
    return write_tree(("TOP", tuple(("XX", word) for word in words))) if words else ""


def normalized(gold: str, root: str | None) -> str:
    """Write a gold tree as a parser with this root is trained to: see `trees.normalize`."""
    tree = normalize(parse_tree(gold)) if gold else None
    return "" if tree is None else write_tree(tree if root is None else with_root(tree, root))


def words_of(line: str) -> list[str]:
    """Return the words of a tokenized sentence; a no-break space is part of its word."""
    return [word for word in _SPACE.split(line) if word]
