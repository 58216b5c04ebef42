"""§6.1 Translation of lines of text, and log P of given translations, over all devices."""

import copy
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, lru_cache, partial
from itertools import islice, zip_longest
from typing import Any, NamedTuple, TypeVar
from unicodedata import normalize

import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from jax_transformer.config import DecodingConfig
from jax_transformer.data.scripts import ends_in_word
from jax_transformer.data.text import readable
from jax_transformer.data.vocabulary import Vocabulary
from jax_transformer.decoding.beam_search import Hypotheses
from jax_transformer.decoding.generate import Ensemble, log_probabilities, translate
from jax_transformer.decoding.masks import Phrases
from jax_transformer.decoding.options import (
    LENGTHS,
    PLAIN,
    OutputOptions,
    Prefix,
    Rows,
    padded_length,
    rows_of,
    with_options,
)
from jax_transformer.decoding.phrases import phrase_automaton
from jax_transformer.errors import InputError, ItemError
from jax_transformer.models.transformer import Transformer
from jax_transformer.parallel import Devices, check_not_forked
from jax_transformer.types import AnyArray, Params

Item = TypeVar("Item")
Result = TypeVar("Result")

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Translation:
    """One hypothesis: text, log P / length penalty, log P in nats, number of tokens with EOS.

    score: after a prefix, that of what follows it.

    tokens: its token ids, EOS included; of a parse, none.
    token_log_probs: log P of each token in nats, if this was asked for.
    """

    text: str
    score: float
    log_prob: float
    num_tokens: int
    tokens: tuple[int, ...] = field(default=(), repr=False)
    token_log_probs: tuple[float, ...] = field(default=(), repr=False)
    # Parsing only: the best output of the ordinary search was not a tree, so all outputs of the
    # line come from the search that the grammar constrains.
    constrained: bool = False


@dataclass(frozen=True)
class PairScore:
    """log P(target | source) in nats, and the number of target tokens, EOS included."""

    log_prob: float
    num_tokens: int

    @property
    def per_token(self) -> float:
        """Nats per token."""
        return self.log_prob / self.num_tokens


class Places(NamedTuple):
    """How messages name rows: `lines[3]` for items of a list, `line 4` for those of a file."""

    name: str  # of the list
    unit: str
    first: int | None  # the number of the first row in its file; None for a list

    def names(self, rows: Sequence[int]) -> str:
        """Return the names of the first ten rows, and the number of the others."""
        more = f" and {len(rows) - 10:,} more" if rows[10:] else ""
        if self.first is None:
            return ", ".join(f"{self.name}[{row}]" for row in rows[:10]) + more
        numbers = ", ".join(str(self.first + row) for row in rows[:10])
        return f"{self.unit}{'s' if rows[1:] else ''} {numbers}{more}"

    def error(self, row: int, text: str) -> InputError:
        """Return an error about one row."""
        if self.first is None:
            return ItemError(self.name, row, text)
        return InputError(f"{self.names([row])}: {text}")

    def not_finite(self, row: int, what: str) -> InputError:
        """Return the error of a row whose scores are not finite."""
        return self.error(
            row,
            f"expected {what}, found none: the model's scores are not finite; use another "
            "checkpoint, or retrain with a smaller training.learning_rate_scale",
        )

    def warn_too_long(self, encoded: Sequence[list[int]], most: int, done: str) -> None:
        """Name the rows that have too many tokens in one warning."""
        long = [row for row, tokens in enumerate(encoded) if len(tokens) > most]
        self.warn(long, f"expected at most {most:,} tokens; {done}")

    def warn(self, rows: Sequence[int], message: str) -> None:
        """Log one warning about some rows, if there are any."""
        if rows:
            logger.warning(f"{self.names(rows)}: {message}")


