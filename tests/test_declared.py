"""Declarations: values are checked against their annotations, however an object is made."""

import dataclasses
import json
import subprocess
import sys
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pydantic
import pytest
from annotated_types import Ge, Lt
from refusals import refusal

from jax_transformer.declared import Declared, Meaning, input_error


@dataclass(frozen=True)
class Part(Declared):
    count: Annotated[int, Ge(1)] = 1


@dataclass(frozen=True)
class Whole(Declared):
    size: Annotated[int, Ge(1), Meaning("number of pieces")] = 8
    share: Annotated[float, Ge(0), Lt(1)] = 0.5
    names: tuple[str, ...] = ()
    kind: Literal["a", "b"] = "a"
    later: Annotated[int, Ge(1)] = None  # pyright: ignore
    part: Part = Part()


WRONG: list[tuple[str, Any]] = [
    ("size", 0),
    ("size", True),
    ("size", 1.0),
    ("size", "3"),
    ("size", None),
    ("share", float("nan")),
    ("names", "word"),
    ("kind", "c"),
    ("later", 0),
]


@pytest.mark.parametrize(("name", "value"), [*WRONG, ("names", ["a"]), ("part", {"count": 1})])
def test_a_value_that_its_annotation_does_not_allow_is_refused(name, value):
    for call in (Whole, lambda **change: dataclasses.replace(Whole(), **change)):
        message = refusal(lambda call=call: call(**{name: value}))
        assert message.startswith(f"{name}: expected ")
        assert message.endswith(f", found {value!r}")


@pytest.mark.parametrize(("name", "value"), [*WRONG, ("part", {"count": 0}), ("new", 1)])
def test_json_is_read_by_the_same_rules(name, value):
    text = json.dumps({name: value})
    with pytest.raises(pydantic.ValidationError) as caught:
        pydantic.TypeAdapter(Whole).validate_json(text, strict=True)
    assert name in str(input_error(caught.value))


def test_what_is_allowed_stays_as_it_is():
    whole = Whole(share=0, names=("a", "b"), later=2, part=Part(3))
    assert (whole.share, whole.names, whole.later, whole.part.count) == (0, ("a", "b"), 2, 3)
    back = pydantic.TypeAdapter(Whole).validate_json(json.dumps(dataclasses.asdict(whole)))
    assert back == whole
    assert hash(back) == hash(whole)
    schema = pydantic.TypeAdapter(Whole).json_schema()["properties"]["size"]
    assert (schema["minimum"], schema["description"]) == (1, "number of pieces")


def test_declarations_are_imported_without_pydantic():
    program = (
        "import sys, annotated_types, jax_transformer.declared; sys.exit('pydantic' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
