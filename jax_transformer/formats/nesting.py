"""A check that one can walk through values that were read: no cycles, not too deep or too many."""

from typing import Any

from jax_transformer.errors import InputError

DEEPEST, LARGEST = 100, 10_000_000  # levels, and values if each shared one is counted anew


def check_nesting(value: Any) -> None:
    """Raise InputError for values that no program can walk through.

    Those hold themselves, or are nested too deep, or share values so that there seem to be far
    too many. A walk that calls itself would end in a crash, so this one has a list.
    """
    known: dict[int, tuple[int, int]] = {}  # levels and number of values in a container, by its id
    opened: set[int] = set()
    todo = [value]
    while todo:
        if id(container := todo[-1]) in known:
            todo.pop()
            continue
        parts = _containers(container)
        unknown = [part for part in parts if id(part) not in known]
        if unknown and id(container) in opened:
            raise InputError("found a value that holds itself, which cannot be read")
        elif unknown:
            opened.add(id(container))
            todo += unknown
        else:
            inside = [known[id(part)] for part in parts]
            levels = 1 + max((levels for levels, _ in inside), default=0)
            count = 1 + _length(container) + sum(count for _, count in inside)
            if levels > DEEPEST or count > LARGEST:
                raise InputError(
                    f"expected at most {DEEPEST} levels and {LARGEST:,} values, found more; a "
                    "model's file has a few levels"
                )
            known[id(container)] = levels, count
            todo.pop()


def _containers(value: Any) -> list[Any]:
    """Return the lists, dictionaries and tuples in a value; sets hold texts and numbers only."""
    items = value.values() if isinstance(value, dict) else value
    if not isinstance(value, dict | list | tuple):
        return []
    return [item for item in items if isinstance(item, dict | list | tuple)]


def _length(value: Any) -> int:
    return len(value) if isinstance(value, dict | list | tuple | set | frozenset) else 0
