"""Cleaning: rules that take pairs out of training text before anything else is made of it.

No rule depends on the languages: the scripts of a side, and how long one side is for the other, are
those of most of the corpus. So the text is measured as a whole first, and is then read again
without the pairs that a rule takes.
"""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from hashlib import blake2b
from itertools import chain, compress, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Integer, UInt8

from jax_transformer.config import DataConfig
from jax_transformer.data.corpora import training_splits
from jax_transformer.data.datasets import Corpus, Pairs
from jax_transformer.data.text import sample_lines
from jax_transformer.data.token_store import SIDES
from jax_transformer.files import write_text
from jax_transformer.progress import Progress

# The first one that applies takes a pair.
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
_EXAMPLES = 5  # of each rule

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
    script: UInt8[np.ndarray, " pairs"]  # the class of most letters; _LETTER if there is none
    totals: Integer[np.ndarray, " classes"]  # characters of each class in all of them


class Cleaning:
    """The training text of a corpus without the pairs that a rule takes."""

    def __init__(self, corpus: Corpus, data: DataConfig) -> None:
        """Read nothing yet. data: the settings of the rules."""
        self._corpus, self._data = corpus, data
        self._taken: dict[str, UInt8[np.ndarray, " pairs"]] = {}  # 0, or 1 + the place in RULES

    def pairs(self, split: str) -> Pairs:
        """Yield the pairs of a split that no rule takes, with their line numbers in the text."""
        return compress(self._corpus.pairs(split), self.taken(split) == 0)

    def sample(self, limit: int, seed: int, sides: Sequence[str] = SIDES) -> list[str]:
        """Draw at most `limit` lines of these sides, uniformly from what no rule takes."""
        pairs = chain.from_iterable(map(self.pairs, training_splits(self._corpus.splits())))
        places = [1 + SIDES.index(side) for side in sides]
        return sample_lines((str(pair[place]) for pair in pairs for place in places), limit, seed)

    def counts(self, split: str) -> dict[str, int]:
        """Return the number of pairs that are kept, and of those that each rule takes."""
        counts = np.bincount(self.taken(split), minlength=1 + len(RULES)).tolist()
        return dict(zip(("kept", *RULES), counts, strict=True))

    def write_examples(self, split: str, path: Path) -> None:
        """Write a few pairs that each rule takes: line, source and target, with tabs between."""
        chosen: dict[int, str] = {}
        for rule, what in enumerate(RULES.values(), start=1):
            found = np.flatnonzero(self.taken(split) == rule)
            few = np.linspace(0, len(found) - 1, min(_EXAMPLES, len(found))).astype(int)
            chosen |= dict.fromkeys(found[few].tolist(), what)
        lines = {what: [f"# {what}"] for what in chosen.values()}
        for place, pair in enumerate(self._corpus.pairs(split)):
            if place in chosen:
                lines[chosen[place]].append("\t".join(str(part)[:300] for part in pair))
        write_text(path, "\n".join("\n".join([*block, ""]) for block in lines.values()))

    def taken(self, split: str) -> UInt8[np.ndarray, " pairs"]:
        """Return the rule that takes each pair: 0 for none, or 1 + its place in RULES."""
        if split not in self._taken:
            self._taken[split] = self._apply_rules(split)
        return self._taken[split]

    def _apply_rules(self, split: str) -> UInt8[np.ndarray, " pairs"]:
        parts, totals, remaining = [], np.zeros((2, 256), int), self._corpus.pairs(split)
        with Progress("cleaning", None, f"{split} pairs") as progress:
            while block := list(islice(remaining, _BLOCK)):
                taken, lengths, scripts, hashes, counts = self._measure(block)
                parts.append((taken, lengths, scripts, hashes))
                totals += counts
                progress.update(len(block))
        if not parts:
            return np.zeros(0, np.uint8)
        taken, lengths, scripts, hashes = (
            np.concatenate(each, axis=-1) for each in zip(*parts, strict=True)
        )
        in_scripts = totals[:, _LETTER + 1 :].sum(axis=1, keepdims=True)
        own = totals >= _OWN * in_scripts
        own[:, _LETTER] = True
        foreign = ~(own[0][scripts[0]] & own[1][scripts[1]])
        rules = {"script": foreign, "ratio": self._too_long(*lengths), "copy": self._copies(hashes)}
        return _first(rules, taken)

    def _measure(self, block: list[tuple[int, str, str]]) -> tuple[np.ndarray, ...]:
        """Return rules, lengths, scripts, hashes of these pairs, and the totals of classes."""
        data = self._data
        texts = [(source.strip(), target.strip()) for _, source, target in block]
        sides = [_measured(lines, data.clean_max_foreign) for lines in zip(*texts, strict=True)]
        source, target = sides
        equal = np.array([source == target for source, target in texts])
        symbols = [side.letters < (1 - data.clean_max_symbols) * side.length for side in sides]
        rules = {
            "empty": np.minimum(source.length, target.length) == 0,
            "equal": equal & (source.letters > data.clean_max_equal),
            "symbols": symbols[0] | symbols[1],
            "word": np.maximum(source.longest, target.longest) > data.clean_max_word,
        }
        # Python's own hash is another one in each process.
        digests = (blake2b("\n".join(pair).encode(), digest_size=8).digest() for pair in texts)
        return (
            _first(rules, np.zeros(len(block), np.uint8)),
            np.array([source.length, target.length], np.int32),
            np.array([source.script, target.script]),
            np.frombuffer(b"".join(digests), np.uint64),
            np.array([source.totals, target.totals]),
        )

    def _too_long(
        self, source: Integer[np.ndarray, " pairs"], target: Integer[np.ndarray, " pairs"]
    ) -> Bool[np.ndarray, " pairs"]:
        """Compare lengths, those of the target over the median of target / source."""
        both = (source > 0) & (target > 0)
        scale = np.median(target[both] / source[both]) if both.any() else 1.0
        scaled = target / scale
        longer, shorter = np.maximum(source, scaled), np.minimum(source, scaled)
        return longer > self._data.clean_max_ratio * shorter + _SLACK

    def _copies(self, hashes: Integer[np.ndarray, " pairs"]) -> Bool[np.ndarray, " pairs"]:
        order = np.argsort(hashes, kind="stable")
        begins = np.flatnonzero(np.diff(hashes[order], prepend=~hashes[order[:1]]))
        number = np.empty(len(hashes), np.int64)  # of times that the pair came before
        number[order] = np.arange(len(hashes)) - np.repeat(
            begins, np.diff(begins, append=len(hashes))
        )
        return number >= self._data.clean_max_copies


