r"""§5.1 Text files: parallel lines, read as bytes and cut at b"\n" only."""

import bz2
import contextlib
import gzip
import hashlib
import html
import io
import logging
import lzma
import os
import re
import reprlib
import unicodedata
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from html.entities import html5
from pathlib import Path
from typing import IO, Any, cast

from jax_transformer.data.scripts import is_blank, is_mark
from jax_transformer.data.urls import absolute, bucket_errors, is_url, open_url, url_version
from jax_transformer.errors import InputError, reason_of
from jax_transformer.files import (
    BYTE_ORDER_MARK,
    check_pointer,
    check_regular,
    whole_file,
)

logger = logging.getLogger(__name__)

SIDES = ("source", "target")

_CHUNK = 1 << 20
_COMPRESSED: dict[str, Any] = {".bz2": bz2.open, ".gz": gzip.open, ".xz": lzma.open}
_STREAMS: dict[str, Any] = {".bz2": bz2.BZ2Decompressor, ".xz": lzma.LZMADecompressor}
_ZERO_WIDTH = "\u200b\ufeff"  # spaces by their names, though not by Unicode's property
# No character's number has more than 7 digits, and Python refuses to read very long ones.
_ENTITY = re.compile(r"&(?:#[0-9]{1,9}|#[xX][0-9a-fA-F]{1,8}|[A-Za-z][A-Za-z0-9]*);")


def read_lines(path: str | Path) -> Iterator[str]:
    r"""Yield the lines of a UTF-8 file, one line in memory at a time.

    The name gives the format: `.bz2`, `.gz`, `.xz`, or plain. A line ends at b"\n" and
    nowhere else, so that U+2028, U+0085, U+001C or a lone "\r" cannot shift one
    side of a parallel corpus against the other. One "\r" before the end of a
    line and a byte order mark at the start of the file are dropped. A last line
    without "\n" counts; the empty text after a last "\n" does not.

    Raises InputError if the file is missing, unreadable, empty, cut short or not UTF-8, or a
    device or a named pipe; the message names the file, the line and the byte.
    """
    check_regular(path, once=True)
    with _opened(path) as stream:
        line = None
        for line in decode_lines(stream, str(path)):
            yield line
        if line is None:
            raise InputError(
                f"expected lines of text in {path}, found an empty file; give another file"
            )


def decode_lines(stream: Iterable[bytes], name: str) -> Iterator[str]:
    r"""Yield the lines of a stream of bytes cut at b"\n", by the rules of `read_lines`.

    name: the name of the stream in errors. An empty stream has no lines. Raises InputError
    if a line is not UTF-8, the first one looks like UTF-16, or they are a pointer of Git LFS.
    """
    offset = 0
    for number, line in enumerate(stream, start=1):
        start, length = 0, len(line)
        if number == 1:
            check_pointer(line, name)
            if line.startswith(BYTE_ORDER_MARK):
                start = len(BYTE_ORDER_MARK)
                if length == start:
                    return  # a mark and nothing else: no line
            if (line[:1] == b"\0") != (line[1:2] == b"\0"):
                code = "UTF-16BE" if line[:1] == b"\0" else "UTF-16LE"
                raise InputError(
                    f"{name}: expected UTF-8, found {code}; convert it (iconv -f {code} -t UTF-8)"
                )
        try:
            text = line[start:].decode("utf-8")
        except UnicodeDecodeError as error:
            at = start + error.start
            raise InputError(
                f"{name}, line {number}: expected UTF-8, found byte 0x{line[at]:02x} at byte "
                f"offset {offset + at} of the text; convert it (iconv -f ITS_ENCODING -t UTF-8), "
                "or if it is compressed, unpack it or end its name in .bz2, .gz or .xz"
            ) from None
        offset += length
        yield text.removesuffix("\n").removesuffix("\r")


def as_lines(texts: Iterable[str], name: str = "texts") -> list[str]:
    """Return the texts as a list. Raises InputError for anything but an ordered list of str."""
    if isinstance(texts, str | set | frozenset) or not isinstance(texts, Iterable):
        raise InputError(
            f"{name}: expected a list of lines, found a {type(texts).__name__}, "
            f"{reprlib.repr(texts)}; give a list of str"
        )
    lines = list(texts)
    for number, line in enumerate(lines):
        if not isinstance(line, str):
            found = type(line).__name__
            raise InputError(f"{name}[{number}]: expected text, found a {found}; give lines of str")
    return lines


def check_not_blank(lines: Sequence[str], name: str) -> None:
    """Raise InputError if there is nothing to read in any line."""
    if all(is_blank(line) for line in lines):
        raise InputError(f"{name}: expected sentences to decode, found only blank lines or none")


def single_lines(texts: Iterable[str], name: str) -> list[str]:
    """Return texts that come from a program as a list, each of them one line.

    Raises InputError for all that `as_lines` and `single_line` refuse.
    """
    lines = as_lines(texts, name)
    for number, line in enumerate(lines):
        single_line(line, f"{name}[{number}]")
    return lines


