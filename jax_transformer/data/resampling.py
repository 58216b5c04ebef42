"""Training text that is cut into pieces anew, at random, in each epoch.

BPE-dropout (Provilkov et al. 2020) and the sampling of unigram pieces (Kudo 2018) show a model many
segmentations of the same text. Differs: the paper has one.

An epoch is cut in parts of equal size, in memory, while the part before is trained on. Each part is
a pure function of the stored tokens, the rate, the seed and its number.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from itertools import chain
from typing import NamedTuple

import numpy as np
from jaxtyping import Integer

from jax_transformer.data.text import SIDES
from jax_transformer.data.token_store import (
    Lengths,
    TokenStore,
    pair_lengths,
    places_in_stores,
    sequences,
)
from jax_transformer.data.vocabularies.base import Vocabulary

PART = 1 << 17  # the maximum number of pairs in a part
_SOME = 4096  # pairs whose growth stands for that of all
_CUTS = 32  # the maximum number of different cuts of a word in a part
# Keep these draws apart, and from those of `plan_epoch`, except some of its seeds 2 and 3.
_MEMBERS, _CUT = 2, 3


class _Runs(NamedTuple):
    """Runs of tokens."""

    starts: Integer[np.ndarray, " runs"]
    sizes: Integer[np.ndarray, " runs"]


class Resampler:
    """A maker of the parts of every epoch out of stores of one segmentation."""

    def __init__(
        self,
        stores: Sequence[TokenStore],
        members: Callable[[int], Integer[np.ndarray, " some"]],
        vocabularies: tuple[Vocabulary, Vocabulary],
        rate: float,
        seed: int,
    ) -> None:
        """Keep what the parts are made of.

        members: a map from an epoch to its pairs, the same number in every epoch; pairs are
        numbered on over the stores. rate: that of the vocabularies' `sample_words`.
        """
        self._stores, self._members = stores, members
        self._vocabularies, self._rate, self._seed = vocabularies, rate, seed
        self.parts = -(-len(members(0)) // PART)  # of an epoch
        self._epoch: tuple[int, Integer[np.ndarray, " some"]] | None = None

    @cached_property
    def lengths(self) -> tuple[Lengths, Lengths]:
        """The expected lengths of source and target: those of the stores times some pairs' growth.

        Batch shapes that hold all of them hold every part: a longer sequence stays as stored.
        """
        count = sum(map(len, self._stores))
        starts = np.linspace(0, max(count - _SOME // 8, 0), 8).astype(int)
        some = np.unique(np.add.outer(starts, np.arange(min(_SOME // 8, count))))
        longest = self._stores[0].description["max_length"]  # the same for all

        def grown(place: int, lengths: Lengths) -> np.ndarray:
            growth = self._cut(place, some, longest, 0)[0].sum() / lengths[some].sum()
            return np.minimum(np.rint(lengths * max(growth, 1)), longest).astype(np.int32)

        source, target = pair_lengths(self._stores)
        return grown(0, source), grown(1, target)

    def describe(self) -> str:
        """Return how often text is cut and how much it grows, as text."""
        source, target = (
            cut.sum() / stored.sum()
            for cut, stored in zip(self.lengths, pair_lengths(self._stores), strict=True)
        )
        parts = "as a whole" if self.parts == 1 else f"in {self.parts:,} parts"
        return f"{parts} in each epoch, into about {source:.2f} + {target:.2f} times as many tokens"

    def part(self, number: int) -> list[TokenStore]:
        """Return the pairs of a part, cut anew, in a store for each of the stores.

        number: counted on over epochs, whose parts have each of their pairs once.
        """
        epoch, part = divmod(number, self.parts)
        pairs = np.sort(np.array_split(self._shuffled(epoch), self.parts)[part])
        limits = self._limits
        with ThreadPoolExecutor(2) as threads:
            cut = [*threads.map(lambda i: self._cut(i, pairs, limits[i], number), range(2))]
        tokens = {side: found for side, (_, found) in zip(SIDES, cut, strict=True)}
        ends = {
            side: np.append(0, sizes).cumsum() for side, (sizes, _) in zip(SIDES, cut, strict=True)
        }
        stores, first = list[TokenStore](), 0
        for _, store, own in places_in_stores(self._stores, pairs):
            last = first + len(own)
            offsets = {side: ends[side][first : last + 1] for side in SIDES}
            stores.append(TokenStore(tokens, offsets, store.lines[own], store.description))
            first = last
        return stores

    def _shuffled(self, epoch: int) -> Integer[np.ndarray, " some"]:
        """Return the pairs of an epoch in the order of its parts, made once for all of them."""
        if self._epoch is None or self._epoch[0] != epoch:
            self._epoch = None  # frees it before the next one is made
            pairs = self._members(epoch).copy()
            if self.parts > 1:
                np.random.default_rng((_MEMBERS, self._seed, epoch)).shuffle(pairs)
            self._epoch = epoch, pairs
        return self._epoch[1]

    @cached_property
    def _limits(self) -> list[int]:
        return [int(lengths.max()) for lengths in self.lengths]

    def _cut(
        self, place: int, pairs: Integer[np.ndarray, " P"], limit: int, number: int
    ) -> tuple[Integer[np.ndarray, " P"], Integer[np.ndarray, " tokens"]]:
        """Return the new sizes and tokens of a side; a sequence over the limit stays as stored.

        Occurrences of a word take turns with up to _CUTS cuts of it.
        """
        random = np.random.default_rng((_CUT, self._seed, number, place))
        vocabulary = self._vocabularies[place]
        sizes, tokens = sequences(self._stores, SIDES[place], pairs)
        words, of_pairs = _words(vocabulary, sizes, tokens)
        _, examples, kinds, counts = np.unique(
            _hashes(words, tokens), return_index=True, return_inverse=True, return_counts=True
        )
        different = [
            tokens[start : start + size].tolist()
            for start, size in zip(words.starts[examples], words.sizes[examples], strict=True)
        ]
        times = np.minimum(counts, _CUTS)
        cuts = vocabulary.sample_words(different, times.tolist(), self._rate, random)
        cut_sizes = np.fromiter(map(len, cuts), np.int64, len(cuts))
        pool = np.fromiter(chain.from_iterable(cuts), tokens.dtype, cut_sizes.sum())
        turns = np.empty_like(kinds)
        turns[np.argsort(kinds, kind="stable")] = np.arange(len(kinds)) - np.repeat(
            np.cumsum(counts) - counts, counts
        )
        taken = (np.cumsum(times) - times)[kinds] + turns % times[kinds]
        new = _Runs((np.cumsum(cut_sizes) - cut_sizes)[taken], cut_sizes[taken])
        stay = (np.bincount(of_pairs, new.sizes, len(pairs)) > limit)[of_pairs]
        starts = np.where(stay, len(pool) + words.starts, new.starts)
        runs = _Runs(starts, np.where(stay, words.sizes, new.sizes))
        chosen = np.repeat(runs.starts - np.cumsum(runs.sizes) + runs.sizes, runs.sizes)
        chosen += np.arange(len(chosen))
        new_sizes = np.bincount(of_pairs, runs.sizes, len(pairs)).astype(np.int64)
        return new_sizes, np.concatenate([pool, tokens])[chosen]


def _words(
    vocabulary: Vocabulary,
    sizes: Integer[np.ndarray, " P"],
    tokens: Integer[np.ndarray, " tokens"],
) -> tuple[_Runs, Integer[np.ndarray, " words"]]:
    """Return where the words of the sequences are, and the sequence that each is of."""
    begins = vocabulary.word_begins(tokens)
    firsts = np.cumsum(sizes) - sizes
    begins[firsts] = True
    starts = np.flatnonzero(begins)
    of_sequences = np.repeat(np.arange(len(sizes)), np.add.reduceat(begins, firsts, dtype=np.int64))
    return _Runs(starts, np.diff(np.append(starts, len(tokens)))), of_sequences


def _hashes(words: _Runs, tokens: Integer[np.ndarray, " tokens"]) -> Integer[np.ndarray, " words"]:
    """Return a number of 64 bits for each word, equal for equal words."""
    within = np.arange(len(tokens)) - np.repeat(words.starts, words.sizes)
    random = np.random.default_rng(0)
    of_tokens = random.integers(1 << 63, size=int(tokens.max()) + 1, dtype=np.uint64)
    of_places = random.integers(1 << 63, size=int(words.sizes.max()), dtype=np.uint64) * 2 + 1
    return np.add.reduceat(of_tokens[tokens] * of_places[within], words.starts)
