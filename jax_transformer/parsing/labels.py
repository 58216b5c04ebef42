"""§6.3 The closed set of symbols that a parser writes: openings, closings and tags of its trees."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path

from jax_transformer.data.vocabulary import BOS, EOS, PAD
from jax_transformer.errors import InputError
from jax_transformer.parsing.linearize import is_tag, linearise
from jax_transformer.parsing.trees import ROOTS, Tree, normalise
from jax_transformer.runs.run_dir import write_text

RESERVED = EOS + 1  # ids of PAD, BOS and EOS, the same as those of words


class Symbols:
    """Symbols to ids and back. There is no unknown symbol: what trees did not have is not written.

    `names[i]` is the symbol of id i; those of PAD, BOS and EOS are empty.
    """

    def __init__(self, names: Sequence[str], root: str | None = "TOP") -> None:
        """names: distinct symbols, the first `RESERVED` of them empty.

        root: label of the outer bracket that trees are written in, "" too; None for none.
        """
        self.names, self.root = list(names), root
        self.size = len(self.names)
        self.pad_id, self.bos_id, self.eos_id = PAD, BOS, EOS
        self._ids = {name: index for index, name in enumerate(self.names) if name}

    @classmethod
    def of_trees(cls, trees: Iterable[Tree]) -> "Symbols":
        """Every symbol of the normalised trees, the most frequent first, however rare the last.

        The root is that of most trees. Raises InputError where no tree has words.
        """
        counts: Counter[str] = Counter()
        roots: Counter[str | None] = Counter()
        for tree in trees:
            if normal := normalise(tree):
                counts.update(linearise(normal))
                roots[tree[0] if tree[0] in ROOTS else None] += 1
        if not counts:
            raise InputError("expected trees with words to train on, found none; give other files")
        # A constituent that opens can close, so both symbols are there: trees are balanced.
        ranked = sorted(counts, key=lambda symbol: (-counts[symbol], symbol))
        return cls([""] * RESERVED + ranked, roots.most_common(1)[0][0])

    @classmethod
    def load(cls, path: str | Path) -> "Symbols":
        """Read what `save` wrote. InputError where the file is missing or damaged."""
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
            symbols = cls(content["symbols"], content["root"])
            if symbols.fingerprint != content["digest"]:
                raise ValueError("a checksum that is wrong")
        except OSError as error:
            raise InputError(
                f"expected the symbols of trees at {path}, found '{error.strerror}'; restore the "
                "file, or train anew"
            ) from None
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"expected the symbols of trees at {path} as JSON, found {error}; restore the "
                "file, or train anew"
            ) from None
        return symbols

    def save(self, path: Path) -> None:
        """Write them as JSON, whole or not at all."""
        content = {"digest": self.fingerprint, "root": self.root, "symbols": self.names}
        write_text(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")

    @cached_property
    def fingerprint(self) -> str:
        """Digest of all symbols in the order of their ids."""
        return hashlib.blake2b("\n".join(self.names).encode(), digest_size=16).hexdigest()

    @cached_property
    def tags(self) -> bytes:
        """1 for each id that is a part-of-speech tag, one for each word of a tree; else 0."""
        return bytes(bool(name) and is_tag(name) for name in self.names)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int] | None]:
        """The ids of symbols with spaces between them; None where one of them is unknown."""
        ids = self._ids
        encoded: list[list[int] | None] = []
        for text in texts:
            try:
                encoded.append([ids[symbol] for symbol in text.split(" ")] if text else [])
            except KeyError:
                encoded.append(None)
        return encoded

    def decode(self, ids: Iterable[int]) -> list[str]:
        """The symbols of the ids, up to EOS."""
        names: list[str] = []
        for index in ids:
            if index == self.eos_id:
                break
            if index not in (self.pad_id, self.bos_id):
                names.append(self.names[index])
        return names
