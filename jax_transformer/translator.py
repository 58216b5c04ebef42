"""Lines of text in, translations out, in length buckets over all devices (§6.1)."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from jax_transformer.config import DecodingConfig
from jax_transformer.devices import Devices
from jax_transformer.errors import InputError
from jax_transformer.model import Transformer
from jax_transformer.search import Hypotheses
from jax_transformer.translation import translate
from jax_transformer.vocabulary import Vocabulary

# Source lengths that batches are padded to, EOS included: few, so that few are compiled.
LENGTHS = (8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)


@dataclass(frozen=True)
class Translation:
    """One hypothesis: text, log P over the length penalty, log P in nats, tokens with EOS."""

    text: str
    score: float
    log_prob: float
    tokens: int
    constrained: bool = False  # a parse that the search would not have found without the grammar


class Translator:
    """A trained model with its vocabulary, ready to translate on all devices.

    room: most outputs are shorter than so many times their source.
    """

    room = 1.5

    def __init__(
        self,
        model: Transformer,
        params: Any,
        vocabulary: Vocabulary,
        decoding: DecodingConfig,
        *,
        max_length: int,
        devices: Devices | None = None,
        n_best: int = 1,
    ) -> None:
        """max_length: most source tokens, EOS included; what is longer is cut."""
        self.vocabulary, self.decoding, self.n_best = vocabulary, decoding, n_best
        self.devices = devices or Devices()
        self.params = self.devices.replicate(params)
        self.lengths = [length for length in LENGTHS if length < max_length] + [max_length]
        self._searches = [
            self.devices.map_rows(self._searching(model, room)) for room in (self.room, None)
        ]

    def set_params(self, params: Any) -> None:
        """Other parameters of the same model, with what is compiled kept."""
        self.params = self.devices.replicate(params)

    def stream(
        self, lines: Iterable[str], window: int, warn: Callable[[str], None]
    ) -> Iterator[list[Translation]]:
        """The translations of each line, in order; `window` lines are held at a time."""
        remaining, first = iter(lines), 1
        while held := list(islice(remaining, window)):
            yield from self.translate_lines(held, warn, first)
            first += len(held)

    def translate_lines(
        self, lines: Sequence[str], warn: Callable[[str], None], first: int = 1
    ) -> list[list[Translation]]:
        """The `n_best` translations of each line, best first; none for a blank line.

        A line that is too long is cut, and `warn` is told its number, counted from `first`.
        Raises InputError where the model's scores are not finite.
        """
        results: list[list[Translation]] = [[] for _ in lines]
        for row, hypotheses in self._search(self._encoded(lines, warn, first), first):
            results[row] = self._translations(hypotheses)
        return results

    def _search(self, encoded: Sequence[list[int]], first: int) -> Iterator[tuple[int, Hypotheses]]:
        """(line index, its hypotheses that there are) of each line that is not blank.

        First with room for outputs of the usual length; what is not settled so, again with
        all the room. Then long outputs cost no time where they are not, and are the same.
        """
        waiting = list(encoded)
        for search in self._searches:
            again = [[] for _ in waiting]
            for rows, source in self._batches(waiting):
                found = search(self.params, source)
                for i, row in enumerate(rows):
                    there = np.isfinite(found.scores[i])
                    if there.any():
                        yield row, Hypotheses(*(leaf[i][there] for leaf in found))
                    else:
                        again[row] = waiting[row]
            waiting = again
        for row, tokens in enumerate(waiting):
            if tokens:
                raise self._nothing(first + row)

    def _searching(self, model: Transformer, room: float | None) -> Callable[[Any, Any], Any]:
        """The pure function of (params, source) that is compiled.

        room: for outputs of so many times the source's length; None for all there may be.
        """
        ids: dict[str, Any] = {"bos_id": self.vocabulary.bos_id, "eos_id": self.vocabulary.eos_id}

        def search(params: Any, source: Any) -> Hypotheses:
            some = self._room(source.shape[1], room)
            return translate(
                model, params, source, self.decoding, n_best=self.n_best, room=some, **ids
            )

        return search

    def _room(self, length: int, times: float | None) -> int | None:
        """Positions for outputs of sources of so many tokens; None where that is nearly all."""
        if times is None or 1.5 * times * length >= length + self.decoding.max_extra_length:
            return None
        return math.ceil(times * length)

    def _nothing(self, line: int) -> InputError:
        return InputError(
            f"line {line}: expected an output, found none: the model's scores are not numbers; "
            "take another checkpoint, or train anew with a smaller training.learning_rate_scale"
        )

    def _encoded(
        self, lines: Sequence[str], warn: Callable[[str], None], first: int
    ) -> list[list[int]]:
        """Tokens of each line, without those that are too many; a blank line has none."""
        encoded = self.vocabulary.encode_batch(list(lines))
        most = self.lengths[-1] - 1
        for number, tokens in enumerate(encoded, first):
            if len(tokens) > most:
                warn(
                    f"line {number}: expected at most {most:,} tokens, found {len(tokens):,}; "
                    "translated the first of them only"
                )
                del tokens[most:]
        return encoded

    def _batches(self, encoded: list[list[int]]) -> Iterator[tuple[list[int], np.ndarray]]:
        """(line indices, padded source) of like lengths, longest first; blank lines left out."""
        by_length: dict[int, list[int]] = {}
        order = sorted(range(len(encoded)), key=lambda i: len(encoded[i]), reverse=True)
        for i in order:
            if encoded[i]:
                length = next(n for n in self.lengths if n > len(encoded[i]))
                by_length.setdefault(length, []).append(i)
        for length, members in by_length.items():
            full = max(self.decoding.batch_tokens // length, 1)
            for start in range(0, len(members), full):
                rows = members[start : start + full]
                source = np.full((self._rows(len(rows), full), length), self._pad, np.int32)
                for row, i in enumerate(rows):
                    source[row, : len(encoded[i]) + 1] = [*encoded[i], self.vocabulary.eos_id]
                yield rows, source

    def _rows(self, count: int, full: int) -> int:
        """Rows of a batch of `count` sentences: full, or a quarter of it, or a sixteenth ...

        So a single line costs no full batch, and the shapes to compile stay few. A multiple
        of the devices.
        """
        while full // 4 >= count:
            full //= 4
        return -(-full // self.devices.count) * self.devices.count

    @property
    def _pad(self) -> int:
        return self.vocabulary.pad_id

    def _translations(self, found: Hypotheses) -> list[Translation]:
        """Of one line: [n_best, T] tokens, [n_best] scores and log P."""
        tokens = np.asarray(found.tokens)
        texts = self.vocabulary.decode_batch(tokens.tolist())
        lengths = ((tokens == self.vocabulary.eos_id).argmax(axis=1) + 1).tolist()
        return [
            Translation(text, float(score), float(log_prob), length)
            for text, score, log_prob, length in zip(
                texts, found.scores, found.log_probs, lengths, strict=True
            )
        ]
