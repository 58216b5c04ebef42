"""The text of a run: its files by name, several corpora and their shares, and test sets."""

import os
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from refusals import refusal

from jax_transformer.config import Config, DataConfig, override
from jax_transformer.data.sources import (
    FileCorpus,
    Sources,
    Text,
    Trees,
    Vocabularies,
    cached_test_set,
    pairs_of_epoch,
)
from jax_transformer.data.text import ParallelFiles
from jax_transformer.files import encode_json, parse_json
from jax_transformer.runs.request import check_files, checked_files, requested_run
from jax_transformer.runs.run_dir import Initial, Run, RunFolder


def test_each_file_to_train_on_is_a_corpus_and_other_texts_are_of_several_files():
    files = {
        "train_source": ["a,b", "gs://box/c"],
        "train_target": ["d", "f"],
        "dev_source": ["g", "h"],
        "dev_target": ["i", "j"],
    }
    sources = Sources.named(files, Text)
    assert sources.splits() == {
        "train": Text(("a,b",), ("d",)),
        "train_2": Text(("gs://box/c",), ("f",)),
        "dev": Text(("g", "h"), ("i", "j")),
    }
    assert FileCorpus(sources.splits()).files["dev"] == [
        ParallelFiles("g", "i"),
        ParallelFiles("h", "j"),
    ]
    trees = {"train_trees": ["t", "u"], "dev_trees": ["v"], "extra_trees": ["w", "x"]}
    assert Sources.named(trees, Trees) == Sources(
        (Trees(("t",)), Trees(("u",))), dev=Trees(("v",)), extra=Trees(("w", "x"))
    )


def test_a_run_comes_back_from_its_config_as_it_went():
    runs: list[dict[str, Any]] = [
        {"sources": Sources((Text(("a",), ("b",)),), dev=Text(("c",), ("d",)))},
        {"sources": Sources((Trees(("a",)),), dev=Trees(("b", "c")), treebank_dir="/wsj")},
        {"sources": Sources(data_dir="/wmt"), "initial": Initial("runs/a", "best")},
        {"vocabularies": Vocabularies(vocabulary=("codes", "words")), "imported_from": "there"},
    ]
    for changes in runs:
        run = Run("base", 1, Config(), **changes)
        assert parse_json(encode_json(run), Run) == run


