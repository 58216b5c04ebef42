"""Preparation: made once, made again when the text changes, refused under a trained model."""

import dataclasses
import logging
import random
import re
import time
from itertools import pairwise
from pathlib import Path

import pytest

from jax_transformer.config import DataConfig
from jax_transformer.data.datasets import FileCorpus, PairsCorpus
from jax_transformer.data.prepare import DataFolder, prepare, text_lines
from jax_transformer.errors import InputError

DATA = DataConfig(vocabulary_size=200, vocabulary_up_to=True, max_length=16)


def letters(count, seed):
    """Sentences of 3 to 6 letters, and the same in capitals."""
    choose = random.Random(seed)
    lines = [" ".join(choose.choices("abcdefghij", k=choose.randint(3, 6))) for _ in range(count)]
    return lines, [line.upper() for line in lines]


@pytest.fixture
def text(tmp_path):
    """A folder with train, dev and test as .en and .de."""
    folder = tmp_path / "text"
    folder.mkdir()
    for seed, (split, count) in enumerate({"train": 120, "dev": 6, "test": 6}.items()):
        for side, lines in zip(("en", "de"), letters(count, seed), strict=True):
            (folder / f"{split}.{side}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def files(text: Path):
    return {
        f"{split}_{name}": str(text / f"{split}.{side}")
        for split in ("train", "dev", "test")
        for name, side in (("source", "en"), ("target", "de"))
    }


def prepared(run, text, *, trained=False, **changed):
    return prepare(DataFolder(run), FileCorpus(files(text) | changed), DATA, 1, trained=trained)


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
    assert text_lines(DataFolder(run), "dev", "target")[0] == "A B"
    assert made.stores["dev"].manifest["text"] != made.stores["test"].manifest["text"]


def test_a_changed_text_is_refused_once_a_model_is_trained_on_it(tmp_path, text):
    run = tmp_path / "run"
    prepared(run, text)
    before = stamps(run)
    for side, line in (("en", "a b c"), ("de", "A B C")):
        with (text / f"train.{side}").open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")
    with pytest.raises(InputError, match="text of train has changed since this model"):
        prepared(run, text, trained=True)
    assert stamps(run) == before
    prepared(run, text)
    assert stamps(run) != before


def test_a_trained_run_needs_its_text_no_more(tmp_path, text):
    run = tmp_path / "run"
    before = prepared(run, text)
    for path in text.iterdir():
        path.unlink()
    again = prepared(run, text, trained=True)
    assert again.vocabulary.fingerprint == before.vocabulary.fingerprint
    assert len(again.stores["train"]) == 120


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


def test_progress_is_logged_with_speed_and_time_left(tmp_path, caplog, monkeypatch):
    caplog.set_level(logging.INFO)
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    pairs = list(zip(*letters(150_000, seed=3), strict=True))

    class Slow(PairsCorpus):
        """A pair in 10 ms."""

        def pairs(self, split, start=0):
            for pair in super().pairs(split, start):
                now[0] += 0.01
                yield pair

    corpus = Slow(lambda: {"train": pairs, "dev": [("a", "A")]})
    data = dataclasses.replace(DATA, vocabulary_sample=1000)
    prepare(DataFolder(tmp_path / "run"), corpus, data, 1)
    lines = [line for line in caplog.messages if "pairs/s" in line]
    assert re.search(r"train, [0-9,]+ pairs of 150,000, \d+ pairs/s, \d+\.\d min left", lines[0])
    assert len(lines) > 1
