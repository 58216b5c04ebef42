"""§6.1 Searches over lines of text, in batches of few shapes, over all devices."""

import copy
import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, lru_cache, partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, PyTree

from jax_transformer.config import DecodingConfig
from jax_transformer.data.text import readable
from jax_transformer.data.vocabularies.base import Vocabulary
from jax_transformer.decoding.batches import Batches, Prefix, Program, Rows, rows_of, search_of
from jax_transformer.decoding.beam_search import Hypotheses
from jax_transformer.decoding.constraints import CONSTRAINTS, Phrases
from jax_transformer.decoding.ensemble import Ensemble
from jax_transformer.decoding.generate import ModelDecoder, log_probabilities, translate
from jax_transformer.decoding.phrases import phrase_automaton
from jax_transformer.decoding.request import Request
from jax_transformer.decoding.slots import Stream
from jax_transformer.decoding.stream_search import StreamSearch
from jax_transformer.errors import InputError
from jax_transformer.models.transformer import Transformer
from jax_transformer.parallel import Devices, check_not_forked
from jax_transformer.types import AnyArray, Params

PLAIN = Request()

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Translation:
    """One hypothesis: text, log P / length penalty, log P in nats, number of tokens with EOS.

    score: log P / length penalty; after a prefix, that of what follows it; nan if the line was
      split into sentences.
    tokens: the token ids, EOS included; none for a parse.
    token_log_probs: log P of each token in nats, if `token_scores` was given.
    alignment: the word alignment, if `alignments` was given: see `TrainedModel.align`.
    """

    text: str
    score: float
    log_prob: float
    num_tokens: int
    tokens: tuple[int, ...] = field(default=(), repr=False)
    token_log_probs: tuple[float, ...] = field(default=(), repr=False)
    alignment: list[tuple[int, int]] | None = field(default=None, repr=False)
    # Parsing only: the best output of the ordinary search was not a tree, so all outputs of the
    # line come from the search that the grammar constrains.
    constrained: bool = False


def distinct(translations: Sequence[Translation]) -> list[Translation]:
    """Return the first output with each text, in order."""
    best: dict[str, Translation] = {}
    for each in translations:
        best.setdefault(each.text, each)
    return list(best.values())


class Hypothesis(NamedTuple):
    """One output of a search, as in `Hypotheses`; PAD follows its EOS."""

    tokens: list[int]
    score: float
    log_prob: float


class Line(NamedTuple):
    """A line to translate.

    place: its name in messages, such as `lines[3]`. number: its draws depend on it and the seed.
    prefix: the beginning of its outputs, perhaps "".
    """

    text: str
    place: str
    number: int = 1
    prefix: str = ""
    request: Request = PLAIN


@dataclass(frozen=True)
class Sentence:
    """A line as it is searched: its token ids without EOS, and the beginning of its outputs."""

    line: Line
    tokens: list[int]
    prefix: Prefix | None = None


def lines_of(texts: Sequence[str], first: int | None, request: Request = PLAIN) -> list[Line]:
    """Return lines with their places. first: the number of the first in its file; None: a list."""
    named = places("lines", "line", len(texts), first)
    prefixes = [""] * len(texts) if request.prefixes is None else request.prefixes
    if len(prefixes) != len(texts):
        raise InputError(
            f"prefixes: expected one for each of {len(texts):,} lines, found {len(prefixes):,}; "
            'give "" for a line without one'
        )
    each = zip(texts, named, prefixes, strict=True)
    return [
        Line(text, place, number, prefix, request)
        for number, (text, place, prefix) in enumerate(each, start=first or 1)
    ]


def places(name: str, unit: str, count: int, first: int | None) -> list[str]:
    """Return the names of items in messages: `lines[3]` in a list, `line 4` in a file."""
    return [f"{name}[{i}]" if first is None else f"{unit} {first + i}" for i in range(count)]


