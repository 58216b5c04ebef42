"""Preparation: made once, made again when the text changes, refused under a trained model."""

import errno
import logging
import os
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from letters import letters, write_letters
from refusals import refusal

from jax_transformer.config import DataConfig
from jax_transformer.data import prepare as prepare_module
from jax_transformer.data.manifest import NAME, Manifest
from jax_transformer.data.prepare import DataFolder, _link, prepare, text_lines
from jax_transformer.data.sources import FileCorpus, Text
from jax_transformer.data.token_store import sequences
from jax_transformer.data.vocabularies.base import Vocabulary
from jax_transformer.data.vocabularies.bpe import BpeContent, BpeVocabulary
from jax_transformer.data.vocabularies.sentencepiece import train_vocabulary
from jax_transformer.errors import InputError, warn_once

DATA = DataConfig(vocabulary_size=200, vocabulary_up_to=True, max_length=16)


@pytest.fixture
def text(tmp_path):
    """A folder with train, dev and test as .en and .de."""
    write_letters(tmp_path / "text")
    return tmp_path / "text"


def files(text: Path) -> dict[str, Text]:
    return {
        split: Text((str(text / f"{split}.en"),), (str(text / f"{split}.de"),))
        for split in ("train", "dev", "test")
    }


def prepared(run, text, *, trained_on=None, data=DATA, given=None):
    corpus, folder = FileCorpus(files(text)), DataFolder(run)
    folder.mend_manifest()
    return prepare(folder, corpus, data, 1, given=given, trained_on=trained_on)


def stamps(run):
    return {path: path.stat().st_mtime_ns for path in (run / "tokens").rglob("*")}


def listed(run):
    """The files in the manifest, each verified."""
    manifest = Manifest.read(run)
    assert all(manifest.content(run / name, "") is not None for name in manifest.sums)
    return set(manifest.sums)


FILES = {
    "vocabulary.model",
    *(f"text/{split}.{side}" for split in ("dev", "test") for side in ("source", "target")),
    *(f"tokens/{split}/store.json" for split in ("train", "dev", "test")),
}


def test_tokens_are_made_once_and_again_only_where_the_text_changed(tmp_path, text, caplog):
    caplog.set_level(logging.INFO)
    run = tmp_path / "run"
    prepared(run, text)
    assert [line.split()[1] for line in caplog.messages] == ["learning", *["encoding"] * 3]
    assert listed(run) == FILES
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
    assert made.stores["dev"].description["text"] != made.stores["test"].description["text"]
    assert listed(run) == FILES


def test_adding_a_corpus_encodes_it_alone_and_a_weight_encodes_nothing(tmp_path, text, caplog):
    caplog.set_level(logging.INFO)
    own = tmp_path / "own.model"
    train_vocabulary(["a b c d e", "A B C D E"], 20, own, up_to=True)
    run, one = tmp_path / "run", files(text)
    two = {**one, "train_2": one["dev"]}

    def stores(given, data=DATA):
        caplog.clear()
        folder, vocabularies = DataFolder(run), {"vocabulary": [str(own)]}
        stores = prepare(folder, FileCorpus(given), data, 1, given=vocabularies).stores
        return stores, [line.split()[2] for line in caplog.messages if line.startswith("tokens")]

    assert stores(one)[1] == ["train", "dev", "test"]
    made, encoded = stores(two)
    assert encoded == ["train_2"]
    assert [len(made[name]) for name in ("train", "train_2", "dev")] == [120, 6, 6]
    assert stores(two, replace(DATA, train_weights="3,1"))[1] == []
    assert listed(run) == {*FILES, "tokens/train_2/store.json"}
    assert stores(one)[1] == []
    assert listed(run) == FILES


def test_a_vocabulary_is_learned_from_all_corpora_and_one_without_a_pair_is_refused(tmp_path, text):
    given = files(text)
    for name, line in (("source", "z z z"), ("target", "Z Z Z")):
        (tmp_path / name).write_text(f"{line}\n" * 30, encoding="utf-8")
    given["train_2"] = Text((str(tmp_path / "source"),), (str(tmp_path / "target"),))
    data = replace(DATA, train_weights="1000,1")
    made = prepare(DataFolder(tmp_path / "run"), FileCorpus(given), data, 1)
    assert {"z", "Z"} <= set(made.vocabulary.all_pieces)
    for side in ("source", "target"):
        (tmp_path / side).write_text("\n", encoding="utf-8")
    error = refusal(prepare, DataFolder(tmp_path / "run"), FileCorpus(given), data, 1)
    assert error.startswith("train_2: expected pairs to train on, found none")


