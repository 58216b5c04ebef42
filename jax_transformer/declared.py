"""Declared once: frozen dataclasses whose annotations hold the type, range and meaning of a value.

    @dataclass(frozen=True)
    class Request(Declared):
        n_best: Annotated[int, Ge(1), Meaning("number of translations for each line")] = 1

pydantic checks the values when an object is made, by `dataclasses.replace` or from JSON too. It is
imported at the first check, so that --help does not wait for it.
"""

import dataclasses
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, get_type_hints

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


class Declared:
    """A dataclass whose values are checked, without conversions, when an object is made.

    A default of None, of whatever type, is left to the class to replace by a value. `inside` stands
    before the names of fields in errors, as in `model.`.
    """

    inside: ClassVar[str] = ""
    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}  # for requests that FastAPI reads

    def __post_init__(self) -> None:
        """Raise InputError for the first value that its annotation does not allow."""
        from pydantic import ValidationError

        try:
            _checks(type(self)).validate_python(vars(self), strict=True)
        except ValidationError as error:
            raise input_error(error, self.inside) from None


def input_error(error: "ValidationError", inside: str = "") -> InputError:
    """Return the first fault that pydantic found as one line: the place, the fault and the value.

    inside: the text before the place.
    """
    first = error.errors(include_url=False)[0]
    if first["type"] == "value_error":  # an error of a rule, which names its place
        return InputError(str(first.get("ctx", {})["error"]))
    place = inside + ".".join(map(str, first["loc"]))
    fault = first["msg"].replace("Input should be", "expected").replace("ed gr", "ed a value gr")
    fault = fault.replace("ed less", "ed a value less")
    found = "" if first["type"] == "missing" else f", found {shown(first['input'])}"
    return InputError(f"{place}: {fault}{found}")


@cache
def _checks(kind: type) -> "TypeAdapter":
    from pydantic import TypeAdapter
    from typing_extensions import TypedDict  # pydantic requires this one before Python 3.12

    hints = get_type_hints(kind, include_extras=True)
    for part in dataclasses.fields(kind):
        if part.default is None:
            hints[part.name] |= None
    hints = {part.name: hints[part.name] for part in dataclasses.fields(kind)}
    return TypeAdapter(TypedDict(kind.__name__, hints))  # pyright: ignore
