"""Preparation: made once, made again when the text changes, refused under a trained model."""

import gzip
import json
import lzma
from itertools import pairwise

import pytest
from doors import letters, text_flags, write_letters

from jax_transformer.config import DataConfig
from jax_transformer.data.datasets import FileCorpus
from jax_transformer.data.prepare import prepare
from jax_transformer.errors import InputError
from jax_transformer.runs.run_dir import RunFolder

DATA = DataConfig(vocabulary_size=200, vocabulary_up_to=True, max_length=16)


def corpus(folder, **changed):
    named = dict(flag.removeprefix("--").split("=", 1) for flag in text_flags(folder))
    return FileCorpus(named | changed)


def prepared(run, text, said=None, data=DATA, **changed):
    report = [].append if said is None else said.append
    return prepare(RunFolder(run), corpus(text, **changed), data, 1, report)


def stamps(run):
    return {path: path.stat().st_mtime_ns for path in (run / "tokens").rglob("*")}


def test_tokens_are_made_once_and_again_only_where_the_text_changed(tmp_path):
    text, run, said = tmp_path / "text", tmp_path / "run", []
    write_letters(text)
    prepared(run, text, said)
    assert len(said) == 4
    before, said[:] = stamps(run), []
    prepared(run, text, said)
    assert (stamps(run), said) == (before, [])
    (text / "train.en").touch()  # another time, the same text
    prepared(run, text, said)
    assert (stamps(run), said) == (before, [])
    lines = (text / "dev.de").read_text(encoding="utf-8").splitlines()
    (text / "dev.de").write_text("\n".join(["A B", *lines[1:]]) + "\n", encoding="utf-8")
    made = prepared(run, text, said)
    assert [line.split()[-2] for line in said] == ["dev"]
    assert (run / "text" / "dev.target").read_text(encoding="utf-8").startswith("A B\n")
    assert made.stores["dev"].manifest["text"] != made.stores["test"].manifest["text"]


def test_a_changed_text_is_refused_once_something_is_trained(tmp_path):
    text, run = tmp_path / "text", tmp_path / "run"
    write_letters(text)
    prepared(run, text)
    (run / "checkpoints" / "5").mkdir(parents=True)
    before = stamps(run)
    with (text / "train.en").open("a", encoding="utf-8") as source:
        source.write("a b c\n")
    with (text / "train.de").open("a", encoding="utf-8") as target:
        target.write("A B C\n")
    with pytest.raises(InputError, match="text of train has changed"):
        prepared(run, text)
    assert stamps(run) == before


def test_a_touched_text_is_the_same_to_a_model_whose_record_counts_no_pairs(tmp_path):
    text, run = tmp_path / "text", tmp_path / "run"
    write_letters(text)
    prepared(run, text)
    (run / "checkpoints" / "5").mkdir(parents=True)
    record = json.loads((run / "data.json").read_text(encoding="utf-8"))
    for identity in record["splits"].values():
        del identity["pairs"]  # as it was written before there were counts
    (run / "data.json").write_text(json.dumps(record), encoding="utf-8")
    before = stamps(run)
    (text / "train.en").touch()
    prepared(run, text)
    assert stamps(run) == before


def test_compressed_text_gives_the_same_tokens(tmp_path):
    text = tmp_path / "text"
    write_letters(text)
    plain = prepared(tmp_path / "plain", text)
    for suffix, pack in ((".gz", gzip.compress), (".xz", lzma.compress)):
        for name in ("train.en", "train.de"):
            (text / (name + suffix)).write_bytes(pack((text / name).read_bytes()))
        packed = prepared(
            tmp_path / suffix,
            text,
            train_source=str(text / f"train.en{suffix}"),
            train_target=str(text / f"train.de{suffix}"),
        )
        for side in ("source", "target"):
            ours, theirs = packed.stores["train"].tokens[side], plain.stores["train"].tokens[side]
            assert ours.tobytes() == theirs.tobytes()


def test_odd_bytes_shift_no_line_and_every_dropped_pair_is_counted(tmp_path):
    text = tmp_path / "text"
    write_letters(text)
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
