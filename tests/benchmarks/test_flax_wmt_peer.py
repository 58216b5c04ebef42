"""The benchmark against flax's own example: its step learns our batches; a wrong folder is told."""

import os

import pytest

from benchmarks.contest import Contender, Contest
from benchmarks.measuring import SHAPES
from benchmarks.training_work import write_work
from jax_transformer.errors import InputError

FOLDER = os.environ.get("FLAX_WMT")


def example(path: str, folder: str) -> Contender:
    arguments = {
        "path": path,
        "folder": folder,
        "dropout": 0.0,
        "attention_dropout": 0.0,
        "dtype": "float32",
        "label_smoothing": 0.1,
        "warmup_steps": 20,
    }
    return Contender("flax-wmt", "benchmarks.flax_wmt_peer:prepare", arguments)


@pytest.mark.skipif(FOLDER is None, reason="wants flax's examples/wmt: FLAX_WMT=its folder")
def test_flax_s_example_takes_its_own_steps_on_our_batches(tmp_path):
    assert FOLDER is not None
    path = tmp_path / "work.npz"
    write_work(SHAPES["smoke"], 2, path)
    with Contest([example(str(path), FOLDER)]) as contest:
        found = contest.measure(12, 12, before=0)["flax-wmt"]
    assert found.turns == 12
    assert found.results[-1][0] < found.results[0][0] - 0.5  # the first batch again


@pytest.mark.parametrize("there", [[], ["models.py", "train.py"]])
def test_a_folder_that_is_not_the_example_is_one_clear_line(tmp_path, there):
    for name in there:
        (tmp_path / name).touch()
    said = rf"flax-wmt: --flax_wmt={tmp_path}: expected the folder examples/wmt .*'models'"
    with pytest.raises(InputError, match=said):
        Contest([example("", str(tmp_path))]).__enter__()
