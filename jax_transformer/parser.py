"""Lines of words in, bracketings out, in length buckets over all devices (§6.3)."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jax_transformer.config import DecodingConfig
from jax_transformer.devices import Devices
from jax_transformer.errors import InputError
from jax_transformer.model import Transformer
from jax_transformer.parsing import rebuild
from jax_transformer.symbols import Symbols
from jax_transformer.translator import Translator
from jax_transformer.trees import escaped, with_root, write_tree
from jax_transformer.vocabulary import Vocabulary

_SPACE = re.compile("[ \t]+")


class Parser(Translator):
    """A trained parser, ready to parse on all devices."""

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
        """max_length: most source tokens, EOS included."""
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

    def _encoded(
        self, lines: Sequence[str], warn: Callable[[str], None], first: int
    ) -> list[list[int]]:
        plain = [" ".join(map(escaped, words_of(line))) for line in lines]
        return super()._encoded(plain, warn, first)

    def _texts(self, line: str, tokens: np.ndarray) -> list[str]:
        words = words_of(line)
        texts = []
        for row in tokens.tolist():
            try:
                texts.append(write_tree(with_root(rebuild(self.symbols.decode(row), words))))
            except InputError:
                texts.append("")
        return texts


def flat_tree(words: Sequence[str]) -> str:
    """A bracketing of the words that says nothing about them."""
    return write_tree(("TOP", tuple(("XX", word) for word in words))) if words else ""


def words_of(line: str) -> list[str]:
    """The words of a tokenised sentence; a no-break space is part of its word."""
    return [word for word in _SPACE.split(line) if word]
