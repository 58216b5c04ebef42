"""The benchmark against PyTorch: the same loss, the same steps, and what its rows say."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import agreement, compare_training, training_work
from benchmarks.contest import Contender, Contest, Result
from benchmarks.measuring import BOS_ID, PAD_ID, SHAPES, Timing
from benchmarks.train_step import training_flops
from jax_transformer.errors import InputError
from jax_transformer.training.optimizer import learning_rate

torch = pytest.importorskip("torch", reason="compares with PyTorch: pip install -e '.[bench]'")
torch_training = pytest.importorskip("benchmarks.torch_training")

ROOT = Path(__file__).parents[2]
COMMON: dict[str, Any] = {"attention_dropout": 0.0, "dtype": "float32"}
# A warm-up so short that a step moves the parameters far enough to be seen.
THEIRS: dict[str, Any] = COMMON | {
    "label_smoothing": 0.1,
    "warmup_steps": 2,
    "ids": (PAD_ID, BOS_ID),
}


# Values narrower than keys, so that neither is taken for the other.
UNEVEN = replace(SHAPES["smoke"], model=replace(SHAPES["smoke"].model, num_layers=2, d_v=4))


@pytest.fixture(scope="module")
def work(tmp_path_factory) -> str:
    """The file of UNEVEN's parameters and three batches."""
    path = tmp_path_factory.mktemp("work") / "work.npz"
    tokens = training_work.write_work(UNEVEN, 3, path)
    with np.load(path) as stored:
        assert stored["source"].shape == (3, 4, 16)
        assert tokens == (stored["target"] != PAD_ID).sum()
        assert (stored["target"][0] != stored["target"][1]).any()
    return str(path)


