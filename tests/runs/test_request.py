"""The command that is derived from a run, parsed as a shell and experiments.train parse it."""

import dataclasses
import os
import shlex
import shutil
from itertools import pairwise
from pathlib import Path

import pytest
from refusals import refusal

from jax_transformer.config import Config, override
from jax_transformer.data.sources import Sources, Text, Trees, Vocabularies
from jax_transformer.data.text import SIDES
from jax_transformer.presets import EXPERIMENTS
from jax_transformer.runs.preparation import prepare_run
from jax_transformer.runs.request import check_files, checked_files, command_of, requested_run
from jax_transformer.runs.run_dir import Initial, Run, RunFolder

CHANGES = [
    (),
    ("model.d_model=256",),
    ("model.num_layers=3", "model.d_model=1024", "model.d_k=64", "model.d_v=32"),
    ("model.num_heads=2", "model.d_k=20", "model.remat=layers", "model.output_bias=true"),
    ("training.adam_epsilon=1e-7", "training.freeze=encoder_0,embedding", "data.buckets=1"),
    ("data.source_language=", "data.target_language=it's", "decoding.alpha=0"),
]


def parsed(command: str) -> tuple[dict[str, list[str]], list[str]]:
    """The files of each flag of a command, and its settings."""
    python, dash, module, *words = shlex.split(command)
    assert (python, dash, module) == ("python", "-m", "experiments.train")
    flags: dict[str, list[str]] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if word.startswith("--") and equals:
            flags.setdefault(name[2:], []).append(value)
    return flags, [word for before, word in pairwise(words) if before == "--set"]


def test_names_that_are_not_utf_8_and_files_that_are_open_here_alone_are_refused(
    tmp_path, monkeypatch
):
    (tmp_path / "caf\udce9").mkdir()  # in Latin-1
    monkeypatch.chdir(tmp_path / "caf\udce9")
    assert "expected names in UTF-8" in refusal(RunFolder, "run")
    assert "expected names in UTF-8" in refusal(checked_files, {"train_source": "train.en"})
    with open("train.en", "w") as file:
        error = refusal(checked_files, {"train_source": [f"/dev/fd/{file.fileno()}"]})
    assert error.startswith("--train_source=/dev/fd/")


def test_an_empty_path_is_not_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "found an empty one" in refusal(RunFolder, "")
    assert "found an empty one" in refusal(checked_files, {"train_source": ""})
    assert RunFolder(".").path == tmp_path


def test_a_model_that_is_moved_before_anything_is_trained_from_it_is_named_anew(
    small_run, tmp_path
):
    lines = tmp_path / "lines"
    lines.write_text("the door opens\n" * 9)
    text = {f"{split}_{side}": str(lines) for split in ("train", "dev") for side in SIDES}
    other = str(shutil.copytree(small_run, tmp_path / "other"))
    for name in ("first", "moved"):
        parent = str(shutil.copytree(small_run, tmp_path / name))
        folder = RunFolder(tmp_path / "run")
        run = requested_run(folder, given={**text, "init_from": parent})
        prepare_run(run, folder)
        assert run.initial == Initial(parent)
        another = {**text, "init_from": other}
        assert "found another run" in refusal(requested_run, folder, given=another)
        shutil.rmtree(parent)
    shutil.copytree(small_run / "checkpoints", tmp_path / "run" / "checkpoints")
    again = {"init_from": str(small_run)}  # too late: the run is of the other one
    assert "found another run" in refusal(requested_run, RunFolder(tmp_path / "run"), given=again)


def test_a_model_of_the_demo_that_had_other_text_is_not_continued_on_the_demos(small_run, tmp_path):
    parent = RunFolder(shutil.copytree(small_run, tmp_path / "parent"))
    text = Sources((Text(("a.en",), ("a.de",)),))
    for sources, words in ((text, "--train_source"), (Sources(), None)):
        parent.write_run(dataclasses.replace(parent.load_run(), corpus="demo", sources=sources))
        run = requested_run(RunFolder(tmp_path / "new"), given={"init_from": str(parent.path)})
        assert not run.sources.train
        if words:
            assert words in refusal(check_files, run)
        else:
            check_files(run)  # the demo's own text is what it had


@pytest.mark.parametrize("changes", CHANGES, ids=str)
def test_the_command_of_a_run_gives_the_same_settings_for_every_experiment(changes, tmp_path):
    for name, known in EXPERIMENTS.items():
        run = Run(name, 7, override(known.config(), *changes))
        flags, settings = parsed(command_of(run))
        ((experiment,), (seed,)) = flags["experiment"], flags["seed"]
        again = requested_run(RunFolder(tmp_path), experiment, int(seed), settings)
        assert (again.experiment, again.seed, again.config) == (name, 7, run.config), settings
        assert len(settings) <= len(changes) + 2


