"""The work behind the requests: translations, scores, parses and attention pages of one model."""

import asyncio
import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache, partial
from typing import Any

from jax_transformer.config import Config
from jax_transformer.data.text import single_line
from jax_transformer.data.vocabularies.base import Vocabulary
from jax_transformer.decoding import outputs
from jax_transformer.decoding.batches import LENGTHS
from jax_transformer.decoding.line_search import Line, Translation, places
from jax_transformer.decoding.live_search import LiveSearch
from jax_transformer.decoding.outputs import Needs, Work
from jax_transformer.decoding.request import Request, request_of
from jax_transformer.decoding.translator import PairScore, Translator
from jax_transformer.errors import InputError
from jax_transformer.runs.model import TrainedModel
from jax_transformer.runs.trained import Trained, pairs_of
from jax_transformer.serving.batcher import Batcher
from jax_transformer.serving.schemas import (
    MOST_LETTERS,
    MOST_OUTPUTS,
    MOST_SAMPLES,
    MOST_WEIGHTS,
    AttentionRequest,
    ModelDescription,
    Output,
    ParseRequest,
    Score,
    ScoreRequest,
    Token,
    TranslateRequest,
)
from jax_transformer.viewer.attention_page import attention_page

_SHORT_LINE = 100  # characters, about as many as the least length of a batch holds