class Translator:
    """A trained model with its vocabulary, to translate lines and to score pairs of lines.

    Sentences are sorted by length and batched into a few shapes; `stream` and `stream_scores` hold
    one window of them at a time, so memory stays flat however long the input is.

    Every sentence is first searched under a length cap that most outputs meet. The few sentences
    whose search is incomplete then are searched again up to their length limits, so that no batch
    waits for its slowest sentence. Results equal those of a single full-length search.

    advance: a function that is called with the number of lines done since its last call; set it to
    show the progress.
    unit: the word for a line of a file in messages, followed by its number.
    """

    unit = "line"

    usual_ratio = 4 / 3  # output tokens per source token; enough for most searches

    def __init__(
        self,
        model: Transformer | Ensemble,
        params: Params,
        vocabulary: Vocabulary,
        decoding: DecodingConfig,
        *,
        max_length: int,
        devices: Devices | None = None,
        n_best: int = 1,
        target_vocabulary: Vocabulary | None = None,
    ) -> None:
        """Close over the model, or over an ensemble and a list of parameters.

        max_length: the maximum number of source tokens, EOS included.
        target_vocabulary: that of the target, if it is not that of the source.
        """
        self.model = model
        self.target_vocabulary = target_vocabulary or vocabulary
        self.vocabulary, self.decoding, self.n_best = vocabulary, decoding, n_best
        self.max_source = max_length
        self.max_target = max_length + decoding.max_extra_length
        one = model.one if isinstance(model, Ensemble) else model
        self.devices = devices or Devices(dtype=one.config.compute_dtype)
        self._given = params
        bos_id = self.target_vocabulary.bos_id
        ids = {"bos_id": bos_id, "eos_id": self.target_vocabulary.eos_id}
        # Some may have the same text, so of several outputs all of the beam are found.
        found = decoding.beam_size if n_best > 1 else 1
        self.search = partial(translate, model, decoding=decoding, n_best=found, **ids)

        def token_log_probs(
            params: Params, pairs: tuple[Int[AnyArray, "B S"], Int[AnyArray, "B T"]]
        ) -> Float[Array, "B T"]:
            return log_probabilities(model, params, *pairs, bos_id=bos_id)

        def score(
            params: Params, pairs: tuple[Int[AnyArray, "B S"], Int[AnyArray, "B T"]]
        ) -> Float[Array, " B"]:
            return token_log_probs(params, pairs).sum(axis=1)

        self.advance: Callable[[int], None] = lambda lines: None
        self._searches_for = cache(self._make_searches)
        self._phrases_for = lru_cache(maxsize=4)(self._phrases)
        self._score = self.devices.map_rows(score)
        self._token_log_probs = self.devices.map_rows(token_log_probs)

    def _make_searches(self, program: OutputOptions) -> list[Callable[..., Hypotheses]]:
        """Return the searches for these options: under the usual length cap, and without it."""
        settings: dict[str, Any] = {"decoding": self.decoding}
        if count := program.samples:
            settings = {"decoding": replace(self.decoding, beam_size=count), "n_best": count}
        extra, vocabulary = self.decoding.max_extra_length, self.target_vocabulary

        def search(with_phrases: PyTree, rows: Rows, ratio: float) -> Hypotheses:
            params, phrases = with_phrases
            source, prefix = rows.source, rows.prefix
            longest = source.shape[1] + extra
            fixed = 0 if prefix is None else prefix.shape[1] + 1
            length = max(int(min(source.shape[1] * ratio + fixed, longest)), fixed)
            chosen = with_options(program, rows, phrases, vocabulary)
            return self.search(params, source, length=length, search=chosen, **settings)

        ratios = self.usual_ratio, math.inf
        return [self.devices.map_rows(partial(search, ratio=ratio)) for ratio in ratios]

    @cached_property
    def params(self) -> Params:
        """The parameters on the devices: copied at their first use, unless set before it."""
        return self.devices.replicate(self._given)

    def with_params(self, params: Params) -> "Translator":
        """Return a copy with other parameters, which shares the compiled functions.

        params: a tree on the devices, as `devices.replicate` returns it.
        """
        translator = copy.copy(self)
        translator.params = params
        return translator

    def stream(
        self,
        lines: Iterable[str],
        window: int,
        prefixes: Iterable[str] | None = None,
        options: OutputOptions = PLAIN,
    ) -> Iterator[list[Translation]]:
        """Yield the translations of each line, in order; `window` lines are in memory at a time.

        prefixes: for each line, the beginning of its outputs. Raises InputError for another number.
        """
        if prefixes is None:
            function = partial(self.translate_lines, options=options)
            yield from _windows(lines, window, function)
            return

        def translate_pairs(pairs: list[tuple[str, str]], first: int) -> list[list[Translation]]:
            lines, prefixes = zip(*pairs, strict=True)
            return self.translate_lines(lines, first, prefixes, options)

        yield from _windows(_paired(lines, prefixes), window, translate_pairs)

    def translate_lines(
        self,
        lines: Sequence[str],
        first: int | None = 1,
        prefixes: Sequence[str] | None = None,
        options: OutputOptions | Sequence[OutputOptions] = PLAIN,
        numbers: Sequence[int] | None = None,
    ) -> list[list[Translation]]:
        """Return the `n_best` translations of each line, best first; none for a blank line.

        Their texts are distinct, except those of samples, so a small beam may have fewer. Lines of
        more than `max_length` tokens are cut, with a warning in the log.

        first: the number of the first line in its file, for messages; None for a list, whose
          lines messages name as `lines[0]`. Draws count from it, or from 1.
        prefixes: for each line, the beginning of its outputs, perhaps "". Log P counts it.
        options: samples, in the order of their draws in place of translations, and constraints; or
          those of each line, if they have one `program` and forbid the same phrases.
        numbers: for draws, the number of each line; None counts from `first`.
        Raises InputError if the model's scores are not finite, or for a prefix that is too long.
        """
        encoded = self._encoded(lines)
        given = None if prefixes is None else self.encoded_prefixes(prefixes, len(lines), first)
        most = self.max_source - 1
        places = Places("lines", self.unit, first)
        places.warn_too_long(encoded, most, f"translated the first {most:,} only")
        strange = [row for row, tokens in enumerate(encoded) if self._unknown(tokens)]
        places.warn(strange, "expected text that the vocabulary has pieces for, found none")
        each = [options] * len(lines) if isinstance(options, OutputOptions) else options
        results: list[list[Translation]] = [[] for _ in lines]
        encoded = [tokens[:most] for tokens in encoded]
        for row, hypotheses in self._search(encoded, first, given, each, numbers):
            found = self._translations(hypotheses)
            results[row] = found if each[row].samples else _distinct(found)[: self.n_best]
        return results

    def with_token_log_probs(
        self, lines: Sequence[str], found: Sequence[list[Translation]]
    ) -> list[list[Translation]]:
        """Return the translations of each line with log P of each of their tokens."""
        each = [(row, translation) for row, line in enumerate(found) for translation in line]
        sources = [tokens[: self.max_source - 1] for tokens in self._encoded(lines)]
        targets = [list(translation.tokens[:-1]) for _, translation in each]
        batches = self.batches([sources[row] for row, _ in each], targets)
        scored = dict[int, Translation]()
        for rows, log_probs in self.map_batches(self._token_log_probs, batches):
            for i, own in zip(rows, log_probs, strict=False):
                count = each[i][1].num_tokens
                scored[i] = replace(each[i][1], token_log_probs=tuple(own[:count].tolist()))
        numbers = iter(range(len(each)))
        return [[scored[next(numbers)] for _ in line] for line in found]

    def stream_scores(
        self, pairs: Iterable[tuple[str, str]], window: int
    ) -> Iterator[PairScore | None]:
        """Yield the score of each (source, target), in order; `window` are in memory at a time."""
        yield from _windows(pairs, window, self.score_pairs)

    def score_pairs(
        self, pairs: Sequence[tuple[str, str]], first: int | None = 1
    ) -> list[PairScore | None]:
        """Return log P(target | source) of each pair; None if a side is blank or target too long.

        A source that is too long is cut as in translation; a target may have max_length +
        max_extra_length tokens, EOS included. Both are logged.
        first: the number of the first pair in its files, for messages; None for lists.
        Raises InputError if the model's scores are not finite.
        """
        sources = self._encoded([source for source, _ in pairs])
        targets = self._encoded([target for _, target in pairs], self.target_vocabulary)
        most_source, most_target = self.max_source - 1, self.max_target - 1
        used = f"used the first {most_source:,} only"
        Places("sources", "source, line", first).warn_too_long(sources, most_source, used)
        Places("targets", "target, line", first).warn_too_long(
            targets, most_target, "gave no score"
        )
        usable = [
            bool(source) and 0 < len(target) <= most_target
            for source, target in zip(sources, targets, strict=True)
        ]
        sources = [
            source[:most_source] if use else [] for source, use in zip(sources, usable, strict=True)
        ]
        targets = [target if use else [] for target, use in zip(targets, usable, strict=True)]
        results: list[PairScore | None] = [None] * len(pairs)
        failed: list[int] = []
        self.advance(usable.count(False))
        for rows, totals in self.map_batches(self._score, self.batches(sources, targets)):
            self.advance(len(rows))
            for row, total in zip(rows, totals, strict=False):
                results[row] = PairScore(float(total), len(targets[row]) + 1)
                if not np.isfinite(total):
                    failed.append(row)
        if failed:
            raise Places("sources", "line", first).not_finite(min(failed), "a score")
        return results

    def batches(self, *sides: Sequence[list[int]]) -> Iterator[tuple[list[int], PyTree]]:
        """Yield (row numbers, array [B, L]) of each batch, or a tuple of arrays for several sides.

        sides: the token ids of each row without EOS, which is added; empty rows are left out. The
        longest rows come first. Rows of padding fill a batch up to its shape.
        """
        sizes = [max(map(len, row)) for row in zip(*sides, strict=True)]
        longest = max(self.max_source, self.max_target if len(sides) > 1 else 0)
        remaining = sorted((i for i in range(len(sizes)) if sizes[i]), key=lambda i: -sizes[i])
        while remaining:
            length = padded_length(sizes[remaining[0]] + 1, longest)
            full = max(self.decoding.batch_tokens // length, 1)
            rows, remaining = remaining[:full], remaining[full:]
            shape = (self._padded_rows(len(rows), full), length)
            vocabularies = self.vocabulary, self.target_vocabulary
            arrays = tuple(
                self._padded([side[i] for i in rows], shape, vocabulary)
                for side, vocabulary in zip(sides, vocabularies, strict=False)
            )
            yield rows, arrays if len(sides) > 1 else arrays[0]

    def shapes(self) -> list[tuple[int, int]]:
        """Return every shape (rows, length) that a batch of sources may have."""
        found = dict[tuple[int, int], None]()
        for length in {*(n for n in LENGTHS if n < self.max_source), self.max_source}:
            full = max(self.decoding.batch_tokens // length, 1)
            found |= dict.fromkeys((self._padded_rows(n, full), length) for n in range(1, full + 1))
        return sorted(found)

    def compile(self, shape: tuple[int, int]) -> None:
        """Compile the searches without options for batches of a shape, before they are needed."""
        padding = np.full(shape, self.vocabulary.pad_id, np.int32)
        rows = rows_of(padding, [], [], None, self.max_source)
        for search in self._searches_for(PLAIN):  # rows of padding end after one token
            self.devices.gather(search((self.params, None), rows))

    def map_batches(
        self,
        function: Callable[[Params, PyTree], PyTree],
        batches: Iterable[tuple[list[int], PyTree]],
        params: PyTree = None,
    ) -> Iterator[tuple[list[int], PyTree]]:
        """Yield (row numbers, results as NumPy arrays) of each batch; padding rows come last.

        function: a function from `Devices.map_rows`. A batch is dispatched before the results of
        the previous one are read, so that the devices have work while the host handles text.
        params: None for the model's own.
        """
        check_not_forked()
        pending = None
        for rows, batch in batches:
            dispatched = rows, function(self.params if params is None else params, batch)
            if pending:
                yield pending[0], self.devices.gather(pending[1])
            pending = dispatched
        if pending:
            yield pending[0], self.devices.gather(pending[1])

    def _encoded(
        self, lines: Sequence[str], vocabulary: Vocabulary | None = None
    ) -> list[list[int]]:
        """Return the token ids of each line. vocabulary: None for that of the source."""
        return (vocabulary or self.vocabulary).encode_batch(lines)

    def _unknown(self, tokens: list[int]) -> bool:
        """Return whether the pieces of a line are UNK and spaces alone."""
        unk_id, texts = self.vocabulary.unk_id, self.vocabulary.piece_texts
        return unk_id in tokens and all(i == unk_id or texts[i] == " " for i in tokens)

    def encoded_prefixes(
        self, prefixes: Sequence[str], lines: int, first: int | None
    ) -> list[Prefix] | None:
        """Return the tokens of each prefix, or None if all are blank.

        first: as in `translate_lines`. Raises InputError for a number of prefixes other than that
        of the lines, and for one that is too long or has unknown letters.
        """
        encoded = self._encoded(prefixes, self.target_vocabulary)
        if len(encoded) != lines:
            raise InputError(
                f"prefixes: expected one for each of {lines:,} lines, found {len(encoded):,}; "
                'give "" where there is none'
            )
        most, vocabulary = self.max_target - 1, self.target_vocabulary
        for row, tokens in enumerate(encoded):
            text = f"expected at most {most:,} tokens, found {len(tokens):,}; make it shorter"
            if vocabulary.unk_id in tokens:
                letters = dict.fromkeys(normalize("NFC", prefixes[row]))
                unknown = "".join(each for each in letters if not vocabulary.knows(each))
                text = f"expected letters of the vocabulary, found the unknown letters {unknown}"
            elif len(tokens) <= most:
                continue
            raise Places("prefixes", "prefix of line", first).error(row, text)
        ends = map(ends_in_word, vocabulary.decode_batch(encoded))
        both = zip(encoded, ends, strict=True)
        return [Prefix(*each) for each in both] if any(encoded) else None

    def _search(
        self,
        encoded: Sequence[list[int]],
        first: int | None,
        prefixes: Sequence[Prefix] | None = None,
        options: Sequence[OutputOptions] | None = None,
        numbers: Sequence[int] | None = None,
    ) -> Iterator[tuple[int, Hypotheses]]:
        """Yield (row number, hypotheses) of each row that has tokens."""
        self.advance(sum(not tokens for tokens in encoded))
        options = options or [PLAIN] * len(encoded)
        numbers = numbers or range(first or 1, (first or 1) + len(encoded))
        one = options[0] if options else PLAIN
        params = self.params, self._phrases_for(one.without) if one.without else None

        def batches(encoded: Sequence[list[int]]) -> Iterator[tuple[list[int], Rows]]:
            for rows, source in self.batches(encoded):
                own = None if prefixes is None else [prefixes[row] for row in rows]
                each = [options[row] for row in rows], [numbers[row] for row in rows]
                yield rows, rows_of(source, *each, own, self.max_target - 1)

        failed: list[int] = []
        # The last search has no cap below the limits, so it completes all.
        for search in self._searches_for(one.program):
            remaining: list[list[int]] = [[] for _ in encoded]
            for rows, found in self.map_batches(search, batches(encoded), params):
                self.advance(int(found.complete[: len(rows)].sum()))
                for i, row in enumerate(rows):
                    if not found.complete[i]:
                        remaining[row] = encoded[row]
                    elif np.isfinite(found.scores[i]).any():
                        yield row, hypotheses_of(found, i)
                    else:
                        failed.append(row)
            encoded = remaining
        if failed:
            raise Places("lines", self.unit, first).not_finite(min(failed), "an output")

    def _phrases(self, phrases: Sequence[str]) -> Phrases:
        """Return the automaton of phrases on the devices, padded to one of few shapes."""
        vocabulary = self.target_vocabulary
        phrases = [readable(phrase, vocabulary.knows) for phrase in phrases]
        table = phrase_automaton(phrases, vocabulary.piece_texts, vocabulary.eos_id)
        rows = 1 << len(table.next_state).bit_length()
        padded = [np.pad(array, ((0, rows - len(array)), (0, 0))) for array in table]
        return self.devices.replicate(Phrases(*padded))

    def _padded(
        self, rows: Sequence[list[int]], shape: tuple[int, int], vocabulary: Vocabulary
    ) -> np.ndarray:
        """Return an array of rows with EOS, then PAD; `shape` may have more rows than `rows`."""
        padded = np.full(shape, vocabulary.pad_id, np.int32)
        for row, tokens in zip(padded, rows, strict=False):
            row[: len(tokens) + 1] = [*tokens, vocabulary.eos_id]
        return padded

    def _padded_rows(self, count: int, full: int) -> int:
        """Return `full`, a quarter of it, a sixteenth ..., rounded up to a multiple of the devices.

        So a single line does not cost a full batch, and the shapes to compile stay few.
        """
        while full // 4 >= count:
            full //= 4
        return -(-full // self.devices.count) * self.devices.count

    def _translations(self, found: Hypotheses) -> list[Translation]:
        """Return the translations of one line: [n_best, T] tokens, [n_best] scores and log P."""
        tokens = np.asarray(found.tokens)
        texts = self.target_vocabulary.decode_batch(tokens.tolist())
        lengths = ((tokens == self.target_vocabulary.eos_id).argmax(axis=1) + 1).tolist()
        return [
            Translation(text, float(score), float(log_prob), length, tuple(own[:length].tolist()))
            for text, score, log_prob, length, own in zip(
                texts, found.scores, found.log_probs, lengths, tokens, strict=True
            )
        ]


def hypotheses_of(found: Hypotheses, i: int) -> Hypotheses:
    """Return the hypotheses of sentence i, without the axis B; at most n_best, perhaps none."""
    exists = np.isfinite(found.scores[i])
    best = (leaf[i][exists] for leaf in (found.tokens, found.scores, found.log_probs))
    return Hypotheses(*best, complete=found.complete[i])


def _distinct(translations: Sequence[Translation]) -> list[Translation]:
    """Return the best translation with each text, in order."""
    best: dict[str, Translation] = {}
    for each in translations:
        best.setdefault(each.text, each)
    return list(best.values())


def _paired(lines: Iterable[str], prefixes: Iterable[str]) -> Iterator[tuple[str, str]]:
    for number, (line, prefix) in enumerate(zip_longest(lines, prefixes), start=1):
        if line is None or prefix is None:
            missing, other = ("line", "prefix") if line is None else ("prefix", "line")
            raise InputError(
                f"{other} {number:,}: expected a {missing} with it, found no more; give as many "
                "prefixes as lines, blank where there is none"
            )
        yield line, prefix


def _windows(
    items: Iterable[Item], window: int, function: Callable[[list[Item], int], list[Result]]
) -> Iterator[Result]:
    """Yield `function`'s result for each item; reads and passes one window of items at a time."""
    remaining, first = iter(items), 1
    while part := list(islice(remaining, window)):
        yield from function(part, first)
        first += len(part)
