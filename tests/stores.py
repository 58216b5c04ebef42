"""Pairs of numbers as text, stores of them, and the same in plain lists."""

import numpy as np

from jax_transformer.data.token_store import Rules, open_store, write_store
from jax_transformer.data.vocabularies.base import Vocabulary

PAD, EOS = 0, 1
KINDS = ("kept", "dropped_unknown", "dropped_blank", "dropped_too_long", "dropped_ratio")


class Words(Vocabulary):
    """A vocabulary of words that are numbers."""

    content = b"numbers"
    eos_id, unk_id = EOS, 0

    def __init__(self, size=100):
        self.size = size

    def encode_batch(self, texts):
        return [[int(word) for word in text.split()] for text in texts]

    _encode_lines = _decode = encode_batch  # pyright: ignore  # not called


def random_pairs(seed, count, most_words=9):
    """(line, source, target), with blank sides and gaps in the line numbers."""
    random = np.random.default_rng(seed)
    lines = np.cumsum(random.integers(1, 4, count))
    sides = [
        [
            " ".join(map(str, random.integers(2, 99, random.integers(0, most_words + 1))))
            for _ in range(count)
        ]
        for _ in range(2)
    ]
    return list(zip(lines.tolist(), *sides, strict=True))


def filtered_by_hand(pairs, max_length, ratio=0.0):
    """[(line, source ids, target ids)] and what became of the pairs."""
    remaining, counts = [], {"read": len(pairs), **dict.fromkeys(KINDS, 0)}
    for line, *texts in pairs:
        sides = [[int(word) for word in text.split()] for text in texts]
        shorter, longer = sorted(map(len, sides))
        if [] in sides:
            counts["dropped_blank"] += 1
        elif any(len(side) + 1 > max_length for side in sides):
            counts["dropped_too_long"] += 1
        elif ratio and longer / shorter > ratio:
            counts["dropped_ratio"] += 1
        else:
            counts["kept"] += 1
            remaining.append((line, *([*side, EOS] for side in sides)))
    return remaining, counts


def contents(store):
    """The store as [(line, source ids, target ids)], read through offsets alone."""
    return [
        (
            int(store.lines[np.array([i])][0]),
            *(
                store.tokens[side][np.arange(*store.offsets[side][i : i + 2])].tolist()
                for side in ("source", "target")
            ),
        )
        for i in range(len(store))
    ]


def make_store(folder, pairs, max_length=8, *, ratio=0.0, size=100):
    """Encode the pairs and open the store."""
    both = Words(size), Words(size)
    content = write_store(folder, pairs, both, Rules(max_length, ratio), {"split": "train"})
    return open_store(folder, content)


def files_of(folder):
    """Name and bytes of every file."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}
