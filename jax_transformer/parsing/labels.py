"""§6.3 The target vocabulary of a parser: openings, closings and tags of the training trees."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property

from jax_transformer.errors import InputError
from jax_transformer.parsing.linearize import is_tag, linearize
from jax_transformer.parsing.trees import ROOTS, Tree, normalize

PAD, BOS, EOS = range(3)  # the ids that the word vocabulary has for them
RESERVED = EOS + 1


class LabelVocabulary:
    """A map from symbols of linearized trees to ids and back, without an unknown symbol.

    `names[i]` is the symbol of id i; the names of PAD, BOS and EOS are empty.

    >>> vocabulary = LabelVocabulary.from_trees([("NP", (("DT", "the"), ("NN", "dog")))])
    >>> vocabulary.names
    ['', '', '', '(NP', '/NP', 'DT', 'NN']
    >>> vocabulary.encode_batch(["(NP DT NN /NP"])
    [[3, 5, 6, 4]]
    """

    def __init__(self, names: Sequence[str], root: str | None = "TOP") -> None:
        """Give each name its index as its id.

        names: distinct symbols after `RESERVED` empty names.
        root: the label of the outer bracket in which trees are written, perhaps ""; None for no
        bracket.
        """
        self.names, self.root = list(names), root
        self.size = len(self.names)
        self.pad_id, self.bos_id, self.eos_id = PAD, BOS, EOS
        self._ids = {name: index for index, name in enumerate(self.names) if name}

    def __len__(self) -> int:
        """Return the number of ids."""
        return self.size

    def __repr__(self) -> str:
        """Describe the labels in one line."""
        return f"<LabelVocabulary: {self.size:,} ids, of {', '.join(self.names[3:6])} ...>"

    @classmethod
    def from_trees(cls, trees: Iterable[Tree]) -> "LabelVocabulary":
        """Collect the symbols of the normalized trees, most frequent first, and the commonest root.

        Raises InputError if no tree has a constituent over its words.
        """
        counts: Counter[str] = Counter()
        roots: Counter[str | None] = Counter()
        for tree in trees:
            if normal := normalize(tree):
                counts.update(linearize(normal))
                roots[tree[0] if tree[0] in ROOTS else None] += 1
        if all(map(is_tag, counts)):
            raise InputError(
                "expected trees with constituents over their words to train on, found none; give "
                "other files"
            )
        ranked = sorted(counts, key=lambda symbol: (-counts[symbol], symbol))
        return cls([""] * RESERVED + ranked, roots.most_common(1)[0][0])

    @cached_property
    def fingerprint(self) -> str:
        """A digest of the root and of all symbols in the order of their ids."""
        content = "\n".join([str(self.root), *self.names])
        return hashlib.sha256(content.encode()).hexdigest()

    @cached_property
    def tags(self) -> bytes:
        """A byte for each id: 1 if it is a part-of-speech tag, which stands for a word; else 0."""
        return bytes(bool(name) and is_tag(name) for name in self.names)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int] | None]:
        """Return the ids of space-separated symbols; None for a text with an unknown symbol."""
        ids = self._ids
        encoded: list[list[int] | None] = []
        for text in texts:
            try:
                encoded.append([ids[symbol] for symbol in text.split(" ")] if text else [])
            except KeyError:
                encoded.append(None)
        return encoded

    def decode(self, ids: Iterable[int]) -> list[str]:
        """Return the symbols of the ids up to EOS."""
        names: list[str] = []
        for index in ids:
            if index == self.eos_id:
                break
            if index not in (self.pad_id, self.bos_id):
                names.append(self.names[index])
        return names
