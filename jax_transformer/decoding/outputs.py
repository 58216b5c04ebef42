"""§6.1 The outputs of lines of text, as a `Request` describes them, step by step.

`outputs` is a coroutine that awaits each step of its work: a server puts the steps of many requests
into one queue, and `outputs_now` does each at once.
"""

import math
from collections.abc import Awaitable, Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from jax_transformer.config import DataConfig
from jax_transformer.data.scripts import is_blank
from jax_transformer.data.sentences import join_sentences, sentence_splitter
from jax_transformer.data.text import single_lines
from jax_transformer.decoding.alignments import Alignment, align_pairs
from jax_transformer.decoding.batches import Program
from jax_transformer.decoding.constraints import CONSTRAINTS
from jax_transformer.decoding.line_search import Line, LineSearch, Translation, lines_of
from jax_transformer.decoding.minimum_bayes_risk import minimum_bayes_risk
from jax_transformer.decoding.request import Request, Utility
from jax_transformer.decoding.translator import Translator


class Work(NamedTuple):
    """One step: a function of its arguments and of a list of items, with a result for each item.

    Items of equal steps may be worked on together. needs: further values that equal steps share.
    """

    function: Callable[..., Sequence[Any]]
    arguments: tuple[Hashable, ...] = ()
    needs: Hashable = None

    def __call__(self, items: Sequence[Any]) -> Sequence[Any]:
        """Return a result for each item."""
        return self.function(*self.arguments, items)


class Needs(NamedTuple):
    """What the lines that are searched together share. given: names of constraints."""

    program: Program
    given: frozenset[str]
    without: frozenset[str]
    prefixes: bool

    @property
    def plain(self) -> bool:
        """True if a line may enter a search that runs already."""
        return not (self.program.samples or self.given or self.prefixes)


async def outputs(
    translator: LineSearch,
    texts: Sequence[str],
    request: Request,
    do: Callable[[Work, Sequence[Any]], Awaitable[Sequence[Any]]],
    *,
    data: DataConfig,
    first: int | None = None,
) -> list[list[Translation]]:
    """Return the outputs of each line, best first; samples come as they were drawn.

    do: a function that does a step. first: the number of the first line in its file; None for a
    list. With `split_sentences` a line has one output, of all its sentences.

    Call `Request.check_model` before. Raises InputError for lines and prefixes that do not fit.
    """
    if first is None:  # in a file only a newline ends a line
        split_lines = (" ".join(text.splitlines()) for text in texts)
        single_lines(split_lines if request.split_sentences else texts, "lines")
        single_lines(request.prefixes or [], "prefixes")
    lines = lines_of(texts, first, request)
    if not request.split_sentences:
        return await _outputs(translator, lines, request, do, data)
    language, tags = data.source_language, tuple(translator.vocabulary.tags)
    each = await do(Work(split, (language, tags)), lines)
    sentences = [sentence for line in each for sentence in line]
    found = zip(sentences, await _outputs(translator, sentences, request, do, data), strict=True)
    return [_joined([*islice(found, len(line))]) for line in each]


def outputs_now(
    translator: LineSearch,
    texts: Sequence[str],
    request: Request,
    *,
    data: DataConfig,
    first: int | None = None,
) -> list[list[Translation]]:
    """Return the `outputs`, each step of which is done at once."""

    async def do(work: Work, items: Sequence[Any]) -> Sequence[Any]:
        return work(items)

    try:
        outputs(translator, texts, request, do, data=data, first=first).send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("a step waited")


async def _outputs(
    translator: LineSearch,
    lines: Sequence[Line],
    request: Request,
    do: Callable[[Work, Sequence[Any]], Awaitable[Sequence[Any]]],
    data: DataConfig,
) -> list[list[Translation]]:
    """Search or sample, choose one output, add the scores of tokens, and align."""
    given = frozenset(name for name in CONSTRAINTS if getattr(request, name))
    begun = any(not is_blank(line.prefix) for line in lines)
    needs = Needs(translator.program(request), given, frozenset(request.without), begun)
    found = [*await do(Work(translator.search, (), needs), lines)]
    if request.mbr:
        choice = request.mbr, data, request.samples > 0
        found = await do(Work(choose, choice), found)
    each = [(line.text, own) for line, outputs in zip(lines, found, strict=True) for own in outputs]
    if request.token_scores:
        assert isinstance(translator, Translator)  # `check_model` refuses both for a parser
        scored = await do(Work(translator.with_token_log_probs), each)
        each = [(line, own) for (line, _), own in zip(each, scored, strict=True)]
    if request.alignments:
        assert isinstance(translator, Translator)
        chosen = request.alignment_layer, request.alignment_head
        aligned = await do(Work(align, (translator, *chosen)), [(s, own.text) for s, own in each])
        both = zip(each, aligned, strict=True)
        each = [(line, replace(own, alignment=alignment)) for (line, own), alignment in both]
    outputs = (own for _, own in each)
    return [[*islice(outputs, len(own))] for own in found]


def split(language: str, tags: tuple[str, ...], lines: Sequence[Line]) -> list[list[Line]]:
    """Return the sentences of each line, which have places and draws of their own.

    tags: those of the model. One that a line begins with stands before each of its sentences.
    """
    sentences_of = sentence_splitter(language)

    def sentences(line: Line) -> Iterator[Line]:
        tag = next((tag for tag in tags if line.text.lstrip().startswith(tag)), "")
        for number, text in enumerate(sentences_of(line.text)):
            bare = text.strip() and not text.lstrip().startswith(tag)
            yield line._replace(
                text=f"{tag} {text}" if bare else text,
                place=f"{line.place}, sentence {number + 1}",
                number=(line.number + number * 2**20) % 2**31,
            )

    return [[*sentences(line)] for line in lines]


def choose(
    utility: Utility, data: DataConfig, drawn: bool, found: Sequence[list[Translation]]
) -> list[list[Translation]]:
    """Return the output of each line with the least Bayes risk; none for a line without outputs.

    data: whose tokens and case the scores regard, as those of a text do.
    drawn: True for samples, which need no weights: a probable one is there more often.
    """
    chosen = list[list[Translation]]()
    for own in found:
        texts, log_probs = [each.text for each in own], np.array([each.log_prob for each in own])
        weights = None if drawn or not own else np.exp(log_probs - log_probs.max()).tolist()
        texts = [text.lower() for text in texts] if data.bleu_lowercase else texts
        options: Any = {"utility": utility, "tokenize": data.bleu_tokenize}
        chosen.append(own and [own[minimum_bayes_risk(texts, weights, **options)]])
    return chosen


def align(
    translator: Translator, layer: int | None, head: int | None, pairs: Sequence[tuple[str, str]]
) -> list[Alignment]:
    """Return the word alignment of each pair."""
    return align_pairs(translator, pairs, layer=layer, head=head, first=None)


def _joined(sentences: Sequence[tuple[Line, list[Translation]]]) -> list[Translation]:
    """Return one translation of all sentences of a line, or none."""
    both = ((line.text, own[0].text if own else "") for line, own in sentences)
    text, best = join_sentences(both), [own[0] for _, own in sentences if own]
    log_prob, tokens = sum(own.log_prob for own in best), sum(own.num_tokens for own in best)
    return [Translation(text, math.nan, log_prob, tokens)] if text.strip() else []
