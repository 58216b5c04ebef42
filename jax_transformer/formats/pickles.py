"""Pickles, read by a machine that cannot import or call anything that a pickle names.

A pickle is a program. Its opcodes push values on a stack, collect them in lists and dictionaries,
remember them in a memo, name functions and classes, and call those. Python's own reader imports
what is named and calls it. Here a name is looked up in a table by its module and name, and a call
goes to the table's function, which gets plain values and returns one. All other names are refused.
"""

import struct
from collections.abc import Callable, Mapping
from mmap import mmap
from typing import Any

from jax_transformer.errors import InputError
from jax_transformer.formats.nesting import check_nesting
from jax_transformer.formats.pickled_objects import Name, Record, checked_key, plain

LONGEST_NAME = 1000  # bytes of a module or a name
LONGEST_INTEGER = 32  # bytes
# Calls may copy their arguments, and a pickle can give one long argument to many calls.
FREE_COPIES = 1 << 20

Names = Mapping[tuple[str, str], Name]
Persistent = Callable[[Any], Any]

_NUMBERS = {b"J": "<i", b"K": "<B", b"M": "<H", b"G": ">d"}
_TEXTS = {b"X": "<I", b"\x8c": "<B", b"\x8d": "<Q", b"T": "<i", b"U": "<B"}
_BYTES = {b"B": "<I", b"C": "<B", b"\x8e": "<Q"}
_INTEGERS = {b"\x8a": "<B", b"\x8b": "<i"}
_PUTS = {b"q": "<B", b"r": "<I"}
_GETS = {b"h": "<B", b"j": "<I"}
_IGNORED = {b"\x80": "<B", b"\x95": "<Q"}  # the protocol, and the length of a frame
_CONSTANTS = {b"N": None, b"\x88": True, b"\x89": False, b")": ()}
_EMPTY = {b"]": list, b"}": dict, b"\x8f": set}
_TUPLES = {b"\x85": 1, b"\x86": 2, b"\x87": 3}


def read_pickle(
    data: bytes | mmap, start: int, names: Names, persistent: Persistent | None = None
) -> tuple[Any, int]:
    """Return the value of the pickle that begins at `start`, and where the pickle ends.

    names: what the pickle may name.
    persistent: a function from what stands for an object outside of the pickle to that object.

    Names become their text, except where they are called. Raises InputError.
    """
    machine = _Machine(data, start, names, persistent)
    value = machine.run()
    check_nesting(value)
    return value, machine.at


