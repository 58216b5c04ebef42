"""Names and objects of a pickle until they are plain values: texts, numbers and containers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jax_transformer.errors import InputError

_UNKNOWN = object()


@dataclass(frozen=True)
class Name:
    """A class or function that a pickle may name, as "module.name", and what replaces its calls.

    call: a function of the tuple of arguments; it returns NotImplemented for arguments that it
        does not accept. None if the name may not be called.
    """

    text: str
    call: Callable[[tuple[Any, ...]], Any] | None = None


class Record:
    """An object that becomes a plain value as soon as it is used.

    finish: a function of the state that the pickle gives to the object, None if it gives none; it
        returns NotImplemented for a state that it does not accept.
    """

    def __init__(self, text: str, finish: Callable[[Any], Any]) -> None:
        """Begin without a state; `text` names the class."""
        self._text, self._finish = text, finish
        self._state, self._value = None, _UNKNOWN

    def set_state(self, state: Any) -> None:
        """Take the state. Raises InputError if the value has been used."""
        if self._value is not _UNKNOWN:
            raise InputError(f"found a {self._text} that holds itself, which cannot be read")
        self._state = state

    def value(self) -> Any:
        """Return the value, always the same one. Raises InputError if the state does not fit."""
        if self._value is _UNKNOWN:
            self._value = self._finish(self._state)
        if self._value is NotImplemented:
            raise InputError(f"found a {self._text} whose content is not what {self._text} has")
        return self._value


def plain(value: Any) -> Any:
    """Return the text of a name, the value of a record, and any other value as it is."""
    if isinstance(value, Name):
        return value.text
    return value.value() if isinstance(value, Record) else value


def checked_key(value: Any) -> Any:
    """Return a key of a dictionary or a member of a set.

    Raises InputError for anything but a text or a number, because hashing nested tuples or finding
    one of many chosen integers may take forever.
    """
    value = plain(value)
    small = not isinstance(value, int) or abs(value) < 1 << 64
    if not small or not isinstance(value, str | bytes | int | float | None):
        raise InputError(f"expected texts and numbers as keys, found a {type(value).__name__}")
    return value