def test_a_path_with_commas_is_a_path_also_when_its_file_was_moved_away(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a,b.en", "a,b.de"):
        Path(name).write_text("x\n")
    given = {f"{split}_source": "a,b.en" for split in ("train", "dev")}
    given |= {f"{split}_target": ["a,b.de"] for split in ("train", "dev")}
    run = requested_run(RunFolder("run"), "base", given=given)
    text = Text((f"{tmp_path}/a,b.en",), (f"{tmp_path}/a,b.de",))
    assert run.sources == Sources((text,), dev=text)
    RunFolder("run").write_run(run)
    for name in ("a,b.en", "a,b.de"):
        Path(name).unlink()
    for again in (given, {}):
        assert requested_run(RunFolder("run"), given=again) == run
    check_files(run)


def test_sides_of_different_numbers_of_files_are_refused(tmp_path):
    error = refusal(Sources.named, {"train_source": ["a", "b", "c"], "train_target": ["d"]}, Text)
    assert error.startswith("expected --train_target as often as --train_source")
    assert "found 1 and 3" in error
    given = {f"{split}_{side}": "a" for split in ("train", "dev") for side in ("source", "target")}
    run = requested_run(RunFolder(tmp_path), "base", given={**given, "dev_source": ["a", "b"]})
    assert "found 2 in --dev_source and 1 in --dev_target" in refusal(check_files, run)
    os.mkfifo(tmp_path / "fifo")
    error = refusal(checked_files, {"train_trees": ["a", str(tmp_path / "fifo")]})
    assert "fifo: expected a file" in error


def test_weights_are_numbers_above_zero():
    for weights in ("0", "-1", "x", "1,", ",", "nan", "inf", "1,0", "1 2", "2e6", "\u0663"):
        error = refusal(override, Config(), f"data.train_weights={weights}")
        assert error.startswith(f"data.train_weights={weights}: expected numbers above 0")


def test_shares_of_an_epoch_are_in_proportion_to_the_weights():
    sizes = {"train": 123_457, "train_2": 1_003}
    for weights in ("3,1", "0.25, 0.5", "1e-9,1"):
        data = override(Config(), f"data.train_weights={weights}").data
        own, other = (Fraction(float(text)) for text in weights.split(","))
        exact = [sum(sizes.values()) * one / (own + other) for one in (own, other)]
        for count, one in zip(pairs_of_epoch(sizes, data), exact, strict=True):
            assert count is not None
            assert count >= 1
            assert abs(count - one) <= 1


def test_extra_trees_come_on_top_and_without_weights_each_pair_is_taken_once():
    sizes = {"train": 30, "train_2": 90, "extra": 5_000}
    assert pairs_of_epoch(sizes, DataConfig(extra_share=0.25)) == [None, None, 40]
    data = DataConfig(extra_share=0.5, train_weights="1,1")
    assert pairs_of_epoch(sizes, data) == [60, 60, 120]
    assert pairs_of_epoch(sizes | {"extra": 0}, data) == [60, 60, 0]


def lay(cache, name="wmt14/full", pair="en-de", fields=("src", "ref", "docid")):
    """Files of three lines, as sacreBLEU leaves them after fetching."""
    (cache / name).mkdir(parents=True, exist_ok=True)
    for field in fields:
        path = cache / name / f"{name.replace('/', '_')}.{pair}.{field}"
        path.write_text("".join(f"{field} {i}\n" for i in range(3)), encoding="utf-8")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SACREBLEU", str(tmp_path / "cache"))
    monkeypatch.setattr("urllib.request.urlopen", lambda *_: pytest.fail("fetched"))
    return tmp_path / "cache"


def test_source_and_reference_are_the_files_that_sacrebleu_itself_finds(cache, monkeypatch):
    from sacrebleu.dataset import DATASETS

    lay(cache, fields=("src", "ref", "docid", "genre", "origlang"))
    files = cached_test_set("wmt14/full", "en-de")
    theirs = DATASETS["wmt14/full"]
    monkeypatch.setattr(theirs, "_outdir", str(cache / "wmt14/full"))  # it was set at the import
    assert files == [theirs.get_source_file("en-de"), *theirs.get_reference_files("en-de")]
    lay(cache, "wmt17/tworefs", "en-fi", ["src", "ref-1", "ref-0"])
    _, *references = cached_test_set("wmt17/tworefs", "en-fi")
    assert [path[-6:] for path in references] == [".ref-0", ".ref-1"]
    theirs, fields = DATASETS["wmt21/B"], ["src", "ref:A", "ref:B"]
    lay(cache, "wmt21/B", "en-cs", [field.replace(":", "-") for field in fields])
    monkeypatch.setattr(theirs, "_outdir", str(cache / "wmt21/B"))
    monkeypatch.setattr(theirs, "fieldnames", lambda _: fields)  # it would fetch
    monkeypatch.setattr(theirs, "process_to_text", lambda _: None)
    assert cached_test_set("wmt21/B", "en-cs")[1:] == theirs.get_reference_files("en-cs")
    monkeypatch.delenv("SACREBLEU")
    monkeypatch.setenv("HOME", str(cache))
    lay(cache / ".sacrebleu", "wmt13", "en-fr")
    assert len(cached_test_set("wmt13", "en-fr")) == 2


def test_what_is_not_in_the_cache_is_refused_with_the_command_that_fetches_it(cache):
    assert "did you mean wmt14/full?" in refusal(cached_test_set, "wmt14/fulll", "en-de")
    assert "did you mean wmt14?" in refusal(cached_test_set, "wtm14", "en-de")
    assert "cs-en, de-en, en-cs, en-de" in refusal(cached_test_set, "wmt14", "en-ja")
    assert not cache.exists()
    for fields in ((), ("src",)):
        lay(cache, fields=fields)
        message = refusal(cached_test_set, "wmt14/full", "en-de")
        assert str(cache / "wmt14/full") in message
        assert message.endswith("fetch it with: sacrebleu -t wmt14/full -l en-de --echo src")
        assert len(list((cache / "wmt14/full").iterdir())) == len(fields)
