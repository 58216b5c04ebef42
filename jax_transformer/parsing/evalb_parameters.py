"""§6.3 EVALB's settings: what counts as equal, and what does not count."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from jax_transformer.errors import InputError

Pairs = frozenset[tuple[str, str]]


@dataclass(frozen=True)
class Parameters:
    """The settings of a .prm file; without one, EVALB deletes nothing and makes nothing equal.

    A deleted tag removes its words; a deleted constituent removes only its brackets. Pairs of
    equal labels or words hold in both directions but are not chained: A = B and B = C do not make
    A = C. The report of short sentences covers those of up to `cutoff` words, without the words
    tagged with `deleted_for_length`.
    """

    name: str = "none"
    deleted: frozenset[str] = frozenset()
    deleted_for_length: frozenset[str] = frozenset()
    quotes: frozenset[str] = frozenset()
    equal_labels: Pairs = frozenset()
    equal_words: Pairs = frozenset()
    labelled: bool = True
    cutoff: int = 40
    max_errors: int = 10

    def same_label(self, one: str, other: str) -> bool:
        """Return whether two tags, or two labels of constituents, count as equal."""
        return _same(one, other, self.equal_labels)

    def same_word(self, one: str, other: str) -> bool:
        """Return whether two words count as equal."""
        return _same(one, other, self.equal_words)

    def deletes(self, label: str) -> bool:
        """Return whether brackets with this label, functions removed, are left out."""
        return any(self.same_label(label, deleted) for deleted in self.deleted)


# The settings of the file of that name that comes with EVALB (public domain). Scores on the Penn
# Treebank are published with them: punctuation does not count, ADVP equals PRT.
COLLINS = Parameters(
    name="COLLINS.prm",
    deleted=frozenset({"TOP", "-NONE-", ",", ":", "``", "''", "."}),
    deleted_for_length=frozenset({"-NONE-"}),
    equal_labels=frozenset({("ADVP", "PRT")}),
)

_LABELS = {
    "DELETE_LABEL": "deleted",
    "DELETE_LABEL_FOR_LENGTH": "deleted_for_length",
    "QUOTE_LABEL": "quotes",
}
_PAIRS = {"EQ_LABEL": "equal_labels", "EQ_WORD": "equal_words"}
_NUMBERS = {"MAX_ERROR": "max_errors", "CUTOFF_LEN": "cutoff"}


def parse_parameters(lines: Iterable[str], name: str) -> Parameters:
    """Parse a .prm file: a keyword and its value on each line, `#` before a comment.

    name: the name of the file, for errors and for `Parameters.name`.

    Raises InputError if a line is not one of EVALB's settings.
    """
    sets: dict[str, set[Any]] = {part: set() for part in (_LABELS | _PAIRS).values()}
    others: dict[str, Any] = {}
    for number, line in enumerate(lines, start=1):
        # EVALB also ignores lines of fewer than three characters.
        if line.startswith("#") or len(line.rstrip()) < 3:
            continue
        match line.split():
            case [keyword, label] if keyword in _LABELS:
                sets[_LABELS[keyword]].add(label)
            case [keyword, one, other] if keyword in _PAIRS:
                sets[_PAIRS[keyword]].add((one, other))
            case [keyword, value] if keyword in _NUMBERS and re.fullmatch("[0-9]{1,9}", value):
                others[_NUMBERS[keyword]] = int(value)
            case ["LABELED", "0" | "1" as value]:
                others["labelled"] = value == "1"
            case ["DEBUG", _]:
                pass  # the setting of EVALB's output besides its report
            case _:
                known = ", ".join([*_LABELS, *_PAIRS, *_NUMBERS, "LABELED", "DEBUG"])
                raise InputError(
                    f"{name}, line {number}: expected one of EVALB's settings ({known}) and its "
                    f"value, found '{line.strip()}'; correct the line, or put # before it"
                )
    frozen: dict[str, Any] = {part: frozenset(values) for part, values in sets.items()}
    return Parameters(PurePath(name).name, **frozen, **others)


def _same(one: str, other: str, pairs: Pairs) -> bool:
    return one == other or (one, other) in pairs or (other, one) in pairs
