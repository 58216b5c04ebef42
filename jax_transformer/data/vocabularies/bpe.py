"""Vocabularies of byte pairs whose pieces and merges are lists: subword-nmt, fairseq, FSMT.

Sennrich et al. 2016: a word starts as its characters, and the pair of neighbours whose merge was
learned first is merged until no pair was learned.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heapify, heappop, heappush
from itertools import count, pairwise
from typing import Annotated, Literal, NamedTuple

import numpy as np
from annotated_types import Ge
from jaxtyping import Bool, Integer
from numpy.random import Generator

from jax_transformer.data.moses import Moses
from jax_transformer.data.vocabularies.base import UNKNOWN, Vocabulary, parse_content
from jax_transformer.declared import Declared
from jax_transformer.errors import InputError
from jax_transformer.files import encode_json

END = "</w>"  # the end of a word in a learned merge
_NEVER = 1 << 62  # the rank of a pair that was not learned
_MOST_CACHED = 1 << 20  # words
_LONG_WORD = 40  # letters; a longer one is not cached

Id = Annotated[int, Ge(0)]
Pair = tuple[str, str]


class Codes(NamedTuple):
    """The codes of subword-nmt or fastBPE: merges, the first learned first."""

    merges: list[Pair]
    end_apart: bool  # True: the end mark is a symbol of its own, as in subword-nmt's version 0.1


def parse_codes(lines: Iterable[str], name: str) -> Codes:
    """Read a file of merges: `left right`, or with fastBPE's count, `left right 1234`.

    subword-nmt's first line gives its version; without one it is 0.1, or 0.2 if there are counts.
    name: the name of the file in errors. Raises InputError for anything else.
    """
    rows = [line.strip("\r\n ") for line in lines]
    while rows and not rows[-1]:
        rows.pop()
    version, first = None, 1
    if rows and rows[0].startswith("#version:"):
        version, first = rows.pop(0).split()[-1].removeprefix("#version:"), 2
        if version not in ("0.1", "0.2"):
            raise InputError(
                f"{name}: expected byte-pair codes of version 0.1 or 0.2, found version {version}; "
                "write them with subword-nmt"
            )
    merges: dict[Pair, None] = {}
    counted = False
    for number, row in enumerate(rows, start=first):
        match row.split(" "):
            case [left, right] if left and right:
                merges.setdefault((left, right))  # of equal ones the first counts
            case [left, right, count] if left and right and count.isdecimal():
                merges.setdefault((left, right))
                counted = True
            case _:
                raise InputError(
                    f"{name}, line {number}: expected a merge, `left right` or `left right count`, "
                    f"found {row!r}; give the file that subword-nmt or fastBPE wrote"
                )
    return Codes(list(merges), end_apart=version == "0.1" or (version is None and not counted))


class Merges:
    """The cutting of one word after another by the same merges.

    >>> merges = Merges(Codes([("l", "o"), ("lo", "w</w>")], end_apart=False))
    >>> merges.cut("low"), merges.cut("lower")
    (['low'], ['lo', 'w', 'e', 'r'])
    """

    def __init__(self, codes: Codes):
        self._ranks = {pair: rank for rank, pair in enumerate(codes.merges)}
        self._end_apart = codes.end_apart

    def cut(self, word: str) -> list[str]:
        """Return the pieces of a word, without the end mark, in n log n steps for n letters."""
        if len(word) < 2:
            return [word]
        symbols, find = [*self._symbols(word), ""], self._ranks.get  # with "" no pair is learned
        ranks = [*self._learned(symbols), _NEVER]
        before, after = [*range(-1, len(symbols) - 1)], [*range(1, len(symbols)), 0]
        heap = [(rank, at) for at, rank in enumerate(ranks) if rank != _NEVER]
        heapify(heap)
        while heap:
            lowest, places = heap[0][0], list[int]()
            while heap and heap[0][0] == lowest:
                places.append(heappop(heap)[1])
            for at in places:  # from left to right: of two that overlap the first is merged
                if ranks[at] != lowest:
                    continue  # the pair is gone
                gone = after[at]
                symbols[at] += symbols[gone]
                symbols[gone], ranks[gone] = "", _NEVER
                after[at] = after[gone]
                before[after[at]] = at
                for left in (before[at], at):
                    rank = ranks[left] = find((symbols[left], symbols[after[left]]), _NEVER)
                    if rank != _NEVER:
                        heappush(heap, (rank, left))
        return _without_end([symbol for symbol in symbols if symbol])

    def cut_at_random(self, word: str, rate: float, draw: Callable[[], float]) -> list[str]:
        """Return pieces as `cut` does, but pass over each merge of each step with this probability.

        BPE-dropout (Provilkov et al. 2020). draw: a function that returns numbers in [0, 1).
        """
        symbols = self._symbols(word) if word[1:] else [word]
        while len(symbols) > 1:
            ranks = self._learned(symbols)
            kept = [rank if rank == _NEVER or draw() >= rate else _NEVER for rank in ranks]
            lowest = min(kept)
            if lowest == _NEVER:
                break
            merged, start = list[str](), 0
            for at, rank in enumerate(kept):  # of two that overlap the first is merged
                if rank == lowest and at >= start:
                    merged += [*symbols[start:at], symbols[at] + symbols[at + 1]]
                    start = at + 2
            symbols = merged + symbols[start:]
        return _without_end(symbols)

    def _learned(self, symbols: list[str]) -> list[int]:
        """Return the rank of each pair of neighbours."""
        find = self._ranks.get
        return [find(pair, _NEVER) for pair in pairwise(symbols)]

    def _symbols(self, word: str) -> list[str]:
        """Return what a word of several letters is before its first merge."""
        return [*word, END] if self._end_apart else [*word[:-1], word[-1] + END]


def _without_end(symbols: list[str]) -> list[str]:
    if symbols[-1] == END:
        return symbols[:-1]
    return [*symbols[:-1], symbols[-1].removesuffix(END)]


@dataclass(frozen=True, kw_only=True)
class BpeContent(Declared):
    """All that determines the ids of a text and the text of ids.

    pieces: the piece of each id. A piece that a word goes on after is written with `continuation`
      behind it, the last piece of a word with `end` behind it.
    merges, end_apart: see `Codes`; `left right` each.
    moses: True to tokenize and detokenize text by Moses' rules; else words stand between spaces.
    source_language, target_language, normalize: see `Moses`.
    """

    kind: Literal["bpe"] = "bpe"
    pieces: list[str]
    merges: list[str]
    end_apart: bool
    continuation: str = "@@"
    end: str = ""
    moses: bool = False
    source_language: str = ""
    target_language: str = ""
    normalize: bool = False
    lower_case: bool = False
    pad_id: Id
    bos_id: Id
    eos_id: Id
    unk_id: Id


class BpeVocabulary(Vocabulary):
    """Pieces by subword-nmt's byte pairs, looked up in a list, with or without Moses' rules.

    >>> pieces = ["<s>", "<pad>", "</s>", "<unk>", "lo@@", "w", "e@@", "r"]
    >>> special = {"bos_id": 2, "pad_id": 1, "eos_id": 2, "unk_id": 3}
    >>> content = BpeContent(pieces=pieces, merges=["l o"], end_apart=False, **special)
    >>> vocabulary = BpeVocabulary.make(content)
    >>> vocabulary.encode("low lower low?")
    [4, 5, 4, 3, 6, 7, 4, 3, 3]
    >>> vocabulary.decode([4, 5, 4, 5, 2])
    'low low'
    """

    KIND = "bpe"

    def __init__(self, content: bytes):
        """Read what `make` made. Raises InputError if it is something else, or inconsistent."""
        self.content = content
        self._settings = settings = parse_content(content, BpeContent)
        pad, bos, eos, unk = settings.pad_id, settings.bos_id, settings.eos_id, settings.unk_id
        if max(pad, bos, eos, unk) >= len(settings.pieces) or len({pad, eos, unk}) < 3:
            raise InputError(
                f"expected different ids of PAD, EOS and UNK below {len(settings.pieces)}, the "
                f"number of pieces, found {pad}, {eos} and {unk}, and {bos} for BOS; import the "
                "model again"
            )
        self.pad_id, self.bos_id, self.eos_id, self.unk_id = pad, bos, eos, unk
        pairs = list[Pair]()
        for merge in settings.merges:
            left, space, right = merge.partition(" ")
            if not space or " " in right:
                raise InputError(
                    f"expected merges `left right`, found {merge!r}; import the model again"
                )
            pairs.append((left, right))
        self.all_pieces, self.size = settings.pieces, len(settings.pieces)
        # <s> and </s> have no place here: text that spells them is text.
        self._silent = {self.pad_id, self.bos_id, self.eos_id}
        self._special = {pad, bos, eos, unk}
        self._ids = {p: i for i, p in enumerate(self.all_pieces) if i not in self._special}
        self._merges = Merges(Codes(pairs, settings.end_apart))
        languages = settings.source_language, settings.target_language
        self._moses = Moses(*languages, normalize=settings.normalize) if settings.moses else None
        self.can_sample = not settings.moses  # whose tokens are not known from their pieces
        self._cached: dict[str, list[int]] = {}

    @classmethod
    def make(cls, content: BpeContent) -> "BpeVocabulary":
        """Return the vocabulary with this content. Raises InputError if it is inconsistent."""
        return cls(encode_json(content))

    def _encode_lines(self, lines: list[str]) -> list[list[int]]:
        "".join(lines).encode("utf-8")  # UnicodeEncodeError for a lone surrogate
        return [[i for word in self._words(line) for i in self._cut(word)] for line in lines]

    def knows(self, character: str) -> bool:
        """See `Vocabulary.knows`; what Moses' rules drop, such as a tab, is left to them."""
        return super().knows(character) or not self._encode_lines([character])[0]

    def as_in_pieces(self, text: str) -> str:
        """See `Vocabulary.as_in_pieces`: `l'eau` is `l &apos;eau` by Moses' rules."""
        return " ".join(self._words(text))

    def sample_words(
        self, words: Sequence[list[int]], times: Sequence[int], rate: float, random: Generator
    ) -> list[list[int]]:
        """See `Vocabulary.sample_words`; a word stays if a piece would not be in the list."""
        numbers = (number for _ in count() for number in random.random(4096).tolist())
        draw, result = numbers.__next__, list[list[int]]()  # one call for many is quicker
        for word, n in zip(words, times, strict=True):
            if self._special & {*word}:
                result += [word] * n
                continue
            (text,) = self._joined(word)
            cuts = (self._look_up(self._merges.cut_at_random(text, rate, draw)) for _ in range(n))
            result += [word if self.unk_id in ids else ids for ids in cuts]
        return result

    def word_begins(self, tokens: Integer[np.ndarray, " n"]) -> Bool[np.ndarray, " n"]:
        """See `Vocabulary.word_begins`."""
        goes_on = np.array([goes_on for _, goes_on in self._parts])
        return np.append(True, ~goes_on[tokens[:-1]])

    @cached_property
    def _parts(self) -> list[tuple[str, bool]]:
        """The letters of each piece, and whether its word goes on after it.

        The sign without letters before it is the text itself, such as the word "@@".
        """
        sign, end = self._settings.continuation, self._settings.end
        parts = list[tuple[str, bool]]()
        for index, piece in enumerate(self.all_pieces):
            if index in self._special:
                parts.append((UNKNOWN if index == self.unk_id else "", False))
            else:
                letters = piece.removesuffix(sign or end) or piece
                parts.append((letters, (letters != piece) == bool(sign)))
        return parts

    @cached_property
    def piece_texts(self) -> list[str | bytes]:
        """The text that each id adds; here a space follows the last piece of a word."""
        texts = [letters if goes_on else f"{letters} " for letters, goes_on in self._parts]
        return ["" if index in self._silent else text for index, text in enumerate(texts)]

    @cached_property
    def continuations(self) -> None:
        """None, because the last piece of a word ends it."""
        return

    @property
    def word_starts(self) -> bytes:
        """Raise InputError: the pieces that begin a word are not known from their letters."""
        raise InputError(
            "data.word_positions: expected a vocabulary of sentencepiece, whose pieces show where "
            "words begin, found one of byte pairs; set data.word_positions=false"
        )

    def _decode(self, ids: list[int]) -> str:
        words = self._joined(index for index in ids if index not in self._silent)
        return self._moses.text(words) if self._moses else " ".join(words)

    def _words(self, line: str) -> list[str]:
        if self._settings.lower_case:
            line = line.lower()
        if self._moses:
            return self._moses.tokens(line)
        return [word for word in line.split(" ") if word]

    def _cut(self, word: str) -> list[int]:
        ids = self._cached.get(word)
        if ids is None:
            if len(self._cached) >= _MOST_CACHED:
                self._cached.clear()
            ids = self._look_up(self._merges.cut(word))
            if len(word) <= _LONG_WORD:
                self._cached[word] = ids
        return ids

    def _look_up(self, pieces: list[str]) -> list[int]:
        """Return the ids of the pieces of one word."""
        find, unknown = self._ids.get, self.unk_id
        sign, last = self._settings.continuation, pieces[-1]
        if sign and last != sign and last.endswith(sign):  # it would read as a piece that goes on
            pieces = [*pieces[:-1], last.removesuffix(sign), sign]
        ids = [find(piece + sign, unknown) for piece in pieces[:-1]]
        return [*ids, find(pieces[-1] + self._settings.end, unknown)]

    def _joined(self, ids: Iterable[int]) -> list[str]:
        """Return the words that the pieces make; UNK is a word, or the end of one."""
        words, started = [], ""
        for index in ids:
            letters, goes_on = self._parts[index]
            started += letters
            if not goes_on:
                words.append(started)
                started = ""
        return [*words, started] if started else words
