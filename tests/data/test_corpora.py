"""Several corpora: their files by name, and their shares of an epoch."""

import os
from fractions import Fraction
from pathlib import Path

import pytest
from refusals import refusal

from jax_transformer.config import Config, DataConfig, override
from jax_transformer.data.corpora import named_files, pairs_of_epoch
from jax_transformer.data.datasets import FileCorpus
from jax_transformer.data.text import ParallelFiles, listed_paths
from jax_transformer.runs.request import checked_files, requested_run
from jax_transformer.runs.run_dir import Run, RunFolder


def test_files_of_each_corpus_have_its_number_in_their_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = {
        "train_source": ["a,b", "gs://box/c"],
        "train_target": ["d,e", "f"],
        "train_trees": ["t", "u", "v"],
        "dev_source": "g,h",
    }
    here = str(tmp_path)
    assert named_files(given) == {
        "train_source": f"{here}/a,{here}/b",
        "train_2_source": "gs://box/c",
        "train_target": f"{here}/d,{here}/e",
        "train_2_target": f"{here}/f",
        "train_trees": f"{here}/t",
        "train_2_trees": f"{here}/u",
        "train_3_trees": f"{here}/v",
        "dev_source": f"{here}/g,{here}/h",
    }
    one = {"train_source": "a", "train_target": ["b"]}
    assert named_files(one) == {"train_source": f"{here}/a", "train_target": f"{here}/b"}


def test_a_path_with_a_comma_is_one_path_also_when_its_file_was_moved_away(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a,b.en", "a,b.de", "c.en", "c.de"):
        Path(name).write_text("x\n")
    given = {"train_source": "a,b.en", "train_target": "a,b.de"}
    given |= {"dev_source": "c.en,c.de", "dev_target": "c.de,c.en"}
    files = named_files(given)
    folder = str(tmp_path)
    assert files == {
        "train_source": [f"{folder}/a,b.en"],
        "train_target": [f"{folder}/a,b.de"],
        "dev_source": f"{folder}/c.en,{folder}/c.de",
        "dev_target": f"{folder}/c.de,{folder}/c.en",
    }
    known = [path for value in files.values() for path in listed_paths(value)]
    for name in {*known}:
        Path(name).unlink()
    assert named_files(given, known) == files
    run = RunFolder(tmp_path / "run")
    run.path.mkdir()
    run.write_run(Run("base", 1, Config(), files))
    assert RunFolder(run.path).load_run().files == files
    (pair,) = FileCorpus(files).files["train"]
    assert pair == ParallelFiles(f"{folder}/a,b.en", f"{folder}/a,b.de")
    requested = requested_run(RunFolder(run.path), given=given)
    assert requested.files == files


@pytest.mark.parametrize("value", ["a.en,b.en", "a,b.en", "there,b.en"])
def test_one_of_several_files_that_is_missing_is_named_with_all_of_them(
    value, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    Path("there").touch()
    error = refusal(checked_files, {"train_source": value})
    missing = [name for name in value.split(",") if name != "there"]
    assert f"--train_source={value}" in error
    assert str(tmp_path / missing[0]) in error


def test_files_of_a_side_that_has_more_corpora_and_a_second_dev_text_are_refused(tmp_path):
    error = refusal(named_files, {"train_source": ["a", "b", "c"], "train_target": "d"})
    assert error.startswith("expected --train_target as often as --train_source")
    assert "found 1 and 3" in error
    error = refusal(named_files, {"dev_source": ["a", "b"], "dev_target": ["c", "d"]})
    assert error.startswith("--dev_source: expected it once, found it 2 times")
    os.mkfifo(tmp_path / "fifo")
    error = refusal(named_files, {"train_trees": ["a", str(tmp_path / "fifo")]})
    assert "fifo: expected a file" in error


@pytest.mark.parametrize(
    "weights", ["0", "-1", "x", "1,", ",", "nan", "inf", "1,0", "1 2", "2e6", "\u0663"]
)
def test_weights_are_numbers_above_zero(weights):
    error = refusal(override, Config(), f"data.train_weights={weights}")
    assert error.startswith(f"data.train_weights={weights}: expected numbers above 0")


@pytest.mark.parametrize("weights", ["3,1", "0.25, 0.5", "1e-9,1", "7,7"])
def test_shares_of_an_epoch_are_in_proportion_to_the_weights(weights):
    sizes = {"train": 123_457, "train_2": 1_003}
    data = override(Config(), f"data.train_weights={weights}").data
    own, other = (Fraction(float(text)) for text in weights.split(","))
    exact = [sum(sizes.values()) * one / (own + other) for one in (own, other)]
    found = pairs_of_epoch(sizes, data)
    for count, one in zip(found, exact, strict=True):
        assert count is not None
        assert count >= 1
        assert abs(count - one) <= 1


def test_extra_trees_come_on_top_and_without_weights_each_pair_is_taken_once():
    sizes = {"train": 30, "train_2": 90, "extra": 5_000}
    assert pairs_of_epoch(sizes, DataConfig(extra_share=0.25)) == [None, None, 40]
    data = DataConfig(extra_share=0.5, train_weights="1,1")
    assert pairs_of_epoch(sizes, data) == [60, 60, 120]
    assert pairs_of_epoch(sizes | {"extra": 0}, data) == [60, 60, 0]
