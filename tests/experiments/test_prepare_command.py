"""experiments.prepare: WMT for all runs, files, stops and mistakes."""

import importlib.util
import json
import shutil
import signal
from itertools import pairwise

import numpy as np
import pytest
from commands import files_of, only_error, run_command, setting_flags, started, text_flags, wait_for
from letters import letters, write_letters
from tiny_wmt import COUNTS, english, german, prepared_data

from jax_transformer.config import Config, override
from jax_transformer.data.token_store import DESCRIPTION, open_store
from jax_transformer.data.vocabularies import load_vocabulary
from jax_transformer.runs.run_dir import Run, RunFolder


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    """Prepared by TFDS, not by us."""
    return prepared_data(tmp_path_factory.mktemp("tfds"))


def description_of(folder):
    return (folder / "tokens" / "train" / DESCRIPTION).read_bytes()


@pytest.mark.release
def test_wmt_is_prepared_once_and_a_run_trains_on_it(data_dir, tmp_path):
    own = setting_flags(
        data__vocabulary_size=200, data__max_length=64, training__steps=4, model__dropout_rate=0
    )
    own += ["--set=data.vocabulary_up_to=true", "--set=decoding.beam_size=1"]
    where = f"--data_dir={data_dir}"
    first = run_command("prepare", "--experiment=wmt14-en-de-base", where, *own)
    shared = data_dir / "jax_transformer" / "wmt14-en-de"
    given = " ".join(own)
    assert f"--experiment=wmt14-en-de-base {where} {given}" in first.stdout  # train with the same
    assert "train       2,110 pairs," in first.stdout
    assert "dropped 235 with a blank side, 0 over 64 tokens" in first.stdout
    vocabulary = load_vocabulary(shared / "vocabulary.model")
    for side, text in (("source", english), ("target", german)):
        store = open_store(shared / "tokens" / "train", description_of(shared))
        ends = store.offsets[side].tolist()
        ids = [store.tokens[side][np.arange(a, b - 1)].tolist() for a, b in pairwise(ends)]
        there = [n for n in range(COUNTS["train"]) if n % 10]
        assert vocabulary.decode_batch(ids) == [text("train", n) for n in there]

    before = files_of(shared)
    again = run_command("prepare", "--dataset=wmt14-en-de", where, *own)
    assert "vocabulary  learning" not in again.stderr
    assert "encoding" not in again.stderr
    assert files_of(shared) == before

    run = f"--workdir={tmp_path / 'run'}"
    trained = run_command("train", "--experiment=wmt14-en-de-base", where, run, *own)
    assert "vocabulary  learning" not in trained.stderr
    assert "encoding" not in trained.stderr
    assert "BLEU" in trained.stdout
    copied, linked = "vocabulary.model", "tokens/train/source.tokens"
    assert (shared / copied).read_bytes() == (tmp_path / "run" / copied).read_bytes()
    assert (shared / linked).samefile(tmp_path / "run" / linked)
    longer = run_command("train", run, "--set=training.steps=5")
    assert "from step 4 to 5 steps" in longer.stderr
    assert files_of(shared) == before

    own_pieces = f"--vocabulary={shutil.copy(shared / copied, tmp_path)}"
    told = run_command("prepare", "--dataset=wmt14-en-de", where, own_pieces, *own)
    assert f"{where} {own_pieces} {given}" in told.stdout


