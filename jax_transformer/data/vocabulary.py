"""§5.1 One vocabulary of byte-pair pieces for both languages, by sentencepiece."""

import hashlib
import io
import re
import reprlib
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Protocol

import sentencepiece

from jax_transformer.errors import InputError
from jax_transformer.files import read_bytes, write_bytes

PAD, BOS, EOS, UNK = range(4)

_SPELLED = re.compile("<(?=(?:pad|s|/s|unk)>)")
_LONGEST_LINE = 1 << 30  # bytes, the most sentencepiece takes; its default drops lines of 4 KiB


def train_vocabulary(
    lines: Iterable[str],
    size: int,
    path: str | Path,
    *,
    up_to: bool = False,
) -> "Vocabulary":
    """Learn `size` pieces from the lines of both languages, and write them to `path`.

    The ids 0 to 3 are PAD, BOS, EOS and UNK, and count towards `size`. With `up_to`
    a text that supports fewer pieces gives fewer. Every character has a piece. No
    line is left out, however long. The text is not normalised: decoding gives the
    text that was encoded, up to `encode`'s spaces. The file appears whole or not
    at all; the same lines give the same pieces.

    Differs: the paper's vocabulary was not made by sentencepiece; our pieces
    never cross a space or a change of script.

    Raises InputError if the text is empty or does not support a vocabulary of this size (the
    message gives one that it supports); OSError if the file cannot be written, for example on a
    full disk.
    """
    path = Path(path)
    # sentencepiece leaves out any line with U+2585 and any spelling of a special piece.
    text = [
        _utf8(_SPELLED.sub("< ", _one_line(line).replace("\u2585", " ")), number)
        for number, line in enumerate(lines, start=1)
    ]
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(text),
            model_writer=model,
            model_type="bpe",
            vocab_size=size,
            hard_vocab_limit=not up_to,
            character_coverage=1.0,
            max_sentence_length=_LONGEST_LINE,
            normalization_rule_name="identity",
            pad_id=PAD,
            bos_id=BOS,
            eos_id=EOS,
            unk_id=UNK,
            unk_surface="\u2047",  # no spaces around it, those of the text are enough
            minloglevel=2,
        )
    except RuntimeError as error:
        raise _explained(error, size, len(text)) from None
    write_bytes(path, model.getvalue())
    return Vocabulary(model.getvalue())


class Encoder(Protocol):
    """The part of a vocabulary that preparation needs."""

    size: int
    eos_id: int

    @cached_property
    def fingerprint(self) -> str:
        """A digest of everything that determines the ids of a text."""
        ...

    def encode_batch(self, texts: Sequence[str]) -> Sequence[list[int] | None]:
        """Return the token ids of each line, without EOS; None if a line has an unknown symbol."""
        ...