class Service:
    """The answers to all requests of one model; the batcher's thread does all but text."""

    def __init__(self, model: Trained, config: Config, *, most_waiting: int = 2_000) -> None:
        """Serve one model with these settings of `decoding` and `data`.

        config: the model's own, with changes of what may change after training. most_waiting: the
          largest number of lines that may wait.
        """
        self.model, self.data = model, config.data
        decoding = self.decoding = config.decoding
        self.translator = model.translator(decoding)
        self.translator.sample_counts = 1, 4, 16, MOST_SAMPLES
        # No request waits for another shape to be compiled.
        self.translator.batches = replace(self.translator.batches, compile_tokens=math.inf)
        self._live_for = cache(partial(LiveSearch, self.translator))  # by n_best
        self._reader = ThreadPoolExecutor(2)  # few: all threads share Python's lock
        self._slow = ThreadPoolExecutor(1)  # for what other requests must not wait for
        full = max(decoding.batch_tokens // LENGTHS[0], 1)  # a batch of short lines
        # An item begins with what it is about: a text, or a line, whose text comes first.
        self.batcher = Batcher(
            Work.__call__,
            most_waiting=most_waiting,
            most_together=full,
            size=self._size,
            live=self.live,
        )

    @property
    def has_attention(self) -> bool:
        """True for a single model that translates."""
        return isinstance(self.model, TrainedModel) and self.data.task == "translation"

    def describe(self) -> ModelDescription:
        """Return a description of the model for clients."""
        data = self.data
        return ModelDescription(
            name=self.model.run.experiment,
            description=self.model.description,
            task=data.task,
            source_language=data.source_language,
            target_language=data.target_language,
            beam_size=self.decoding.beam_size,
            max_tokens=data.max_length - 1,
            attention=self.has_attention,
        )

    def warm_up(self) -> Iterator[Any]:
        """Compile the searches without options; yield each shape that has been compiled.

        Those of more lines at once are compiled later: see `LiveSearch.warm_up`.
        """
        yield from self._live_for(1).warm_up()
        yield from self.translator.warm_up()
        self.batcher.go_on(self._live_for(1))

    def close(self) -> None:
        """Answer the requests that wait, and stop."""
        self._live_for(1).close()
        self.batcher.close()

    def live(self, work: Work) -> LiveSearch | None:
        """Return the search that the lines of this work enter, or None."""
        needs = work.needs
        if work.function == self.translator.search and isinstance(needs, Needs) and needs.plain:
            return self._live_for(needs.program.n_best)
        return None

    def _size(self, work: Work, item: tuple[str, ...]) -> float:
        """Return the work that an item makes: that of a short line is 1."""
        needs, beam_size = work.needs, self.decoding.beam_size
        samples = needs.program.samples if isinstance(needs, Needs) else 0
        return max(len(item[0]) / _SHORT_LINE, 1) * max(samples / beam_size, 1)

    async def outputs(self, body: TranslateRequest | ParseRequest) -> list[list[Output]]:
        """Return the outputs of each line. Raises InputError for what cannot be answered."""
        request = request_of({n: v for n, v in body if n != "lines"}, "translate")
        self.model.check(request, self.decoding)
        found = await self._outputs(body.lines, request)
        return [[self._output(each, request) for each in line] for line in found]

    async def score(self, request: ScoreRequest) -> list[Score]:
        """Return log P of each pair. Raises InputError for lists of different lengths."""
        sources, targets = pairs_of("score", request.sources, request.targets)
        own, extra = self.model.target_vocabulary, self.decoding.max_extra_length
        await self._check_lengths(places("sources", "", len(sources), None), sources)
        named = places("targets", "", len(targets), None)
        await self._check_lengths(named, targets, own, extra=extra)  # type: ignore[arg-type]
        pairs = list(zip(sources, targets, strict=True))
        found = await self._submit(Work(score, (self.translator,)), pairs)
        return [
            Score(log_prob=each and each.log_prob, num_tokens=each and each.num_tokens)
            for each in found
        ]

    async def attention(self, request: AttentionRequest) -> str:
        """Return the attention page of a sentence and its translation, as HTML."""
        source = single_line(request.source, "source").strip()
        target = request.target
        if target is None:
            try:
                (found,) = await self._outputs([source], Request())
            except InputError as error:
                raise type(error)(str(error).replace("lines[0]", "source")) from None
            target = found[0].text if found else ""
        else:
            single_line(target, "target")
        await self._read(partial(self._check_page, source, target))
        item = source, target.strip(), request.target is not None
        work = Work(self._attention_pages, (), object())  # pages are large: none waits for another
        (page,) = await self._submit(work, [item], follows=request.target is None)
        return page

    def _check_page(self, source: str, target: str) -> None:
        """Raise InputError for a page of so many weights that writing it would take seconds."""
        config, model = self.model.config.model, self.model
        rows, columns = (
            len(vocabulary.encode(text)) + 1
            for vocabulary, text in ((model.target_vocabulary, target), (model.vocabulary, source))
        )
        count = config.num_layers * columns**2 + config.num_decoder_layers * rows * (rows + columns)
        if (count := count * config.num_heads) > MOST_WEIGHTS:
            raise InputError(
                f"source: expected a sentence whose page has at most {MOST_WEIGHTS:,} attention "
                f"weights, found {count:,}; give a shorter one"
            )

    async def _outputs(self, lines: Sequence[str], request: Request) -> list[list[Translation]]:
        return await outputs.outputs(self.translator, lines, request, self._do, data=self.data)

    async def _do(self, work: Work, items: Sequence[Any]) -> Sequence[Any]:
        """Do a step of an answer: text in another thread, the rest in turn."""
        if work.function in (outputs.split, outputs.choose):
            return await self._read(partial(work, items))
        if searches := work.function == self.translator.search:
            await self._check(items)
        return await self._submit(work, items, follows=not searches)

    async def _check(self, lines: Sequence[Line]) -> None:
        """Raise InputError for lines or prefixes that are too long, or for too many outputs."""
        request = lines[0].request if lines else Request()
        if request.prefixes:
            await self._read(partial(self.translator.encoded_prefixes, lines))
        if (letters := sum(map(len, request.without))) > MOST_LETTERS:
            raise InputError(
                f"without: expected at most {MOST_LETTERS} characters together, found {letters}; "
                "give fewer or shorter phrases"
            )
        if request.without:  # an automaton of long phrases takes seconds, and is kept
            await self._read(partial(self.translator.phrases_for, request.without), self._slow)
        remedy = "make it shorter, or split it; split_sentences does that for translations"
        texts = [line.text for line in lines]
        await self._check_lengths([line.place for line in lines], texts, remedy=remedy)
        program = self.translator.program(request)
        count = len(lines) * (program.samples or program.n_best)
        if count > MOST_OUTPUTS:
            raise InputError(
                f"lines: expected at most {MOST_OUTPUTS:,} outputs of a request, found "
                f"{count:,}; send fewer lines at a time"
            )

    async def _check_lengths(
        self,
        named: Sequence[str],
        lines: Sequence[str],
        vocabulary: Vocabulary | None = None,
        *,
        extra: int = 0,
        remedy: str = "give a shorter one",
    ) -> None:
        """Raise InputError for lines with too many tokens."""
        most = self.data.max_length - 1 + extra
        texts = lines if vocabulary else self.translator.source_lines(lines)
        encode = (vocabulary or self.model.vocabulary).encode_batch
        short = sum(map(len, texts)) <= 10 * _SHORT_LINE  # another thread would take longer to wake
        encoded = encode(texts) if short else await self._read(partial(encode, texts))
        for place, tokens in zip(named, encoded, strict=True):
            if len(tokens) > most:
                raise InputError(
                    f"{place}: expected at most {most:,} tokens, found {len(tokens):,}; {remedy}"
                )

    async def _read(
        self, function: Callable[[], Any], threads: ThreadPoolExecutor | None = None
    ) -> Any:
        """Call a function of text in another thread, so that others are answered meanwhile."""
        return await asyncio.get_running_loop().run_in_executor(threads or self._reader, function)

    async def _submit(
        self, work: Work, items: Sequence[Any], *, follows: bool = False
    ) -> list[Any]:
        answers = self.batcher.submit(work, [*items], follows=follows)
        futures, results = map(asyncio.wrap_future, answers), list[Any]()
        try:
            parts = await asyncio.gather(*futures, return_exceptions=True)
        except asyncio.CancelledError:
            for answer in answers:
                answer.left = True
            raise
        for part in parts:
            if isinstance(part, BaseException):
                raise part
            results += part
        return results

    def _output(self, found: Translation, request: Request) -> Output:
        if request.split_sentences:
            return Output(text=found.text)
        tokens = None
        if request.token_scores:
            pieces = self.model.target_vocabulary.pieces(list(found.tokens))  # type: ignore
            both = zip(pieces, found.token_log_probs, strict=True)
            tokens = [Token(piece=piece, log_prob=log_prob) for piece, log_prob in both]
        return Output(
            text=found.text,
            score=found.score,
            log_prob=found.log_prob,
            num_tokens=found.num_tokens,
            tokens=tokens,
            alignment=found.alignment,
        )

    def _attention_pages(self, items: Sequence[tuple[str, str, bool]]) -> list[str]:
        model: Any = self.model  # only a single model has this path
        return [attention_page(model, *pair, forced=forced) for *pair, forced in items]


def score(translator: Translator, pairs: Sequence[tuple[str, str]]) -> list[PairScore | None]:
    """Return log P of each pair."""
    return translator.score_pairs(pairs, None)