def test_under_a_trained_model_a_changed_text_or_vocabulary_is_refused(tmp_path, text):
    run = tmp_path / "run"
    prepared(run, text)
    trained_on, path = Manifest.read(run).copy(), run / "vocabulary.model"
    content = path.read_bytes()
    path.write_bytes(content[:-3])
    with pytest.raises(InputError, match=f"{path}: expected the SHA-256"):
        prepared(run, text, trained_on=trained_on)
    assert path.read_bytes() == content[:-3]
    path.unlink()
    prepared(run, text, trained_on=trained_on)  # of the same text it is the same
    assert path.read_bytes() == content
    before = stamps(run)
    for side, line in (("en", "a b c"), ("de", "A B C")):
        with (text / f"train.{side}").open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")
    with pytest.raises(InputError, match="another text of train"):
        prepared(run, text, trained_on=trained_on)
    text.rename(tmp_path / "away")
    prepared(run, text, trained_on=trained_on)  # by its tokens, as the error says
    (tmp_path / "away").rename(text)
    assert stamps(run) == before
    assert Manifest.read(run).copy() == trained_on
    prepared(run, text)
    assert stamps(run) != before


def test_a_test_text_that_came_after_the_last_checkpoint_may_not_change_either(tmp_path, text):
    run = tmp_path / "run"
    prepared(run, text)
    trained_on = Manifest.read(run).copy()
    del trained_on["made_of"]["splits"]["test"]
    prepared(run, text, trained_on=trained_on)
    for side in ("en", "de"):
        (text / f"test.{side}").write_text("a b c\n", encoding="utf-8")
    with pytest.raises(InputError, match="another text of test"):
        prepared(run, text, trained_on=trained_on)


def test_what_is_damaged_or_gone_is_made_again_with_a_warning(tmp_path, text, caplog):
    run = tmp_path / "run"
    prepared(run, text)
    before = {name: (run / name).read_bytes() for name in (*FILES, NAME)}
    for name in (NAME, "vocabulary.model", "text/dev.target", "tokens/train/store.json"):
        path = run / name
        flipped = bytes([before[name][0] ^ 1]) + before[name][1:]
        for damaged in (before[name][:-3], flipped, None):
            caplog.clear()
            warn_once.cache_clear()
            path.unlink()
            if damaged is not None:
                path.write_bytes(damaged)
            prepared(run, text)
            assert [str(path) in message for message in caplog.messages] == [True] * (
                damaged is not None
            )
            assert {name: (run / name).read_bytes() for name in before} == before


def test_each_side_may_have_a_vocabulary_learned_from_its_own_text(tmp_path, text, caplog):
    caplog.set_level(logging.INFO)
    run, separate = tmp_path / "run", replace(DATA, vocabularies="separate")
    made = prepared(run, text, data=separate)
    for vocabulary, case in ((made.vocabulary, str.islower), (made.target, str.isupper)):
        assert isinstance(vocabulary, Vocabulary)
        letters_of = "".join(vocabulary.all_pieces[4:]).replace("\u2581", "")
        assert case(letters_of)
    assert listed(run) == {*FILES, "target_vocabulary.model"}
    trained_on = Manifest.read(run).copy()
    caplog.clear()
    again = prepared(run, text, data=separate, trained_on=trained_on)
    assert caplog.messages == []
    assert again.target.fingerprint == made.target.fingerprint != again.vocabulary.fingerprint
    with pytest.raises(InputError, match=r"another target_vocabulary\.model, of SHA-256 none"):
        prepared(run, text, trained_on=trained_on)
    shared = prepared(run, text)
    assert shared.target is shared.vocabulary
    assert listed(run) == FILES
    assert not (run / "target_vocabulary.model").exists()
    with pytest.raises(InputError, match=r"another target_vocabulary\.model, .* instead of none"):
        prepared(run, text, data=separate, trained_on=Manifest.read(run).copy())


