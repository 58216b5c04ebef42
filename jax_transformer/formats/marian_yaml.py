"""YAML files of Marian: options, and tables of pieces."""

from typing import Any

import yaml

from jax_transformer.errors import InputError

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the first is libyaml's, ten times faster


def read_options(text: str) -> dict[str, Any]:
    """Return the options of a YAML file. Raises InputError if it is not a map."""
    try:
        options = yaml.load(text, Loader=_LOADER)  # noqa: S506, both are safe
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise _not_yaml("options, `name: value`", error) from None
    if not isinstance(options, dict):
        raise InputError(f"expected options, `name: value`, found {str(options)[:40]!r}; mend it")
    return {str(name): value for name, value in options.items()}


def read_pieces(text: str) -> list[str]:
    """Return the pieces of a vocabulary in the order of their ids: `piece: id` in each line.

    A piece is text even if YAML reads it as a number, as true or as null. An id without a piece
    gets a piece that no text has. Raises InputError if it is something else.
    """
    table = _scalars(text)
    ids: dict[int, str] = {}
    for piece, number in zip(table[::2], table[1::2], strict=True):
        index = int(number) if number.isascii() and number.isdecimal() else -1
        if index < 0 or index in ids:
            raise InputError(
                f"expected a piece and an id of its own, found {piece!r}: {number}; mend the line"
            )
        ids[index] = piece
    if not ids or max(ids) > 2 * len(ids) + 100:
        raise InputError(
            f"expected ids from 0 on, found {len(ids):,} ids up to {max(ids, default=0):,}; give "
            "the vocabulary of the model"
        )
    return [ids.get(index, f"<missing {index}>") for index in range(max(ids) + 1)]


def _scalars(text: str) -> list[str]:
    """Return keys and values of a map in turn, as text."""
    wanted = [yaml.StreamStartEvent, yaml.DocumentStartEvent, yaml.MappingStartEvent]
    scalars = []
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            if isinstance(event, yaml.ScalarEvent) and not wanted:
                scalars.append(event.value)
            elif isinstance(event, yaml.MappingEndEvent):
                return scalars
            elif not wanted or not isinstance(event, wanted.pop(0)):
                raise InputError(
                    "expected a table of pieces, `piece: id` in each line, found another form in "
                    f"line {event.start_mark.line + 1}; mend it"
                )
    except yaml.YAMLError as error:
        raise _not_yaml("a table of pieces, `piece: id` in each line", error) from None
    return scalars


def _not_yaml(expected: str, error: Exception) -> InputError:
    what = " ".join(str(error).split())
    return InputError(f"expected {expected} in YAML, found something else: {what}; mend it")