def single_line(text: str, name: str) -> str:
    """Return a text of one line, which may end in line breaks.

    Raises InputError for a line break inside it, or half a character.
    """
    if not text.isprintable() and len(text.strip().splitlines()) > 1:
        raise InputError(
            f"{name}: expected one line, found a line break in it; remove it, or give each line by "
            "itself"
        )
    if not text.isprintable() and (half := re.search(r"[\ud800-\udfff]", text)):
        raise InputError(
            f"{name}: expected Unicode text, found the lone surrogate U+{ord(half[0]):04X}; read "
            "the text as UTF-8"
        )
    return text


def readable(line: str, knows: Callable[[str], bool]) -> str:
    r"""Return a line as a vocabulary reads it, "" if it is blank.

    knows: a function that tells whether the vocabulary has a character. White space that it does
      not have becomes a space, a run of it one, and is dropped at the ends; a letter with separate
      marks becomes one composed letter (Unicode's form NFC), unless it has all of them. The
      newline, "\r" and U+2581, sentencepiece's sign for a space, are always white space that it
      does not have.

    >>> readable("The\tdog\u2028is u\u0308ber.", str.isascii)
    'The\tdog is über.'
    """
    if is_blank(line):
        return ""
    if not unicodedata.is_normalized("NFC", line):
        line = _composed(line, knows)
    if line.isprintable() and "\u2581" not in line:
        return line

    # A run that has only spaces is left to the vocabulary, which may keep its length.
    marked = "".join("\n" if becomes_space(each, knows) else each for each in line)
    # From a run's first space alone: from each of them, the time is the square of their number.
    return re.sub("(?<! ) *\n[ \n]*", "\n", marked).strip("\n").replace("\n", " ")


def becomes_space(character: str, knows: Callable[[str], bool]) -> bool:
    """Return whether `readable` makes a space of a character that is not one."""
    space = (character.isspace() or character in _ZERO_WIDTH) and character != " "
    return character in "\n\r\u2581" or (space and not knows(character))


def _composed(line: str, knows: Callable[[str], bool]) -> str:
    """Compose each letter and its marks, unless the vocabulary has all of them."""
    letters = list[str]()
    for character in line:
        # Marks, and the vowels and final consonants of Korean syllables.
        if letters and (is_mark(character) or "\u1160" <= character <= "\u11ff"):
            letters[-1] += character
        else:
            letters.append(character)
    both = ((each, unicodedata.normalize("NFC", each)) for each in letters)
    return "".join(new if old == new or not all(map(knows, old)) else old for old, new in both)


def unescape_html(text: str) -> str:
    """Replace HTML entities such as `&amp;` and `&#39;` by their characters, still on one line.

    An entity ends with ";", so `?a=1&copy=2` stays. It is replaced once: `&amp;lt;` is `&lt;`.
    """
    if "&" not in text:
        return text

    def character(found: re.Match[str]) -> str:
        # html.unescape alone takes the longest name that exists: `&not` of `&notebook;`.
        entity = found[0]
        return html.unescape(entity) if entity[1] == "#" else html5.get(entity[1:], entity)

    return _ENTITY.sub(character, text).replace("\n", " ").replace("\r", " ")


@dataclass(frozen=True)
class ParallelFiles:
    """Two files whose lines of the same number are translations of each other."""

    source: str
    target: str

    def count(self) -> int:
        """Count the lines of both files. Raises InputError if the counts differ."""
        sources, targets = (sum(1 for _ in read_lines(path)) for path in (self.source, self.target))
        if sources != targets:
            raise _different_counts(self.source, sources, self.target, targets)
        return sources

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Stream (source, target) of each line; raises what `count` raises."""
        try:
            yield from zip(read_lines(self.source), read_lines(self.target), strict=True)
        except InputError:
            raise
        except ValueError:
            self.count()  # names both lengths
            raise changed_meanwhile(self.source, self.target) from None


def parallel_lines(paths: Sequence[str], *, unescape: bool) -> list[list[str]]:
    """Return the lines of each file, of which there must be the same number.

    unescape: True to turn HTML entities into characters. Raises InputError if the counts differ.
    """
    plain = unescape_html if unescape else str
    lines = [[*map(plain, read_lines(path))] for path in paths]
    for path, found in zip(paths, lines, strict=True):
        if len(found) != len(lines[0]):
            raise _different_counts(paths[0], len(lines[0]), path, len(found))
    return lines


def changed_meanwhile(source: str, target: str) -> InputError:
    """Return the error for two files that changed between two readings."""
    return InputError(f"{source}, {target}: changed while they were read; start again")


def _different_counts(source: str, sources: int, target: str, targets: int) -> InputError:
    return InputError(
        f"expected equal numbers of source and target lines, found {sources:,} in {source} and "
        f"{targets:,} in {target}; give two files that are aligned line by line"
    )


def file_digest(path: str | Path) -> str:
    """Return the SHA-256 of a file's bytes, as stored. Raises InputError if it is missing."""
    check_regular(path)
    with _opened(path, decompress=False) as stream:
        return hashlib.file_digest(cast(Any, stream), "sha256").hexdigest()


