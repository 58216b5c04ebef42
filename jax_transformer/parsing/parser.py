"""Lines of words in, bracketings out, in length buckets over all devices (§6.3)."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from jax_transformer.config import DecodingConfig
from jax_transformer.data.vocabulary import Vocabulary
from jax_transformer.decoding.beam_search import Hypotheses
from jax_transformer.decoding.generate import USUAL_OF_TREES, parse
from jax_transformer.decoding.translator import Translation, Translator
from jax_transformer.errors import InputError
from jax_transformer.models.transformer import Transformer
from jax_transformer.parallel import Devices
from jax_transformer.parsing.constrained_search import Parses
from jax_transformer.parsing.grammar import tree_grammar
from jax_transformer.parsing.labels import Symbols
from jax_transformer.parsing.linearize import rebuild
from jax_transformer.parsing.trees import Tree, escaped, with_root, write_tree

_SPACE = re.compile("[ \t]+")


@dataclass(frozen=True)
class Sentence:
    """A line's words: those that the model reads, and what is left where they are too many."""

    read: list[str]
    rest: list[str]


class Parser(Translator):
    """A trained parser, ready to parse on all devices: a tree over exactly the words of each line.

    A search without a grammar comes first; the few lines for which it wrote no tree are
    searched again with one. That gives what `translation.parse` gives, at less cost.
    """

    usual = USUAL_OF_TREES

    def __init__(
        self,
        model: Transformer,
        params: Any,
        vocabulary: Vocabulary,
        symbols: Symbols,
        decoding: DecodingConfig,
        *,
        max_length: int,
        devices: Devices | None = None,
        n_best: int = 1,
    ) -> None:
        """max_length: most source tokens, EOS included; words beyond it get a plain tag."""
        self.symbols = symbols
        super().__init__(
            model,
            params,
            vocabulary,
            decoding,
            max_length=max_length,
            devices=devices,
            n_best=n_best,
        )
        ids = {"bos_id": symbols.bos_id, "eos_id": symbols.eos_id}
        grammar = tree_grammar(symbols.names, pad_id=symbols.pad_id, **ids)

        def trees(params: Any, rows: tuple[Any, Any]) -> Parses:
            return parse(
                model, params, *rows, grammar, decoding, n_best=n_best, free_first=False, **ids
            )

        self._trees = self.devices.map_rows(trees, decoding.beam_size)

    def translate_lines(
        self, lines: Sequence[str], warn: Callable[[str], None], first: int = 1
    ) -> list[list[Translation]]:
        """The `n_best` bracketings of each line of words, best first; none for a blank line.

        Of a line that is too long the first words are parsed and the others stand behind
        their tree; `warn` is told its number, counted from `first`. Raises InputError where
        the model's scores are not finite.
        """
        sentences = [self._sentence(words_of(line)) for line in lines]
        for number, sentence in enumerate(sentences, first):
            if sentence.rest:
                warn(
                    f"line {number}: expected at most {self.lengths[-1] - 1:,} tokens, found more; "
                    f"parsed its first {len(sentence.read):,} words, the other "
                    f"{len(sentence.rest):,} stand behind their tree as {self._common_tag}"
                )
        encoded = self._tokens(sentences)
        results: list[list[Translation]] = [[] for _ in lines]
        aided: list[list[int]] = [[] for _ in lines]
        for row, found in self._search(encoded, first):
            trees = self._parses(sentences[row], found)
            if None in trees:
                aided[row] = encoded[row]
            if trees[0]:
                results[row] = [tree for tree in trees if tree]

        def with_words() -> Iterator[tuple[list[int], tuple[np.ndarray, np.ndarray]]]:
            for rows, source in self._batches(aided):
                words = np.zeros(len(source), np.int32)
                words[: len(rows)] = [len(sentences[row].read) for row in rows]
                yield rows, (source, words)

        for rows, (found, _) in self._trees.over(self.params, with_words()):
            for i, row in enumerate(rows):
                there = np.isfinite(found.scores[i])
                trees = self._parses(
                    sentences[row], Hypotheses(*(leaf[i][there] for leaf in found))
                )
                results[row] = _joined(results[row], [tree for tree in trees if tree])
        for row, trees in enumerate(results):
            if encoded[row] and not trees:
                raise self._nothing(first + row)
            del trees[self.n_best :]
        return results

    def _sentence(self, words: list[str]) -> Sentence:
        most = self.lengths[-1] - 1
        plain = _plain(words)
        # A piece has a character at least, or begins a word: mostly no need to encode.
        if len(plain) + 1 <= most or len(self.vocabulary.encode(plain)) <= most:
            return Sentence(words, [])
        sizes = np.cumsum([len(tokens) for tokens in self.vocabulary.encode_batch(words)])
        count = max(int((sizes <= most).sum()), 1)
        return Sentence(words[:count], words[count:])

    def _tokens(self, sentences: Sequence[Sentence]) -> list[list[int]]:
        encoded = self.vocabulary.encode_batch([_plain(sentence.read) for sentence in sentences])
        for sentence, tokens in zip(sentences, encoded, strict=True):
            del tokens[self.lengths[-1] - 1 :]  # of a single word
            if sentence.read and not tokens:
                tokens.append(self.vocabulary.unk_id)  # words of nothing but U+2581
        return encoded

    def _parses(self, sentence: Sentence, found: Hypotheses) -> list[Translation | None]:
        """The hypotheses of one sentence; None for one that is no tree."""
        parses: list[Translation | None] = []
        for row, score, log_prob in zip(np.asarray(found.tokens).tolist(), *found[1:], strict=True):
            names = self.symbols.decode(row)
            try:
                text = self._written(rebuild(names, sentence.read), sentence.rest)
            except InputError:
                parses.append(None)
                continue
            parses.append(Translation(text, float(score), float(log_prob), len(names) + 1))
        return parses

    def _written(self, tree: Tree, rest: Sequence[str]) -> str:
        """In the outer bracket that the trees trained on have; words left over stand in it too."""
        if rest:
            words = tuple[Tree, ...]((self._common_tag, word) for word in rest)
            root = "TOP" if self.symbols.root is None else self.symbols.root
            return write_tree((root, (tree, *words)))
        return write_tree(tree if self.symbols.root is None else with_root(tree, self.symbols.root))

    @property
    def _common_tag(self) -> str:
        """The most frequent tag of the trees trained on."""
        tags = (name for name in self.symbols.names if name[:1] not in ("", "(", "/"))
        return next(tags).removeprefix("\\")


def _joined(free: list[Translation], trees: list[Translation]) -> list[Translation]:
    """The trees of a search without a grammar and of one with it, each once, best first.

    free: begins with the best output of the first search, or is empty where that was no
    tree. None stands before that one, as in `tree_search`.
    """
    if not free:
        return [replace(tree, constrained=True) for tree in trees]
    known = {tree.text for tree in free}
    others = [tree for tree in trees if tree.text not in known and tree.score <= free[0].score]
    return sorted([*free, *others], key=lambda tree: -tree.score)


def flat_tree(words: Sequence[str]) -> str:
    """A bracketing of the words that says nothing about them."""
    return write_tree(("TOP", tuple(("XX", word) for word in words))) if words else ""


def words_of(line: str) -> list[str]:
    """The words of a tokenised sentence; a no-break space is part of its word."""
    return [word for word in _SPACE.split(line) if word]


def _plain(words: Sequence[str]) -> str:
    """As trees write them, for those are what was trained on."""
    return " ".join(map(escaped, words))
