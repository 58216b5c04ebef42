"""Cleaning: rules that remove pairs from parallel text, for `python -m experiments.clean`.

No rule depends on the languages: the scripts of a side, and how long one side is for the other, are
those of most of the corpus. So the text is measured as a whole before any pair is removed.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import cache
from hashlib import blake2b
from itertools import islice
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Integer, UInt8, UInt32

from jax_transformer.progress import Progress

# The first one that applies removes a pair.
RULES = {
    "empty": "an empty side",
    "equal": "the same on both sides",
    "symbols": "mostly digits and symbols",
    "word": "a very long word",
    "script": "letters of another script",
    "ratio": "one side too long for the other",
    "copy": "a copy of an earlier pair",
}
_BLOCK = 4096  # pairs measured together
_SLACK = 10  # characters that a side may always have more: short sentences differ most
_OWN = 0.1  # a script with at least this part of a side's letters is one of the side's own
_TOLERANCE = 1e-9  # of limits that are not whole numbers
_EXAMPLES = 5  # pairs shown for each rule

# Classes of characters; those from _LETTER + 1 on are scripts. Marks are letters without a script.
_SPACE, _SYMBOL, _DIGIT, _LETTER = range(4)
_SCRIPTS = {"HIRAGANA": "KANA", "KATAKANA": "KANA", "IDEOGRAPHIC": "CJK"}
_NO_SCRIPT = ("", "FEMININE", "MASCULINE", "MICRO", "MODIFIER", "MATHEMATICAL")
_WITHOUT_SPACES = ("CJK", "KANA", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN")


class _Side(NamedTuple):
    """One side of some pairs."""

    length: Integer[np.ndarray, " pairs"]  # characters but spaces
    letters: Integer[np.ndarray, " pairs"]
    longest: Integer[np.ndarray, " pairs"]  # letters and digits of its longest word
    scripts: UInt32[np.ndarray, " found"]  # 256 * pair + class, of each one over the limit
    totals: Integer[np.ndarray, " classes"]  # characters of each class in all of them


class Limits(NamedTuple):
    """The limits of the rules; see the flags of experiments.clean."""

    equal: int
    symbols: float
    word: int
    foreign: float
    ratio: float
    copies: int


def find_rules(pairs: Iterable[tuple[str, str]], limits: Limits) -> bytes:
    """Return a byte for each pair: 0 if it stays, or 1 + the index in RULES of what removes it."""
    # What is at a limit stays, though 0.7 has no exact number in binary.
    floats = ("symbols", "foreign", "ratio")
    limits = limits._replace(**{name: getattr(limits, name) + _TOLERANCE for name in floats})
    parts, scripts, totals, remaining = [], [], np.zeros((2, 256), int), iter(pairs)
    with Progress("cleaning", None, "pairs") as progress:
        while block := list(islice(remaining, _BLOCK)):
            found, sides = _measure(block, limits)
            parts.append(found)
            scripts.append([side.scripts for side in sides])
            totals += [side.totals for side in sides]
            progress.update(len(block))
    if not parts:
        return b""
    rules, lengths, hashes = (np.concatenate(each, axis=-1) for each in zip(*parts, strict=True))
    in_scripts = totals[:, _LETTER + 1 :].sum(axis=1, keepdims=True)
    foreign = np.zeros(len(rules), bool)
    for number, block in enumerate(scripts):
        for found, own in zip(block, totals >= _OWN * in_scripts, strict=True):
            foreign[number * _BLOCK + found[~own[found % 256]] // 256] = True
    later = {
        "script": foreign,
        "ratio": _too_long(lengths[0], lengths[1], limits.ratio),
        "copy": _times_before(hashes) >= limits.copies,
    }
    return _first(later, rules).tobytes()


def report(rules: bytes) -> list[str]:
    """Return a line for each rule: the number and the share of the pairs that it removes."""
    counts = {what: rules.count(number) for number, what in enumerate(RULES.values(), start=1)}
    return [f"{n:>11,} {n / max(len(rules), 1):7.2%}  {what}" for what, n in counts.items()]


def examples(rules: bytes) -> dict[int, str]:
    """Choose up to five pairs for each rule: a map from their indices to the rule's meaning."""
    chosen: dict[int, str] = {}
    for number, what in enumerate(RULES.values(), start=1):
        found = np.flatnonzero(np.frombuffer(rules, np.uint8) == number)
        few = np.linspace(0, len(found) - 1, min(_EXAMPLES, len(found))).astype(int)
        chosen |= dict.fromkeys(found[few].tolist(), what)
    return chosen


