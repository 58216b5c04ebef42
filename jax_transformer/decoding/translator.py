"""Lines of text in, translations out, in length buckets over all devices (§6.1)."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice, pairwise
from typing import Any

import numpy as np

from jax_transformer.config import DecodingConfig
from jax_transformer.data.vocabulary import Vocabulary
from jax_transformer.decoding.beam_search import Hypotheses
from jax_transformer.decoding.generate import translate
from jax_transformer.errors import InputError
from jax_transformer.models.transformer import Transformer
from jax_transformer.parallel import Devices

# Source lengths that batches are padded to, EOS included: few, so that few are compiled. Padding
# costs the encoder alone, for a step of the search takes about as long whatever the source.
LENGTHS = (24, 48, 96, 192, 384, 768, 1024)


@dataclass(frozen=True)
class Translation:
    """One hypothesis: text, log P over the length penalty, log P in nats, tokens with EOS.

    score and log_prob are nan where a greedy translator was not asked for them.
    """

    text: str
    score: float
    log_prob: float
    tokens: int
    constrained: bool = False  # a parse that the search would not have found without the grammar


class Translator:
    """A trained model with its vocabulary, ready to translate on all devices."""

    usual = 1.0  # see `translation.translate`

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
        scores: bool = True,
    ) -> None:
        """max_length: most source tokens, EOS included; what is longer is cut.

        scores: False makes greedy search faster, and leaves them out; a wider beam has them anyway.
        """
        self.vocabulary, self.decoding, self.n_best = vocabulary, decoding, n_best
        self.scores = scores or decoding.beam_size > 1
        self.devices = devices or Devices()
        self.params = self.devices.replicate(params)
        self.lengths = [length for length in LENGTHS if length < max_length] + [max_length]
        self._searched = self.devices.map_rows(self._searching(model))

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
        """(line index, its hypotheses that there are) of each line that is not blank."""
        failed: list[int] = []
        for rows, found in self._searched.over(self.params, self._batches(encoded)):
            for i, row in enumerate(rows):
                there = np.isfinite(found.scores[i])
                if there.any():
                    yield row, Hypotheses(*(leaf[i][there] for leaf in found))
                else:
                    failed.append(row)
        if failed:
            raise self._nothing(first + min(failed))

    def _searching(self, model: Transformer) -> Callable[[Any, Any], Any]:
        """The pure function of (params, source) that is compiled."""
        ids: dict[str, Any] = {"bos_id": self.vocabulary.bos_id, "eos_id": self.vocabulary.eos_id}

        # Without `self` in it, so that it can be told what it is made of.
        return partial(
            translate,
            model,
            decoding=self.decoding,
            n_best=self.n_best,
            usual=self.usual,
            scores=self.scores,
            **ids,
        )

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

    def _batches(self, encoded: Sequence[list[int]]) -> Iterator[tuple[list[int], np.ndarray]]:
        """(line indices, padded source) of like lengths, longest first; blank lines left out."""
        for length, rows in reversed(list(self._members(encoded))):
            source = np.full((self._rows(len(rows), length), length), self._pad, np.int32)
            for row, i in enumerate(rows):
                source[row, : len(encoded[i]) + 1] = [*encoded[i], self.vocabulary.eos_id]
            yield rows, source

    def _members(self, encoded: Sequence[list[int]]) -> Iterator[tuple[int, list[int]]]:
        """(length, line indices) of each batch, shortest first.

        What fills no batch of its own length goes with longer ones, at most twice as long: nearly
        all batches are full then, and of few shapes.
        """
        by_length: dict[int, list[int]] = {}
        for i in sorted(range(len(encoded)), key=lambda i: len(encoded[i])):
            if encoded[i]:
                by_length.setdefault(self._length(encoded[i]), []).append(i)
        left: list[int] = []
        for length, following in pairwise([*by_length, math.inf]):
            members, full = left + by_length[int(length)], self._full(int(length))
            whole = len(members) // full * full
            if members[whole:] and following > 2 * self._length(encoded[members[whole]]):
                whole = len(members)
            left = members[whole:]
            for start in range(0, whole, full):
                yield int(length), members[start : min(start + full, whole)]

    def _length(self, tokens: Sequence[int]) -> int:
        """What a source of these tokens is padded to, EOS included."""
        return next(length for length in self.lengths if length > len(tokens))

    def _full(self, length: int) -> int:
        """Rows of a full batch: a multiple of 16, so that cores and products share them evenly."""
        full = max(self.decoding.batch_tokens // length, 1)
        return full - full % 16 if full >= 16 else full

    def _rows(self, count: int, length: int) -> int:
        """Rows of a batch of `count` sentences: full, or a quarter of it, or a sixteenth ...

        So a single line costs no full batch, and the shapes to compile stay few. A multiple
        of the devices.
        """
        full = self._full(length)
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
        values = zip(found.scores, found.log_probs, strict=True)
        if not self.scores:
            values = [(math.nan, math.nan)] * len(texts)
        return [
            Translation(text, float(score), float(log_prob), length)
            for text, (score, log_prob), length in zip(texts, values, lengths, strict=True)
        ]
