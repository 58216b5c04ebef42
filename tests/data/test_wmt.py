"""WMT as tensorflow-datasets prepares it: a tiny data set in ArrayRecord, and a mocked one."""

import importlib.util
import json
import shutil
import sys
import types
from typing import Any

import numpy as np
import pytest
from refusals import refusal
from tiny_wmt import COUNTS, NAME, example, prepared_data

from jax_transformer.data.wmt import DATASETS, TfdsCorpus, download


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    """Prepared once; copy it before changing anything in it."""
    return prepared_data(tmp_path_factory.mktemp("tfds"))


def test_pairs_are_english_to_german_in_the_order_of_the_rows(data_dir, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow", None)  # importing it is an error
    corpus = TfdsCorpus(NAME, data_dir)
    assert corpus.splits() == ["train", "dev", "test"]
    for split, theirs in (("train", "train"), ("dev", "validation"), ("test", "test")):
        expected = [
            (number + 1, example(theirs, number)["en"], example(theirs, number)["de"])
            for number in range(COUNTS[theirs])
        ]
        assert list(corpus.pairs(split)) == expected


def test_the_sample_is_seeded_of_both_sides_without_blanks_and_spread_over_all_rows(data_dir):
    corpus = TfdsCorpus(NAME, data_dir)
    sample = corpus.sample(600, seed=1)
    assert sample == TfdsCorpus(NAME, data_dir).sample(600, seed=1)
    assert sample != corpus.sample(600, seed=2)
    lines = {line for _, *sides in corpus.pairs("train") for line in sides}
    assert set(sample) <= lines - {""}
    assert len(set(sample)) == len(sample)
    rows = [int(line.split("&#39;")[1]) for line in sample if "dog" in line]
    assert len(rows) == 300
    # Uniform over 0 to 2344: the mean of 300 has a standard deviation of 39.
    assert np.mean(rows) == pytest.approx(1172, abs=160)
    everything = corpus.sample(10_000, seed=1)
    assert sorted(everything) == sorted(lines - {""})
    assert 4 <= len(corpus.sample(7, seed=3)) <= 7


def pairs(data_dir, split="train"):
    return list(TfdsCorpus(NAME, data_dir).pairs(split))


def test_data_that_was_put_away_is_no_change_and_other_data_is(data_dir, tmp_path):
    copy = shutil.copytree(data_dir, tmp_path / "copy")
    known = TfdsCorpus(NAME, copy).fingerprint("dev", {})
    assert known["pairs"] == 5
    assert TfdsCorpus(NAME, copy).fingerprint("dev", known) == known
    record = next(copy.rglob("*validation*"))
    content = bytearray(record.read_bytes())
    content[len(content) // 2] ^= 1
    record.write_bytes(content)
    assert TfdsCorpus(NAME, copy).fingerprint("dev", known) != known
    shutil.rmtree(copy)
    assert TfdsCorpus(NAME, copy).fingerprint("dev", known) == known


def test_the_newest_version_is_read_and_what_is_missing_or_wrong_is_said(data_dir, tmp_path):
    message = refusal(pairs, tmp_path)
    assert f"expected {NAME} prepared in {tmp_path}" in message
    assert "experiments.prepare" in message
    copy = shutil.copytree(data_dir, tmp_path / "copy")
    place = copy / NAME
    for version in ("0.9.0", "1.10.0", "1.9.0", "incomplete.XYZ_2.0.0"):
        shutil.copytree(place / "1.0.0", place / version)
    assert TfdsCorpus(NAME, copy).folder() == place / "1.10.0"
    info = place / "1.10.0" / "dataset_info.json"
    text = info.read_text(encoding="utf-8")
    info.write_text(text.replace('"array_record"', '"tfrecord"'), encoding="utf-8")
    assert "found tfrecord in" in refusal(pairs, copy)
    latin = {"en": "dog", "de": "Stra\xdfe".encode("latin-1")}
    bad = prepared_data(tmp_path / "bad", {"train": 30}, train_7=latin)
    assert "train, row 8: expected UTF-8" in refusal(pairs, bad)
    assert "expected a split validation" in refusal(pairs, bad, "dev")


@pytest.mark.parametrize("key", ["pythonClassName", "python_class_name", "type"])
def test_a_class_that_the_data_names_is_not_imported(data_dir, tmp_path, monkeypatch, key):
    """tensorflow-datasets would import its module, from the folder of the command."""
    copy = shutil.copytree(data_dir, tmp_path / "data")
    (features,) = copy.rglob("features.json")
    (tmp_path / "evil.py").write_text("raise SystemExit('executed')", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    contents = {key: "evil.Feature"}, {"content": [{"a": {key: "evil.Feature"}}]}
    for content in (*contents, {key: ["evil.Feature"]}):
        content = {"type": "tensorflow_datasets.core.features.text_feature.Text", **content}
        features.write_text(json.dumps(content), encoding="utf-8")
        message = refusal(pairs, copy)
        assert "expected classes of text, found " in message
        assert "'evil.Feature'" in message


def test_the_command_that_prepares_it_can_be_pasted():
    message = refusal(pairs, "data; touch x")
    assert "--data_dir='data; touch x'" in message


def pretend(monkeypatch, package, spec):
    """Let the package be found, or be missing if `spec` is None."""
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: spec if name == package else find(name)
    )


def test_a_missing_package_is_named_in_one_line(data_dir, tmp_path, monkeypatch):
    for package in ("tensorflow_datasets", "array_record"):
        with monkeypatch.context() as patch:
            pretend(patch, package, None)
            for call, folder in ((pairs, data_dir), (lambda to: download(NAME, to), tmp_path)):
                message = refusal(call, folder)
                assert f"expected the package {package}" in message
                assert "--train_source" in message
    assert not list(tmp_path.iterdir())


def test_a_download_asks_for_array_record_and_its_failure_is_one_line(tmp_path, monkeypatch):
    import tensorflow_datasets as tfds

    calls = []

    class Builder:
        def __init__(self, name, **options):
            calls.append((name, options))

        def download_and_prepare(self):
            raise ConnectionError("no route\nto host")

    pretend(monkeypatch, "tensorflow", types.SimpleNamespace())
    monkeypatch.setattr(tfds, "builder", Builder)
    message = refusal(download, NAME, tmp_path)
    assert calls == [(NAME, {"data_dir": str(tmp_path), "file_format": "array_record"})]
    assert "found 'no route to host'; run the same command again" in message


def test_the_data_sets_exist_in_tfds_with_the_languages_that_are_read(tmp_path):
    import tensorflow_datasets as tfds
    import tensorflow_datasets.translate.wmt14

    for dataset, language in (("wmt14-en-de", "de"), ("wmt14-en-fr", "fr")):
        builder: Any = tfds.builder(DATASETS[dataset], data_dir=str(tmp_path))
        assert set(builder.info.features) == {"en", language}
        assert TfdsCorpus(DATASETS[dataset], tmp_path).language == language
