"""Vocabularies whose text is cut by sentencepiece and whose ids stand in a table: Marian's."""

import base64
import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from jax_transformer.data.moses import normalizer
from jax_transformer.data.vocabularies.base import (
    UNKNOWN,
    Vocabulary,
    parse_content,
    spaced,
    spelled,
)
from jax_transformer.data.vocabularies.sentencepiece import read_sentencepiece
from jax_transformer.declared import Declared
from jax_transformer.errors import InputError, shown
from jax_transformer.files import encode_json

_TAG = re.compile(r">>[^<>\s]+<<")


def unused(index: int) -> str:
    """Return the name of an id without a piece, if a matrix has more rows than there are pieces."""
    return f"<unused {index}>"


@dataclass(frozen=True)
class _Content(Declared):
    """The content of a `PieceTable`, in JSON."""

    kind: Literal["pieces"]
    pieces: list[str]
    sentencepiece: str  # in base64
    pad_id: int
    bos_id: int
    eos_id: int
    unk_id: int
    normalize: str = ""
    whole: list[str] = field(default_factory=list)


class PieceTable(Vocabulary):
    """A table of pieces, and the model of sentencepiece that cuts text and joins pieces.

    A piece that the table lacks is UNK. A tag such as `>>fra<<` in front of the text, which names
    the language that a multilingual model translates into, is one entry of the table.

    whole: pieces that were added to a tokenizer, such as `<br>`; a text is cut around them.
    normalize: the language whose rules of Moses' punctuation normalizer change text first, or "".

    Differs: in Hugging Face's tokenizer `</s>` in the text ends the sentence; here it is text.
    """

    KIND = "pieces"

    def __init__(self, content: bytes) -> None:
        """Read what `make` made. Raises InputError if it is something else."""
        fields = parse_content(content, _Content)
        self.content, self.normalize = content, fields.normalize
        try:
            self.sentencepiece = base64.b64decode(fields.sentencepiece, validate=True)
        except ValueError:
            self.sentencepiece = b"?"  # which the next line refuses
        self._processor = read_sentencepiece(self.sentencepiece)
        self.all_pieces, self.size = fields.pieces, len(fields.pieces)
        self.pad_id, self.bos_id = fields.pad_id, fields.bos_id
        self.eos_id, self.unk_id = fields.eos_id, fields.unk_id
        self._ids = {piece: index for index, piece in enumerate(fields.pieces)}
        self.tags = [piece for piece in fields.pieces if _TAG.fullmatch(piece)]
        self.whole = fields.whole
        whole = "|".join(map(re.escape, sorted(fields.whole, key=len, reverse=True)))
        self._whole = re.compile(f"({whole})") if whole else None
        self._specials = {self.pad_id, self.bos_id, self.eos_id}
        self._shown = [
            UNKNOWN if index == self.unk_id or piece == unused(index) else piece
            for index, piece in enumerate(fields.pieces)
        ]
        # No piece of a text is one of these, however it is spelled.
        self._reserved = {fields.pieces[index] for index in (*self._specials, self.unk_id)}

    @classmethod
    def make(
        cls,
        pieces: Sequence[str],
        sentencepiece: bytes,
        *,
        whole: Sequence[str] = (),
        **ids: Any,
    ) -> "PieceTable":
        """Return the vocabulary with these pieces, in the order of their ids.

        sentencepiece: the content of the model's file. ids: pad_id, bos_id, eos_id and unk_id.

        Raises InputError if two ids have the same piece, or an id is not one of the table.
        """
        if len(set(pieces)) != len(pieces):
            seen: set[str] = set()
            twice = next(piece for piece in pieces if piece in seen or seen.add(piece))
            raise InputError(f"expected each piece once, found {twice!r} twice; mend the table")
        for name, index in ids.items():
            if not 0 <= index < len(pieces):
                raise InputError(
                    f"{name}: expected one of the {len(pieces):,} ids, found {index}; mend it"
                )
        encoded = base64.b64encode(sentencepiece).decode("ascii")
        content = _Content("pieces", list(pieces), encoded, **ids, whole=list(whole))
        return cls(encode_json(content))

    def normalizing(self, language: str) -> "PieceTable":
        """Return the same vocabulary, with Moses' punctuation normalizer of a language first."""
        fields = parse_content(self.content, _Content)
        return PieceTable(encode_json(replace(fields, normalize=language)))

    @property
    def is_plain(self) -> bool:
        """True if sentencepiece alone cuts text: no tags, no whole pieces and no normalizer."""
        return not (self.tags or self._whole or self.normalize)

    def knows(self, character: str) -> bool:
        """See `Vocabulary.knows`; a no-break space is left to Moses' rules, if there are any."""
        return super().knows(character) or (character == "\u00a0" and self.normalize != "")

    def _encode_lines(self, lines: list[str]) -> list[list[int]]:
        split = [self._split_tag(line) for line in lines]
        plain = [text for _, text in split]
        if self.normalize:
            plain = map(normalizer(self.normalize).normalize, plain)
            plain = [re.sub("[ \u00a0]+", " ", text) for text in plain]
        # Every other part is a piece that is kept whole.
        parts = [self._whole.split(text) if self._whole else [text] for text in plain]
        texts = [text for row in parts for text in row[::2]]
        cut = iter(self._processor.encode(texts, out_type=str, num_threads=-1))
        rows = [tag for tag, _ in split]
        for row, texts in zip(rows, parts, strict=True):
            for number, text in enumerate(texts):
                row += [self._ids[text]] if number % 2 else map(self._id, next(cut))
        return rows

    def _id(self, piece: str) -> int:
        return self.unk_id if piece in self._reserved else self._ids.get(piece, self.unk_id)

    def _split_tag(self, line: str) -> tuple[list[int], str]:
        """Return the id of the tag that the line begins with, if there is one, and the rest."""
        found = _TAG.match(line.lstrip()) if self.tags else None
        if not found:
            return [], line
        tag = found[0]
        if tag not in self._ids:
            near = difflib.get_close_matches(tag, self.tags, n=1, cutoff=0.8)
            remedy = f"did you mean {near[0]}?" if near else "begin the line with another"
            known = ", ".join(self.tags[:8]) + (", ..." if self.tags[8:] else "")
            raise InputError(
                f"expected a tag of this model, {known}, found {tag} in {shown(line)}; {remedy}"
            )
        return [self._ids[tag]], line.lstrip()[len(tag) :]

    def _decode(self, ids: list[int]) -> str:
        text = self._processor.decode([self._shown[i] for i in ids if i not in self._specials])
        text = spelled(text).strip()
        return spaced(text, UNKNOWN) if UNKNOWN in text else text

    @cached_property
    def piece_texts(self) -> list[str | bytes]:
        """See `Vocabulary.piece_texts`."""
        both = zip(super().piece_texts, self._shown, strict=True)
        return [f" {UNKNOWN} " if shown == UNKNOWN else text for text, shown in both]

    def _is_byte(self, index: int, piece: str) -> bool:
        known = piece.startswith("<0x") and self._processor.piece_to_id(piece)
        return bool(known) and self._processor.is_byte(known)