class _Machine:
    def __init__(
        self, data: bytes | mmap, start: int, names: Names, persistent: Persistent | None
    ) -> None:
        self.at = self._start = start
        self._data, self._names, self._persistent = data, names, persistent
        self._stack: list[Any] = []
        self._below: list[list[Any]] = []  # the stacks under each mark
        self._memo: dict[int, Any] = {}
        self._copies_left = FREE_COPIES + len(data)

    def run(self) -> Any:
        while (code := self._take(1)) != b".":
            if code in _ACTIONS:
                _ACTIONS[code](self)
            else:
                self._push(code)
        return plain(self._pop())

    def _push(self, code: bytes) -> None:
        """Carry out an opcode whose argument comes in the pickle, not from the stack."""
        if code in _CONSTANTS:
            self._put(_CONSTANTS[code])
        elif code in _EMPTY:
            self._put(_EMPTY[code]())
        elif code in _PUTS:
            self._memo[self._number(_PUTS[code])] = self._top()
        elif code in _GETS:
            self._get(self._number(_GETS[code]))
        elif code in _NUMBERS:
            self._put(self._number(_NUMBERS[code]))
        elif code in _TEXTS:
            self._put(self._text(self._take(self._number(_TEXTS[code]))))
        elif code in _TUPLES:
            self._tuple([self._pop() for _ in range(_TUPLES[code])][::-1])
        elif code in _BYTES:
            self._put(self._take(self._number(_BYTES[code])))
        elif code in _INTEGERS:
            self._integer(self._number(_INTEGERS[code]))
        elif code in _IGNORED:
            self._number(_IGNORED[code])
        else:
            raise self._damaged(f"opcode 0x{code.hex()}, which torch.save does not write")

    def _take(self, count: int) -> bytes:
        if count < 0 or count > len(self._data) - self.at:
            raise self._damaged(f"the end where {count:,} bytes should be")
        self.at += count
        return self._data[self.at - count : self.at]

    def _damaged(self, found: str) -> InputError:
        return InputError(
            f"found {found}, at byte {self.at - self._start:,} of a pickle; the file is damaged or "
            "cut short: get it again"
        )

    def _number(self, form: str) -> Any:
        return struct.unpack(form, self._take(struct.calcsize(form)))[0]

    def _text(self, content: bytes) -> str:
        try:
            return content.decode("utf-8")
        except UnicodeDecodeError:
            raise self._damaged("text that is not UTF-8") from None

    def _integer(self, length: int) -> None:
        if length > LONGEST_INTEGER:
            raise self._damaged(f"an integer of {length:,} bytes")
        self._put(int.from_bytes(self._take(length), "little", signed=True))

    def _put(self, value: Any) -> None:
        self._stack.append(value)

    def _top(self) -> Any:
        if not self._stack:
            raise self._damaged("an opcode without its operands")
        return self._stack[-1]

    def _pop(self) -> Any:
        self._top()
        return self._stack.pop()

    def _mark(self) -> None:
        self._below.append(self._stack)
        self._stack = []

    def _pop_mark(self) -> list[Any]:
        if not self._below:
            raise self._damaged("the end of a list without its beginning")
        items, self._stack = self._stack, self._below.pop()
        return items

    def _get(self, index: int) -> None:
        if index not in self._memo:
            raise self._damaged(f"a reference to a missing value, {index:,}")
        self._put(self._memo[index])

    def _tuple(self, items: list[Any]) -> None:
        self._put(tuple(map(plain, items)))

    def _append(self, items: list[Any]) -> None:
        target = self._top()
        if type(target) is not list:
            raise self._damaged(f"{type(target).__name__} where a list should be")
        target.extend(map(plain, items))

    def _add(self, items: list[Any]) -> None:
        target = self._top()
        if type(target) is not set:
            raise self._damaged(f"{type(target).__name__} where a set should be")
        target.update(map(checked_key, items))

    def _set_items(self, items: list[Any]) -> None:
        target = self._top()
        if type(target) is not dict or len(items) % 2:
            raise self._damaged("pairs without a dictionary, or half of a pair")
        for key, value in zip(map(checked_key, items[::2]), items[1::2], strict=True):
            # OmegaConf's objects refer to the object that they are in, which has no value yet.
            within = key == "_parent" and isinstance(value, Record)
            target[key] = None if within else plain(value)

    def _dictionary(self) -> None:
        items = self._pop_mark()
        self._put({})
        self._set_items(items)

    def _name(self, module: Any, name: Any) -> None:
        found = self._names.get((module, name)) if type(module) is type(name) is str else None
        if found is None:
            shown = f"{module}.{name}"[:100].encode("unicode_escape").decode()
            raise InputError(
                f"found the name {shown}, which is not among those of tensors and plain settings; "
                "nothing was called; if you trust the file, load it with torch, and save the "
                "state_dict() alone"
            )
        self._put(found)

    def _name_in_lines(self) -> None:
        names = []
        for _ in range(2):
            end = self._data.find(b"\n", self.at, self.at + LONGEST_NAME)
            if end < 0:
                raise self._damaged("a name without an end")
            names.append(self._text(self._take(end + 1 - self.at)[:-1]))
        self._name(*names)

    def _name_on_stack(self) -> None:
        name = self._pop()
        self._name(self._pop(), name)

    def _call(self) -> None:
        arguments, function = self._pop(), self._pop()
        if type(function) is not Name or function.call is None or type(arguments) is not tuple:
            called = function.text if isinstance(function, Name) else type(function).__name__
            raise self._damaged(f"a call of {called}")
        self._count_copies(arguments)
        value = function.call(arguments)
        if value is NotImplemented:
            raise self._damaged(f"{function.text} with arguments that it does not have")
        self._put(value)

    def _count_copies(self, values: tuple[Any, ...]) -> None:
        containers = str | bytes | list | tuple | dict | set | frozenset
        self._copies_left -= sum(len(value) for value in values if isinstance(value, containers))
        if self._copies_left < 0:
            raise self._damaged("calls that copy the same values again and again")

    def _build(self) -> None:
        state, target = plain(self._pop()), self._top()
        if type(target) is Record:
            self._count_copies(state if type(state) is tuple else ())
            target.set_state(state)
        elif type(target) is not dict:  # attributes of a dictionary, which are not its items
            raise self._damaged(f"attributes of a {type(target).__name__}")

    def _resolve(self) -> None:
        if self._persistent is None:
            raise self._damaged("a reference to a tensor's numbers")
        self._put(self._persistent(plain(self._pop())))


_ACTIONS: dict[bytes, Callable[[_Machine], object]] = {
    b"(": _Machine._mark,
    b"0": _Machine._pop,
    b"1": _Machine._pop_mark,
    b"2": lambda machine: machine._put(machine._top()),
    b"t": lambda machine: machine._tuple(machine._pop_mark()),
    b"l": lambda machine: machine._put([*map(plain, machine._pop_mark())]),
    b"d": _Machine._dictionary,
    b"\x91": lambda machine: machine._put(frozenset(map(checked_key, machine._pop_mark()))),
    b"a": lambda machine: machine._append([machine._pop()]),
    b"e": lambda machine: machine._append(machine._pop_mark()),
    b"\x90": lambda machine: machine._add(machine._pop_mark()),
    b"s": lambda machine: machine._set_items([machine._pop(), machine._pop()][::-1]),
    b"u": lambda machine: machine._set_items(machine._pop_mark()),
    b"c": _Machine._name_in_lines,
    b"\x93": _Machine._name_on_stack,
    b"R": _Machine._call,
    b"\x81": _Machine._call,
    b"b": _Machine._build,
    b"Q": _Machine._resolve,
    b"\x94": lambda machine: machine._memo.__setitem__(len(machine._memo), machine._top()),
}
