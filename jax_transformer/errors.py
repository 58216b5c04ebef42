"""Exceptions that a user sees as one line: what is wrong, and how to mend it."""

import contextlib
import difflib
from collections.abc import Iterable, Iterator
from pathlib import Path


class InputError(ValueError):
    """An input that cannot be used.

    The message is one line: what was expected, what was found, where (file and line, or setting)
    and what to do about it. The commands in experiments/ print it without a traceback and exit
    with status 2.
    """


@contextlib.contextmanager
def located(path: Path) -> Iterator[None]:
    """Let each InputError of the block begin with the path."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean X?` for the nearest known name, else the known names."""
    known = sorted(known)
    leaves = {candidate.rpartition(".")[2]: candidate for candidate in known}
    leaves = {leaf: candidate for leaf, candidate in leaves.items() if not leaf.isdecimal()}
    leaf = name.rpartition(".")[2]
    if leaf in leaves:  # right but for its section
        return f"; did you mean {leaves[leaf]}?"
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6) or [
        leaves[close] for close in difflib.get_close_matches(leaf, leaves, n=1, cutoff=0.6)
    ]
    return f"; did you mean {near[0]}?" if near else f"; known: {', '.join(known)}"


def expect_a(kind: type, **arguments: object) -> None:
    """Raise InputError unless every argument is a `kind`; suggest an attribute that is one."""
    for name, value in arguments.items():
        if not isinstance(value, kind):
            parts = vars(value).items() if hasattr(value, "__dict__") else ()
            give = [f"; give {name}.{part}" for part, found in parts if isinstance(found, kind)]
            raise InputError(
                f"{name}: expected a {kind.__name__}, found a {type(value).__name__}"
                + "".join(give[:1])
            )
