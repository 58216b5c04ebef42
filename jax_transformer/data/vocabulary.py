"""§5.1 Vocabularies: one of byte-pair pieces for both languages, learned by sentencepiece."""

import hashlib
import io
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import sentencepiece
from jaxtyping import Bool, Integer
from numpy.random import Generator

from jax_transformer.data.normalization import trainer_options
from jax_transformer.data.random_cuts import BytePairCuts, UnigramCuts
from jax_transformer.data.scripts import in_word, is_mark
from jax_transformer.data.text import as_lines, readable
from jax_transformer.errors import InputError
from jax_transformer.files import write_bytes

PAD, BOS, EOS, UNK = range(4)

_SPELLED = re.compile("<(?=(?:pad|s|/s|unk)>)")
UNKNOWN = "\u2047"  # how UNK is shown
_LONGEST_LINE = 1 << 30  # bytes, the most sentencepiece takes; its default drops lines of 4 KiB


def train_vocabulary(
    lines: Iterable[str],
    size: int,
    path: str | Path,
    *,
    up_to: bool = False,
    lowercase: bool = False,
    nfkc: bool = False,
) -> "SentencePieceVocabulary":
    """Learn `size` pieces from the lines of both languages, and write them to `path`.

    The ids 0 to 3 are PAD, BOS, EOS and UNK, and count towards `size`. With `up_to`
    a text that supports fewer pieces gives fewer. Every character has a piece. No
    line is left out, however long. The text is not normalised, unless `lowercase`
    or `nfkc` is set: decoding gives the text that was encoded, up to `encode`'s
    spaces, or its normalised form. The file appears whole or not at all; the same
    lines give the same pieces.

    Differs: the paper's vocabulary was not made by sentencepiece; our pieces
    never cross a space or a change of script.

    Raises InputError if the text is empty or does not support a vocabulary of this size (the
    message gives one that it supports); OSError if the file cannot be written, for example on a
    full disk.
    """
    path = Path(path)
    # sentencepiece leaves out any line with U+2585 and any spelling of a special piece.
    text = [
        _utf8(_SPELLED.sub("< ", _plain_spaces(line)), number)
        for number, line in enumerate(lines, start=1)
    ]
    model = io.BytesIO()
    try:
        with trainer_options(lowercase=lowercase, nfkc=nfkc) as normalization:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(text),
                model_writer=model,
                model_type="bpe",
                vocab_size=size,
                hard_vocab_limit=not up_to,
                character_coverage=1.0,
                max_sentence_length=_LONGEST_LINE,
                pad_id=PAD,
                bos_id=BOS,
                eos_id=EOS,
                unk_id=UNK,
                unk_surface=UNKNOWN,  # no spaces around it, those of the text are enough
                minloglevel=2,
                **normalization,
            )
    except RuntimeError as error:
        raise _explained(error, size, len(text)) from None
    write_bytes(path, model.getvalue())
    return SentencePieceVocabulary(model.getvalue())


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