@pytest.fixture(scope="module")
def ours(work) -> list[float]:
    """Our losses without dropout: before training, and of six steps on the three batches."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SHAPES, "uneven", UNEVEN)
        patch.setattr(training_work, "TRAINING", replace(training_work.TRAINING, warmup_steps=2))
        trainer = training_work.prepare(work, shape="uneven", dropout=0.0, **COMMON)
        return [trainer.facts["loss"], *trainer.take_turn(), *trainer.take_turn()]


@pytest.mark.parametrize("attention", ["sdpa", "plain"])
def test_tuned_torch_has_our_loss_before_training_and_after_each_of_six_steps(
    work, ours, attention, monkeypatch
):
    only = {attention: torch_training.ATTENTIONS[attention]}
    monkeypatch.setattr(torch_training, "ATTENTIONS", only)
    theirs = torch_training.prepare_tuned(work, dropout=0.0, threads=1, **THEIRS)
    assert theirs.calls == 3
    assert theirs.facts["about"].startswith(f"attention by {attention}")
    losses = [theirs.facts["loss"], *theirs.take_turn(), *theirs.take_turn()]
    np.testing.assert_allclose(losses, ours, rtol=1e-4)
    assert ours[0] == pytest.approx(ours[1], rel=1e-6)  # the first step's, before it moves
    assert ours[4] < ours[1] - 0.1  # the same batch again, after three steps


def test_tuned_torch_in_bfloat16_stays_near_our_loss_in_float32(work, ours):
    in_bfloat16: dict[str, Any] = THEIRS | {"dtype": "bfloat16"}
    theirs = torch_training.prepare_tuned(work, dropout=0.1, threads=1, **in_bfloat16)
    assert theirs.facts["loss"] == pytest.approx(ours[0], rel=1e-2)
    assert theirs.facts["loss"] != pytest.approx(ours[0], rel=1e-7)
    assert np.isfinite(theirs.take_turn()).all()


def test_stock_torch_learns_the_batches_and_takes_the_asked_attention_dropout(work):
    stock = torch_training.prepare_stock(work, dropout=0.0, **THEIRS)
    losses = [loss for _ in range(8) for loss in stock.take_turn()]
    assert losses[-1] < losses[0] - 0.5
    with np.load(work) as stored:
        model = torch_training.Stock(dict(stored), PAD_ID, 16, 0.1)
    model.set_attention_dropout(0.3)
    rates = {m.dropout for m in model.modules() if isinstance(m, torch.nn.MultiheadAttention)}
    assert rates == {0.3}


@pytest.mark.parametrize("step", [1, 2, 3, 50])
def test_torch_s_learning_rate_is_that_of_our_optimizer(step):
    theirs = torch_training.learning_rate(step, 16, 7)
    assert theirs == pytest.approx(float(learning_rate(step, 16, 7)), rel=1e-6)


def test_losses_that_differ_end_the_comparison_before_any_timing():
    facts = {"jax": {"loss": 3.0}, "torch-stock": {}, "torch-tuned": {"loss": 3.01}}
    agreement.check_losses(facts, 1e-2)
    with pytest.raises(InputError, match=r"found jax 3\.000000, torch-tuned 3\.010000"):
        agreement.check_losses(facts, 1e-3)
    for name in ("jax", "torch-tuned"):
        broken = facts | {name: {"loss": float("nan")}}
        with pytest.raises(InputError, match=f"{name} nan"):
            agreement.check_losses(broken, 1e-2)


def test_torch_compile_without_a_compiler_is_one_clear_line():
    arguments = THEIRS | {"path": "", "dropout": 0.0, "threads": 1, "compiled": True}
    bare = Contender(
        "torch-compiled", "benchmarks.torch_training:prepare_tuned", arguments, {"PATH": ""}
    )
    with pytest.raises(InputError, match=r"torch-compiled: --compile: expected g\+\+"):
        Contest([bare]).__enter__()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU for PyTorch")
@pytest.mark.parametrize("kind", ["tuned", "stock"])
def test_torch_without_the_gpu_that_jax_takes_is_one_clear_line(kind):
    more = {"threads": 1} if kind == "tuned" else {}
    arguments = THEIRS | {"path": "", "dropout": 0.0, "device": "cuda"} | more
    contender = Contender("torch", f"benchmarks.torch_training:prepare_{kind}", arguments)
    with pytest.raises(InputError, match=r"^torch: expected PyTorch to find the GPU .*=cpu$"):
        Contest([contender]).__enter__()


def test_rows_of_the_table_are_tokens_speed_to_ours_and_share_of_the_peak():
    def result(seconds: float, results: list) -> Result:
        return Result(Timing([seconds] * 5, 2.0), 6, 5, 123_000_000, {"about": "x"}, results)

    flops = training_flops(SHAPES["smoke"])
    found = {
        "jax": result(0.5, []),
        "torch-tuned": result(0.25, []),
        "peak": result(9.0, [flops * 4, flops * 8, flops * 2]),
    }
    ours, theirs = compare_training.result_rows("smoke", SHAPES["smoke"], 0.1, found, tokens=60.0)
    assert ours == [
        *("smoke", "0.1", "jax", "120", "1.00", "500.0", "500.0 - 500.0"),
        *("5 of 6", "25.0%", "2.0", "123"),
    ]
    assert theirs[2:6] == ["torch-tuned", "240", "2.00", "250.0"]
    assert len(ours) == len(compare_training.COLUMNS)


def door(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.compare_training", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def test_one_command_prints_one_table_of_all_who_take_part():
    turns = ["--repetitions=5", "--rounds=5", "--steps=1", "--peak_sizes=64"]
    run = door("--shapes=smoke", "--peers=jax", *turns)
    assert run.returncode == 0, run.stderr
    lines = [line for line in run.stdout.splitlines() if line.startswith("|")]
    assert [cell.strip() for cell in lines[0].strip("|").split("|")] == compare_training.COLUMNS
    assert [line.split("|")[3].strip() for line in lines[2:]] == ["jax"]
    assert "torch " in run.stdout.splitlines()[0]


def test_a_wrong_flag_is_one_line_and_exit_code_2():
    run = door("--shapes=tyni")
    assert run.returncode == 2
    assert run.stderr.count("\n") == 1
    assert run.stderr.startswith("error: --shapes=tyni: expected names out of tiny, base, big")
    for text in ("1.0", "-0.1", "nan", "much"):
        with pytest.raises(InputError, match=f"--attention_dropout={text}: expected rates"):
            compare_training._rate(text)
    assert "found no train.py in it" in door(f"--flax_wmt={ROOT}").stderr
    fused = ["--fused_attention", "--dtype=bfloat16", "--attention_dropout=0.1"]
    assert "--fused_attention: expected no attention dropout, found 0.1" in door(*fused).stderr
    with pytest.raises(InputError, match="--peak_sizes=0: expected widths"):
        compare_training._size("0")
