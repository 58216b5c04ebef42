"""Batches of token ids: their few shapes, and what the search of each row needs."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from jax_transformer.data.vocabularies.base import Vocabulary
from jax_transformer.decoding.beam_search import Hypotheses, State, Step, beam_search
from jax_transformer.decoding.constraints import (
    CONSTRAINTS,
    Mask,
    Phrases,
    Space,
    beginning_with,
    except_in_prefix,
    masked_search,
)
from jax_transformer.decoding.request import Request
from jax_transformer.decoding.sampling import sample
from jax_transformer.types import AnyArray

Item = TypeVar("Item")

# Lengths that batches are padded to, EOS included; the longest length allowed is added to them.
# Each is compiled on first use.
LENGTHS = (24, 48, 96, 192, 384, 768, 1024)
# Lengths between them, for much text: see `Batches`.
BETWEEN = (8, 12, 16, 20, 32, 40, 64, 80, 128, 160, 256, 512)


def padded_length(tokens: int, longest: int) -> int:
    """Return the length to pad `tokens` tokens to: one of LENGTHS, or `longest`."""
    return next((length for length in LENGTHS if tokens <= length < longest), longest)


def windows(items: Iterable[Item], size: int) -> Iterator[tuple[int, list[Item]]]:
    """Yield `size` items at a time, after the number of the first, from 1; read no more of them."""
    remaining, first = iter(items), 1
    while part := list(islice(remaining, size)):
        yield first, part
        first += len(part)


@dataclass(frozen=True)
class Batches:
    """The shapes that token ids are batched into.

    vocabularies: the source's and the target's. max_source, max_target: tokens at most, with EOS.
    tokens: the number of source tokens, padding included, in a full batch, before its rows are
      rounded up to a multiple of the devices.
    devices: the number that divides the rows of each batch.
    compile_tokens: the number of tokens of padding that cost as much as compiling for one more
      length. A length of BETWEEN is used once as much padding as that would have been saved by it.
    """

    vocabularies: tuple[Vocabulary, Vocabulary]
    max_source: int
    max_target: int
    tokens: int
    devices: int
    compile_tokens: float = math.inf
    _saved: Counter[int] = field(default_factory=Counter, init=False)  # by length of BETWEEN

    def of(self, *sides: Sequence[list[int]], tokens: int = 0) -> Iterator[tuple[list[int], Any]]:
        """Yield (row numbers, array [B, L]) of each batch, or a tuple of arrays for several sides.

        sides: the token ids of each row without EOS, which is added; empty rows are left out. The
          longest rows come first. tokens: another maximum of tokens in a batch.
        """
        sizes = [max(map(len, row)) for row in zip(*sides, strict=True)]
        longest = max(self.max_source, self.max_target if len(sides) > 1 else 0)
        remaining = sorted((i for i in range(len(sizes)) if sizes[i]), key=lambda i: -sizes[i])
        before = 0, 0
        while remaining:
            length = self._length(sizes[remaining[0]] + 1, longest)
            full = max((tokens or self.tokens) // length, 1)
            rows, remaining = remaining[:full], remaining[full:]
            for i in rows:
                near = next((n for n in BETWEEN if sizes[i] < n), length)
                self._saved[near] += max(length - near, 0)
            # The last of several batches of a length has the others' shape.
            before = shape = (
                before if before[1] == length else (self._rows(len(rows), full), length)
            )
            arrays = tuple(
                padded([side[i] for i in rows], shape, vocabulary)
                for side, vocabulary in zip(sides, self.vocabularies, strict=False)
            )
            yield rows, arrays if len(sides) > 1 else arrays[0]

    def _length(self, tokens: int, longest: int) -> int:
        """Return `padded_length`, or a shorter length of BETWEEN that is in use."""
        usual = padded_length(tokens, longest)
        used = (n for n in BETWEEN if tokens <= n and self._saved[n] >= self.compile_tokens)
        return min(next(used, usual), usual)

    def lengths(self) -> list[int]:
        """Return every length of a batch of sources without BETWEEN."""
        return [*(n for n in LENGTHS if n < self.max_source), self.max_source]

    def shapes(self) -> list[tuple[int, int]]:
        """Return every shape (rows, length) that a batch of sources may have without BETWEEN."""
        found = dict[tuple[int, int], None]()
        for length in self.lengths():
            full = max(self.tokens // length, 1)
            found |= dict.fromkeys((self._rows(n, full), length) for n in range(1, full + 1))
        return sorted(found)

    def _rows(self, count: int, full: int) -> int:
        """Return `full`, a quarter of it, a sixteenth ..., rounded up to a multiple of the devices.

        So a single line does not cost a full batch, and the shapes to compile stay few.
        """
        while full // 4 >= count:
            full //= 4
        return -(-full // self.devices) * self.devices


def padded(rows: Sequence[list[int]], shape: tuple[int, int], vocabulary: Vocabulary) -> np.ndarray:
    """Return an array of rows with EOS, then PAD."""
    padded = np.full(shape, vocabulary.pad_id, np.int32)
    for row, tokens in zip(padded, rows, strict=False):
        row[: len(tokens) + 1] = [*tokens, vocabulary.eos_id]
    return padded


class Prefix(NamedTuple):
    """The beginning of an output."""

    tokens: list[int]
    ends_in_word: bool  # rather than in a punctuation mark, or in a letter that is a word itself


class Draws(NamedTuple):
    """The arguments of `sample` for each row of a batch; `number` is that of the line."""

    seed: Int[AnyArray, " B"]
    number: Int[AnyArray, " B"]
    temperature: Float[AnyArray, " B"]
    top_k: Int[AnyArray, " B"]
    top_p: Float[AnyArray, " B"]


class Rows(NamedTuple):
    """The rows of a batch with what their requests need.

    values: the values of constraints that each line has its own of.
    prefix, ends_in_word: as in `Prefix`; -1 after the tokens.
    """

    source: Int[AnyArray, "B S"]
    draws: Draws | None = None
    values: Mapping[str, Int[AnyArray, " B"]] = {}  # nobody changes it
    prefix: Int[AnyArray, "B P"] | None = None
    ends_in_word: Int[AnyArray, " B"] | None = None


def rows_of(
    source: Int[np.ndarray, "B S"],
    requests: Sequence[Request],
    numbers: Sequence[int],
    prefixes: Sequence[Prefix] | None,
    longest: int,
) -> Rows:
    """Return a batch with what its requests need.

    requests, numbers, prefixes: one for each line, whose rows come first.
    """

    def column(values: Iterable[Any], dtype: type, padding: float = 0) -> np.ndarray:
        found = np.array([*values], dtype)
        return np.pad(found, (0, len(source) - len(found)), constant_values=padding)

    draws = prefix = ends_in_word = None
    if any(request.samples for request in requests):
        draws = Draws(
            column((request.seed for request in requests), np.uint32),
            column(numbers, np.int32),
            column((request.temperature for request in requests), np.float32),
            column((request.top_k for request in requests), np.int32),
            column((request.top_p for request in requests), np.float32, padding=1),
        )
    names = (name for name, constraint in CONSTRAINTS.items() if constraint.each_line)
    own = {name: [getattr(request, name) for request in requests] for name in names}
    values = {name: column(found, np.int32) for name, found in own.items() if any(found)}
    if prefixes is not None:
        width = padded_length(max(1, *(len(each.tokens) for each in prefixes)), longest)
        prefix = np.full((len(source), width), -1, np.int32)
        for row, each in zip(prefix, prefixes, strict=False):
            row[: len(each.tokens)] = each.tokens
        ends_in_word = column((each.ends_in_word for each in prefixes), np.int32)
    return Rows(source, draws, values, prefix, ends_in_word)


class Program(NamedTuple):
    """The static part of a search; everything else is an argument of the compiled function.

    values: the values of constraints that all lines share, by name.
    """

    n_best: int = 1
    samples: int = 0
    inside_word: bool = False
    values: tuple[tuple[str, Any], ...] = ()


def search_of(
    program: Program, rows: Rows, phrases: Phrases | None, vocabulary: Vocabulary
) -> Callable[..., Hypotheses]:
    """Return the search of a batch, as `generate.translate` takes it."""
    search = beam_search
    if rows.draws is not None:
        seed, number, temperature, top_k, top_p = rows.draws
        # Draws of another kind of keys, which JAX may be set to, depend on the batch.
        key_of = partial(jax.random.key, impl="threefry2x32")
        keys = jax.vmap(jax.random.fold_in)(jax.vmap(key_of)(seed), number)
        search = partial(sample, keys=keys, temperature=temperature, top_k=top_k, top_p=top_p)
    common: dict[str, PyTree] = dict(program.values)
    if phrases is not None:
        common["without"] = phrases
    prefix = rows.prefix
    if prefix is None and not common and not rows.values:
        return search
    continuations = None if program.inside_word else vocabulary.continuations

    def chosen(
        step: Step, state: State, max_lengths: Int[Array, " B"], **settings: Any
    ) -> Hypotheses:
        each_hypothesis = partial(jnp.repeat, repeats=settings["beam_size"], axis=0)
        given = 0 if prefix is None else (prefix >= 0).sum(axis=1, dtype=jnp.int32)

        def masks(space: Space) -> list[Mask]:
            values = common | {name: each_hypothesis(own) for name, own in rows.values.items()}
            made = [CONSTRAINTS[name].mask(value, space) for name, value in values.items()]
            if prefix is None:
                return made
            after = None
            if continuations is not None and rows.ends_in_word is not None:
                after = ~jnp.asarray(continuations)[each_hypothesis(rows.ends_in_word)]
            begun = beginning_with(each_hypothesis(prefix), space, after)
            return [*(except_in_prefix(mask, space) for mask in made), begun]

        if prefix is not None:
            max_lengths = jnp.maximum(max_lengths, given + 1)
        options: dict[str, Any] = {"masks": masks, "size": vocabulary.size, "given": given}
        return masked_search(step, state, max_lengths, search=search, **options, **settings)

    return chosen
