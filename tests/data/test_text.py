"""Reading text: lines end at a line feed only, and nothing is lost without a word."""

import bz2
import gzip
import io
import lzma
import os
import random
import time
import timeit
import tracemalloc
import unicodedata
from collections import Counter
from pathlib import Path

import pytest
from refusals import refusal

from jax_transformer.data.text import (
    ParallelFiles,
    file_digest,
    parallel_lines,
    read_lines,
    readable,
    sample_lines,
    single_lines,
    unescape_html,
)
from jax_transformer.data.urls import bucket_version


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def read(path) -> list[str]:
    return list(read_lines(path))


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"a\nb\n", ["a", "b"]),
        (b"a\nb", ["a", "b"]),
        (b"\n", [""]),
        (b"\n\n a \n", ["", "", " a "]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"a\r\r\nb\r", ["a\r", "b"]),
        (b"a\rb\n", ["a\rb"]),
        (b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n", ["a", "\ufeffb"]),
        (b"\xef\xbb\xbf\nb\n", ["", "b"]),
        (b"\xc3\xa9\xe2\x80\xa8x\xc2\x85\x1c\x00\t\n", ["é\u2028x\x85\x1c\0\t"]),
        (b"\xf0\x9f\x98\x80", ["\U0001f600"]),
    ],
)
def test_a_line_ends_at_a_newline_byte_and_nowhere_else(tmp_path, content, lines):
    path = written(tmp_path / "text", content)
    assert read(path) == lines


