"""jt.train that continues from a model object: what it refuses, and what that leaves behind."""

import shutil

import pytest
from small_run import write_run

import jax_transformer as jt
from jax_transformer.errors import InputError


def test_a_model_of_other_sizes_than_the_one_in_the_folder_is_refused(small_run, tmp_path):
    other = jt.load(write_run(tmp_path / "other", "model.num_layers=2"))
    other.save(tmp_path / "run" / "initial")
    with pytest.raises(InputError, match="found another"):
        jt.train(workdir=tmp_path / "run", init_from=jt.load(small_run))


def test_a_call_that_is_refused_leaves_no_initial_model(small_run, tmp_path):
    with pytest.raises(InputError, match="no setting is called"):
        jt.train(
            None, {}, "training.step=2", workdir=tmp_path / "run", init_from=jt.load(small_run)
        )
    assert not [*tmp_path.glob("run/*")]


def test_a_call_that_is_refused_leaves_nothing_in_the_folder_of_another_run(small_run, tmp_path):
    other = shutil.copytree(small_run, tmp_path / "other")
    with pytest.raises(InputError):
        jt.train(None, {}, workdir=other, init_from=jt.load(small_run))
    assert not (other / "initial").exists()


def test_an_ensemble_is_refused(small_run, tmp_path):
    both = jt.load([small_run, small_run])
    with pytest.raises(InputError, match="found a TrainedEnsemble"):
        jt.train(workdir=tmp_path / "run", init_from=both)  # pyright: ignore


def test_text_that_is_refused_while_it_is_prepared_leaves_no_initial_model(small_run, tmp_path):
    for name, lines in (("train", "a\nb\n"), ("short", "a\n")):
        (tmp_path / name).write_text(lines, encoding="utf-8")
    names = {"train_source": "train", "train_target": "short"}
    names |= {"dev_source": "train", "dev_target": "train"}
    files = {name: tmp_path / file for name, file in names.items()}
    with pytest.raises(InputError, match=r"2 .*1 "):
        jt.train(None, files, workdir=tmp_path / "run", init_from=jt.load(small_run))
    assert not (tmp_path / "run").exists()  # so that a call without it is one of a new folder
    (tmp_path / "run").mkdir()
    with pytest.raises(InputError, match=r"2 .*1 "):
        jt.train(None, files, workdir=tmp_path / "run", init_from=jt.load(small_run))
    with pytest.raises(InputError, match=r"2 .*1 "):  # it goes on from the model that it has
        jt.train(None, files, workdir=tmp_path / "run")
    assert (tmp_path / "run" / "initial").exists()


def test_several_runs_to_continue_from_are_refused(small_run, tmp_path):
    files = {"init_from": [str(small_run), str(small_run)]}
    with pytest.raises(InputError, match="expected one run"):
        jt.train(None, files, workdir=tmp_path / "run")