class Vocabulary:
    """A map from text to ids and back.

    `pad_id`, `bos_id`, `eos_id` and `unk_id` are among the `size` ids. `content` is what
    `train_vocabulary` wrote, a model of sentencepiece.
    """

    def __init__(self, content: bytes):
        self.content = content
        try:
            self._processor = sentencepiece.SentencePieceProcessor()
            self._processor.load_from_serialized_proto(content)
        except RuntimeError:
            raise InputError(
                "expected a vocabulary that train_vocabulary wrote, found something else; learn it "
                "again"
            ) from None
        self.size: int = self._processor.get_piece_size()
        self.pad_id, self.bos_id, self.eos_id, self.unk_id = PAD, BOS, EOS, UNK

    @classmethod
    def load(cls, path: str | Path) -> "Vocabulary":
        """Read the file that `train_vocabulary` wrote; its content is not verified.

        Raises InputError if the file is missing, or not a model of sentencepiece.
        """
        try:
            return cls(read_bytes(Path(path)))
        except OSError as error:
            raise InputError(
                f"expected a vocabulary at {path}, found '{error.strerror}'; check the path, or "
                f"learn it again"
            ) from None
        except InputError as error:
            raise InputError(f"{path}: {error}") from None

    @cached_property
    def fingerprint(self) -> str:
        """The SHA-256 of the file."""
        return hashlib.sha256(self.content).hexdigest()

    def encode(self, text: str) -> list[int]:
        """Return the ids of one line's pieces, without BOS or EOS.

        CR, LF and U+2581 (sentencepiece's own sign for a space) count as spaces;
        spaces at the ends are dropped and runs of them become one. All else is
        kept: tabs, no-break spaces, U+0085, U+2028. A character without a piece is
        UNK (NUL, U+001F and U+2585 always are); unknown neighbours share one UNK.
        No text gives PAD, BOS or EOS, even if it contains `<s>`.

        Raises InputError if the text has a lone surrogate, which is not a character.
        """
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Encode each text as `encode` does, on all cores."""
        plain = [_one_line(text) for text in as_lines(texts)]
        try:
            return self._processor.encode(plain, num_threads=-1)
        except (RuntimeError, TypeError, UnicodeError):
            for number, text in enumerate(plain, start=1):
                _utf8(text, number)
            raise

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of the ids, one line: no CR, no LF.

        PAD, BOS and EOS vanish, UNK is U+2047. Raises InputError if an id is outside the
        vocabulary.
        """
        return self._processor.decode(self._checked(ids))

    def decode_batch(self, sequences: Iterable[Iterable[int]]) -> list[str]:
        """Decode each sequence as `decode` does."""
        return [self.decode(ids) for ids in sequences]

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Return the pieces as they are written in the vocabulary: U+2581 starts a word."""
        return [self._processor.id_to_piece(index) for index in self._checked(ids)]

    @cached_property
    def word_starts(self) -> bytes:
        """A byte for each id: 1 if it begins a word or is EOS, which ends the last; 0 otherwise."""
        pieces = self.pieces(range(self.size))
        return bytes(p.startswith("\u2581") or i == self.eos_id for i, p in enumerate(pieces))

    def _checked(self, ids: Iterable[int]) -> list[int]:
        checked = [int(index) for index in ids]
        wrong = [index for index in checked if not 0 <= index < self.size]
        if wrong:
            raise InputError(
                f"expected ids from 0 to {self.size - 1}, found {wrong[0]}; use the vocabulary "
                "that the ids were made with"
            )
        return checked


def as_lines(texts: Iterable[str], caller: str = "texts") -> list[str]:
    """Return the texts as a list.

    Raises InputError for one str, which would be a list of letters, and for a set, which has no
    order.
    """
    if isinstance(texts, str | set | frozenset) or not isinstance(texts, Iterable):
        raise InputError(
            f"{caller}: expected a list of lines, found a {type(texts).__name__}, "
            f"{reprlib.repr(texts)}; give a list of str"
        )
    lines = list(texts)
    for number, line in enumerate(lines, start=1):
        if not isinstance(line, str):
            raise InputError(
                f"{caller}: expected lines of type str, found a {type(line).__name__} as line "
                f"{number:,}; give text"
            )
    return lines


def _one_line(text: str) -> str:
    if "\n" in text or "\r" in text or "\u2581" in text:
        return text.replace("\n", " ").replace("\r", " ").replace("\u2581", " ")
    return text


def _utf8(text: str, number: int) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(
            f"expected Unicode text, found the lone surrogate U+{ord(text[error.start]):04X} at "
            f"character {error.start + 1} of line {number}; read the text as UTF-8"
        ) from None


def _explained(error: RuntimeError, size: int, lines: int) -> Exception:
    """Return an InputError that explains a message of sentencepiece; an unknown error itself."""
    if most := re.search(r"too high .* <= (\d+)", str(error)):
        return InputError(
            f"expected a text that supports {size} pieces, found one of {lines:,} lines that "
            f"supports at most {most[1]}; --set data.vocabulary_size={most[1]}, or "
            f"--set data.vocabulary_up_to=true"
        )
    if fewest := re.search(r"smaller than required_chars\. \d+ vs (\d+)", str(error)):
        return InputError(
            f"expected a vocabulary with a piece for each character, found {size} pieces for a "
            f"text of {lines:,} lines that needs at least {fewest[1]}; "
            f"--set data.vocabulary_size={fewest[1]} or more"
        )
    if "!sentences_.empty()" in str(error) or "all_chars_count" in str(error):
        return InputError(
            f"expected text to learn a vocabulary from, found {lines:,} lines and none with a "
            f"character in it; give text"
        )
    return error