@pytest.mark.parametrize(
    ("suffix", "compress"), [(".bz2", bz2.compress), (".gz", gzip.compress), (".xz", lzma.compress)]
)
def test_a_compressed_file_is_read_as_its_text_and_refused_if_damaged(tmp_path, suffix, compress):
    content = "".join(f"Zeile {i} ä\u2028\r\n" for i in range(300)).encode()
    in_two_parts = compress(content[:701]) + compress(content[701:])
    packed = written(tmp_path / f"packed{suffix}", in_two_parts)
    assert read(packed) == read(written(tmp_path / "plain", content))
    padded = compress(content[:701]) + bytes(8) + compress(content[701:]) + bytes(8)
    assert read(written(tmp_path / f"padded{suffix}", padded)) == read(packed)
    for second in (b"?" + compress(b"B")[1:], b"more text"):
        path = written(tmp_path / f"second{suffix}", compress(b"A\n") + second + compress(b"C"))
        assert "damaged" in refusal(read, path)
    noise = random.Random(1)
    content = b"\n".join(noise.randbytes(40).hex().encode() for _ in range(100))
    whole = compress(content)
    for size in (1, 5, 20, len(whole) // 2, len(whole) - 1):
        path = written(tmp_path / f"cut{suffix}", whole[:size])
        assert "cut short" in refusal(read, path)
    for at in range(20, len(whole), len(whole) // 10):
        flipped = whole[:at] + bytes([whole[at] ^ 16]) + whole[at + 1 :]
        assert "damaged" in refusal(read, written(tmp_path / f"flipped{suffix}", flipped))


def test_bytes_that_are_not_utf_8_are_refused_with_their_place(tmp_path):
    content = b"\xef\xbb\xbfgood\n\xc3\xa9\r\nS\xe4tze\n\xff\n"
    for path, stored in ((tmp_path / "text", content), (tmp_path / "a.gz", gzip.compress(content))):
        lines = read_lines(written(path, stored))
        assert [next(lines), next(lines)] == ["good", "é"]
        message = refusal(next, lines)
        assert f"{path}, line 3: expected UTF-8, found byte 0xe4 at byte offset " in message
        assert f"offset {content.index(0xE4)} " in message
    for code in ("utf-16-le", "utf-16-be"):  # each byte of it is UTF-8, too
        message = refusal(read, written(tmp_path / "wide", "a cat\n".encode(code)))
        assert f"iconv -f {code.replace('-le', 'LE').replace('-be', 'BE').upper()} " in message


def test_missing_empty_and_unreadable_files_are_refused_by_name(tmp_path):
    nothing = [
        (tmp_path / "absent", "found nothing"),
        (tmp_path, "folder"),
        (written(tmp_path / "nothing", b""), "empty"),
        (written(tmp_path / "mark", b"\xef\xbb\xbf"), "empty"),
        (written(tmp_path / "none.gz", gzip.compress(b"")), "empty"),
        (tmp_path / "nothing" / "below", "Not a directory"),
    ]
    for path, words in nothing:
        message = refusal(read, path)
        assert words in message.replace(str(tmp_path), "")
        assert str(path) in message
    for path in (tmp_path / "absent", tmp_path):
        assert str(path) in refusal(file_digest, path)


def test_reading_a_large_file_holds_one_buffer(tmp_path):
    path = written(tmp_path / "text", (b"a large file that is not held " * 100 + b"\n") * 3_000)
    tracemalloc.start()
    try:
        assert sum(1 for _ in read_lines(path)) == 3_000
        assert len(file_digest(path)) == 64
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < path.stat().st_size / 2


def test_lines_of_the_same_number_are_pairs(tmp_path):
    source = written(tmp_path / "source", "a\u2028b\nc &amp; d\r\n".encode())
    target = written(tmp_path / "target.xz", lzma.compress(b"A\rB\nC"))
    files = ParallelFiles(str(source), str(target))
    assert files.count() == 2
    assert list(files.pairs()) == [("a\u2028b", "A\rB"), ("c &amp; d", "C")]
    paths = [files.source, files.target]
    assert parallel_lines(paths, unescape=True) == [["a\u2028b", "c & d"], ["A\rB", "C"]]
    assert parallel_lines(paths, unescape=False)[0] == ["a\u2028b", "c &amp; d"]


def test_a_pipe_that_the_shell_opened_is_read_but_has_no_digest():
    reading, writing = os.pipe()
    os.write(writing, b"a\nb\n")
    os.close(writing)
    path = f"/dev/fd/{reading}"  # as for <(command)
    assert f"{path}: expected a file" in refusal(file_digest, path)
    assert read(path) == ["a", "b"]
    os.close(reading)


def test_files_of_different_length_are_refused_before_and_while_streaming(tmp_path, monkeypatch):
    longer = written(tmp_path / "longer", b"a\n" * 1203)
    shorter = written(tmp_path / "shorter", b"b\n" * 1202)
    files = ParallelFiles(str(longer), str(shorter))
    for read in (files.count, lambda: list(files.pairs())):
        message = refusal(read)
        assert f"1,203 in {longer}" in message
        assert f"1,202 in {shorter}" in message
    monkeypatch.setattr(ParallelFiles, "count", lambda _: 1203)  # when the error looks again
    assert "changed while they were read" in refusal(lambda: list(files.pairs()))


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("Q&amp;A", "Q&A"),
        ("&quot;Stra&szlig;e&quot; &#8211; &#x2014;", '"Stra\u00dfe" \u2013 \u2014'),
        ("&amp;lt;", "&lt;"),  # once
        ("?a=1&copy=2 &lt 3 & 4; &;", "?a=1&copy=2 &lt 3 & 4; &;"),  # no entities
        ("&nosuchname; &notebook; &copyright; &#38;", "&nosuchname; &notebook; &copyright; &"),
        ("a&#10;b&#13;c", "a b c"),  # still one line
        ("&#xD800;|&#0;", "\ufffd|\ufffd"),  # no character: as HTML 5 reads them
        ("&#" + 5000 * "9" + ";", "&#" + 5000 * "9" + ";"),  # more digits than Python reads
        ("plain", "plain"),
    ],
)
def test_entities_become_characters(text, plain):
    assert unescape_html(text) == plain


def test_a_sample_no_smaller_than_the_text_is_the_text_without_blank_lines():
    lines = ["a", "", "  ", "b", "\t", "\u00a0", "a"]
    for limit in (3, 1000):
        assert sample_lines(lines, limit, seed=0) == ["a", "b", "a"]


def test_every_line_is_drawn_equally_often():
    """The counts of 3,000 draws from 12 lines against the exact multinomial mean."""
    lines, draws, limit = [f"{n}" for n in range(12)], 3000, 3
    counts = Counter(line for seed in range(draws) for line in sample_lines(lines, limit, seed))
    mean = draws * limit / 12
    variance = mean * (1 - limit / 12)
    chi_square = sum((counts[line] - mean) ** 2 for line in lines) / variance * 11 / 12
    assert chi_square < 31.3  # 11 degrees of freedom, p = 0.001


