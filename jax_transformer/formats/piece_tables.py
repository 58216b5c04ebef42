"""Tables of pieces in YAML, JSON or lines, and the files beside them by which text is cut."""

import contextlib
import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from jax_transformer.data.vocabularies.bpe import END, BpeContent, BpeVocabulary, Pair
from jax_transformer.data.vocabularies.piece_table import unused
from jax_transformer.data.vocabularies.sentencepiece import read_sentencepiece
from jax_transformer.errors import InputError, located, shown
from jax_transformer.files import file_lines, read_bytes

logger = logging.getLogger(__name__)

_ID = re.compile("[0-9]{1,9}")
# The planes of Unicode for private use, by their first characters.
_PRIVATE = {base: re.compile(f"[{chr(base)}-{chr(base + 0xFFFF)}]") for base in (0xF0000, 0x100000)}
_UNLIKE_YAML = re.compile(  # Marian's own reader takes these characters as they are
    "[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]|\r(?!\n)"
)
# Both are safe; libyaml's are ten times faster. The base loader makes text of every scalar.
_SAFE = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TEXT_ONLY = getattr(yaml, "CBaseLoader", yaml.BaseLoader)


def read_yaml(
    path: Path, content: bytes | None = None, *, text_only: bool = False
) -> dict[str, Any]:
    """Return the map in a file of YAML or JSON, of scalars and of lists of scalars.

    content: the content of the file, if it has been read.
    text_only: True if every value is text, also what YAML reads as a number, as true or as null;
      those of JSON are as they are.
    """
    with _readable(path):
        content = read_bytes(path) if content is None else content
        found: dict[str, Any] = {}
        for name, value in _pairs(content.decode("utf-8-sig"), text_only):
            if name in found:
                raise ValueError(f"{shown(name)} twice")
            found[name] = value
        return found


