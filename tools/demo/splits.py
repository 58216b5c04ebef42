"""Train, dev and test of the demo: disjoint, and half of dev and test with unseen combinations."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.resources import files
from itertools import islice
from random import Random

from jax_transformer.parsing.trees import Tree
from tools.demo.clauses import Sentence
from tools.demo.sentences import random_sentences

SEED = 2017
TRAIN_PAIRS, TRAIN_TREES, EVALUATED = 60_000, 70_000, 500
# A combination of a construction and a word is held out of train only if it comes this often.
HELD_OUT_COUNTS = range(8, 60)
WORDS_PER_CONSTRUCTION = 4


def sentence_pairs(split: str) -> list[tuple[str, str]]:
    """Return (English, German) of each sentence of train, dev or test.

    Every second sentence of dev and test has a word in a construction in which train never has it,
    though train has the construction with other words, the word in other constructions, and every
    word form.
    """
    return [(each.english, each.german) for each in sentences(split)[:TRAIN_PAIRS]]


def trees(split: str) -> list[Tree]:
    """Return the trees of the English sentences, and for train 10,000 more."""
    return [each.tree for each in sentences(split)]


def simple_sentences() -> dict[str, list[str]]:
    """Return sentences that a newcomer may type, each with all translations that count as right.

    They are not in any split.
    """
    path = files(__package__ or "").joinpath("simple_sentences.tsv")
    rows = (line.split("\t") for line in path.read_text("utf-8").splitlines())
    return {english: translations for english, *translations in rows}


@cache
def _splits() -> dict[str, list[Sentence]]:
    pool = list(islice(_distinct(SEED), TRAIN_TREES + 6 * EVALUATED))
    held_out = _held_out(pool)
    familiar = [each for each in pool if not each.combinations & held_out]
    train = familiar[:TRAIN_TREES]
    known = {word for each in train[:TRAIN_PAIRS] for word in _words(each)}
    shown = {use for each in train for use in each.combinations}

    def fits(sentence: Sentence) -> bool:
        return known.issuperset(_words(sentence)) and shown >= sentence.combinations - held_out

    halves = (
        [each for each in pool if len(each.combinations & held_out) == 1 and fits(each)],
        [each for each in familiar[TRAIN_TREES:] if fits(each)],
    )
    pairs = islice(zip(*halves, strict=False), EVALUATED)
    evaluated = [sentence for pair in pairs for sentence in pair]
    return {"train": train, "dev": evaluated[:EVALUATED], "test": evaluated[EVALUATED:]}


def sentences(split: str) -> Sequence[Sentence]:
    """Return the sentences of train, dev or test."""
    return _splits()[split]


def _distinct(seed: int) -> Iterator[Sentence]:
    """Yield sentences without end, but not those of `simple_sentences`.

    None comes twice in either language, not even with another mark at its end.
    """
    seen = {text.strip(".!?") for row in simple_sentences().items() for text in (row[0], *row[1])}
    for sentence in random_sentences(seed):
        sides = {text.strip(".!?") for text in (sentence.english, sentence.german)}
        if seen.isdisjoint(sides):
            seen |= sides
            yield sentence


def _words(sentence: Sentence) -> list[str]:
    return re.findall(r"\w+", f"{sentence.english} {sentence.german}")


def _held_out(pool: Sequence[Sentence]) -> frozenset[tuple[str, str]]:
    """Choose combinations that together are in about five sentences for each two needed."""
    counts = Counter(use for sentence in pool for use in sentence.combinations)
    candidates = sorted(use for use, count in counts.items() if count in HELD_OUT_COUNTS)
    draw = Random(f"held out {SEED}").random
    chosen: list[tuple[str, str]] = []
    for use in sorted(candidates, key=lambda _: draw()):
        constructions, words = zip(*chosen, strict=True) if chosen else ((), ())
        if constructions.count(use[0]) < WORDS_PER_CONSTRUCTION and use[1] not in words:
            chosen.append(use)
        if sum(counts[each] for each in chosen) > 5 * EVALUATED // 2:
            break
    return frozenset(chosen)