def file_fingerprint(path: str, cached: dict[str, Any]) -> dict[str, Any]:
    """Return digest, path, size and time of a file; `cached` itself if the last three are as in it.

    Raises InputError if the file is missing and not cached.
    """
    full = absolute(path)
    if cached.get("path") == full and not (is_url(full) or os.path.exists(full)):
        return cached  # the text was moved or deleted: its tokens are enough
    stamp: dict[str, Any] = {"path": full}
    try:
        if is_url(full):
            try:
                stamp["version"] = url_version(full)
            except (FileNotFoundError, InputError) as error:
                if cached.get("path") != full:
                    raise
                logger.warning(f"{full}: not read ({reason_of(error)}); its tokens are used")
                return cached
        else:
            status = os.stat(full)
            stamp |= {"bytes": status.st_size, "modified": status.st_mtime_ns}
    except OSError:
        stamp = {}
    if stamp and stamp.items() <= cached.items():
        return cached
    return {**stamp, "digest": file_digest(path)}


def sample_lines(lines: Iterable[str], limit: int, seed: int) -> list[str]:
    """Draw at most `limit` of the lines that are not blank, uniformly and without replacement.

    Every line is read, `limit` are held: the reservoir skips ahead (Li, 1994, algorithm L). After
    line n, each of the n lines is in the reservoir with probability limit / n, and the distance to
    the next line that enters it is geometric.
    """
    import numpy as np  # commands import this file to parse their flags, so not at its top

    random = np.random.default_rng(seed)
    sample: list[str] = []
    threshold = random.power(limit)
    chosen = limit + random.geometric(threshold)
    seen = 0
    for line in lines:
        if is_blank(line):
            continue
        seen += 1
        if seen <= limit:
            sample.append(line)
        elif seen == chosen:
            sample[random.integers(limit)] = line
            threshold *= random.power(limit)
            chosen += random.geometric(threshold)
    return sample


@contextlib.contextmanager
def whole_text(path: Path) -> Iterator[IO[bytes]]:
    """Yield a file to fill as `whole_file` does, compressed if it ends in .bz2, .gz or .xz."""
    compressed = _COMPRESSED.get(path.suffix.lower())
    with (
        whole_file(path) as file,
        compressed(file, "wb") if compressed else contextlib.nullcontext(file) as stream,
    ):
        yield stream


class _Streams(io.RawIOBase):
    """The compressed streams of a file, one after another, such as pbzip2 writes.

    The files of bz2 and lzma end without an error where a second or later stream is damaged.
    """

    def __init__(self, file: IO[bytes], new: Callable[[], Any]) -> None:
        self._file, self._new, self._stream = file, new, new()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        text = b""
        while not text:
            given = b""
            if self._stream.eof:
                given = self._stream.unused_data.lstrip(b"\0")  # .xz files may be padded with zeros
                while not given:
                    if not (more := self._file.read(_CHUNK)):
                        return 0
                    given = more.lstrip(b"\0")
                self._stream = self._new()
            elif self._stream.needs_input and not (given := self._file.read(_CHUNK)):
                raise EOFError("it ends inside of a stream")
            try:
                text = self._stream.decompress(given, len(buffer))
            except OSError as error:  # of bz2, for damaged data
                raise lzma.LZMAError(str(error)) from None
        buffer[: len(text)] = text
        return len(text)


@contextlib.contextmanager
def _opened(path: str | Path, *, decompress: bool = True) -> Iterator[IO[bytes]]:
    """Open the bytes of a file, decompressed by its name; errors in reading become InputError."""
    suffix = Path(path).suffix.lower() if decompress else ""
    decompressed = _COMPRESSED.get(suffix, contextlib.nullcontext)
    if suffix in _STREAMS:
        decompressed = partial(_Streams, new=_STREAMS[suffix])
    try:
        with (
            open_url(str(path)) if is_url(path) else open(path, "rb") as file,
            decompressed(file) as stream,
            io.BufferedReader(stream, _CHUNK) as buffered,
        ):
            yield cast(IO[bytes], buffered)
    except FileNotFoundError:
        raise InputError(f"expected a file at {path}, found nothing; check the path") from None
    except IsADirectoryError:
        raise InputError(f"expected a file at {path}, found a folder; name a file in it") from None
    except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
        damaged = isinstance(error, EOFError | zlib.error | lzma.LZMAError | gzip.BadGzipFile)
        if suffix in _COMPRESSED and damaged:
            raise InputError(
                f"expected whole {suffix} data in {path}, found it damaged or cut short "
                f"({error}); copy or compress the file again"
            ) from None
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(
            f"expected to read {path}, found '{reason}'; check the file and its permissions"
        ) from None
    except Exception:  # the libraries of buckets have errors of their own
        with bucket_errors(str(path)) if is_url(path) else contextlib.nullcontext():
            raise
