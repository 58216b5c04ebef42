"""WMT as tensorflow-datasets prepares it: a tiny data set in ArrayRecord, and a mocked one."""

import importlib.util
import shutil
import subprocess
import sys
import types
from typing import Any

import numpy as np
import pytest
from tiny_wmt import COUNTS, NAME, example, prepared_data

from jax_transformer.data.wmt import DATASETS, TfdsCorpus, download
from jax_transformer.errors import InputError


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    """Prepared once; copy it before changing anything in it."""
    return prepared_data(tmp_path_factory.mktemp("tfds"))


def test_pairs_are_english_to_german_in_the_order_of_the_rows(data_dir):
    corpus = TfdsCorpus(NAME, data_dir)
    assert corpus.splits() == ["train", "dev", "test"]
    for split, theirs in (("train", "train"), ("dev", "validation"), ("test", "test")):
        expected = [
            (number + 1, example(theirs, number)["en"], example(theirs, number)["de"])
            for number in range(COUNTS[theirs])
        ]
        assert list(corpus.pairs(split)) == expected


def test_reading_loads_no_tensorflow(data_dir):
    code = (
        "import sys; from jax_transformer.data.wmt import TfdsCorpus\n"
        "assert 'tensorflow_datasets' not in sys.modules\n"
        f"print(sum(1 for _ in TfdsCorpus({NAME!r}, {str(data_dir)!r}).pairs('train')))\n"
        "assert 'tensorflow_datasets' in sys.modules and 'tensorflow' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"{COUNTS['train']}\n"


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


def test_the_newest_version_is_read(data_dir, tmp_path):
    shutil.copytree(data_dir, tmp_path, dirs_exist_ok=True)
    place = tmp_path / NAME
    for version in ("0.9.0", "1.10.0", "1.9.0", "incomplete.XYZ_2.0.0"):
        shutil.copytree(place / "1.0.0", place / version)
    assert TfdsCorpus(NAME, tmp_path).folder() == place / "1.10.0"
    assert TfdsCorpus(NAME, tmp_path / "nowhere").folder() is None


def refusal(call, *arguments):
    with pytest.raises(InputError) as caught:
        list(call(*arguments) or [])
    return str(caught.value)


def test_what_is_missing_or_wrong_is_said_with_the_remedy(data_dir, tmp_path):
    message = refusal(TfdsCorpus(NAME, tmp_path).pairs, "train")
    assert f"expected {NAME} prepared in {tmp_path}" in message
    assert "experiments.prepare" in message
    copy = shutil.copytree(data_dir, tmp_path / "copy")
    info = copy / NAME / "1.0.0" / "dataset_info.json"
    text = info.read_text(encoding="utf-8")
    info.write_text(text.replace('"array_record"', '"tfrecord"'), encoding="utf-8")
    assert "found tfrecord in" in refusal(TfdsCorpus(NAME, copy).pairs, "train")
    few = prepared_data(tmp_path / "few", {"train": 3})
    assert "expected a split validation" in refusal(TfdsCorpus(NAME, few).pairs, "dev")
    latin = {"en": "dog", "de": "Stra\xdfe".encode("latin-1")}
    bad = prepared_data(tmp_path / "bad", {"train": 30}, train_7=latin)
    assert "train, row 8: expected UTF-8" in refusal(TfdsCorpus(NAME, bad).pairs, "train")


def pretend(monkeypatch, package, spec):
    """Let the package be found, or be missing if `spec` is None."""
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: spec if name == package else find(name)
    )


@pytest.mark.parametrize("package", ["tensorflow_datasets", "array_record"])
def test_a_missing_package_is_named_in_one_line(data_dir, tmp_path, monkeypatch, package):
    pretend(monkeypatch, package, None)
    for call in (TfdsCorpus(NAME, data_dir).pairs, lambda _: download(NAME, tmp_path)):
        message = refusal(call, "train")
        assert f"expected the package {package}" in message
        assert "--train_source" in message
        assert "\n" not in message
    assert not list(tmp_path.iterdir())


@pytest.fixture
def pretended_tensorflow(monkeypatch):
    """Let `download` find a TensorFlow."""
    pretend(monkeypatch, "tensorflow", types.SimpleNamespace())


def test_a_download_asks_for_array_record_and_its_failure_is_one_line(
    tmp_path, monkeypatch, pretended_tensorflow
):
    import tensorflow_datasets as tfds

    calls = []

    class Builder:
        def __init__(self, name, **options):
            calls.append((name, options))

        def download_and_prepare(self):
            prepared_data(tmp_path, {"train": 3})

    monkeypatch.setattr(tfds, "builder", Builder)
    download(NAME, tmp_path)
    assert calls == [(NAME, {"data_dir": str(tmp_path), "file_format": "array_record"})]
    assert len(list(TfdsCorpus(NAME, tmp_path).pairs("train"))) == 3

    def fail(self):
        raise ConnectionError("no route\nto host")

    monkeypatch.setattr(Builder, "download_and_prepare", fail)
    message = refusal(download, NAME, tmp_path)
    assert "found 'no route to host'; give the same command again" in message


@pytest.mark.parametrize(("dataset", "language"), [("wmt14-en-de", "de"), ("wmt14-en-fr", "fr")])
def test_the_data_sets_exist_in_tfds_with_the_languages_that_are_read(tmp_path, dataset, language):
    import tensorflow_datasets as tfds
    import tensorflow_datasets.translate.wmt14

    builder: Any = tfds.builder(DATASETS[dataset], data_dir=str(tmp_path))
    assert set(builder.info.features) == {"en", language}
    assert TfdsCorpus(DATASETS[dataset], tmp_path).language == language