def warn(named: Sequence[str], message: str) -> None:
    """Log one warning about the places, if there are any."""
    if named:
        more = f" and {len(named) - 10:,} more" if named[10:] else ""
        logger.warning(f"{', '.join(named[:10])}{more}: {message}")


class NotFiniteError(InputError):
    """The model's scores are not finite, whatever the input."""


def not_finite(place: str, what: str, options: Sequence[str] = ()) -> InputError:
    """Return the error for an input of which no output has a finite score.

    options: the names of those that forbid tokens, perhaps all.
    """
    because, remedy = "the model's scores are not finite", "use another checkpoint"
    if options:
        because = f"{' and '.join(options)} may forbid every token, or {because}"
        remedy = f"lift an option, {remedy}"
    kind = InputError if options else NotFiniteError
    return kind(
        f"{place}: expected {what}, found none: {because}; {remedy}, or retrain with a smaller "
        "training.learning_rate_scale"
    )


class LineSearch(ABC):
    """A trained model with its vocabularies, and what it needs to search for outputs of lines.

    Lines are sorted by length and batched into a few shapes. Without constraints, lines whose
    search takes long stay in their slots while the next batch is searched: see `slots`. Every line
    is first searched under a length cap that most outputs meet. The few lines whose search is
    incomplete then are searched again up to their length limits. Results equal those of a single
    full-length search.

    Samples are drawn in batches of no more hypotheses than those of a search, or of one line.

    Five attributes may be set. batches: the shapes of batches. params: the parameters. advance: a
    function that is called with the number of lines done since its last call. sample_counts: the
    numbers of samples to compile searches for; the next larger one is drawn. keeps_words: True for
    lines of a corpus, whose words trees have as they are typed.
    """

    usual_ratio: float  # output tokens per source token; enough for most searches
    sample_counts: Sequence[int] = ()
    keeps_words = False

    def __init__(
        self,
        model: Transformer,
        params: Params,
        vocabulary: Vocabulary,
        decoding: DecodingConfig,
        *,
        max_length: int,
        devices: Devices | None = None,
        target_vocabulary: Vocabulary | None = None,
        ensemble: Ensemble | None = None,
    ) -> None:
        """Close over the model.

        max_length: the maximum number of source tokens, EOS included.
        ensemble: the models that decode together, with a list of parameters; `model` is the first.
        """
        self.model, self.vocabulary, self.decoding = model, vocabulary, decoding
        self.target_vocabulary = target_vocabulary or vocabulary
        self.max_source = max_length
        self.max_target = max_length + decoding.max_extra_length
        self.devices = devices or Devices(dtype=model.config.compute_dtype)
        both, sizes = (vocabulary, self.target_vocabulary), (self.max_source, self.max_target)
        # Padding goes through the encoder, which is about half of the parameters: 2 FLOPs each.
        size = sum(leaf.size for leaf in jax.tree.leaves(params))
        compile_tokens = self.devices.compile_flops / max(size, 1)
        self.batches = Batches(
            both, *sizes, decoding.batch_tokens, self.devices.count, compile_tokens
        )
        self._given = params
        bos_id = self.target_vocabulary.bos_id
        ids = {"bos_id": bos_id, "eos_id": self.target_vocabulary.eos_id}
        self.decoder = ensemble or ModelDecoder(model)
        self.found = partial(translate, model, decoding=decoding, decoder=self.decoder, **ids)
        log_probs = ensemble.log_probabilities if ensemble else partial(log_probabilities, model)

        def token_log_probs(params: Params, pairs: tuple[AnyArray, AnyArray]) -> Array:  # [B, T]
            return log_probs(params, *pairs, bos_id=bos_id)

        self.advance: Callable[[int], object] = lambda lines: None
        self._searches_for = cache(self._make_searches)
        self.streams_for = cache(self._make_streams)
        self.phrases_for = lru_cache(maxsize=2)(self._phrases)
        self.score_of = self.devices.map_rows(
            lambda params, pairs: token_log_probs(params, pairs).sum(axis=1)
        )
        self.token_log_probs_of = self.devices.map_rows(token_log_probs)

    def _make_searches(self, program: Program) -> list[Callable[..., Hypotheses]]:
        """Return the searches of a program: under the usual length cap, and without it."""
        settings: dict[str, Any] = {"n_best": program.n_best}
        if count := program.samples:
            settings = {"decoding": replace(self.decoding, beam_size=count), "n_best": count}
        extra, vocabulary = self.decoding.max_extra_length, self.target_vocabulary

        def search(with_phrases: PyTree, rows: Rows, ratio: float) -> Hypotheses:
            params, phrases = with_phrases
            source, prefix = rows.source, rows.prefix
            longest = source.shape[1] + extra
            fixed = 0 if prefix is None else prefix.shape[1] + 1
            length = max(int(min(source.shape[1] * ratio + 2 + fixed, longest)), fixed)
            chosen = search_of(program, rows, phrases, vocabulary)
            return self.found(params, source, length=length, search=chosen, **settings)

        ratios = self.usual_ratio, math.inf
        return [self.devices.map_rows(partial(search, ratio=ratio)) for ratio in ratios]

    def _make_streams(self, n_best: int) -> list[StreamSearch]:
        """Return the searches without constraints: under the usual length cap, and without it."""
        ids = self.target_vocabulary.bos_id, self.target_vocabulary.eos_id

        def stream(width: int, ratio: float) -> Stream:
            length = int(min(width * ratio + 2, width + self.decoding.max_extra_length))
            return Stream(self.model, self.decoding, *ids, n_best, length, self.decoder)

        ratios = self.usual_ratio, math.inf
        return [StreamSearch(self.devices, partial(stream, ratio=ratio)) for ratio in ratios]

    @cached_property
    def params(self) -> Params:
        """The parameters on the devices: copied at their first use, unless set before it."""
        return self.devices.replicate(self._given)

    def with_params(self, params: Params) -> "LineSearch":
        """Return a copy with other parameters on the devices; it shares the compiled functions."""
        translator = copy.copy(self)
        translator.params = params
        return translator

    def search(self, lines: Sequence[Line]) -> list[list[Translation]]:
        """Return the outputs of each line, best first, and none for a blank line.

        Requests may differ in what is not part of the `program`, but forbid the same phrases.
        Raises InputError if the model's scores are not finite, or for a prefix that does not fit.
        """
        sentences = self.read(lines)
        outputs: list[Sequence[Translation | None]] = [[] for _ in lines]
        for row, best in self.searched(sentences):
            outputs[row] = self.written(sentences[row], best)
        return self.completed(sentences, outputs)

    @abstractmethod
    def read(self, lines: Sequence[Line]) -> list[Sentence]:
        """Return what is searched for each line; a line that is too long is cut, with a warning."""

    @abstractmethod
    def written(
        self, sentence: Sentence, found: Sequence[Hypothesis]
    ) -> Sequence[Translation | None]:
        """Return the outputs of a line from the hypotheses of its search."""

    def completed(
        self, sentences: Sequence[Sentence], outputs: Sequence[Sequence[Translation | None]]
    ) -> list[list[Translation]]:
        """Return the outputs of each line, where `written` has None for one that does not do."""
        return [[each for each in own if each] for own in outputs]

    @abstractmethod
    def program(self, request: Request) -> Program:
        """Return what the search of a request is compiled for."""

    def source_lines(self, sources: Sequence[str]) -> list[str]:
        """Return sources as the source's vocabulary reads them."""
        return [*sources]

    @staticmethod
    def target_lines(references: Sequence[str]) -> list[str]:
        """Return references as the target's vocabulary reads them."""
        return [*references]

    def shown(self, reference: str) -> str:
        """Return a reference as the model would write it."""
        return reference

    def translate_lines(
        self, lines: Sequence[str], first: int | None = 1, request: Request = PLAIN
    ) -> list[list[Translation]]:
        """Return the outputs of each line, best first; none for a blank line: see `search`."""
        return self.search(lines_of(lines, first, request))

    def warm_up(self) -> Iterator[tuple[int, int]]:
        """Compile what `completed` needs; yield each shape that has been compiled."""
        return iter(())

    def map_batches(
        self,
        function: Callable[[Params, PyTree], PyTree],
        batches: Iterable[tuple[list[int], PyTree]],
        params: PyTree = None,
    ) -> Iterator[tuple[list[int], PyTree]]:
        """Yield (row numbers, results as NumPy arrays) of each batch; padding rows come last.

        function: a function from `Devices.map_rows`. A batch is dispatched before the results of
        the previous one are read, so that the devices have work while the host handles text.
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

    def searched(
        self,
        sentences: Sequence[Sentence],
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        """Yield (row number, hypotheses, best first) of each row that has tokens."""
        lines, encoded = [each.line for each in sentences], [each.tokens for each in sentences]
        prefixes = [each.prefix for each in sentences if each.prefix]  # of all, or of none
        self.advance(sum(not tokens for tokens in encoded))
        one = lines[0].request if lines else PLAIN
        phrases = self.phrases_for(one.without) if one.without else None
        program, most = self.program(one), self.decoding.batch_tokens
        if program.samples > (beam_size := self.decoding.beam_size):
            most = max(most * beam_size // program.samples, 1)

        def batches(encoded: Sequence[list[int]]) -> Iterator[tuple[list[int], Rows]]:
            for rows, source in self.batches.of(encoded, tokens=most):
                own = [prefixes[row] for row in rows] if prefixes else None
                requests = [lines[row].request for row in rows]
                numbers = [lines[row].number for row in rows]
                yield rows, rows_of(source, requests, numbers, own, self.max_target - 1)

        constraints = [n for n in CONSTRAINTS if any(getattr(each.request, n) for each in lines)]
        if constraints or program.samples or prefixes:
            params = self.params, phrases
            searches = [
                lambda encoded, search=search: self.map_batches(search, batches(encoded), params)
                for search in self._searches_for(program)
            ]
        else:
            searches = [
                lambda encoded, stream=stream: stream(self.params, self.batches.of(encoded))
                for stream in self.streams_for(program.n_best)
            ]
        failed: list[int] = []
        # The last search has no cap below the limits, so it completes all.
        for search in searches:
            remaining: list[list[int]] = [[] for _ in encoded]
            for rows, found in search(encoded):
                self.advance(int(found.complete[: len(rows)].sum()))
                each = zip(rows, found.complete, hypotheses(found), strict=False)
                for row, complete, best in each:  # rows of padding come last
                    if not complete:
                        remaining[row] = encoded[row]
                    elif best:
                        yield row, best
                    else:
                        failed.append(row)
            encoded = remaining
        if failed:
            raise not_finite(lines[min(failed)].place, "an output", constraints)

    def _phrases(self, phrases: Sequence[str]) -> Phrases:
        """Return the automaton of phrases on the devices, padded to one of few shapes."""
        vocabulary = self.target_vocabulary
        phrases = [vocabulary.as_in_pieces(readable(each, vocabulary.knows)) for each in phrases]
        table = phrase_automaton(phrases, vocabulary.piece_texts, vocabulary.eos_id)
        rows = 1 << len(table.next_state).bit_length()
        padded = [np.resize(array, (rows, *array.shape[1:])) for array in table]
        return self.devices.replicate(Phrases(*padded))


def hypotheses(found: Hypotheses) -> list[list[Hypothesis]]:
    """Return the hypotheses of each sentence of a batch, best first; perhaps none."""
    batch = zip(*(leaf.tolist() for leaf in found[:3]), strict=True)
    return [
        [Hypothesis(*each) for each in zip(*own, strict=True) if math.isfinite(each[1])]
        for own in batch
    ]
