"""Lines of words in, bracketings out, in length buckets over all devices (§6.3)."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from jax_transformer.config import DecodingConfig
from jax_transformer.devices import Devices
from jax_transformer.errors import InputError
from jax_transformer.model import Transformer
from jax_transformer.parsing import rebuild
from jax_transformer.search import Hypotheses
from jax_transformer.symbols import Symbols
from jax_transformer.translation import parse
from jax_transformer.translator import Translation, Translator
from jax_transformer.tree_automaton import tree_grammar
from jax_transformer.tree_search import Parses
from jax_transformer.trees import Tree, escaped, with_root, write_tree
from jax_transformer.vocabulary import Vocabulary

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
        super().__init__(
            model,
            params,
            vocabulary,
            decoding,
            max_length=max_length,
            devices=devices,
            n_best=n_best,
        )
        self.symbols = symbols
        ids = {"bos_id": symbols.bos_id, "eos_id": symbols.eos_id}
        grammar = tree_grammar(symbols.names, pad_id=symbols.pad_id, **ids)

        def trees(params: Any, rows: tuple[Any, Any]) -> Parses:
            return parse(model, params, *rows, grammar, decoding, n_best=n_best, **ids)

        self._trees = self.devices.map_rows(trees)

    def translate_lines(
        self, lines: Sequence[str], warn: Callable[[str], None], first: int = 1
    ) -> list[list[Translation]]:
        """The `n_best` bracketings of each line, best first, a tab or space between words.

        None for a blank line. Of a line that is too long the first words are parsed and the
        others stand behind their tree; `warn` is told its number, counted from `first`.
        Raises InputError where the model's scores are not finite.
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
        aided: set[int] = set()
        for rows, source in self._batches(encoded):
            found = self._translate(self.params, source)
            for i, row in enumerate(rows):
                try:
                    results[row] = self._parses(sentences[row], *(leaf[i] for leaf in found))
                except InputError:
                    aided.add(row)
        again = [tokens if row in aided else [] for row, tokens in enumerate(encoded)]
        for rows, source in self._batches(again):
            words = np.zeros(len(source), np.int32)
            words[: len(rows)] = [len(sentences[row].read) for row in rows]
            found, unaided = self._trees(self.params, (source, words))
            for i, row in enumerate(rows):
                trees = self._parses(sentences[row], *(leaf[i] for leaf in found))
                results[row] = trees
                if trees and not unaided[i]:
                    trees[0] = replace(trees[0], constrained=True)
        for row, tokens in enumerate(encoded):
            if tokens and not results[row]:
                raise self._nothing(first + row)
        return results

    def _search(self, model: Transformer) -> Callable[[Any, Any], Hypotheses]:
        ids = {"bos_id": self.vocabulary.bos_id, "eos_id": self.vocabulary.eos_id}

        def free(params: Any, source: Any) -> Hypotheses:
            # Rows are as long as their tokens let them be, fillers end at once.
            words = (source != self._pad).any(axis=1).astype(np.int32)
            settings = {"n_best": self.n_best, **ids}
            return parse(model, params, source, words, None, self.decoding, **settings).hypotheses

        return free

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

    def _parses(
        self,
        sentence: Sentence,
        tokens: np.ndarray,
        scores: np.ndarray,
        log_probs: np.ndarray,
    ) -> list[Translation]:
        """The trees of one sentence. InputError where one of its hypotheses is none."""
        parses = []
        for row, score, log_prob in zip(tokens.tolist(), scores, log_probs, strict=True):
            if not np.isfinite(score):
                continue
            names = self.symbols.decode(row)
            tree = rebuild(names, sentence.read)
            rest = tuple[Tree, ...]((self._common_tag, word) for word in sentence.rest)
            text = write_tree(("TOP", (tree, *rest)) if rest else with_root(tree))
            parses.append(Translation(text, float(score), float(log_prob), len(names) + 1))
        return parses

    @property
    def _common_tag(self) -> str:
        """The most frequent tag of the trees trained on."""
        tags = (name for name in self.symbols.names if name[:1] not in ("", "(", "/"))
        return next(tags).removeprefix("\\")


def flat_tree(words: Sequence[str]) -> str:
    """A bracketing of the words that says nothing about them."""
    return write_tree(("TOP", tuple(("XX", word) for word in words))) if words else ""


def words_of(line: str) -> list[str]:
    """The words of a tokenised sentence; a no-break space is part of its word."""
    return [word for word in _SPACE.split(line) if word]


def _plain(words: Sequence[str]) -> str:
    """As trees write them, for those are what was trained on."""
    return " ".join(map(escaped, words))
