"""What a user asks of outputs beyond the search's settings: samples, prefixes, forbidden phrases.

`OutputOptions` holds it, and `with_options` turns it into a search for `generate.translate`.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypedDict

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from jax_transformer.data.vocabulary import Vocabulary
from jax_transformer.decoding.beam_search import Hypotheses, State, Step, beam_search
from jax_transformer.decoding.masks import (
    Mask,
    Phrases,
    at_least,
    beginning_with,
    except_in_prefix,
    masked_search,
    no_repeated_ngram,
    without_phrases,
)
from jax_transformer.decoding.phrases import phrase_automaton
from jax_transformer.decoding.sampling import sample
from jax_transformer.errors import InputError
from jax_transformer.types import AnyArray


@dataclass(frozen=True)
class OutputOptions:
    """Options of one translation; the defaults change nothing.

    samples: outputs drawn for each line instead of searched; 0 searches.
    temperature, top_k, top_p: of the distribution that samples are drawn from (see `sampling`).
    seed: of the draws. A line's draws depend on it, on the line's number and on the sample's alone.
    min_length: the minimum number of tokens of an output, the end mark included.
    no_repeat_ngram: n forbids an output to have n tokens in a row twice; 0 forbids nothing.
    without: phrases of whole words that no output contains, but for one that ends at its limit.
    inside_word: an output may go on inside the last word of its prefix.
    """

    samples: int = 0
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    min_length: int = 0
    no_repeat_ngram: int = 0
    without: Sequence[str] = ()
    inside_word: bool = False

    def __post_init__(self) -> None:
        """Raise InputError for a value out of range, or for draws without samples."""
        if isinstance(self.without, str):
            raise InputError(f"without: expected a list of phrases, found {self.without!r}")
        object.__setattr__(self, "without", tuple(self.without))
        for name in ("samples", "top_k", "min_length", "no_repeat_ngram", "seed"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**31:
                raise InputError(f"{name}: expected a whole number of at least 0, found {value!r}")
        if not (self.temperature > 0 and math.isfinite(self.temperature)):
            raise InputError(f"temperature: expected above 0, found {self.temperature!r}")
        if not 0 < self.top_p <= 1:
            raise InputError(f"top_p: expected above 0 and at most 1, found {self.top_p!r}")
        if blank := [phrase for phrase in self.without if not phrase.strip()]:
            raise InputError(f"without: expected phrases with a letter, found {blank[0]!r}")
        for name in ("temperature", "top_k", "top_p", "seed"):
            value, usual = getattr(self, name), getattr(OutputOptions, name)
            if not self.samples and value != usual:
                raise InputError(
                    f"{name}={value}: expected samples with it, found none; give a number of "
                    "samples, or leave it out"
                )

    @property
    def plain(self) -> bool:
        """Whether these are the defaults, so that the search needs nothing else."""
        return self == OutputOptions(inside_word=self.inside_word)


PLAIN = OutputOptions()


class Options(TypedDict, total=False):
    """The keywords of `OutputOptions`, but for samples."""

    temperature: float
    top_k: int
    top_p: float
    seed: int
    min_length: int
    no_repeat_ngram: int
    without: Sequence[str]
    inside_word: bool


class Rows(NamedTuple):
    """The rows of a batch with what options need of each.

    prefix: the tokens that an output begins with, then -1; None if no line of a text has any.
    """

    source: Int[AnyArray, "B S"]
    numbers: Int[AnyArray, " B"] | None = None  # of the lines
    prefix: Int[AnyArray, "B P"] | None = None


def with_options(
    options: OutputOptions, vocabulary: Vocabulary
) -> Callable[[Rows], Callable[..., Hypotheses]]:
    """Return a function of a batch's rows that gives its search, as `generate.translate` takes it.

    vocabulary: that of the outputs.
    """
    size, eos_id = vocabulary.size, vocabulary.eos_id
    phrases: Phrases | None = None
    if options.without:
        phrases = phrase_automaton(options.without, vocabulary.piece_texts, eos_id)
    begins = None if options.inside_word else vocabulary.may_follow_a_word

    def masks(
        prefix: Int[Array, "N P"] | None, limits: Int[Array, " N"], length: int
    ) -> list[Mask]:
        made = []
        if options.min_length:
            made.append(at_least(options.min_length, limits, size, eos_id=eos_id))
        if options.no_repeat_ngram:
            made.append(no_repeated_ngram(options.no_repeat_ngram, limits, length, size))
        if phrases is not None:
            made.append(without_phrases(phrases, limits))
        if prefix is None:
            return made
        made = [except_in_prefix(mask, prefix) for mask in made]
        return [*made, beginning_with(prefix, size, begins)]

    def search_of(rows: Rows) -> Callable[..., Hypotheses]:
        search = beam_search
        if options.samples and rows.numbers is not None:
            fold_in = jax.vmap(jax.random.fold_in, (None, 0))
            keys = fold_in(jax.random.key(options.seed), rows.numbers)
            choice = {name: getattr(options, name) for name in ("temperature", "top_k", "top_p")}
            search = partial(sample, keys=keys, **choice)

        def chosen(
            step: Step, state: State, max_lengths: Int[Array, " B"], **settings: Any
        ) -> Hypotheses:
            prefix = rows.prefix
            if prefix is not None:
                max_lengths = jnp.maximum(max_lengths, (prefix >= 0).sum(axis=1) + 1)
                prefix = jnp.repeat(prefix, settings["beam_size"], axis=0)
            elif not (options.min_length or options.no_repeat_ngram or phrases):
                return search(step, state, max_lengths, **settings)
            return masked_search(
                step, state, max_lengths, masks=partial(masks, prefix), search=search, **settings
            )

        return chosen

    return search_of


def padded_prefixes(prefixes: list[list[int]], rows: int, width: int) -> np.ndarray:
    """Return prefixes as an array [rows, width], with -1 after each."""
    padded = np.full((rows, width), -1, np.int32)
    for row, tokens in zip(padded, prefixes, strict=False):
        row[: len(tokens)] = tokens
    return padded