def test_tokens_of_two_vocabularies_are_made_again_for_one_of_them(tmp_path, text):
    own, other = tmp_path / "own.model", tmp_path / "other.model"
    train_vocabulary(["a b c d e", "A B C D E"], 20, own, up_to=True)
    train_vocabulary(["A B C D E", "x y z"], 20, other, up_to=True)
    two = {"source_vocabulary": [str(own)], "target_vocabulary": [str(other)]}
    prepared(tmp_path / "run", text, given=two)
    found, expected = (
        prepared(tmp_path / name, text, given={"vocabulary": [str(own)]}) for name in ("run", "new")
    )
    for split, store in expected.stores.items():
        one, two = (sequences([s], "target", np.arange(9))[1] for s in (found.stores[split], store))
        np.testing.assert_array_equal(one, two)


def test_a_vocabulary_that_was_given_is_copied_and_may_be_gone_but_not_another(tmp_path, text):
    own, other = tmp_path / "own.model", tmp_path / "other.model"
    train_vocabulary(["a b c d e", "A B C D E"], 20, own, up_to=True)
    train_vocabulary(["x y z"], 20, other, up_to=True)
    run, given = tmp_path / "run", {"vocabulary": [str(own)]}
    made = prepared(run, text, given=given)
    assert (run / "vocabulary.model").read_bytes() == own.read_bytes() == made.vocabulary.content
    trained_on, before = Manifest.read(run).copy(), stamps(run)
    assert "vocabulary.model" in listed(run)
    (run / "vocabulary.model").write_bytes(b"damaged")
    prepared(run, text, given=given, trained_on=trained_on)
    assert (run / "vocabulary.model").read_bytes() == own.read_bytes()
    with pytest.raises(InputError, match=r"another vocabulary\.model"):
        prepared(run, text, given={"vocabulary": [str(other)]}, trained_on=trained_on)
    with pytest.raises(InputError, match=r"another vocabulary\.model"):
        prepared(tmp_path / "learned", text, trained_on=trained_on)
    own.unlink()
    for after in (trained_on, None):
        again = prepared(run, text, given=given, trained_on=after)
        assert again.vocabulary.fingerprint == made.vocabulary.fingerprint
    assert stamps(run) == before
    with pytest.raises(InputError, match=f"expected a vocabulary at {own}"):
        prepared(tmp_path / "new", text, given=given)


def test_cutting_anew_needs_vocabularies_whose_pieces_give_the_words(tmp_path, text):
    special: dict[str, Any] = {"pad_id": 0, "bos_id": 1, "eos_id": 2, "unk_id": 3}
    names = ["<pad>", "<s>", "</s>", "<unk>", "a", "A"]
    content = BpeContent(pieces=names, merges=[], end_apart=False, moses=True, **special)
    path = tmp_path / "moses.json"
    path.write_bytes(BpeVocabulary.make(content).content)
    data, given = replace(DATA, subword_dropout=0.1), {"vocabulary": [str(path)]}
    with pytest.raises(InputError, match=r"data\.subword_dropout=0\.1: expected vocabularies of"):
        prepared(tmp_path / "run", text, data=data, given=given)


def test_text_that_is_not_in_the_folder_and_a_damaged_manifest_are_named(tmp_path, text):
    run = tmp_path / "run"
    prepared(run, text)
    without = {name: path for name, path in files(text).items() if name != "test"}
    prepare(DataFolder(run), FileCorpus(without), DATA, 1)
    assert listed(run) == {name for name in FILES if "test" not in name}
    folder = DataFolder(run)
    assert ", --split=dev, or " in refusal(text_lines, folder, "test")  # its files are left
    for content in (None, '{"splits": []}'):
        (run / NAME).unlink(missing_ok=True)
        if content:
            (run / NAME).write_text(content)
        assert refusal(text_lines, DataFolder(run), "dev").startswith(f"{run / NAME}: expected")
    folder.text("dev", "source").unlink()
    assert "--split=dev" not in refusal(text_lines, folder, "test")


