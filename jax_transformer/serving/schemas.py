"""The schemas of requests and answers, from which /openapi.json is made."""

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_type_hints

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, create_model
from pydantic.fields import FieldInfo

from jax_transformer.config import DecodingConfig
from jax_transformer.declared import Meaning
from jax_transformer.decoding.request import Request as Options
from jax_transformer.decoding.request import options
from jax_transformer.errors import OURS, did_you_mean

MOST_LINES = 256  # of a request
MOST_CHARACTERS = 10_000  # of a line
MOST_SAMPLES = 64
MOST_LETTERS = 100  # of all phrases of `without`, whose automaton takes seconds
MOST_WEIGHTS = 2_000_000  # of an attention page, which has 20 MB then
MOST_OUTPUTS = 2_048  # of a request: lines, or sentences, times outputs of each

Line = Annotated[str, Field(max_length=MOST_CHARACTERS)]
Phrase = Annotated[str, Field(min_length=1, max_length=40)]
Lines = Annotated[list[Line], Field(min_length=1, max_length=MOST_LINES)]


# A float32 has no more digits than these.
Nats = Annotated[float, AfterValidator(lambda value: round(float(f"{value:.6g}"), 6))]


_PLAINLY = {  # words of pydantic -> ours
    "a boolean": "true or false",
    "integer": "whole number",
    "greater than or equal to": "at least",
    "less than or equal to": "at most",
    ", unable to parse raw data as a unicode string": " of whole characters",
}


def wrong_value(error: Any, known: Mapping[str, FieldInfo]) -> str:
    """Return one line about a mistake that pydantic found in a request.

    known: the names of the fields that the request may have.
    """
    name, *places = error["loc"][1:] or ["body"]
    name = " ".join(name[:40].split())
    where = f"{name}{''.join(f'[{place}]' for place in places)}: "
    if error["type"] == "extra_forbidden":
        if (ours := OURS.get(name, name)) in DecodingConfig.__dataclass_fields__:
            return f"{where}set when the server starts, with --set decoding.{ours}=VALUE"
        return f"{where}this path has no such option{did_you_mean(name.lower(), known)}"
    found = "none" if error["input"] is None else json.dumps(error["input"])[:40]
    if name == "body":
        needed = ", ".join(name for name, field in known.items() if field.is_required())
        return f"{where}expected a JSON object with {needed}, found {found}"
    if error["type"] == "missing":
        return f"{where}expected a value, found none"
    for limit, most in ("max_length", "at most"), ("min_length", "at least"):
        if limit in (limits := error.get("ctx", {})):
            what = "characters" if isinstance(error["input"], str) else "of them"
            length = f"{len(error['input']):,}"
            return f"{where}expected {most} {limits[limit]:,} {what}, found {length}"
    if not (message := error["msg"]).startswith("Input should be "):
        return where + message[:1].lower() + message[1:].replace(" after validation", "")
    expected = message.removeprefix("Input should be ").replace("valid ", "")
    for theirs, ours in _PLAINLY.items():
        expected = expected.replace(theirs, ours)
    return f"{where}expected {expected}, found {found}"


class Request(BaseModel):
    """A request; a name that it does not have is refused."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, strict=True)


# What a request may ask for at most; the other options are as `decoding.request` declares them.
_LIMITS: dict[str, Any] = {
    "samples": Annotated[int, Field(ge=0, le=MOST_SAMPLES)],
    "no_repeat_ngram": Annotated[int, Field(ge=0, le=8)],  # each is compiled
    "without": Annotated[list[Phrase], Field(max_length=8)],
    "prefixes": Annotated[Lines | None, None],
}
_HINTS = get_type_hints(Options, include_extras=True)
_FIELDS: dict[str, Any] = {
    name: (Annotated[_LIMITS.get(name, _HINTS[name]), Meaning(option.meaning)], option.default)
    for name, option in options().items()
}


class TranslateRequest(create_model("TranslateOptions", __base__=Request, **_FIELDS)):
    """Lines to translate, and what comes out: docs/decoding.md has the meaning of each option."""

    lines: Lines


class Token(BaseModel):
    """A token of an output and its log P in nats."""

    piece: str
    log_prob: Nats


class Output(BaseModel):
    """One output. Of a line that was split into sentences it has the text alone."""

    text: str
    score: Nats | None = Field(default=None, description="log P over the length penalty")
    log_prob: Nats | None = Field(default=None, description="log P in nats")
    num_tokens: int | None = Field(default=None, description="tokens, the end mark included")
    alignment: list[tuple[int, int]] | None = Field(
        default=None,
        description="word of the source and word of the output that belong together, from 0",
    )
    tokens: list[Token] | None = None


class Outputs(BaseModel):
    """For each line its outputs, best first; none for a blank line."""

    outputs: list[list[Output]]


class ParseRequest(Request):
    """Sentences to parse: words and punctuation with spaces between."""

    lines: Lines
    n_best: int = Field(default=1, ge=1, le=MOST_SAMPLES)


class ScoreRequest(Request):
    """Pairs of lines; targets[i] translates sources[i]."""

    sources: Lines
    targets: Lines


class Score(BaseModel):
    """Log P of a target given its source; null if a side is blank."""

    log_prob: Nats | None
    num_tokens: int | None


class Scores(BaseModel):
    """For each pair its score."""

    scores: list[Score]


class AttentionRequest(Request):
    """A sentence, and perhaps its translation; without one the model's own."""

    source: Line
    target: Line | None = None


class ModelDescription(BaseModel):
    """The model that answers."""

    name: str
    description: str
    task: Literal["translation", "parsing"]
    source_language: str
    target_language: str
    beam_size: int
    max_tokens: int = Field(description="the largest number of tokens of a line")
    attention: bool = Field(description="whether /attention shows where it attends")


class Models(BaseModel):
    """The models that this server has: one."""

    models: list[ModelDescription]


class Health(BaseModel):
    """An answer of a server that is ready."""

    status: Literal["ok"]


class Error(BaseModel):
    """An error in one line: what was expected, what was found, and the remedy."""

    error: str