def _measure(
    block: list[tuple[str, str]], limits: Limits
) -> tuple[tuple[np.ndarray, ...], tuple[_Side, _Side]]:
    """Return (rules, lengths, hashes) of these pairs, and their sides."""
    texts = [(source.strip(), target.strip()) for source, target in block]
    source, target = (_measured(lines, limits.foreign) for lines in zip(*texts, strict=True))
    equal = np.array([source == target for source, target in texts])
    symbols = [
        side.length - side.letters > limits.symbols * np.maximum(side.length, 1)
        for side in (source, target)
    ]
    rules = {
        "empty": np.minimum(source.length, target.length) == 0,
        "equal": equal & (source.letters > limits.equal),
        "symbols": symbols[0] | symbols[1],
        "word": np.maximum(source.longest, target.longest) > limits.word,
    }
    # Python's own hash differs between processes.
    digests = (blake2b("\n".join(pair).encode(), digest_size=8).digest() for pair in texts)
    found = (
        _first(rules, np.zeros(len(block), np.uint8)),
        np.array([source.length, target.length], np.int32),
        np.frombuffer(b"".join(digests), np.uint64),
    )
    return found, (source, target)


def _too_long(
    source: Integer[np.ndarray, " pairs"], target: Integer[np.ndarray, " pairs"], ratio: float
) -> Bool[np.ndarray, " pairs"]:
    """Compare lengths, those of the target over the median of target / source."""
    both = (source > 0) & (target > 0)
    scale = np.median(target[both] / source[both]) if both.any() else 1.0
    longer, shorter = np.maximum(source, target / scale), np.minimum(source, target / scale)
    return (longer - _SLACK) / ratio > shorter  # so that no ratio is a number, too


def _times_before(hashes: Integer[np.ndarray, " pairs"]) -> Integer[np.ndarray, " pairs"]:
    """Return how many equal pairs come before each."""
    order = np.argsort(hashes, kind="stable")
    begins = np.flatnonzero(np.diff(hashes[order], prepend=~hashes[order[:1]]))
    times = np.empty(len(hashes), np.int64)
    times[order] = np.arange(len(hashes)) - np.repeat(begins, np.diff(begins, append=len(hashes)))
    return times


def _first(
    rules: dict[str, Bool[np.ndarray, " pairs"]], found: UInt8[np.ndarray, " pairs"]
) -> UInt8[np.ndarray, " pairs"]:
    """Return the first rule that applies to each pair. found: the results of earlier rules."""
    numbers = {rule: number for number, rule in enumerate(RULES, start=1)}
    for rule, applies in rules.items():
        found = np.where((found == 0) & applies, np.uint8(numbers[rule]), found)
    return found


def _measured(lines: Sequence[str], most_foreign: float) -> _Side:
    classes_of, breaks_word = _classes()
    sizes = np.fromiter(map(len, lines), np.int64, len(lines)) + 1
    # Each line ends with a space: the newline.
    codes = np.frombuffer("\n".join([*lines, ""]).encode("utf-32-le", "surrogatepass"), "<u4")
    classes = classes_of[codes]
    rows = np.repeat(np.arange(0, 256 * len(lines), 256), sizes)
    counts = np.bincount(rows + classes, minlength=256 * len(lines)).reshape(-1, 256)
    letters = counts[:, _LETTER:].sum(axis=1)
    over = counts > most_foreign * letters[:, None]
    over[:, : _LETTER + 1] = False
    ends = np.flatnonzero(breaks_word[classes])
    words = np.diff(ends, prepend=-1) - 1
    longest = np.maximum.reduceat(words, np.searchsorted(ends, np.cumsum(sizes) - sizes))
    length = letters + counts[:, _SYMBOL] + counts[:, _DIGIT]
    scripts = np.flatnonzero(over).astype(np.uint32)
    return _Side(length, letters, longest, scripts, counts.sum(axis=0))


@cache
def _classes() -> tuple[UInt8[np.ndarray, " characters"], Bool[np.ndarray, " 256"]]:
    """Return the class of each character, and whether a class stands between words."""
    classes = np.full(0x110000, _SYMBOL, np.uint8)
    numbers: dict[str, int] = dict.fromkeys(_NO_SCRIPT, _LETTER)
    for code in range(0x110000):
        character = chr(code)
        category = unicodedata.category(character)
        if character.isspace() or category in ("Cc", "Cf"):
            classes[code] = _SPACE
        elif category[0] == "N":
            classes[code] = _DIGIT
        elif category[0] == "M":
            classes[code] = _LETTER
        elif category[0] == "L":
            name = unicodedata.name(character, "").replace("FULLWIDTH ", "")
            word = re.split("[ -]", name.replace("HALFWIDTH ", ""))[0]
            script = _SCRIPTS.get(word, word)  # the name of a letter begins with its script
            classes[code] = numbers.setdefault(script, _LETTER + 1 + len(numbers))
    breaks = np.isin(np.arange(256), [_SPACE, _SYMBOL, *(numbers[s] for s in _WITHOUT_SPACES)])
    return classes, breaks
