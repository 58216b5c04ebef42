"""§5.1 Vocabularies of files: the kind of each is found from its content."""

from collections.abc import Sequence
from pathlib import Path

from jax_transformer.data.text import read_lines
from jax_transformer.data.vocabularies.base import BOS, EOS, PAD, UNK, Vocabulary
from jax_transformer.data.vocabularies.bpe import END, BpeContent, BpeVocabulary, parse_codes
from jax_transformer.data.vocabularies.labels import LabelVocabulary
from jax_transformer.data.vocabularies.piece_table import PieceTable
from jax_transformer.data.vocabularies.sentencepiece import SentencePieceVocabulary
from jax_transformer.errors import InputError
from jax_transformer.files import read_bytes


def read_vocabulary(content: bytes) -> Vocabulary:
    """Return the vocabulary whose `content` this is. Raises InputError if it is not one."""
    for kind in (PieceTable, BpeVocabulary, LabelVocabulary):
        if content.startswith(b'{"kind":"%s"' % kind.KIND.encode()):
            return kind(content)
    return SentencePieceVocabulary(content)


def load_vocabulary(path: str | Path) -> Vocabulary:
    """Read a file with the content of a vocabulary. Raises InputError if it is not one."""
    try:
        return read_vocabulary(read_bytes(Path(path)))
    except OSError as error:
        raise InputError(
            f"expected a vocabulary at {path}, found '{error.strerror}'; check the path, or learn "
            "it again"
        ) from None
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def load_user_vocabulary(paths: Sequence[str]) -> Vocabulary:
    """Return the vocabulary of a user's own files. Raises InputError for any others.

    paths: the path of a sentencepiece model or of a run's vocabulary; or those of subword-nmt's
      codes and of its vocabulary.
    """
    if len(paths) == 1:
        return load_vocabulary(paths[0])
    if len(paths) != 2:
        raise InputError(
            f"{', '.join(paths)}: expected a vocabulary, or subword-nmt's codes and its "
            f"vocabulary, found {len(paths)} files; give one or two"
        )
    codes = parse_codes(read_lines(paths[0]), paths[0])
    lines = [line.rstrip(" ") for line in read_lines(paths[1])]
    for number, line in enumerate(lines, start=1):
        piece, space, count = line.partition(" ")
        if not piece or (space and not count.isdecimal()):
            raise InputError(
                f"{paths[1]}, line {number}: expected a piece and its count, found {line!r}; give "
                "what subword-nmt's get-vocab wrote, after the codes"
            )
    pieces = dict.fromkeys(line.partition(" ")[0] for line in lines)
    made = {(left + right).removesuffix(END) for left, right in codes.merges}
    several = [piece for piece in pieces if len(piece.removesuffix("@@")) > 1]
    others = [piece for piece in several if piece.removesuffix("@@") not in made]
    if len(others) > len(several) / 2:  # some are glossaries, and fairseq's fillers
        raise InputError(
            f"{paths[1]}: expected pieces that the codes of {paths[0]} make, found {len(others):,} "
            f"others, such as {others[0]!r}; give what subword-nmt's get-vocab wrote of text that "
            "was cut by these codes"
        )
    return BpeVocabulary.make(
        BpeContent(
            pieces=["<pad>", "<s>", "</s>", "<unk>", *pieces],
            merges=[f"{left} {right}" for left, right in codes.merges],
            end_apart=codes.end_apart,
            pad_id=PAD,
            bos_id=BOS,
            eos_id=EOS,
            unk_id=UNK,
        )
    )