def test_wmt_for_all_runs_takes_nothing_from_the_run_of_the_experiment_s_name(
    data_dir, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    other = RunFolder("runs/wmt14-en-de-base")
    (other.averaged / "20").mkdir(parents=True)  # its checkpoints were removed
    other.write_run(Run("wmt14-en-de-base", 7, override(Config(), "model.d_ff=8")))
    flags = ["--dataset=wmt14-en-de", f"--data_dir={shutil.copytree(data_dir, 'data')}"]
    flags += ["--set=data.vocabulary_size=200", "--set=data.vocabulary_up_to=true"]
    done = run_command("prepare", *flags)
    shared = RunFolder("data/jax_transformer/wmt14-en-de")
    assert shared.load_run().seed == 1
    assert "--seed" not in done.stdout
    run_command("prepare", *flags, "--seed=3")
    assert " --seed=3 " in run_command("prepare", *flags).stdout  # as there is one of it now
    mine = shutil.copy(shared.path / "vocabulary.model", "mine.model")
    assert " --vocabulary=" in run_command("prepare", *flags, f"--vocabulary={mine}").stdout
    assert " --vocabulary=" not in run_command("prepare", *flags).stdout


def test_a_place_of_wmt_that_is_no_folder_is_refused(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    command = "prepare", "--dataset=wmt14-en-de"
    found = only_error(*command, f"--data_dir={tmp_path}/file")
    assert f"--data_dir={tmp_path}/file: expected a folder, found a file" in found
    monkeypatch.setenv("TFDS_DATA_DIR", "gs://b/x")
    assert "TFDS_DATA_DIR=gs://b/x: expected a folder" in only_error(*command)


def test_several_files_are_one_text_read_one_after_another(tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    for folder in (whole, parts):
        write_letters(folder)
    listed = []
    for side, ending in (("source", "en"), ("target", "de")):
        lines = (parts / f"dev.{ending}").read_text(encoding="utf-8").splitlines(keepends=True)
        for name, some in (("a", lines[:3]), ("b,c", lines[3:4]), ("d", lines[4:])):
            (path := parts / f"{name}.{ending}").write_text("".join(some), encoding="utf-8")
            listed.append(f"--dev_{side}={path}")
    others = [flag for flag in text_flags(parts) if not flag.startswith("--dev_")]
    common = ["prepare", "--experiment=base", *setting_flags()]
    run_command(*common, *text_flags(whole), f"--workdir={tmp_path / 'one'}")
    several = [*common, *others, f"--workdir={tmp_path / 'three'}"]
    run_command(*several, *listed)
    for name in ("source.tokens", "target.tokens"):
        one, three = (tmp_path / run / "tokens" / "dev" / name for run in ("one", "three"))
        assert one.read_bytes() == three.read_bytes()
    (parts / "d.de").write_text("A B\n", encoding="utf-8")
    assert f"found 2 in {parts}/d.en and 1 in {parts}/d.de" in only_error(*several, *listed)
    assert "found 3 in --dev_source and 2 in --dev_target" in only_error(*several, *listed[:-1])


@pytest.mark.release
def test_killed_while_encoding_the_same_command_ends_with_the_same_tokens(tmp_path):
    text = tmp_path / "text"
    write_letters(text)
    sources, targets = letters(2_000, seed=5)
    for ending, lines in (("en", sources), ("de", targets)):
        (text / f"train.{ending}").write_text("\n".join(lines * 200) + "\n", encoding="utf-8")
    flags = ["--experiment=base", *text_flags(text), *setting_flags()]
    flags += ["--set=data.vocabulary_sample=500"]
    run_command("prepare", f"--workdir={tmp_path / 'whole'}", *flags)
    run = tmp_path / "run"
    building = run / "tokens" / "train.building"

    def something_is_encoded():
        tokens = building / "source.tokens"
        return tokens.exists() and tokens.stat().st_size > 100_000

    with started("prepare", f"--workdir={run}", *flags) as process:
        wait_for(something_is_encoded, process)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert building.exists()
    done = run_command("prepare", f"--workdir={run}", *flags)
    assert "vocabulary  learning" not in done.stderr
    there, expected = (
        {path.relative_to(folder): content for path, content in files_of(folder).items()}
        for folder in (run / "tokens", tmp_path / "whole" / "tokens")
    )
    assert there == expected
    facts = json.loads(description_of(run))
    assert (facts["read"], facts["kept"]) == (400_000, 400_000)


@pytest.mark.skipif(importlib.util.find_spec("tensorflow") is not None, reason="has TensorFlow")
def test_without_tensorflow_nothing_is_made(tmp_path):
    error = only_error("prepare", "--dataset=wmt14-en-de", f"--data_dir={tmp_path / 'data'}")
    assert "expected TensorFlow" in error
    assert not list(tmp_path.iterdir())
