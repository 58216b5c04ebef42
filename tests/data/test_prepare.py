"""Preparation: made once, made again when the text changes, refused under a trained model."""

import logging
from itertools import pairwise
from pathlib import Path

import pytest
from letters import letters, write_letters
from refusals import refusal

from jax_transformer.config import DataConfig
from jax_transformer.data.datasets import FileCorpus
from jax_transformer.data.prepare import DataFolder, prepare, text_lines
from jax_transformer.errors import InputError

DATA = DataConfig(vocabulary_size=200, vocabulary_up_to=True, max_length=16)


@pytest.fixture
def text(tmp_path):
    """A folder with train, dev and test as .en and .de."""
    write_letters(tmp_path / "text")
    return tmp_path / "text"


def files(text: Path):
    return {
        f"{split}_{name}": str(text / f"{split}.{side}")
        for split in ("train", "dev", "test")
        for name, side in (("source", "en"), ("target", "de"))
    }


def prepared(run, text, *, trained_on=None, **changed):
    corpus = FileCorpus(files(text) | changed)
    return prepare(DataFolder(run), corpus, DATA, 1, trained_on=trained_on)


def stamps(run):
    return {path: path.stat().st_mtime_ns for path in (run / "tokens").rglob("*")}


def test_tokens_are_made_once_and_again_only_where_the_text_changed(tmp_path, text, caplog):
    caplog.set_level(logging.INFO)
    run = tmp_path / "run"
    prepared(run, text)
    assert [line.split()[1] for line in caplog.messages] == ["learning", *["encoding"] * 3]
    before = stamps(run)
    caplog.clear()
    prepared(run, text)
    assert (stamps(run), caplog.messages) == (before, [])
    (text / "train.en").touch()  # another time, the same text
    prepared(run, text)
    assert (stamps(run), caplog.messages) == (before, [])
    lines = (text / "dev.de").read_text(encoding="utf-8").splitlines()
    (text / "dev.de").write_text("\n".join(["A B", *lines[1:]]) + "\n", encoding="utf-8")
    made = prepared(run, text)
    assert caplog.messages == ["tokens      encoding dev ..."]
    assert text_lines(DataFolder(run), "dev")[1][0] == "A B"
    assert made.stores["dev"].manifest["text"] != made.stores["test"].manifest["text"]


def test_a_changed_text_is_refused_once_a_model_is_trained_on_it(tmp_path, text):
    run = tmp_path / "run"
    trained_on = prepared(run, text).trained_on
    before = stamps(run)
    for side, line in (("en", "a b c"), ("de", "A B C")):
        with (text / f"train.{side}").open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")
    with pytest.raises(InputError, match="text of train has changed since this model"):
        prepared(run, text, trained_on=trained_on)
    assert stamps(run) == before
    prepared(run, text)
    assert stamps(run) != before


@pytest.mark.parametrize("damaged", ["5", "[]", "null", '{"splits": []}', "[" * 100_000, "flip"])
def test_a_damaged_record_is_logged_and_made_again(tmp_path, text, caplog, damaged):
    trained_on = prepared(tmp_path / "run", text).trained_on
    path, before = tmp_path / "run" / "data.json", stamps(tmp_path / "run")
    content = path.read_text(encoding="utf-8")
    path.write_text(content.replace('"seed": 1', '"seed": 3') if damaged == "flip" else damaged)
    prepared(tmp_path / "run", text, trained_on=trained_on)
    assert str(path) in caplog.messages[0]
    assert path.read_text(encoding="utf-8") == content
    assert stamps(tmp_path / "run") == before


@pytest.mark.parametrize("content", [None, "5", '{"splits": []}', "{"])
def test_a_damaged_record_is_named_itself_when_the_text_is_scored(tmp_path, text, content, caplog):
    prepared(tmp_path / "run", text)
    path = tmp_path / "run" / "data.json"
    path.unlink()
    if content:
        path.write_text(content)
    caplog.clear()
    assert refusal(text_lines, DataFolder(tmp_path / "run"), "dev").startswith(f"{path}: expected")
    assert caplog.messages == []


def test_odd_bytes_shift_no_line_and_every_dropped_pair_is_counted(tmp_path, text):
    sources, targets = letters(40, seed=7)
    odd = ["a\u2028b", "a\u0085b", "a\rb", "a\x00b", "a\tb", "a\x1cb", "", "  ", "x" * 1_000_000]
    lines = "".join(f"{line}\r\n" for line in [*odd, *sources])
    (text / "train.en").write_bytes(b"\xef\xbb\xbf" + lines.encode())
    (text / "train.de").write_bytes("\n".join(["A B"] * len(odd) + targets).encode())
    made = prepared(tmp_path / "run", text)
    store = made.stores["train"]
    assert store.manifest["read"] == len(odd) + 40
    assert store.manifest["dropped_blank"] == 2
    assert store.manifest["dropped_too_long"] == 1
    assert store.lines.tolist() == [1, 2, 3, 4, 5, 6, *range(10, 50)]
    ends = store.offsets["source"]
    decoded = made.vocabulary.decode_batch(
        [store.tokens["source"][a : b - 1].tolist() for a, b in pairwise(ends)]
    )
    assert decoded[6:] == sources
