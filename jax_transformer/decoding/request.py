"""§6.1 Decoding options, declared once: one `Request` is asked of a command, a method or a server.

The flags of `translate` and the server's schema are made from it; a test compares the keywords in
`TextOptions` and `Options`, and the table in docs/decoding.md. A new constraint is a field here and
in `TextOptions`, a row of `constraints.CONSTRAINTS`, and a row of that table.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from types import NoneType
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    TypedDict,
    get_args,
    get_origin,
    get_type_hints,
)

from annotated_types import Ge, Le

from jax_transformer.config import ModelConfig
from jax_transformer.data.scripts import is_blank
from jax_transformer.data.text import single_line
from jax_transformer.declared import Declared, Meaning
from jax_transformer.errors import InputError, did_you_mean

Utility = Literal["chrf", "bleu"]
Tokenizer = Literal["13a", "none", "intl", "char", "zh"]  # of BLEU
Count = Annotated[int, Ge(0), Le(2**31 - 1)]
_TINY = 1e-6  # a temperature below it is as good as 0; devices read some as 0


class Excludes(frozenset[str]):
    """Options that an option cannot be combined with; "ensemble" for several models."""

    def __new__(cls, *names: str) -> "Excludes":
        """Take the names."""
        return super().__new__(cls, names)


class Needs(str):
    """An option without which an option has no meaning."""


@dataclass(frozen=True)
class Request(Declared):
    """Options of one translation. The defaults change nothing.

    Raises InputError for a value out of range, and for options that cannot be combined.
    """

    n_best: Annotated[
        int,
        Ge(1),
        Meaning("Number of different translations of each line, best first."),
        Excludes("samples", "mbr", "split_sentences"),
    ] = 1
    scores: Annotated[
        bool,
        Meaning("Give the score of each output: log P divided by the length penalty."),
        Excludes("split_sentences"),
    ] = False
    token_scores: Annotated[
        bool,
        Meaning("Give each token of an output and its log P in nats, the end mark included."),
        Excludes("split_sentences"),
    ] = False
    alignments: Annotated[
        bool,
        Meaning(
            "Give the word alignment of each output: pairs of a source word and an output word, "
            "counted from 0."
        ),
        Excludes("split_sentences", "ensemble"),
    ] = False
    alignment_layer: Annotated[
        Count | None,
        Meaning(
            "Decoder layer used for alignment, from 0 (default: the second-to-last, or the last if "
            "there are two)."
        ),
        Needs("alignments"),
    ] = None
    alignment_head: Annotated[
        Count | None,
        Meaning("Attention head used for alignment, from 0 (default: average over heads)."),
        Needs("alignments"),
    ] = None
    split_sentences: Annotated[
        bool,
        Meaning("Translate each line sentence by sentence, and join the translations."),
        Excludes("prefixes"),
    ] = False
    mbr: Annotated[
        Utility | None,
        Meaning(
            "From the beam or the samples, choose the output with the highest mean chrF or BLEU "
            "against all of them (minimum Bayes risk)."
        ),
    ] = None
    samples: Annotated[
        int,
        Ge(0),
        Le(10_000),
        Meaning("Number of outputs sampled for each line instead of a search (0: search)."),
    ] = 0
    temperature: Annotated[
        float,
        Ge(0),
        Le(1e6),
        Meaning("Temperature of sampling, which divides log P (0: take the likeliest token)."),
        Needs("samples"),
    ] = 1.0
    top_k: Annotated[
        Count, Meaning("Sample from the k most likely tokens only (0: no limit)."), Needs("samples")
    ] = 0
    top_p: Annotated[
        float,
        Ge(_TINY),
        Le(1),
        Meaning(
            "Sample from the most likely tokens only: the smallest set of them whose probabilities "
            "sum to at least this."
        ),
        Needs("samples"),
    ] = 1.0
    seed: Annotated[Count, Meaning("Random seed for sampling."), Needs("samples")] = 0
    prefixes: Annotated[
        tuple[str, ...] | None, Meaning("The beginning of each line's outputs, or blank.")
    ] = None
    inside_word: Annotated[
        bool,
        Meaning("Allow an output to continue inside the last word of its prefix."),
        Needs("prefixes"),
    ] = False
    min_length: Annotated[
        Count, Meaning("Minimum number of tokens of an output, the end mark included.")
    ] = 0
    no_repeat_ngram: Annotated[
        int, Ge(0), Le(100), Meaning("Never repeat an n-gram of this length (0: off).")
    ] = 0
    without: Annotated[tuple[str, ...], Meaning("Words or phrases to avoid.")] = ()

    def __post_init__(self) -> None:
        """Check each value, then what they are together."""
        super().__post_init__()
        if 0 < self.temperature < _TINY:
            raise InputError(
                f"temperature: expected 0, or at least {_TINY:f}, found {self.temperature}"
            )
        for number, phrase in enumerate(self.without):
            if is_blank(single_line(phrase, f"without[{number}]")):
                raise InputError(
                    f"without: expected phrases that are not blank, found {phrase!r}; remove it"
                )
        for name in self.given:
            option = options()[name]
            for other in option.excludes & self.given.keys():
                raise _not_together(name, other)
            if option.needs and option.needs not in self.given:
                raise InputError(
                    f"{name}={self.given[name]} requires {option.needs}; give {option.needs}, "
                    f"or remove {name}"
                )
        if self.samples and self.split_sentences and not self.mbr:
            raise _not_together("samples", "split_sentences (except with mbr)")

    @property
    def given(self) -> dict[str, Any]:
        """The options that differ from their defaults."""
        both = {each.name: (getattr(self, each.name), each.default) for each in fields(self)}
        return {name: value for name, (value, default) in both.items() if value != default}

    @property
    def several(self) -> bool:
        """True if the search has to find more than the best output of each line."""
        return self.n_best > 1 or (self.mbr is not None and not self.samples)

    def check_model(self, model: ModelConfig, beam_size: int, *, ensemble: bool = False) -> None:
        """Raise InputError for options that this kind of model does not have."""
        counts = {"layer": model.num_decoder_layers, "head": model.num_heads}
        for part, count in counts.items():
            number = getattr(self, f"alignment_{part}")
            if number is not None and number >= count:
                raise InputError(
                    f"alignment_{part}={number}: expected at most {count - 1}, because the model "
                    f"has {count} and the first is 0; choose another"
                )
        for name in self.given:
            if ensemble and "ensemble" in options()[name].excludes:
                raise _not_together(name, "ensemble")
        if self.n_best > beam_size:
            raise InputError(
                f"n_best={self.n_best}: expected at most the beam size, {beam_size}; give a "
                f"smaller one, or a beam size of {self.n_best} (decoding.beam_size)"
            )
        if self.mbr and (self.samples or beam_size) == 1:
            raise InputError(
                f"mbr={self.mbr}: expected several outputs to choose from, found one; give "
                "samples=32, or a beam size of 8 (decoding.beam_size)"
            )


class SearchOptions(TypedDict, total=False):
    """Settings of a search that a call may change."""

    beam_size: int | None
    alpha: float | None


class TextOptions(SearchOptions, total=False):
    """The keywords of `translate` with which the result has one str for each line."""

    split_sentences: bool
    mbr: Utility | None
    temperature: float
    top_k: int
    top_p: float
    seed: int
    prefixes: Sequence[str] | None
    inside_word: bool
    min_length: int
    no_repeat_ngram: int
    without: Sequence[str]


class Options(TextOptions, total=False):
    """All of them; with one of these the result has a list of translations for each line."""

    n_best: int
    scores: bool
    token_scores: bool
    alignments: bool
    alignment_layer: int | None
    alignment_head: int | None
    samples: int


class Option(NamedTuple):
    """One option, as it is declared; kind: its type, without None."""

    kind: Any
    default: Any
    meaning: str
    excludes: frozenset[str]
    needs: str


@cache
def options() -> dict[str, Option]:
    """Return each option of a request by its name."""
    found, hints = dict[str, Option](), get_type_hints(Request, include_extras=True)
    for each in fields(Request):
        kind, *notes = get_args(hints[each.name])
        if NoneType in get_args(kind):
            kind = get_args(kind)[0]
        kind = get_args(kind)[0] if get_origin(kind) is Annotated else kind
        (meaning,) = (note.text for note in notes if isinstance(note, Meaning))
        excludes = frozenset[str]().union(*(note for note in notes if isinstance(note, Excludes)))
        needs = "".join(note for note in notes if isinstance(note, Needs))
        found[each.name] = Option(kind, each.default, meaning, excludes, needs)
    return found


def request_of(given: Mapping[str, Any], caller: str, also: Sequence[str] = ()) -> Request:
    """Return the request of names and values. also: other names that the caller takes."""
    for name in given:
        if name not in options():
            hint = did_you_mean(name, [*options(), *also])
            raise InputError(f"{caller}: no option is called {name}{hint}")
    values: Any = {n: tuple(v) if isinstance(v, list) else v for n, v in given.items()}
    return Request(**values)


def _not_together(name: str, other: str) -> InputError:
    return InputError(f"{name} cannot be combined with {other}; remove one of them")
