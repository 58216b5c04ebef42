"""Rules by which a learned vocabulary changes text first: lower case, Unicode's NFKC form."""

import sys
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import NamedTemporaryFile
from typing import Any


@contextmanager
def trainer_options(*, lowercase: bool, nfkc: bool) -> Iterator[dict[str, Any]]:
    """Yield the options that make sentencepiece learn a model with these rules inside it.

    sentencepiece's own rule for lower case folds, which writes a German ß as ss; this one does not.
    """
    if not (lowercase or nfkc):
        yield {"normalization_rule_name": "identity"}
        return
    with NamedTemporaryFile("w", suffix=".tsv", encoding="ascii") as file:
        for before, after in _changes(lowercase, nfkc):
            file.write(f"{_numbers(before)}\t{_numbers(after)}\n")
        file.flush()
        yield {"normalization_rule_tsv": file.name}


def _changes(lowercase: bool, nfkc: bool) -> Iterator[tuple[str, str]]:
    """Yield each character that changes, and each spelling of one with marks apart, e and U+0301.

    Differs: marks in another order than Unicode's canonical one stay apart.
    """
    seen: set[str] = set()
    for character in map(chr, range(1, sys.maxunicode + 1)):
        if "\ud800" <= character <= "\udfff":
            continue
        spellings = [character]
        if nfkc:
            marks = unicodedata.decomposition(character)
            if marks and not marks.startswith("<"):
                spellings.append("".join(chr(int(number, 16)) for number in marks.split()))
            spellings.append(unicodedata.normalize("NFD", character))
        for spelling in spellings:
            changed = unicodedata.normalize("NFKC", spelling) if nfkc else spelling
            changed = changed.lower() if lowercase else changed
            if changed != spelling and spelling not in seen:
                seen.add(spelling)
                yield spelling, changed


def _numbers(text: str) -> str:
    return " ".join(f"{ord(character):X}" for character in text)