def test_the_command_names_files_without_their_folders(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = ["a b.en", "a.de", "c.en", "c.de", "dev.en", "dev.de", "vocabulary"]
    for name in names:
        Path(name).touch()
    a, a2, c, c2, dev, dev2, vocabulary = ((os.path.abspath(name),) for name in names)
    sources = Sources((Text(a, a2), Text(c, c2)), dev=Text(dev, dev2))
    config = EXPERIMENTS["base"].config()
    run = Run("base", 1, config, sources, Vocabularies(vocabulary))
    assert str(tmp_path) not in command_of(run)
    flags, _ = parsed(command_of(run))
    assert flags["train_source"] == ["a b.en", "c.en"]
    given = {name: paths for name, paths in flags.items() if name not in ("experiment", "seed")}
    assert requested_run(RunFolder("run"), "base", 1, given=given) == run
    sources = Sources((Trees(("/x/a",)),), treebank_dir="/y/z/")
    trees = Run("wsj", 1, EXPERIMENTS["wsj"].config(), sources)
    assert {"--train_trees=a", "--treebank_dir=z"} <= {*shlex.split(command_of(trees))}
    continued = Run("base", 1, config, sources, initial=Initial("/x/first", "best"))
    words = shlex.split(command_of(continued))
    assert {"--init_from=first", "--init_checkpoint=best"} <= {*words}


def test_a_model_whose_checkpoints_were_removed_is_not_trained_anew_in_its_folder(
    small_run, tmp_path
):
    folder = RunFolder(shutil.copytree(small_run, tmp_path / "run"))
    requested_run(folder)
    shutil.rmtree(folder.checkpoints)
    assert f"--init_from={folder.path}" in refusal(requested_run, folder)
    shutil.rmtree(folder.averaged)
    requested_run(folder)


def test_the_seed_is_the_folder_s_unless_another_is_given(small_run, tmp_path):
    folder = RunFolder(shutil.copytree(small_run, tmp_path / "run"))
    folder.write_run(dataclasses.replace(folder.load_run(), seed=7))
    seeds = [
        requested_run(folder, name, seed).seed for name in (None, "base") for seed in (None, 2)
    ]
    assert seeds == [7, 2, 7, 2]


def test_scores_that_are_compared_in_training_keep_their_rules():
    for metric, fixed in (("bleu", True), ("chrf", True), ("loss", False), ("none", False)):
        config = override(Config(), f"training.keep_best={metric}")
        names = Run("base", 1, config).fixed_settings()
        assert ("data.bleu_tokenize" in names, "data.bleu_lowercase" in names) == (fixed, fixed)
        assert "decoding.beam_size" not in names


def test_an_address_in_the_environment_is_no_folder_of_wmt(tmp_path, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", "gs://bucket/tfds")
    folder = RunFolder(tmp_path)
    message = refusal(requested_run, folder, "wmt14-en-de-base", None, [])
    assert message.startswith("TFDS_DATA_DIR=gs://bucket/tfds: expected a folder")
    given = {"data_dir": str(tmp_path)}
    assert requested_run(folder, "wmt14-en-de-base", None, [], given).sources.data_dir


def test_the_built_in_corpora_take_a_folder_that_was_begun_on_other_data(tmp_path):
    for begun, name in (("wmt14-en-de-base", "data_dir"), ("wsj", "treebank_dir")):
        folder = RunFolder(tmp_path / begun)
        folder.path.mkdir()
        folder.write_run(requested_run(folder, begun, None, [], {name: str(tmp_path)}))
        run = requested_run(RunFolder(folder.path), "demo", None, [])
        check_files(run, folder)
        assert run.sources == Sources()


def test_a_folder_that_is_no_run_and_a_copied_path_are_named(tmp_path, caplog):
    text = tmp_path / "text"
    text.write_text("a\n")
    names = ["train_source", "train_target", "dev_source", "dev_target"]
    given = dict.fromkeys(names, str(text))
    folder = RunFolder(tmp_path / "run")
    check_files(requested_run(folder, "base", None, [], given))
    assert [line.partition(":")[0] for line in caplog.messages] == ["train"]
    given["vocabulary"] = str(tmp_path)
    message = refusal(requested_run, folder, "base", None, [], given)
    assert message.startswith(f"--vocabulary={tmp_path}: expected a file, or the folder of a run")


def test_development_text_alone_is_refused_where_all_text_would_be_wmt_s(tmp_path):
    text = tmp_path / "text"
    text.write_text("a\n")
    given = dict.fromkeys(("dev_source", "dev_target"), str(text))
    run = RunFolder(tmp_path / "run"), "wmt14-en-de-base"
    assert "--dev_source: expected --train_source" in refusal(requested_run, *run, given=given)
