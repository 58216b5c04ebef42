"""Vocabularies out of files: the kind of each is found from its content."""

from pathlib import Path

from jax_transformer.data.bpe_vocabulary import BpeVocabulary
from jax_transformer.data.piece_table import PieceTable
from jax_transformer.data.vocabulary import SentencePieceVocabulary, Vocabulary
from jax_transformer.errors import InputError
from jax_transformer.files import read_bytes

# What the content of each kind that is JSON begins with.
_KINDS = {b'{"kind":"pieces"': PieceTable, b'{"kind":"bpe"': BpeVocabulary}


def read_vocabulary(content: bytes) -> Vocabulary:
    """Return the vocabulary whose `content` this is. Raises InputError if it is not one."""
    for begin, kind in _KINDS.items():
        if content.startswith(begin):
            return kind(content)
    return SentencePieceVocabulary(content)


def load_vocabulary(path: str | Path) -> Vocabulary:
    """Read a file with the `content` of a vocabulary; it is not verified.

    Raises InputError if the file is missing, or not a vocabulary.
    """
    try:
        return read_vocabulary(read_bytes(Path(path)))
    except OSError as error:
        raise InputError(
            f"expected a vocabulary at {path}, found '{error.strerror}'; check the path, or learn "
            "it again"
        ) from None
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
