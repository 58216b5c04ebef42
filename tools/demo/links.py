"""Which words of a sentence pair belong together, by marks that the grammar's words carry.

A mark is a private character behind a word. Words of both languages with the same mark are linked,
surely, or possibly if `maybe` made one of the two marks.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import cycle, product

from jax_transformer.parsing.trees import Tree, leaves

_PRIVATE = map(chr, range(0xF0000, 0xFFFFE))  # more than a sentence has words
_POSSIBLE = "\ufe00"
_MARK = re.compile(f"([\ue000\U000f0000-\U000ffffd])({_POSSIBLE}?)")

WHO_OR_WHAT = "\ue000"  # the mark of a phrase that is made once for all sentences
_new_marks = cycle(_PRIVATE)


def new_mark() -> str:
    """Return a mark that no other word of the same sentence has."""
    return next(_new_marks)


def maybe(mark: str) -> str:
    """Return the mark that links possibly."""
    return mark + _POSSIBLE


def marked(word: str, *marks: str) -> str:
    """Put marks behind a word, unless it is empty."""
    return word and word + "".join(marks)


def mark_first(words: str, mark: str) -> str:
    """Put a mark behind the first of some words."""
    first, space, rest = words.partition(" ")
    return marked(first, mark) + space + rest


def bare(text: str) -> str:
    """Remove all marks."""
    return _MARK.sub("", text)


def map_words(words: Iterator[str], tree: Tree) -> Tree:
    """Replace the words of a tree by those of an iterator, in order."""
    label, inside = tree
    if isinstance(inside, str):
        return (label, next(words))
    return (label, tuple(map_words(words, child) for child in inside))


def bare_tree(tree: Tree) -> Tree:
    """Remove all marks from the words of a tree."""
    return map_words(iter([bare(word) for _, word in leaves(tree)]), tree)


def link_phrase(english: Tree, german: str) -> tuple[Tree, str]:
    """Link the words of a fixed phrase: in order, or the last ones and all others.

    "in the morning", "am Morgen": "am" belongs to "in" and "the".
    """
    words, theirs = [word for _, word in leaves(english)], german.split(" ")
    if len(words) == len(theirs):
        marks = own = [new_mark() for _ in words]
    else:
        first, last = new_mark(), new_mark()
        marks, own = ([first] * (len(each) - 1) + [last] for each in (words, theirs))
    tree = map_words(map(marked, words, marks), english)
    return tree, " ".join(map(marked, theirs, own))


def links(
    english: str, tokens: Sequence[str], german: Sequence[str]
) -> list[tuple[int, int, bool]]:
    """Return (English word, German word, True if the link is sure), in ascending order.

    english: the sentence, whose words stand between spaces.
    tokens: its marked words before `detokenize`: they differ from the text in spaces alone.
    german: the marked words of the other side.
    """
    places = [number for number, word in enumerate(english.split(" ")) for _ in word]
    found: dict[tuple[int, int], bool] = {}
    start = 0
    for token in tokens:
        for j, word in enumerate(german):
            for (mark, doubt), (other, other_doubt) in product(*map(_MARK.findall, (token, word))):
                if mark == other:
                    pair, sure = (places[start], j), not (doubt or other_doubt)
                    found[pair] = found.get(pair, False) or sure
        start += len(bare(token))
    return [(*pair, found[pair]) for pair in sorted(found)]
