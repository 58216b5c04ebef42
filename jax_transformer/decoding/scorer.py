"""Pairs of lines in, log-probabilities of the targets out, in length buckets over all devices."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from jax_transformer.data.vocabulary import Vocabulary
from jax_transformer.decoding.generate import log_probabilities
from jax_transformer.models.transformer import Transformer
from jax_transformer.parallel import Devices

# What batches are padded to, EOS included. Padding costs on both sides, so there are more
# lengths than the search has.
LENGTHS = (8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)

Ids = list[int]


@dataclass(frozen=True)
class PairScore:
    """log P(target | source) in nats, and the tokens of the target that it is of, EOS included."""

    log_prob: float
    tokens: int

    @property
    def per_token(self) -> float:
        """Nats per token."""
        return self.log_prob / self.tokens


class Scorer:
    """A trained model with its vocabulary, ready to say how likely given translations are."""

    def __init__(
        self,
        model: Transformer,
        params: Any,
        vocabulary: Vocabulary,
        *,
        max_source: int,
        max_target: int,
        batch_tokens: int,
        devices: Devices | None = None,
    ) -> None:
        """Most tokens of each side, EOS included, and of a side of a batch, PAD included."""
        self.vocabulary, self.batch_tokens = vocabulary, batch_tokens
        self.max_source, self.max_target = max_source, max_target
        self.devices = devices or Devices()
        self.params = self.devices.replicate(params)
        longest = max(max_source, max_target)
        self.lengths = [length for length in LENGTHS if length < longest] + [longest]

        bos_id = vocabulary.bos_id

        def total(params: Any, pair: tuple[Any, Any]) -> Any:
            source, target = pair
            log_probs = log_probabilities(model, params, source, target, bos_id=bos_id)
            return log_probs.sum(axis=1)

        self._total = self.devices.map_rows(total)

    def stream(
        self, pairs: Iterable[tuple[str, str]], window: int, warn: Callable[[str], None]
    ) -> Iterator[PairScore | None]:
        """The score of each pair, in order; `window` pairs are held at a time."""
        remaining, first = iter(pairs), 1
        while held := list(islice(remaining, window)):
            yield from self.score_pairs(held, warn, first)
            first += len(held)

    def score_pairs(
        self, pairs: Sequence[tuple[str, str]], warn: Callable[[str], None], first: int = 1
    ) -> list[PairScore | None]:
        """The score of each pair; none where a side is blank or the target too long.

        A source that is too long is cut, as translating cuts it. `warn` is told the
        number of either, counted from `first`.
        """
        encoded = self._encode(pairs, warn, first)
        results: list[PairScore | None] = [None] * len(pairs)
        for rows, totals in self._total.over(self.params, self._batches(encoded)):
            for i, row in enumerate(rows):
                results[row] = PairScore(float(totals[i]), len(encoded[row][1]))
        return results

    def _encode(
        self, pairs: Sequence[tuple[str, str]], warn: Callable[[str], None], first: int
    ) -> dict[int, tuple[Ids, Ids]]:
        """Position -> token ids of both sides with EOS, of the pairs that can be scored."""
        sources = self.vocabulary.encode_batch([source for source, _ in pairs])
        targets = self.vocabulary.encode_batch([target for _, target in pairs])
        kept = {}
        for i, (source, target) in enumerate(zip(sources, targets, strict=True)):
            for side, tokens, most, done in (
                ("source", source, self.max_source - 1, "used the first of them only"),
                ("target", target, self.max_target - 1, "gave it no score"),
            ):
                if len(tokens) > most:
                    warn(
                        f"{side}, line {first + i}: expected at most {most:,} tokens, found "
                        f"{len(tokens):,}; {done}"
                    )
            if source and target and len(target) < self.max_target:
                eos = self.vocabulary.eos_id
                kept[i] = ([*source[: self.max_source - 1], eos], [*target, eos])
        return kept

    def _batches(
        self, encoded: dict[int, tuple[Ids, Ids]]
    ) -> Iterator[tuple[Ids, tuple[np.ndarray, np.ndarray]]]:
        """(positions, padded sides) of pairs whose longer sides are of like length."""
        by_length: dict[int, Ids] = {}
        longer = {i: max(map(len, pair)) for i, pair in encoded.items()}
        for i in sorted(encoded, key=lambda i: longer[i], reverse=True):
            length = next(length for length in self.lengths if length >= longer[i])
            by_length.setdefault(length, []).append(i)
        for length, members in by_length.items():
            full = max(self.batch_tokens // length, 1)
            for start in range(0, len(members), full):
                rows = members[start : start + full]
                shape = (self._rows(len(rows), full), length)
                batch = tuple(np.full(shape, self.vocabulary.pad_id, np.int32) for _ in range(2))
                for row, i in enumerate(rows):
                    for side, tokens in zip(batch, encoded[i], strict=True):
                        side[row, : len(tokens)] = tokens
                yield rows, (batch[0], batch[1])

    def _rows(self, count: int, full: int) -> int:
        """Full, or a quarter of it, or a sixteenth ...: few shapes, each a multiple of devices."""
        while full // 4 >= count:
            full //= 4
        return -(-full // self.devices.count) * self.devices.count
