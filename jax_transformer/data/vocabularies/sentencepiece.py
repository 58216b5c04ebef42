"""§5.1 Vocabularies of sentencepiece: byte-pair pieces of both languages, or a given model."""

import io
import re
import struct
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, NamedTuple

import numpy as np
import sentencepiece
from jaxtyping import Bool, Integer
from numpy.random import Generator

from jax_transformer.data.random_cuts import BytePairCuts, UnigramCuts
from jax_transformer.data.vocabularies.base import (
    BOS,
    EOS,
    PAD,
    UNK,
    UNKNOWN,
    Vocabulary,
    spaced,
    utf8,
)
from jax_transformer.errors import InputError
from jax_transformer.files import write_bytes

_SPELLED = re.compile("<(?=(?:pad|s|/s|unk)>)")
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

    The ids 0 to 3 are PAD, BOS, EOS and UNK, and count towards `size`. With `up_to` a text that
    supports fewer pieces gives fewer. Every character has a piece, and every line counts. The same
    lines give the same pieces. Text is not normalised, unless `lowercase` or `nfkc` is set.

    Differs: the paper's vocabulary was not made by sentencepiece; our pieces never cross a space or
    a change of script.

    Raises InputError if the text is empty or does not support a vocabulary of this size.
    """
    # sentencepiece leaves out any line with U+2585 and any spelling of a special piece.
    # Its own signs for spaces, unknown characters and the ends of lines become spaces.
    plain = (_SPELLED.sub("< ", re.sub("[\n\r\u2581\u2585]", " ", line)) for line in lines)
    text = [utf8(line, number) for number, line in enumerate(plain, start=1)]
    model = io.BytesIO()
    try:
        with _normalization(lowercase=lowercase, nfkc=nfkc) as normalization:
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
    write_bytes(Path(path), model.getvalue())
    return SentencePieceVocabulary(model.getvalue())


@contextmanager
def _normalization(*, lowercase: bool, nfkc: bool) -> Iterator[dict[str, Any]]:
    """Yield the options that make sentencepiece learn a model with these rules inside it.

    sentencepiece's own rule for lower case folds, which writes a German ß as ss; this one does not.
    """
    if not (lowercase or nfkc):
        yield {"normalization_rule_name": "identity"}
        return
    with NamedTemporaryFile("w", suffix=".tsv", encoding="ascii") as file:
        for both in _changes(lowercase, nfkc):
            codes = (" ".join(f"{ord(letter):X}" for letter in text) for text in both)
            file.write("\t".join(codes) + "\n")
        file.flush()
        yield {"normalization_rule_tsv": file.name}


def _changes(lowercase: bool, nfkc: bool) -> Iterator[tuple[str, str]]:
    """Yield each character that changes, and each spelling of one with marks apart, e and U+0301.

    Differs: marks in another order than Unicode's canonical one stay apart.
    """
    seen: set[str] = set()
    for character in map(chr, range(1, sys.maxunicode + 1)):
        if "\ud800" <= character <= "\udfff":
            continue
        spellings = [character]
        if nfkc:
            marks = unicodedata.decomposition(character)
            if marks and not marks.startswith("<"):
                spellings.append("".join(chr(int(number, 16)) for number in marks.split()))
            spellings.append(unicodedata.normalize("NFD", character))
        for spelling in spellings:
            changed = unicodedata.normalize("NFKC", spelling) if nfkc else spelling
            changed = changed.lower() if lowercase else changed
            if changed != spelling and spelling not in seen:
                seen.add(spelling)
                yield spelling, changed


def _explained(error: RuntimeError, size: int, lines: int) -> Exception:
    """Return an InputError that explains a message of sentencepiece; an unknown error itself."""
    if most := re.search(r"too high .* <= (\d+)", str(error)):
        return InputError(
            f"expected a text that supports {size} pieces, found one of {lines:,} lines that "
            f"supports at most {most[1]}; give --set data.vocabulary_size={most[1]}, or "
            f"--set data.vocabulary_up_to=true"
        )
    if fewest := re.search(r"smaller than required_chars\. \d+ vs (\d+)", str(error)):
        return InputError(
            f"expected a vocabulary with a piece for each character, found {size} pieces for a "
            f"text of {lines:,} lines that needs at least {fewest[1]}; "
            f"give --set data.vocabulary_size={fewest[1]} or more"
        )
    if "!sentences_.empty()" in str(error) or "all_chars_count" in str(error):
        return InputError(
            f"expected text to learn a vocabulary from, found {lines:,} lines and none with a "
            f"character in it; give text"
        )
    return error


class SentencePieceVocabulary(Vocabulary):
    """A model of sentencepiece; PAD, BOS and EOS that it lacks get the ids after its last piece."""

    can_sample = True

    def __init__(self, content: bytes):
        """Read the content of a model. Raises InputError if it is not one, or has no UNK."""
        self.content = self.sentencepiece = content
        self._processor = own = read_sentencepiece(content)
        self.all_pieces: list[str] = own.id_to_piece([*range(own.get_piece_size())])
        special = {"<pad>": own.pad_id(), "<s>": own.bos_id(), "</s>": own.eos_id()}
        for name, index in special.items():
            if index < 0:
                special[name] = len(self.all_pieces)
                self.all_pieces.append(name)
        self.size = len(self.all_pieces)
        self.pad_id, self.bos_id, self.eos_id = special.values()
        self.unk_id: int = own.unk_id()

    def _encode_lines(self, lines: list[str]) -> list[list[int]]:
        if len(lines) == 1:  # a list starts threads, which takes 50 times as long
            return [self._processor.encode(lines[0])]
        return self._processor.encode(lines, num_threads=-1)

    def as_in_pieces(self, text: str) -> str:
        """See `Vocabulary.as_in_pieces`: in lower case or NFKC, if the model writes that."""
        if UNKNOWN in text:  # which NFKC takes apart
            return text
        return self._processor.normalize(text).replace("\u2581", " ").strip() or text

    def sample_words(
        self, words: Sequence[list[int]], times: Sequence[int], rate: float, random: Generator
    ) -> list[list[int]]:
        """See `Vocabulary.sample_words`; words with symbols that are not cut stay."""
        normal, pieces = self._cuts.ids, self.all_pieces
        cuts, texts = [[ids] * n for ids, n in zip(words, times, strict=True)], dict[int, str]()
        for number, ids in enumerate(words):
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
        apart = self.unk_id in ids and word not in ("", self._unknown)
        return spaced(text, word) if apart else text

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


def read_sentencepiece(content: bytes) -> sentencepiece.SentencePieceProcessor:
    """Return the processor of a model. Raises InputError if it is not one that can be used."""
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


# Numbers of fields and values in sentencepiece_model.proto.
_PIECE, _TRAINER, _NORMALIZER = 1, 2, 3  # of the model
_TEXT, _SCORE, _KIND = 1, 2, 3  # of a piece
_MODEL_TYPE, _SPACE_LAST, _BYTE_FALLBACK = 3, 24, 35  # of the trainer's options
_CHARSMAP, _DUMMY_PREFIX, _NO_EXTRA_SPACES, _ESCAPES = 2, 3, 4, 5  # of the normalizer's
_NORMAL, _USER_DEFINED, _UNUSED, _BPE = 1, 4, 5, 2


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


class BytePairModel(NamedTuple):
    """All that a model of byte pairs cuts text by: its pieces and its normalization.

    scores: of each piece that a merge may make. whole: pieces that a user has defined, the longest
    first. charsmap: compiled rules. dummy_prefix: True if a text begins with a space. extra_spaces:
    True if each of several spaces counts. escapes: True if a space is U+2581 in pieces.
    byte_fallback: True if an unknown character is its bytes.
    """

    scores: dict[str, float]
    whole: list[str]
    charsmap: bytes
    dummy_prefix: bool
    extra_spaces: bool
    escapes: bool
    byte_fallback: bool


def byte_pair_model(content: bytes) -> BytePairModel | None:
    """Read a model of sentencepiece; None if it cuts by another algorithm than byte pairs.

    None also if it has pieces that are not to be used.
    """
    parts: dict[int, Any] = {_TRAINER: b"", _NORMALIZER: b"", **dict(_fields(content))}
    trainer, rules = (dict(_fields(parts[part])) for part in (_TRAINER, _NORMALIZER))
    encoded = [dict(_fields(value)) for field, value in _fields(content) if field == _PIECE]
    kinds = {piece[_TEXT].decode(): piece.get(_KIND, _NORMAL) for piece in encoded}
    scores = [struct.unpack("<f", piece.get(_SCORE, bytes(4)))[0] for piece in encoded]
    if trainer.get(_MODEL_TYPE) != _BPE or _UNUSED in kinds.values():
        return None
    both = zip(kinds, scores, strict=True)
    whole = [piece for piece, kind in kinds.items() if kind == _USER_DEFINED]
    return BytePairModel(
        scores={p: score for p, score in both if kinds[p] in (_NORMAL, _USER_DEFINED)},
        whole=sorted(whole, key=len, reverse=True),
        charsmap=rules.get(_CHARSMAP, b""),
        dummy_prefix=bool(rules.get(_DUMMY_PREFIX, True)),
        extra_spaces=not rules.get(_NO_EXTRA_SPACES, True),
        escapes=bool(rules.get(_ESCAPES, True)),
        byte_fallback=bool(trainer.get(_BYTE_FALLBACK)),
    )


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
