"""The work behind the requests: translations, scores, parses and attention pages of one model."""

import asyncio
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import Any, NamedTuple

from jax_transformer.config import DecodingConfig
from jax_transformer.data.sentences import join_sentences, sentence_splitter
from jax_transformer.data.text import single_line, single_lines
from jax_transformer.decoding.aligner import align_pairs
from jax_transformer.decoding.options import LENGTHS, OutputOptions, check_together
from jax_transformer.decoding.translator import Translation, Translator
from jax_transformer.errors import InputError, ItemError
from jax_transformer.evaluation.minimum_bayes_risk import choose_translation
from jax_transformer.runs.ensemble import TrainedEnsemble
from jax_transformer.runs.loading import TrainedModel
from jax_transformer.serving.batcher import Batcher
from jax_transformer.serving.schemas import (
    MOST_OUTPUTS,
    MOST_SAMPLES,
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

LONG_TEXT = 2_000  # characters; the text of a longer request is read in another thread
# Samples are drawn in one of these numbers, so that few are compiled; those above the request's
# are dropped, which changes no other.
SAMPLE_COUNTS = (1, 4, 16, MOST_SAMPLES)


class _Search(NamedTuple):
    """A kind of job: what lines must have in common to be searched together."""

    program: OutputOptions
    without: tuple[str, ...]
    has_min_length: bool
    has_prefixes: bool
    n_best: int


class Page:
    """A kind of job for one attention page: pages are large, so none waits for another."""


class Service:
    """The answers to all requests. Text goes in and out here; the batcher's thread does the rest.

    batcher: the queue of the work.
    """

    def __init__(
        self,
        model: TrainedModel,
        decoding: DecodingConfig,
        *,
        most_waiting: int = 2_000,
    ) -> None:
        """Serve one model.

        decoding: the settings of the search. most_waiting: the largest number of lines that wait.
        """
        self.model, self.decoding = model, decoding
        self.parses = model.config.data.task == "parsing"
        self._translator = cache(self._make_translator)
        self._reader = ThreadPoolExecutor(2)  # few: all threads share Python's lock
        full = max(decoding.batch_tokens // LENGTHS[0], 1)  # a batch of short lines
        limits = {"most_waiting": most_waiting, "most_together": full}
        self.batcher = Batcher(self._work, size=_characters, **limits)

    def describe(self) -> ModelDescription:
        """Return what a client should know of the model."""
        data = self.model.config.data
        return ModelDescription(
            name=self.model.run.experiment,
            description=self.model.description,
            task=data.task,
            source_language=data.source_language,
            target_language=data.target_language,
            beam_size=self.decoding.beam_size,
            max_tokens=data.max_length - 1,
        )

    def warm_up(self) -> Iterator[tuple[int, int]]:
        """Compile the search for every shape; yield (number of those compiled, of all)."""
        translator = self._translator(1, 0)
        shapes = translator.shapes()
        for count, shape in enumerate(shapes, start=1):
            translator.compile(shape)
            yield count, len(shapes)

    async def translate(self, request: TranslateRequest) -> list[list[Output]]:
        """Return the outputs of each line. Raises InputError for what cannot be answered."""
        self._check_together(request)
        if request.split_sentences:
            return await self._translate_paragraphs(request)
        if request.prefixes is not None:
            given = single_lines(request.prefixes, "prefixes"), len(request.lines), None
            await self._read(lambda: self._translator(1, 0).encoded_prefixes(*given))
        found = await self._translations(request, request.lines, request.prefixes)
        tokens = await self._tokens(request, found)
        alignments = await self._alignments(request, found)
        return [
            [_output(*each) for each in zip(*line, strict=True)]
            for line in zip(found, tokens, alignments, strict=True)
        ]

    async def parse(self, request: ParseRequest) -> list[list[Output]]:
        """Return the bracketings of each line."""
        self._check_together(request)
        most = 1 if request.n_best == 1 else self.decoding.beam_size
        await self._check_lengths("lines", request.lines)
        found = await self._submit(most, request.lines)
        return [[_output(each) for each in line[: request.n_best]] for line in found]

    async def score(self, request: ScoreRequest) -> list[Score]:
        """Return log P of each pair. Raises InputError for lists of different lengths."""
        if len(request.sources) != len(request.targets):
            raise InputError(
                f"targets: expected one for each of {len(request.sources)} sources, found "
                f'{len(request.targets)}; give "" where there is none'
            )
        pairs = list(zip(request.sources, request.targets, strict=True))
        await self._check_lengths("sources", request.sources)
        await self._check_lengths("targets", request.targets)
        found = await self._submit("score", pairs)
        return [
            Score(log_prob=each and each.log_prob, num_tokens=each and each.num_tokens)
            for each in found
        ]

    async def attention(self, request: AttentionRequest) -> str:
        """Return the attention page of a sentence and its translation, as HTML."""
        if isinstance(self.model, TrainedEnsemble):
            raise InputError("attention: expected one model, found an ensemble; serve one")
        source = single_line(request.source, "source").strip()
        target = request.target
        if target is None:
            try:
                await self._check_lengths("source", [source])
            except ItemError as error:
                raise InputError(f"source: {error.text}") from None
            translation = TranslateRequest(lines=[source])
            (found,) = await self._translations(translation, [source], None)
            target = found[0].text if found else ""
        pair = source, single_line(target, "target").strip()
        item = *pair, request.target is not None
        (page,) = await self._submit(Page(), [item], follows=request.target is None)
        return page

    def _check_together(self, request: TranslateRequest | ParseRequest) -> None:
        asked = request.model_dump(exclude={"lines"}, exclude_defaults=True)
        if isinstance(self.model, TrainedEnsemble):
            asked["ensemble"] = True
        check_together(asked, beam_size=self.decoding.beam_size, parses=self.parses)

    async def _translations(
        self, request: TranslateRequest, lines: Sequence[str], prefixes: Sequence[str] | None
    ) -> list[list[Translation]]:
        """Return the translations of each line, of the beam, drawn or chosen as requested."""
        splits = request.split_sentences
        remedy = "make it shorter" if splits else "split it, or give split_sentences"
        await self._check_lengths("lines", lines, remedy)
        names = [field.name for field in dataclasses.fields(OutputOptions)]
        given: dict[str, Any] = request.model_dump(include=set(names))
        given["inside_word"] = request.inside_word and bool(prefixes)
        options = OutputOptions(**given)
        count = request.samples
        if count:
            count = next(each for each in SAMPLE_COUNTS if each >= count)
            options = dataclasses.replace(options, samples=count)
        several = request.n_best > 1 or request.mbr
        outputs = len(lines) * (count or (self.decoding.beam_size if several else 1))
        if outputs > MOST_OUTPUTS:
            raise InputError(
                f"lines: expected at most {MOST_OUTPUTS:,} outputs of a request, found "
                f"{outputs:,}; send fewer lines at a time"
            )
        kind = _Search(
            options.program,
            tuple(sorted(set(options.without))),
            options.min_length > 0,
            prefixes is not None,
            self.decoding.beam_size if several else 1,
        )
        each = prefixes or [""] * len(lines)
        items = [
            (line, prefix, options, number)
            for number, (line, prefix) in enumerate(zip(lines, each, strict=True), start=1)
        ]
        found = await self._submit(kind, items)
        most = request.samples or (None if request.mbr else request.n_best)
        found = [line[:most] for line in found]
        if not request.mbr:
            return found
        choose = partial(
            choose_translation,
            utility=request.mbr,
            tokenize=self.model.config.data.bleu_tokenize,
            drawn=request.samples > 0,
        )
        return await asyncio.to_thread(lambda: [line and [choose(line)] for line in found])

    async def _translate_paragraphs(self, request: TranslateRequest) -> list[list[Output]]:
        split = sentence_splitter(self.model.config.data.source_language)
        paragraphs = await self._read(lambda: list(map(split, request.lines)))
        rows = [row for row, paragraph in enumerate(paragraphs) for _ in paragraph]
        sentences = [sentence for paragraph in paragraphs for sentence in paragraph]
        try:
            found = iter(await self._translations(request, sentences, None) if sentences else [])
        except ItemError as error:
            number = rows[: error.row + 1].count(rows[error.row])
            text = f"sentence {number} of it: {error.text}"
            raise ItemError("lines", rows[error.row], text) from None
        best = [[next(found)[:1] for _ in each] for each in paragraphs]
        texts = [[line[0].text if line else "" for line in each] for each in best]
        joined = map(join_sentences, map(zip, paragraphs, texts))
        return [[Output(text=text)] if text else [] for text in joined]

    async def _tokens(
        self, request: TranslateRequest, found: list[list[Translation]]
    ) -> list[list[list[Token] | None]]:
        if not request.token_scores:
            return [[None] * len(line) for line in found]
        both = list(zip(request.lines, found, strict=True))
        scored = await self._submit("tokens", both, follows=True)
        return [[self._scored_tokens(each) for each in line] for line in scored]

    def _scored_tokens(self, translation: Translation) -> list[Token]:
        pieces = self.model.target_vocabulary.pieces(list(translation.tokens))  # type: ignore
        both = zip(pieces, translation.token_log_probs, strict=True)
        return [Token(piece=piece, log_prob=log_prob) for piece, log_prob in both]

    async def _alignments(
        self, request: TranslateRequest, found: list[list[Translation]]
    ) -> list[list[Any]]:
        if not request.alignments:
            return [[None] * len(line) for line in found]
        both = zip(request.lines, found, strict=True)
        pairs = [(source, each.text) for source, line in both for each in line]
        aligned = iter(await self._submit("align", pairs, follows=True) if pairs else [])
        return [[next(aligned) for _ in line] for line in found]

    async def _check_lengths(
        self, what: str, lines: Sequence[str], remedy: str = "give a shorter one"
    ) -> None:
        """Raise InputError for lines with a line break, or with too many tokens."""
        lines = single_lines(lines, what)
        vocabulary, most = self.model.vocabulary, self.model.config.data.max_length - 1
        if what == "targets":
            vocabulary: Any = self.model.target_vocabulary
            most += self.decoding.max_extra_length

        def counts() -> list[int]:
            return [len(tokens) for tokens in vocabulary.encode_batch(lines)]

        found = await self._read(counts) if sum(map(len, lines)) > LONG_TEXT else counts()
        for row, count in enumerate(found):
            if count > most:
                text = f"expected at most {most:,} tokens, found {count:,}; {remedy}"
                raise ItemError(what, row, text)

    async def _read(self, function: Callable[[], Any]) -> Any:
        """Call a function of text in another thread, so that others are answered meanwhile."""
        return await asyncio.get_running_loop().run_in_executor(self._reader, function)

    async def _submit(self, kind: Any, items: list[Any], *, follows: bool = False) -> list[Any]:
        """Return the result of each item; an error names the item's place among all of them."""
        futures = map(asyncio.wrap_future, self.batcher.submit(kind, items, follows=follows))
        results = list[Any]()
        for part in await asyncio.gather(*futures, return_exceptions=True):
            if isinstance(part, ItemError):
                raise part.at(len(results) + part.row)
            if isinstance(part, BaseException):
                raise part
            results += part
        return results

    # What follows runs in the batcher's thread.

    def _make_translator(self, n_best: int, samples: int) -> Translator:
        decoding = self.decoding
        if samples > decoding.beam_size:  # as many hypotheses in memory as in a search
            tokens = max(decoding.batch_tokens * decoding.beam_size // samples, 1)
            decoding = dataclasses.replace(decoding, batch_tokens=tokens)
        return self.model.translator(decoding, n_best=n_best)

    def _work(self, kind: Any, items: list[Any]) -> Sequence[Any]:
        if isinstance(kind, _Search):
            lines, prefixes, options, numbers = map(list, zip(*items, strict=True))
            translator = self._translator(kind.n_best, kind.program.samples)
            given = prefixes if kind.has_prefixes else None
            return translator.translate_lines(lines, None, given, options, numbers)
        if isinstance(kind, int):
            return self._translator(kind, 0).translate_lines(items, None)
        translator = self._translator(1, 0)
        if kind == "score":
            return translator.score_pairs(items, None)
        if kind == "tokens":
            lines, found = zip(*items, strict=True)
            return translator.with_token_log_probs(lines, found)
        if kind == "align":
            return align_pairs(translator, items, first=None)
        return [attention_page(self.model, *pair, forced=forced) for *pair, forced in items]


def _characters(item: Any) -> int:
    """Return the length of what a job's item is about: a line, or a tuple that begins with one."""
    return len(item if isinstance(item, str) else item[0])


def _output(
    translation: Translation, tokens: list[Token] | None = None, alignment: Any = None
) -> Output:
    return Output(
        text=translation.text,
        score=translation.score,
        log_prob=translation.log_prob,
        num_tokens=translation.num_tokens,
        tokens=tokens,
        alignment=alignment,
    )
