"""Declared once: frozen dataclasses whose annotations hold the type, range and meaning of a value.

    @dataclass(frozen=True)
    class Request(Declared):
        n_best: Annotated[int, Ge(1), Meaning("number of translations for each line")] = 1

pydantic checks the values when an object is made, by `dataclasses.replace` or from JSON too. It is
imported at the first check, so that --help does not wait for it.
"""

import dataclasses
import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    get_args,
    get_origin,
    get_type_hints,
)

from jax_transformer.errors import InputError, shown

if TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationError


@dataclass(frozen=True)
class Meaning:
    """The meaning of a value: its text for --help, --settings, docs/ and the server's schema."""

    text: str

    def __get_pydantic_json_schema__(self, core_schema: Any, handler: Any) -> dict[str, Any]:
        """Return the schema with the text as the description of the field."""
        return handler(core_schema) | {"description": self.text}


class Rule(NamedTuple):
    """A combination of values that is refused.

    when: true of an object that is refused. message: the error, in which `{name}` is the value of
    the attribute `name`.
    """

    when: Callable[[Any], object]
    message: str


class Declared:
    """A dataclass whose values are checked, without conversions, when an object is made.

    `inside` stands before the names of fields in errors, as in `model.`. No number may be infinite
    or NaN.
    """

    inside: ClassVar[str] = ""
    rules: ClassVar[tuple[Rule, ...]] = ()
    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}  # for JSON, and what FastAPI reads

    def __post_init__(self) -> None:
        """Raise InputError for a value that its annotation does not allow, or by a rule."""
        from pydantic import ValidationError

        try:
            _checks(type(self)).validate_python(vars(self), strict=True)
        except ValidationError as error:
            raise input_error(error, self.inside) from None
        self.fill()
        for rule in self.rules:
            if rule.when(self):
                raise InputError(rule.message.format_map(_Attributes(self)))

    def fill(self) -> None:
        """Replace values of None, which fields whose default is None may have."""


class _Attributes(dict[str, Any]):
    """The attributes of an object, properties too, as `str.format_map` reads them."""

    def __init__(self, owner: object) -> None:
        self._owner = owner

    def __missing__(self, name: str) -> Any:
        return getattr(self._owner, name)


def annotations(kind: type) -> dict[str, Any]:
    """Return the annotation of each field of a dataclass."""
    hints = get_type_hints(kind, include_extras=True)
    return {part.name: hints[part.name] for part in dataclasses.fields(kind)}


def meaning(hint: Any) -> str:
    """Return the text of an annotation's Meaning."""
    return next(part.text for part in hint.__metadata__ if isinstance(part, Meaning))


def choices(hint: Any) -> tuple[Any, ...]:
    """Return the values that an annotation lists as a Literal; none for other kinds."""
    kind = hint.__origin__
    return get_args(kind) if get_origin(kind) is Literal else ()


def input_error(error: "ValidationError", inside: str = "") -> InputError:
    """Return the first fault that pydantic found as one line: the place, the fault and the value.

    inside: the text before the place.
    """
    first = error.errors(include_url=False)[0]
    if first["type"] == "value_error":  # an InputError, which names its place
        return InputError(str(first.get("ctx", {})["error"]))
    place = inside + ".".join(map(str, first["loc"]))
    fault = re.sub("Input should be (?=greater|less)", "expected a value ", first["msg"])
    fault = fault.replace("Input should be", "expected").replace("a valid tuple", "a list")
    found = "" if first["type"] == "missing" else f", found {shown(first['input'])}"
    if first["type"] == "literal_error":
        choices = re.findall("'(.*?)'", first["msg"])
        near = difflib.get_close_matches(str(first["input"]), choices, n=1)
        found += f"; did you mean {near[0]}?" if near else ""
    return InputError(f"{place}: {fault}{found}")


@cache
def _checks(kind: type) -> "TypeAdapter":
    from pydantic import TypeAdapter
    from typing_extensions import TypedDict  # pydantic requires this one before Python 3.12

    hints = annotations(kind)
    for part in dataclasses.fields(kind):
        if part.default is None:
            hints[part.name] |= None
    values = TypedDict(kind.__name__, hints)  # pyright: ignore
    values.__pydantic_config__ = {"allow_inf_nan": False}  # pyright: ignore
    return TypeAdapter(values)
