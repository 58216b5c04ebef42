"""The cutting of words at random: BPE-dropout (Provilkov et al. 2020), unigrams (Kudo 2018).

sentencepiece samples too, but its seed gives other numbers in each process: no run could go on
with the cuts that it began with.
"""

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate, islice, pairwise

import numpy as np
from jaxtyping import Int32, Integer

_NEVER = np.int32(2**31 - 1)  # the rank of a pair that is not merged
_WORDS = 512  # different ones, which are cut together

Ends = list[tuple[list[int], list[float]]]


class BytePairCuts:
    """Words as characters that are merged, the pair that makes the best piece of a word first.

    At each step each pair is passed over with probability `rate`; a word without any is done.
    """

    def __init__(self, ids: Mapping[str, int]) -> None:
        """Find all pairs that make a piece. ids: the id of each piece, the best piece first."""
        self.ids = ids
        self._size = max(ids.values()) + 1
        self._by_rank = np.array([*ids.values()], np.int32)
        ranks = {
            ids[piece[:cut]] * self._size + ids[piece[cut:]]: rank
            for rank, piece in enumerate(ids)
            for cut in range(1, len(piece))
            if piece[:cut] in ids and piece[cut:] in ids
        }
        ranks = ranks or {-1: -1}  # of characters alone; no pair has this key
        self._keys = np.array(sorted(ranks), np.int64)
        self._ranks = np.array([ranks[key] for key in self._keys.tolist()], np.int32)

    def cut(
        self, words: Sequence[str], times: Sequence[int], rate: float, random: np.random.Generator
    ) -> list[list[list[int]]]:
        """Return times[i] cuts of words[i], as ids. Each of their characters is a piece."""
        result = [list[list[int]]()] * len(words)
        order = sorted(range(len(words)), key=lambda number: len(words[number]))
        for start in range(0, len(order), _WORDS):
            block = order[start : start + _WORDS]
            symbols = np.full((len(block), max(len(words[block[-1]]), 2)), -1, np.int32)
            for row, number in enumerate(block):
                word = words[number]
                symbols[row, : len(word)] = [self.ids[character] for character in word]
            repeated = np.repeat(symbols, [times[number] for number in block], axis=0)
            merged = self._merged(repeated, rate, random)
            ids, ends = merged[merged >= 0].tolist(), (merged >= 0).sum(axis=1).cumsum().tolist()
            cuts = (ids[first:end] for first, end in pairwise([0, *ends]))
            for number in block:
                result[number] = list(islice(cuts, times[number]))
        return result

    def _merged(
        self, symbols: Int32[np.ndarray, "N L"], rate: float, random: np.random.Generator
    ) -> Int32[np.ndarray, "N L"]:
        """Merge pairs in each row, which ends with -1s."""
        ended, rows = symbols.copy(), np.arange(len(symbols))
        ranks = self._find(symbols[:, :-1], symbols[:, 1:])
        while len(rows):
            passed = random.random(ranks.shape, np.float32) < rate
            offered = np.where(passed, _NEVER, ranks)
            place = offered.argmin(axis=1)
            rank = offered[np.arange(len(rows)), place]
            goes_on = rank < _NEVER
            ended[rows[~goes_on]] = symbols[~goes_on]
            rows, symbols, ranks = rows[goes_on], symbols[goes_on], ranks[goes_on]
            place, rank, each = place[goes_on], rank[goes_on], np.arange(len(rows))
            symbols[each, place] = self._by_rank[rank]
            symbols = _without(symbols, place + 1, -1)
            ranks = _without(ranks, place, _NEVER)
            for other in (place - 1, place):
                each = np.flatnonzero((other >= 0) & (other < ranks.shape[1]))
                at = other[each]
                ranks[each, at] = self._find(symbols[each, at], symbols[each, at + 1])
        return ended

    def _find(
        self, left: Int32[np.ndarray, "*n"], right: Int32[np.ndarray, "*n"]
    ) -> Int32[np.ndarray, "*n"]:
        """Return the rank of the piece that two pieces make, or _NEVER."""
        keys = left.astype(np.int64) * self._size + right
        places = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        known = (self._keys[places] == keys) & (left >= 0) & (right >= 0)
        return np.where(known, self._ranks[places], _NEVER)


def _without(
    array: Int32[np.ndarray, "N L"], places: Integer[np.ndarray, " N"], fill: int | np.int32
) -> Int32[np.ndarray, "N L"]:
    """Take one place out of each row, which `fill` then ends."""
    columns = np.arange(array.shape[1])
    wanted = columns + (columns >= places[:, None])
    return np.take_along_axis(np.pad(array, ((0, 0), (0, 1)), constant_values=fill), wanted, 1)


class UnigramCuts:
    """Words as pieces that are drawn independently of each other."""

    def __init__(self, ids: Mapping[str, int], scores: Mapping[str, float]) -> None:
        """Keep the id and the log probability of each piece."""
        self.ids, self._scores = ids, scores
        self._longest = max(map(len, ids))

    def cut(
        self, words: Sequence[str], times: Sequence[int], alpha: float, random: np.random.Generator
    ) -> list[list[list[int]]]:
        """Return times[i] cuts of words[i], as ids, each with a weight of P(pieces)^alpha."""
        result = list[list[list[int]]]()
        for word, number in zip(words, times, strict=True):
            ends = self._ends(word, alpha)
            result.append([self._cut_one(word, ends, random) for _ in range(number)])
        return result

    def _cut_one(self, word: str, ends: Ends, random: np.random.Generator) -> list[int]:
        end, ids = len(word), list[int]()
        while end:
            starts, weights = ends[end]
            chosen = bisect_right(weights, random.random() * weights[-1])
            start = starts[min(chosen, len(starts) - 1)]
            ids.append(self.ids[word[start:end]])
            end = start
        return ids[::-1]

    def _ends(self, word: str, alpha: float) -> Ends:
        """Return where the pieces that end at each place may start, with cumulative weights.

        A weight is that of all ways to cut what comes before, times the piece's own.
        """
        logs, ends = [0.0], Ends([([], [])])
        for end in range(1, len(word) + 1):
            first = max(end - self._longest, 0)
            starts = [start for start in range(first, end) if word[start:end] in self.ids]
            found = [logs[start] + alpha * self._scores[word[start:end]] for start in starts]
            highest = max(found)
            weights = list(accumulate(math.exp(each - highest) for each in found))
            logs.append(highest + math.log(weights[-1]))
            ends.append((starts, weights))
        return ends