@contextlib.contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Raise InputError for each exception of the block."""
    try:
        yield
    except InputError:
        raise
    except OSError as error:
        found = "none" if isinstance(error, FileNotFoundError) else f"'{error.strerror}'"
        raise InputError(
            f"{path}: expected a file of the model, found {found}; copy all files of the model "
            "into one folder"
        ) from None
    except Exception as error:  # of many kinds, if a value does not have the form that its tag says
        raise InputError(
            f"{path}: expected `name: value` in each line, or a list of pieces, found something "
            f"else: {' '.join(str(error).split()):.300}; copy the file again"
        ) from None


def _pairs(text: str, text_only: bool) -> Iterator[tuple[str, Any]]:
    """Yield the names and values of a map; anything else raises exceptions of all kinds."""
    if text_only and text.lstrip()[:1] == "{":
        with contextlib.suppress(json.JSONDecodeError):  # what is not JSON may be YAML
            yield from json.loads(text, object_pairs_hook=list)
            return
    # Private characters that the text lacks stand for those that YAML does not take as they are.
    base, own = next((base, own) for base, own in _PRIVATE.items() if not own.search(text))
    text = _UNLIKE_YAML.sub(lambda odd: chr(base + ord(odd[0])), text)
    loader = (_TEXT_ONLY if text_only else _SAFE)(text)
    try:
        root = loader.get_single_node()
        if not isinstance(root, yaml.MappingNode):
            raise ValueError("no map")
        for key, value in root.value:
            several = isinstance(value, yaml.SequenceNode)
            parts = value.value if several else [value]
            # An alias of a list may stand for more than any memory holds.
            if not all(isinstance(part, yaml.ScalarNode) for part in (key, *parts)):
                raise ValueError(f"neither a scalar nor a list of scalars: {shown(key.value)}")
            name = own.sub(lambda odd: chr(ord(odd[0]) - base), key.value)
            values = [loader.construct_object(part) for part in parts]
            yield name, values if several else values[0]
    finally:
        loader.dispose()


def read_table(path: Path) -> dict[str, int]:
    """Return the id of each piece in a file: of JSON or YAML by its name, else a piece a line."""
    with _readable(path):
        if path.suffix in (".json", ".yaml", ".yml"):
            table = read_yaml(path, text_only=True)
        else:
            pieces = file_lines(path)
            table = {piece: number for number, piece in enumerate(pieces)}
            if len(table) < len(pieces) or "" in table:
                raise ValueError("an empty line, or one of two equal ones")
        for piece, index in table.items():
            piece.encode()  # half of a surrogate pair is an error
            # YAML's numbers are text here.
            if isinstance(index, str) and path.suffix != ".json" and _ID.fullmatch(index):
                table[piece] = index = int(index)
            if type(index) is not int or not 0 <= index < 10**9:
                raise ValueError(f"{shown(index)} of {shown(piece)} as an id")
        return table


def piece_table(
    path: Path, table: Mapping[str, int], rows: int, padded: Sequence[int] = (8,)
) -> list[str]:
    """Return the pieces by their ids; a row of the matrix without one gets a name no text has.

    path: for messages. rows: of the matrix. padded: numbers to a multiple of which they may have
      been filled up.
    """
    pieces: dict[int, str] = {}
    for piece, index in table.items():
        if index in pieces:
            raise InputError(
                f"{path}: expected an id of its own for each piece, found {index} of "
                f"{shown(piece)} and of {shown(pieces[index])}; fetch the file again"
            )
        pieces[index] = piece
    missing, last = rows - len(pieces), max(pieces, default=0)
    # A row for `<pad>` may come behind those that fill up.
    filled_up = ((rows - more) % n == 0 and missing < n for n in padded for more in (0, 1))
    if last >= rows or not (missing == 0 or any(filled_up)):
        raise InputError(
            f"{path}: expected a piece for each of the {rows:,} rows of its matrix, found "
            f"{len(pieces):,} with ids up to {last:,}; give the whole files of one model"
        )
    return [pieces.get(index, unused(index)) for index in range(rows)]


def appended_padding(pieces: Sequence[str]) -> str:
    """Return a name for a padding piece behind these: `<pad>`, with its id if that is taken."""
    return f"<pad {len(pieces)}>" if "<pad>" in pieces else "<pad>"


def read_cutter(path: Path) -> bytes:
    """Return the content of a model of sentencepiece."""
    try:
        model = read_bytes(path)
    except OSError:
        raise InputError(
            f"{path}: expected a model of sentencepiece that cuts text, found none; models of "
            "Moses and BPE alone cannot be imported"
        ) from None
    with located(path):
        read_sentencepiece(model)
    return model


def bpe_vocabularies(
    pieces: tuple[list[str], list[str]], languages: tuple[str, str], *, moses: bool, **content: Any
) -> tuple[BpeVocabulary, BpeVocabulary]:
    """Return vocabularies, the same object if they have the same pieces, and no rules of Moses.

    Those differ between languages. moses, content: of `BpeContent`.
    """
    source, target = (
        BpeVocabulary.make(
            BpeContent(
                pieces=own,
                source_language=language,
                target_language=languages[1],
                unk_id=own.index("<unk>"),
                moses=moses,
                **content,
            )
        )
        for own, language in zip(pieces, languages, strict=True)
    )
    return source, source if pieces[0] == pieces[1] and not moses else target


def check_codes(
    path: Path, merges: Iterable[Pair], pieces: Iterable[str], continuation: str, end: str
) -> None:
    """Raise InputError unless the merges make nearly all pieces of the text that they cut.

    Fewer than a tenth is a vocabulary that was not made by merges: that is logged as a warning.
    """
    made = {"".join(pair).removesuffix(END) for pair in merges}
    texts = [piece.removesuffix(continuation or end) for piece in pieces if piece[:1] != "<"]
    longer = [text for text in texts if len(text) > 1 and not text.startswith("madeupword")]
    lacking = [text for text in longer if text not in made]
    if len(lacking) <= 0.01 * len(longer):
        return
    message = (
        f"{path}: expected merges that make the {len(longer):,} pieces of several letters, found "
        f"none for {len(lacking):,}, such as {shown(lacking[0])}; give the whole file of this model"
    )
    if len(lacking) <= 0.9 * len(longer):
        raise InputError(message)
    logger.warning(message)