class Vocabulary(ABC):
    """A map from text to ids and back.

    Attributes: `size`, the number of ids; `pad_id`, `bos_id`, which the decoder starts with,
    `eos_id` and `unk_id`, four of them, perhaps some of them equal; `content`, all of it as the
    bytes of one file.
    """

    content: bytes
    size: int
    pad_id: int
    bos_id: int
    eos_id: int
    unk_id: int
    sentencepiece: bytes | None = None  # the content of the model's file, if there is one
    can_sample: bool = False  # at random: see `sample_words`

    @cached_property
    def fingerprint(self) -> str:
        """The SHA-256 of the content."""
        return hashlib.sha256(self.content).hexdigest()

    def __len__(self) -> int:
        """Return the number of ids."""
        return self.size

    def __repr__(self) -> str:
        """Describe the kind and the size in one line."""
        special = f"PAD {self.pad_id}, BOS {self.bos_id}, EOS {self.eos_id}, UNK {self.unk_id}"
        return f"<{type(self).__name__}: {self.size:,} ids; {special}>"

    def encode(self, text: str, *, eos: bool = False) -> list[int]:
        """Return the ids of one line's pieces, without BOS; a model reads them with EOS at the end.

        eos: True to add EOS.
        White space that has no piece counts as a space, and so do CR, LF and U+2581,
        sentencepiece's own sign for a space; spaces at the ends are dropped and runs of
        them become one. A letter with separate marks that have no piece is composed
        (NFC). A line without a letter, digit, punctuation mark or symbol has no pieces.
        Another character without a piece is UNK (NUL and U+2585 always are); unknown
        neighbours share one UNK. No text gives PAD, BOS or EOS, even if it contains
        `<s>`.

        Raises InputError if the text has a lone surrogate, which is not a character.
        """
        return self.encode_batch([text])[0] + [self.eos_id] * eos

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Encode each text as `encode` does, on all cores."""
        plain = [readable(text, self.knows) for text in as_lines(texts)]
        try:
            return self._encode_lines(plain)
        except (RuntimeError, TypeError, UnicodeError):
            for number, text in enumerate(plain, start=1):
                _utf8(text, number)
            raise

    def word_begins(self, tokens: Integer[np.ndarray, " n"]) -> Bool[np.ndarray, " n"]:
        """Return which tokens of a text begin a word, if `can_sample`."""
        raise NotImplementedError

    def sample_words(
        self, words: Sequence[list[int]], times: Sequence[int], rate: float, random: Generator
    ) -> list[list[int]]:
        """Cut words anew at random, if `can_sample`; words[i] in times[i] ways, one after another.

        words: the ids of each, as `encode` cuts it. rate: of byte pairs, the probability that a
          merge is passed over, 1 gives characters; of a unigram model, the exponent of its
          probabilities.
        """
        raise NotImplementedError

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of the ids, one line: no CR, no LF.

        PAD, BOS and EOS vanish, UNK is U+2047. Raises InputError if an id is outside the
        vocabulary.
        """
        return self._decode(self._checked(ids))

    def decode_batch(self, sequences: Iterable[Iterable[int]]) -> list[str]:
        """Decode each sequence as `decode` does."""
        return [self.decode(ids) for ids in sequences]

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Return the pieces as they are written in the vocabulary: U+2581 starts a word."""
        return self._pieces(self._checked(ids))

    @cached_property
    def all_pieces(self) -> list[str]:
        """The piece of each id."""
        return self.pieces(range(self.size))

    @cached_property
    def word_starts(self) -> bytes:
        """A byte for each id: 1 if it begins a word or is EOS, which ends the last; 0 otherwise."""
        pieces = self.all_pieces
        return bytes(p.startswith("\u2581") or i == self.eos_id for i, p in enumerate(pieces))

    @cached_property
    def piece_texts(self) -> list[str | bytes]:
        """What each id adds to a text: a space begins the first piece of a word.

        A piece that stands for a byte, which is a part of a character, is that byte.
        """
        special = (self.pad_id, self.bos_id, self.eos_id)
        texts = list[str | bytes]()
        for index, piece in enumerate(self.all_pieces):
            text = "" if index in special else spelled(piece)
            texts.append(bytes([int(piece[3:5], 16)]) if self._is_byte(index, piece) else text)
        return texts

    @cached_property
    def continuations(self) -> Bool[np.ndarray, "2 size"] | None:
        """Which ids continue the word before them; None if the last piece of a word ends it.

        Row 1 is for text that ends in a word, "caf": a piece that begins with a letter continues
        it. Row 0 is for other text, "(": only a piece that begins with a mark changes its end.
        """
        marks, letters = np.zeros((2, self.size), bool)
        for index, text in enumerate(self.piece_texts):
            first = text[:1]
            if not first:  # a special piece, after which anything might follow
                marks[index] = letters[index] = index != self.eos_id
            else:
                letters[index] = isinstance(first, bytes) or in_word(first)
                marks[index] = isinstance(first, str) and is_mark(first)
        return np.array([marks, letters])

    def knows(self, character: str) -> bool:
        """Return whether text with this character has a piece for it, or for what it stands for."""
        if character not in self._known:
            texts = self.piece_texts
            ids = [i for i in self._encode_lines([character])[0] if texts[i] != " "]
            strange = [i for i in ids if i == self.unk_id or isinstance(texts[i], bytes)]
            self._known[character] = character in self._letters or bool(ids and not strange)
        return self._known[character]

    @cached_property
    def _known(self) -> dict[str, bool]:
        return {}

    @cached_property
    def _letters(self) -> frozenset[str]:
        """The letters of all pieces, some of which may have no piece of their own."""
        return frozenset("".join(text for text in self.piece_texts if isinstance(text, str)))

    def _is_byte(self, index: int, piece: str) -> bool:
        """Return whether an id stands for a byte."""
        return False

    @abstractmethod
    def _encode_lines(self, lines: list[str]) -> list[list[int]]: ...

    @abstractmethod
    def _decode(self, ids: list[int]) -> str: ...

    @abstractmethod
    def _pieces(self, ids: list[int]) -> list[str]: ...

    def _checked(self, ids: Iterable[int]) -> list[int]:
        checked = [int(index) for index in ids]
        wrong = [index for index in checked if not 0 <= index < self.size]
        if wrong:
            raise InputError(
                f"expected ids from 0 to {self.size - 1}, found {wrong[0]}; use the vocabulary "
                "that the ids were made with"
            )
        return checked


class SentencePieceVocabulary(Vocabulary):
    """A model of sentencepiece, learned by `train_vocabulary` or brought.

    A brought model may lack PAD, BOS or EOS; these get the ids after its last piece.
    """

    can_sample = True

    def __init__(self, content: bytes):
        """Read the content of a model. Raises InputError if it is not one, or has no UNK."""
        self.content = self.sentencepiece = content
        self._processor = read_sentencepiece(content)
        self._appended: list[str] = []
        names = {"pad": "<pad>", "bos": "<s>", "eos": "</s>"}
        ids = (self._special_id(kind, name) for kind, name in names.items())
        self.pad_id, self.bos_id, self.eos_id = ids
        self.unk_id: int = self._processor.unk_id()
        self.size = self._processor.get_piece_size() + len(self._appended)

    def _special_id(self, kind: str, name: str) -> int:
        index: int = getattr(self._processor, f"{kind}_id")()
        if index < 0:
            self._appended.append(name)
            index = self._processor.get_piece_size() + len(self._appended) - 1
        return index

    def _encode_lines(self, lines: list[str]) -> list[list[int]]:
        if len(lines) == 1:  # a list starts threads, which takes 50 times as long
            return [self._processor.encode(lines[0])]
        return self._processor.encode(lines, num_threads=-1)

    def sample_words(
        self, words: Sequence[list[int]], times: Sequence[int], rate: float, random: Generator
    ) -> list[list[int]]:
        """See `Vocabulary.sample_words`; words with symbols that are not cut stay."""
        normal, pieces = self._cuts.ids, self.all_pieces
        cuts, texts = list[list[list[int]]](), dict[int, str]()
        for number, ids in enumerate(words):
            cuts.append([ids] * times[number])
            text = "".join(pieces[index] for index in ids)
            usual = all(normal.get(pieces[index]) == index for index in ids)
            if usual and normal.keys() >= {*text}:
                texts[number] = text
        found = self._cuts.cut([*texts.values()], [times[i] for i in texts], rate, random)
        for number, own in zip(texts, found, strict=True):
            cuts[number] = own
        return [ids for own in cuts for ids in own]

    @cached_property
    def _cuts(self) -> BytePairCuts | UnigramCuts:
        normal = [
            (self._processor.get_score(index), piece, index)
            for index, piece, kind in model_pieces(self.content)
            if kind == _NORMAL
        ]
        normal.sort(key=lambda each: -each[0])
        ids = {piece: index for _, piece, index in normal}
        if trainer_option(self.content, _MODEL_TYPE) == _BPE:
            return BytePairCuts(ids)
        return UnigramCuts(ids, {piece: score for score, piece, _ in normal})

    def word_begins(self, tokens: Integer[np.ndarray, " n"]) -> Bool[np.ndarray, " n"]:
        """See `Vocabulary.word_begins`."""
        return np.frombuffer(self.word_starts, np.bool_)[tokens]

    def _decode(self, ids: list[int]) -> str:
        known = self._processor.get_piece_size()
        text = self._processor.decode([index for index in ids if index < known])
        word = self._unknown.strip()
        return (
            spaced(text, word) if self.unk_id in ids and word not in ("", self._unknown) else text
        )

    def _is_byte(self, index: int, piece: str) -> bool:
        return piece.startswith("<0x") and self._processor.is_byte(index)

    @cached_property
    def _unknown(self) -> str:
        """UNK as it is shown, perhaps with spaces around it."""
        return self._processor.decode([self.unk_id])

    @cached_property
    def piece_texts(self) -> list[str | bytes]:
        """See `Vocabulary.piece_texts`."""
        texts = super().piece_texts
        texts[self.unk_id] = self._unknown
        return texts

    def _pieces(self, ids: list[int]) -> list[str]:
        known = self._processor.get_piece_size()
        return [
            self._processor.id_to_piece(index) if index < known else self._appended[index - known]
            for index in ids
        ]


def read_sentencepiece(content: bytes) -> sentencepiece.SentencePieceProcessor:
    """Return the processor of a model.

    Raises InputError if the bytes are not a model, or one whose words end with the mark for a space
    (--treat_whitespace_as_suffix).
    """
    try:
        processor = sentencepiece.SentencePieceProcessor()
        processor.load_from_serialized_proto(content)
    except RuntimeError:
        raise InputError(
            "expected a model of sentencepiece, found something else; give the file that "
            "train_vocabulary or spm_train wrote"
        ) from None
    if trainer_option(content, _SPACE_LAST):
        raise InputError(
            "expected a model of sentencepiece whose words begin with the mark for a space, found "
            "one that was trained with --treat_whitespace_as_suffix; train it without"
        )
    return processor


def spelled(piece: str) -> str:
    """Return a piece as text: a space for sentencepiece's mark, U+2581."""
    return piece.replace("\u2581", " ")


