"""§5.1 Vocabularies: maps from text to token ids and back."""

import hashlib
import operator
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import ClassVar, TypeVar

import numpy as np
from jaxtyping import Bool, Integer
from numpy.random import Generator

from jax_transformer.data.scripts import in_word, is_mark
from jax_transformer.data.text import as_lines, becomes_space, readable
from jax_transformer.errors import InputError, shown
from jax_transformer.files import parse_json

T = TypeVar("T")

PAD, BOS, EOS, UNK = range(4)
UNKNOWN = "\u2047"  # how UNK is shown
_UNREADABLE = "\u2585"  # which sentencepiece never has a piece for, whatever it normalizes


class Vocabulary(ABC):
    """A map from text to ids and back; some of the special ids may be equal."""

    KIND: ClassVar[str] = ""  # of content that is JSON

    content: bytes  # all of it, as one file
    size: int  # the number of ids
    all_pieces: list[str]  # the piece of each id
    pad_id: int
    bos_id: int  # which the decoder starts with
    eos_id: int
    unk_id: int
    sentencepiece: bytes | None = None  # the content of the model's file, if there is one
    can_sample: bool = False  # at random: see `sample_words`
    tags: Sequence[str] = ()  # of languages, one of which a text may begin with

    @cached_property
    def fingerprint(self) -> str:
        """The SHA-256 of the content."""
        return hashlib.sha256(self.content).hexdigest()

    def __len__(self) -> int:
        """Return the number of ids."""
        return self.size

    def __repr__(self) -> str:
        """Describe the kind and the size in one line."""
        special = f"PAD {self.pad_id}, BOS {self.bos_id}, EOS {self.eos_id}, UNK {self.unk_id}"
        return f"<{type(self).__name__}: {self.size:,} ids; {special}>"

    def encode(self, text: str, *, eos: bool = False) -> list[int]:
        """Return the ids of one line's pieces, without BOS; a model reads them with EOS at the end.

        eos: True to add EOS.

        `data.text.readable` first normalizes the white space and the marks of letters. A line with
        nothing to read (`data.scripts.is_blank`) has no pieces. A character without a
        piece is UNK (NUL and U+2585 always are); unknown neighbours may share one. No text gives
        PAD, BOS or EOS, even if it contains `<s>`.

        Raises InputError if the text has a lone surrogate, which is not a character.
        """
        return self.encode_batch([text])[0] + [self.eos_id] * eos

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Encode each text as `encode` does; sentencepiece uses all cores."""
        plain = [readable(text, self.knows) for text in as_lines(texts)]
        try:
            return self._encode_lines(plain)
        except (RuntimeError, TypeError, UnicodeError):
            for number, text in enumerate(plain, start=1):
                utf8(text, number)
            raise

    def encode_words(self, words: Sequence[str]) -> list[list[int]]:
        """Encode the words of a tree, each of which begins once.

        White space in a word that `readable` would make a space is unknown, and so is a word with
        nothing to read.
        """
        spaces = {c for c in set("".join(words)) if becomes_space(c, self.knows)}
        table = str.maketrans(dict.fromkeys(spaces, _UNREADABLE))
        encoded = self.encode_batch([word.translate(table) for word in words])
        return [tokens or self.encode(_UNREADABLE) for tokens in encoded]

    def as_in_pieces(self, text: str) -> str:
        """Return text as its pieces spell it, such as words that are apart in them."""
        return text

    def word_begins(self, tokens: Integer[np.ndarray, " n"]) -> Bool[np.ndarray, " n"]:
        """Return which tokens of a text begin a word, if `can_sample`."""
        raise NotImplementedError

    def sample_words(
        self, words: Sequence[list[int]], times: Sequence[int], rate: float, random: Generator
    ) -> list[list[int]]:
        """Sample segmentations of words, if `can_sample`: times[i] of words[i], one after another.

        words: the ids of each, as `encode` cuts it. rate: of byte pairs, the probability that a
          merge is passed over, 1 gives characters; of a unigram model, the exponent of its
          probabilities.
        """
        raise NotImplementedError

    def decode(self, ids: Iterable[int]) -> str:
        r"""Return the text of the ids, in which PAD, BOS and EOS vanish and UNK is U+2047.

        A newline or "\r" that a piece stands for is a space; other line breaks of Unicode, such as
        U+2028, stay. Raises InputError if an id is outside the vocabulary.
        """
        return re.sub("[\n\r]", " ", self._decode(self._checked(ids)))

    def decode_batch(self, sequences: Iterable[Iterable[int]]) -> list[str]:
        """Decode each sequence as `decode` does."""
        return [self.decode(ids) for ids in sequences]

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Return the pieces as they are written in the vocabulary: U+2581 starts a word."""
        return [self.all_pieces[index] for index in self._checked(ids)]

    @cached_property
    def word_starts(self) -> bytes:
        """A byte for each id: 1 if it begins a word or is EOS, which ends the last; 0 otherwise."""
        both = enumerate(self.all_pieces)
        return bytes(piece.startswith("\u2581") or i == self.eos_id for i, piece in both)

    @cached_property
    def piece_texts(self) -> list[str | bytes]:
        """The text that each id adds: a space begins the first piece of a word.

        A piece that stands for a byte, which is a part of a character, is that byte.
        """
        texts = list[str | bytes]()
        for index, piece in enumerate(self.all_pieces):
            text = "" if index in (self.pad_id, self.bos_id, self.eos_id) else spelled(piece)
            texts.append(bytes([int(piece[3:5], 16)]) if self._is_byte(index, piece) else text)
        return texts

    @cached_property
    def continuations(self) -> Bool[np.ndarray, "2 size"] | None:
        """True for ids that continue a word; None if the last piece of a word ends it.

        Row 1 is for text that ends in a word, "caf": letters continue it. Row 0 is for other text,
        "(": only a mark changes its end.
        """
        marks, letters = np.zeros((2, self.size), bool)
        for index, text in enumerate(self.piece_texts):
            first = text[:1]
            if not first:  # a special piece, after which anything might follow
                marks[index] = letters[index] = index != self.eos_id
            else:
                letters[index] = isinstance(first, bytes) or in_word(first)
                marks[index] = isinstance(first, str) and is_mark(first)
        return np.array([marks, letters])

    def knows(self, character: str) -> bool:
        """Return whether text with this character has a piece for it, or for what it stands for."""
        if character not in self._known:
            texts = self.piece_texts
            ids = [i for i in self._encode_lines([character])[0] if texts[i] != " "]
            strange = [i for i in ids if i == self.unk_id or isinstance(texts[i], bytes)]
            self._known[character] = character in self._letters or bool(ids and not strange)
        return self._known[character]

    @cached_property
    def _known(self) -> dict[str, bool]:
        return {}

    @cached_property
    def _letters(self) -> frozenset[str]:
        """The letters of all pieces, some of which may have no piece of their own."""
        return frozenset("".join(text for text in self.piece_texts if isinstance(text, str)))

    def _is_byte(self, index: int, piece: str) -> bool:
        """Return whether an id stands for a byte."""
        return False

    @abstractmethod
    def _encode_lines(self, lines: list[str]) -> list[list[int]]: ...

    @abstractmethod
    def _decode(self, ids: list[int]) -> str: ...

    def _checked(self, ids: Iterable[int]) -> list[int]:
        try:
            checked = [operator.index(index) for index in ids]
        except TypeError:
            raise InputError(f"expected a list of ids, found {shown(ids)}") from None
        wrong = [index for index in checked if not 0 <= index < self.size]
        if wrong:
            raise InputError(
                f"expected ids from 0 to {self.size - 1}, found {wrong[0]}; use the vocabulary "
                "that the ids were made with"
            )
        return checked


def spelled(piece: str) -> str:
    """Return a piece as text: a space for sentencepiece's mark, U+2581."""
    return piece.replace("\u2581", " ")


def spaced(text: str, word: str) -> str:
    """Return a text with one space between a word, wherever it occurs, and its neighbours.

    >>> spaced("the  ? dog?", "?")
    'the ? dog ?'
    """
    return re.sub(f" *{re.escape(word)} *", f" {word} ", text).replace("  ", " ").strip()


def utf8(text: str, number: int) -> bytes:
    """Return the bytes of line `number`. Raises InputError for a lone surrogate."""
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(
            f"expected Unicode text, found the lone surrogate U+{ord(text[error.start]):04X} at "
            f"character {error.start + 1} of line {number}; read the text as UTF-8"
        ) from None


def parse_content(content: bytes, kind: type[T]) -> T:
    """Return the content of a vocabulary in JSON. Raises InputError if it is something else."""
    try:
        return parse_json(content, kind)
    except ValueError as error:
        raise InputError(
            f"expected a vocabulary that this program wrote, found something else: {error}; import "
            "the model again"
        ) from None