# ---- Lines from outside -----------------------------------------------------------------------

SPACES = [c for c in map(chr, range(0x3001)) if c.isspace() and c != " "] + ["\u200b", "\ufeff"]


def test_white_space_that_a_vocabulary_lacks_reads_as_a_space():
    for space in SPACES:
        assert readable(f"{space}a{space}b", str.isalpha) == "a b"
        assert readable(f"a  b {space} {space}c", str.isalpha) == "a  b c"
        kept = "a b" if space in "\n\r" else f"{space}a{space}b"
        assert readable(f"{space}a{space}b", lambda character: True) == kept


def test_the_time_of_a_run_of_spaces_grows_with_its_length_and_not_with_its_square():
    def seconds(length):
        line = f"\ta{' ' * length}b"
        times = timeit.repeat(
            lambda: readable(line, str.isalpha), timer=time.process_time, number=1
        )
        return min(times)

    # 90 to 100 times if squared, 10 as it is.
    assert seconds(40_000) < 40 * seconds(4_000)


def test_letters_are_composed_where_a_vocabulary_lacks_their_parts():
    lines = ["Schüler über Ås", "Việt Nam", "\ud55c\uad6d", "\u1e0b\u0323 q\u0308"]
    for line in lines:
        for form in ("NFD", "NFC"):
            composed = unicodedata.normalize("NFC", line)
            assert readable(unicodedata.normalize(form, line), set(composed).__contains__) == (
                composed
            )
            assert readable(unicodedata.normalize(form, line), lambda character: True) == (
                unicodedata.normalize(form, line)
            )
    # Where some marks are known, only letters with others are composed.
    assert readable("u\u0308 e\u0301", set("ue \u0308").__contains__) == "u\u0308 \u00e9"


BREAKS = [c for c in map(chr, range(0x3000)) if len(f"a{c}b".splitlines()) > 1] + ["\r\n"]


def test_a_line_break_inside_an_item_of_a_list_is_refused():
    assert len(BREAKS) > 9
    for ending in BREAKS:
        message = refusal(single_lines, ["a", f"b{ending}c"], "lines")
        assert message.startswith("lines[1]: ")
        assert "line break" in message
        assert single_lines([f"a{ending}"], "lines") == [f"a{ending}"]  # as file.readlines() does


def test_a_bucket_that_fails_while_a_file_is_read_is_an_error_of_one_line(monkeypatch):
    class Failing(io.BytesIO):
        def read(self, *_):
            raise Exception("payload is not completed")  # an error of the library's own kind

        readinto = read1 = read

    monkeypatch.setattr("jax_transformer.data.text.open_url", lambda _: Failing())
    for reads in (read, file_digest):
        message = refusal(reads, "gs://bucket/train.en")
        assert message.startswith("gs://bucket/train.en: ")
        assert "payload is not completed; check the address, the network" in message


@pytest.mark.parametrize("suffix", ["", ".gz", ".bz2", ".xz"])
def test_an_error_of_the_network_does_not_call_compressed_text_damaged(suffix, monkeypatch):
    class Forbidden(io.BytesIO):
        def read(self, *_):
            raise OSError("Forbidden: no access")

        readinto = read1 = read

    monkeypatch.setattr("jax_transformer.data.text.open_url", lambda _: Forbidden())
    message = refusal(read, f"gs://bucket/train.en{suffix}")
    assert "found 'Forbidden: no access'" in message
    assert "damaged" not in message


@pytest.mark.parametrize("name", ["etag", "ETag", "mtime", "blob_id"])  # gs, s3, file, hf
def test_a_file_in_a_bucket_that_changes_has_another_version(name):
    old, new = ({"name": "a.en", "size": 7, name: text} for text in ("1", "2"))
    assert bucket_version(old) == bucket_version(dict(old)) != bucket_version(new)


def test_a_bad_byte_is_said_at_once_and_not_by_reading_all_again(tmp_path, monkeypatch):
    (tmp_path / "source").write_bytes(b"a\n\xff\n")
    (tmp_path / "target").write_bytes(b"a\nb\n")
    files = ParallelFiles(str(tmp_path / "source"), str(tmp_path / "target"))
    monkeypatch.setattr(ParallelFiles, "count", lambda _: pytest.fail("read again"))
    assert "line 2" in refusal(list, files.pairs())