def spaced(text: str, word: str) -> str:
    """Return a text with one space between a word, wherever it occurs, and its neighbours.

    >>> spaced("the  ? dog?", "?")
    'the ? dog ?'
    """
    return re.sub(f" *{re.escape(word)} *", f" {word} ", text).replace("  ", " ").strip()


# Numbers of fields and values in sentencepiece_model.proto.
_PIECE, _TRAINER = 1, 2  # of the model
_TEXT, _KIND = 1, 3  # of a piece
_MODEL_TYPE, _SPACE_LAST = 3, 24  # of the trainer's options
_NORMAL, _BPE = 1, 2


def model_pieces(content: bytes) -> Iterator[tuple[int, str, int]]:
    """Yield (id, piece, kind) of each piece of a model of sentencepiece."""
    pieces = (value for field, value in _fields(content) if field == _PIECE)
    for index, encoded in enumerate(pieces):
        piece: dict[int, Any] = dict(_fields(encoded))
        yield index, piece[_TEXT].decode(), piece.get(_KIND, _NORMAL)


def trainer_option(content: bytes, option: int) -> int:
    """Return a number of the options that a model was trained with; 0 if it is not given."""
    place = 0
    while content[place : place + 1] == b"\n" and content[place + 1] < 128:
        place += 2 + content[place + 1]  # the pieces, which come first: a length of one byte each
    options = (value for field, value in _fields(content[place:]) if field == _TRAINER)
    return dict(_fields(next(options, b""))).get(option, 0)


def _fields(content: Any) -> Iterator[tuple[int, Any]]:
    """Yield the (number, value) of each field of a message of protobuf: a number, or bytes."""
    place, end = 0, len(content)
    while place < end:
        key, place = _varint(content, place)
        kind = key & 7
        if kind == 0:
            value, place = _varint(content, place)
        else:
            size = {1: 8, 5: 4}.get(kind)
            if size is None:
                size, place = _varint(content, place)
            value, place = content[place : place + size], place + size
        yield key >> 3, value


def _varint(content: bytes, place: int) -> tuple[int, int]:
    """Return a number of protobuf, seven bits a byte, and the place after it."""
    number = shift = 0
    while True:
        byte = content[place]
        number |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return number, place


def _plain_spaces(text: str) -> str:
    """Return a line to learn from with spaces for what sentencepiece takes for its own signs."""
    for sign in "\n\r\u2581\u2585":
        text = text.replace(sign, " ")
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