def cleaning_rules(data: DataConfig) -> dict[str, Any]:
    """Return the settings on which cleaned text depends, for the fingerprint of what it makes."""
    return {name: value for name, value in asdict(data).items() if name.startswith("clean_")}


def table(counts: dict[str, int]) -> list[str]:
    """Return a line for each rule: the number and the share of the pairs that it takes."""
    read = max(sum(counts.values()), 1)
    return [f"{counts[rule]:>11,} {counts[rule] / read:7.2%}  {RULES[rule]}" for rule in RULES]


def _first(
    rules: dict[str, Bool[np.ndarray, " pairs"]], taken: UInt8[np.ndarray, " pairs"]
) -> UInt8[np.ndarray, " pairs"]:
    """Return the first rule that applies to each pair. taken: those that were applied before."""
    numbers = {rule: number for number, rule in enumerate(RULES, start=1)}
    for rule, applies in rules.items():
        taken = np.where((taken == 0) & applies, np.uint8(numbers[rule]), taken)
    return taken


def _measured(lines: Sequence[str], most_foreign: float) -> _Side:
    classes_of, breaks_word = _classes()
    sizes = np.fromiter(map(len, lines), np.int64, len(lines)) + 1
    # Each line ends with a space: the newline.
    codes = np.frombuffer("\n".join([*lines, ""]).encode("utf-32-le", "surrogatepass"), "<u4")
    classes = classes_of[codes]
    rows = np.repeat(np.arange(0, 256 * len(lines), 256), sizes)
    counts = np.bincount(rows + classes, minlength=256 * len(lines)).reshape(-1, 256)
    letters, scripts = counts[:, _LETTER:].sum(axis=1), counts[:, _LETTER + 1 :]
    script = np.where(scripts.max(axis=1) > most_foreign * letters, scripts.argmax(axis=1) + 1, 0)
    ends = np.flatnonzero(breaks_word[classes])
    words = np.diff(ends, prepend=-1) - 1
    longest = np.maximum.reduceat(words, np.searchsorted(ends, np.cumsum(sizes) - sizes))
    length = letters + counts[:, _SYMBOL] + counts[:, _DIGIT]
    totals = counts.sum(axis=0)
    return _Side(length, letters, longest, (script + _LETTER).astype(np.uint8), totals)


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
