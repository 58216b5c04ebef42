"""Byte-pair encoding as subword-nmt and fastBPE do it: words are cut by ranked merges.

Sennrich et al. 2016: a word starts as its characters, and the pair of neighbours whose merge was
learned first is merged until no pair was learned.
"""

from collections.abc import Callable, Iterable, Iterator
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from jax_transformer.errors import InputError

END = "</w>"  # the end of a word in a learned merge
_NEVER = 1 << 62  # the rank of a pair that was not learned

Pair = tuple[str, str]


class Codes(NamedTuple):
    """What subword-nmt and fastBPE write: merges, the first learned first."""

    merges: list[Pair]
    end_apart: bool  # True: the end mark is a symbol of its own, as in subword-nmt's version 0.1


def parse_codes(lines: Iterable[str], name: str) -> Codes:
    """Read a file of merges: `left right`, or with fastBPE's count, `left right 1234`.

    subword-nmt's first line gives its version; without one it is 0.1, while fastBPE's merges, which
    have counts, are of version 0.2. name: the name of the file in errors. Raises InputError for
    anything else.
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
        self._pairs = codes.merges
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
        """Return pieces as `cut` does, but pass over each possible merge with probability `rate`.

        BPE-dropout (Provilkov et al. 2020): the merges to pass over are drawn anew at each step,
        and a word in which none is left ends as it is. draw: gives numbers in [0, 1).
        """
        symbols = self._symbols(word) if word[1:] else [word]
        while len(symbols) > 1:
            ranks = self._learned(symbols)
            kept = [rank if rank == _NEVER or draw() >= rate else _NEVER for rank in ranks]
            lowest = min(kept)
            if lowest == _NEVER:
                break
            symbols = _merged(symbols, kept, lowest)
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


def _merged(symbols: list[str], ranks: list[int], rank: int) -> list[str]:
    """Merge the pairs of this rank from left to right; of two that overlap the first is merged."""
    result, start = [], 0
    for i, found in enumerate(ranks):
        if found == rank and i >= start:
            result += symbols[start:i]
            result.append(symbols[i] + symbols[i + 1])
            start = i + 2
    return result + symbols[start:]


def uniform(random: np.random.Generator) -> Callable[[], float]:
    """Return a function that gives the next number in [0, 1) of the generator, quickly."""

    def numbers() -> Iterator[float]:
        while True:
            yield from random.random(4096).tolist()

    return numbers().__next__
