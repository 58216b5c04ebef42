"""What a user asks of outputs beyond the search's settings: samples, prefixes, forbidden phrases.

`OutputOptions` holds it, and `with_options` turns it into a search for `generate.translate`.
A search is compiled for few of the options; the others are arguments, so that lines with other
values share a batch.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from numbers import Real
from typing import Any, NamedTuple, TypedDict

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jax_transformer.data.scripts import is_blank
from jax_transformer.data.text import single_line
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
from jax_transformer.decoding.sampling import sample
from jax_transformer.errors import InputError
from jax_transformer.types import AnyArray

# Devices read a smaller positive number as 0.
_TINY, _HUGE = (float(limit) for limit in (np.finfo(np.float32).tiny, np.finfo(np.float32).max))


@dataclass(frozen=True)
class OutputOptions:
    """Options of one translation; the defaults change nothing.

    samples: outputs drawn for each line instead of searched; 0 searches.
    temperature, top_k, top_p: of the distribution that samples are drawn from (see `sampling`);
      temperature 0 takes the likeliest token each time.
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
        phrases: Any = self.without
        if not isinstance(phrases, list | tuple) or not all(isinstance(p, str) for p in phrases):
            raise InputError(f"without: expected a list of phrases, found {phrases!r}")
        object.__setattr__(self, "without", tuple(phrases))
        for name in ("temperature", "top_p"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Real):
                raise InputError(f"{name}: expected a number, found {value!r}")
        for name in ("samples", "top_k", "min_length", "no_repeat_ngram", "seed"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**31:
                raise InputError(f"{name}: expected a whole number of at least 0, found {value!r}")
        held = f"; float32 has 0 and {_TINY:.1e} to {_HUGE:.1e}"
        if not (self.temperature == 0 or _TINY <= self.temperature <= _HUGE):
            raise InputError(f"temperature: expected 0 or above, found {self.temperature!r}{held}")
        if not _TINY <= self.top_p <= 1:
            raise InputError(f"top_p: expected above 0 and at most 1, found {self.top_p!r}{held}")
        for number, phrase in enumerate(self.without):
            if is_blank(single_line(phrase, f"without[{number}]")):
                raise InputError(f"without: expected phrases with a letter, found {phrase!r}")
        for name in ("temperature", "top_k", "top_p", "seed"):
            value, usual = getattr(self, name), getattr(OutputOptions, name)
            if not self.samples and value != usual:
                raise InputError(
                    f"{name}={value}: expected samples with it, found none; give a number of "
                    "samples, or leave it out"
                )

    @property
    def program(self) -> "OutputOptions":
        """What a search is compiled for; other values are its arguments, one for each row."""
        return OutputOptions(
            samples=self.samples, no_repeat_ngram=self.no_repeat_ngram, inside_word=self.inside_word
        )


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


_EXCLUDES = {  # what is wrong beside what; the table in docs/decoding.md
    "samples": ("n_best",),
    "mbr": ("n_best",),
    "split_sentences": ("n_best", "scores", "token_scores", "alignments", "prefixes"),
    "ensemble": ("alignments",),
}
_TRANSLATION_ONLY = (
    "samples", "alignments", "split_sentences", "mbr", "prefixes", "min_length", "no_repeat_ngram",
    "without", "token_scores",
)  # fmt: skip


def check_together(
    asked: Mapping[str, Any], *, beam_size: int, parses: bool = False, mark: str = ""
) -> None:
    """Raise InputError for options that make no sense together or for a parser.

    asked: the value of each option by its name; one that is not asked for is missing or false.
    mark: what a name begins with in messages: "--" for a flag.
    """
    asked = {name: value for name, value in asked.items() if value}
    if (n_best := asked.get("n_best", 1)) == 1:
        asked.pop("n_best", None)
    samples = asked.get("samples", 0)
    if n_best > beam_size and not samples:
        raise InputError(
            f"{mark}n_best={n_best}: expected at most the beam size, {beam_size}; give a smaller "
            f"one, or set decoding.beam_size={n_best}"
        )

    def refuse(what: str, names: Sequence[str]) -> None:
        for name in names:
            if name in asked:
                raise InputError(
                    f"{mark}{name}: expected none beside {what}; leave one of them out"
                )

    if parses:
        refuse("a model that parses", _TRANSLATION_ONLY)
    for what, names in _EXCLUDES.items():
        if what in asked:
            value = "" if isinstance(asked[what], bool | list) else f"={asked[what]}"
            refuse(f"{mark}{what}{value}", names)
    if samples and "mbr" not in asked:
        refuse(f"{mark}samples={samples}", ["split_sentences"])
    if "mbr" in asked and (samples or beam_size) == 1:
        raise InputError(
            f"{mark}mbr={asked['mbr']}: expected several outputs to choose from, found one; set "
            f"decoding.beam_size=8, or give {mark}samples=32"
        )


class Draws(NamedTuple):
    """The arguments of `sample` for each row of a batch."""

    seeds: Int[AnyArray, " B"]
    numbers: Int[AnyArray, " B"]  # of the lines
    temperature: Float[AnyArray, " B"]
    top_k: Int[AnyArray, " B"]
    top_p: Float[AnyArray, " B"]


class Prefix(NamedTuple):
    """The beginning of an output."""

    tokens: list[int]
    ends_in_word: bool  # rather than in a punctuation mark, or in a letter that is a word itself


class Rows(NamedTuple):
    """The rows of a batch with what options need of each; None if no row of it needs this.

    prefix: the tokens that an output begins with, then -1.
    ends_in_word: 1 if the prefix ends in a word, which a letter would continue, else 0.
    """

    source: Int[AnyArray, "B S"]
    draws: Draws | None = None
    min_lengths: Int[AnyArray, " B"] | None = None
    prefix: Int[AnyArray, "B P"] | None = None
    ends_in_word: Int[AnyArray, " B"] | None = None


def with_options(
    program: OutputOptions, rows: Rows, phrases: Phrases | None, vocabulary: Vocabulary
) -> Callable[..., Hypotheses]:
    """Return the search of a batch, as `generate.translate` takes it.

    program: an `OutputOptions.program`. phrases: those that no output contains.
    vocabulary: that of the outputs.
    """
    search = beam_search
    if rows.draws is not None:
        seeds, numbers, *choice = rows.draws
        keys = jax.vmap(jax.random.fold_in)(jax.vmap(jax.random.key)(seeds), numbers)
        names = "temperature", "top_k", "top_p"
        search = partial(sample, keys=keys, **dict(zip(names, choice, strict=True)))
    prefix, n = rows.prefix, program.no_repeat_ngram
    if prefix is None and phrases is None and rows.min_lengths is None and not n:
        return search
    size, eos_id = vocabulary.size, vocabulary.eos_id
    continuations = None if program.inside_word else vocabulary.continuations

    def chosen(
        step: Step, state: State, max_lengths: Int[Array, " B"], **settings: Any
    ) -> Hypotheses:
        each_hypothesis = partial(jnp.repeat, repeats=settings["beam_size"], axis=0)
        given = None if prefix is None else (prefix >= 0).sum(axis=1)
        if given is not None:
            max_lengths = jnp.maximum(max_lengths, given + 1)
            settings["given"] = given

        def masks(limits: Int[Array, " N"], length: int) -> list[Mask]:
            made = []
            if rows.min_lengths is not None:
                fewest = each_hypothesis(rows.min_lengths)
                made.append(at_least(fewest, limits, size, eos_id=eos_id))
            if n:
                made.append(no_repeated_ngram(n, limits, length, size))
            if phrases is not None:
                fixed = 0 if given is None else each_hypothesis(given)
                made.append(without_phrases(phrases, limits, eos_id=vocabulary.eos_id, given=fixed))
            if prefix is None:
                return made
            begun, after = each_hypothesis(prefix), None
            if continuations is not None and rows.ends_in_word is not None:
                after = ~jnp.asarray(continuations)[each_hypothesis(rows.ends_in_word)]
            return [
                *(except_in_prefix(mask, begun) for mask in made),
                beginning_with(begun, size, after),
            ]

        return masked_search(step, state, max_lengths, masks=masks, search=search, **settings)

    return chosen


def rows_of(
    source: Int[np.ndarray, "B S"],
    options: Sequence[OutputOptions],
    numbers: Sequence[int],
    prefixes: Sequence[Prefix] | None,
    longest: int,
) -> Rows:
    """Return a batch with what its options need.

    options, numbers, prefixes: of the lines, whose rows come first; those after them are padding.
    longest: the maximum number of tokens of a prefix.
    """
    padding = len(source) - len(options)

    def column(name: str, dtype: type) -> np.ndarray:
        values = [getattr(each, name) for each in options]
        return np.array(values + [getattr(PLAIN, name)] * padding, dtype)  # type: ignore

    draws = min_lengths = prefix = ends_in_word = None
    if any(each.samples for each in options):
        draws = Draws(
            column("seed", np.uint32),
            np.array([*numbers, *[0] * padding], np.int32),
            column("temperature", np.float32),
            column("top_k", np.int32),
            column("top_p", np.float32),
        )
    if any(each.min_length for each in options):
        min_lengths = column("min_length", np.int32)
    if prefixes is not None:
        width = padded_length(max(1, *(len(each.tokens) for each in prefixes)), longest)
        prefix = np.full((len(source), width), -1, np.int32)
        for row, each in zip(prefix, prefixes, strict=False):
            row[: len(each.tokens)] = each.tokens
        ends = [each.ends_in_word for each in prefixes]
        ends_in_word = np.array([*ends, *[False] * padding], np.int32)
    return Rows(source, draws, min_lengths, prefix, ends_in_word)


# Lengths that batches are padded to, EOS included; the longest length allowed is added to them.
# Each is compiled on first use.
LENGTHS = (24, 48, 96, 192, 384, 768, 1024)


def padded_length(tokens: int, longest: int) -> int:
    """Return the length that this many tokens are padded to: one of LENGTHS, or the longest."""
    return next((length for length in LENGTHS if tokens <= length < longest), longest)