def test_odd_bytes_shift_no_line_and_every_dropped_pair_is_counted(tmp_path, text):
    sources, targets = letters(40, seed=7)
    odd = ["a\u2028b", "a\u0085b", "a\rb", "a\x00b", "a\tb", "a\x1cb", "", "  ", "x" * 100_000]
    lines = "".join(f"{line}\r\n" for line in [*odd, *sources])
    (text / "train.en").write_bytes(b"\xef\xbb\xbf" + lines.encode())
    (text / "train.de").write_bytes("\n".join(["A B"] * len(odd) + targets).encode())
    made = prepared(tmp_path / "run", text)
    store = made.stores["train"]
    assert store.description["read"] == len(odd) + 40
    assert store.description["dropped_blank"] == 2
    assert store.description["dropped_too_long"] == 1
    assert store.lines[np.arange(len(store))].tolist() == [1, 2, 3, 4, 5, 6, *range(10, 50)]
    ends = store.offsets["source"]
    decoded = made.vocabulary.decode_batch(
        [store.tokens["source"][np.arange(a, b - 1)].tolist() for a, b in pairwise(ends)]
    )
    assert decoded[6:] == sources


def test_lower_case_nfkc_and_the_ratio_of_lengths_are_those_of_the_settings(tmp_path, text):
    with (text / "train.en").open("a", encoding="utf-8") as source:
        source.write("Ａ Ｂ c\na b c d e f g h\n")  # of twice the width  # noqa: RUF001
    with (text / "train.de").open("a", encoding="utf-8") as target:
        target.write("A B C\nA\n")
    data = replace(DATA, lowercase=True, nfkc=True, max_length_ratio=2.0)
    made = prepared(tmp_path / "run", text, data=data)
    assert made.stores["train"].description["dropped_ratio"] == 1
    assert made.vocabulary.decode(made.vocabulary.encode("Ａ Ｂ c")) == "a b c"  # noqa: RUF001
    plain = prepared(tmp_path / "plain", text)
    assert plain.stores["train"].description["dropped_ratio"] == 0


def test_the_dev_tokens_of_an_older_run_are_its_own_though_a_ratio_held_for_them(tmp_path, text):
    run, data = tmp_path / "run", replace(DATA, max_length_ratio=2.0)
    prepared(run, text, data=data)
    manifest, description = Manifest.read(run), run / "tokens" / "dev" / "store.json"
    old = description.read_bytes().replace(b'"max_length_ratio":0.0', b'"max_length_ratio":2.0')
    assert b":2.0" in old
    description.write_bytes(old)
    manifest.add(description, old)
    manifest.write()
    for file in text.iterdir():
        file.unlink()
    made = prepared(run, text, data=data, trained_on=manifest.copy())
    assert made.stores["dev"].description["max_length_ratio"] == 2.0


def test_text_that_changes_while_it_is_prepared_is_refused_and_leaves_no_tokens(
    tmp_path, text, monkeypatch
):
    run = tmp_path / "run"
    learn = prepare_module.train_vocabulary

    def learn_slowly(*arguments, **options):
        path = text / "train.en"
        path.write_text(path.read_text(encoding="utf-8").upper(), encoding="utf-8")
        return learn(*arguments, **options)

    monkeypatch.setattr(prepare_module, "train_vocabulary", learn_slowly)
    assert refusal(prepared, run, text).startswith("train: the text has changed meanwhile")
    assert not (run / "tokens" / "train").exists()
    monkeypatch.undo()
    assert prepared(run, text).stores["train"].description["read"] == 120


def test_tokens_are_copied_if_only_some_of_them_can_be_linked(tmp_path, text, monkeypatch):
    def link(source: str, target: str, **_: object) -> None:
        if linked:
            raise OSError(errno.EMLINK, "Too many links")
        linked.append(target)
        real(source, target)

    prepared(tmp_path / "one", text)
    linked, real = [], os.link
    monkeypatch.setattr(os, "link", link)
    _link(tmp_path / "one" / "tokens" / "train", tmp_path / "two")
    assert linked
    assert {path.name for path in (tmp_path / "two").iterdir()} == {
        path.name for path in (tmp_path / "one" / "tokens" / "train").iterdir()
    }
