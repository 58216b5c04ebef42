"""§6.3 The target vocabulary of a parser: openings, closings and tags of the training trees."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from jax_transformer.data.vocabularies.base import BOS, EOS, PAD, Vocabulary, parse_content
from jax_transformer.declared import Declared
from jax_transformer.files import encode_json


@dataclass(frozen=True)
class _Content(Declared):
    """The content of a `LabelVocabulary`, in JSON."""

    kind: Literal["labels"]
    names: list[str]
    root: str | None


class LabelVocabulary(Vocabulary):
    """A map from symbols of linearized trees, with spaces between, to ids and back.

    `names[i]` is the symbol of id i, "" for PAD, BOS and EOS; the id of unknown symbols is -1.
    `root` is the label of the outer bracket of trees, perhaps "", or None for no bracket.

    >>> vocabulary = LabelVocabulary.make(["(NP", "/NP", "DT", "NN"])
    >>> vocabulary.encode("(NP DT NN /NP")
    [3, 5, 6, 4]
    >>> vocabulary.decode([3, 5, 6, 4, 2])
    '(NP DT NN /NP'
    """

    KIND = "labels"
    pad_id, bos_id, eos_id, unk_id = PAD, BOS, EOS, -1

    def __init__(self, content: bytes) -> None:
        """Read what `make` made. Raises InputError if it is something else."""
        fields = parse_content(content, _Content)
        self.content, self.names, self.root = content, fields.names, fields.root
        self.all_pieces, self.size = self.names, len(self.names)
        self._ids = {name: index for index, name in enumerate(self.names) if name}

    @classmethod
    def make(cls, symbols: Sequence[str], root: str | None = "TOP") -> "LabelVocabulary":
        """Return the vocabulary with these distinct symbols, in the order of their ids."""
        return cls(encode_json(_Content("labels", [*[""] * 3, *symbols], root)))

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text, -1 for an unknown symbol."""
        return self._encode_lines([*texts])

    def _encode_lines(self, lines: list[str]) -> list[list[int]]:
        return [[self._ids.get(name, -1) for name in line.split(" ") if line] for line in lines]

    def _decode(self, ids: list[int]) -> str:
        return " ".join(self.names[index] for index in ids if self.names[index])
