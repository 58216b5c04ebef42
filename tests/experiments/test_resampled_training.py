"""Training on text that is cut anew in each epoch: interrupted anywhere, it ends the same."""

import shutil

import pytest
from commands import metrics, record, run_command, setting_flags, text_flags

from jax_transformer.data import resampling

STEPS = 24


@pytest.fixture
def command(text, monkeypatch):
    """Three parts an epoch, a checkpoint after each step; a second corpus takes half of it."""
    monkeypatch.setattr(resampling, "PART", 43)
    second = [f"--train_source={text}/dev.en", f"--train_target={text}/dev.de"]
    settings = setting_flags(
        data__subword_dropout=0.3,
        data__max_length=16,
        data__train_weights="1,1",
        training__steps=STEPS,
        training__checkpoint_steps=1,
        training__keep_checkpoints=STEPS,
        training__evaluate_steps=STEPS,
    )
    return ["train", "--experiment=base", "--seed=7", *text_flags(text), *second, *settings]


@pytest.mark.slow
@pytest.mark.release
def test_a_run_that_goes_on_in_a_part_or_at_its_end_is_that_without_an_interruption(
    command, tmp_path
):
    whole = tmp_path / "whole"
    logged = run_command(*command, f"--workdir={whole}").stderr
    assert "cut anew    in 3 parts in each epoch, into about " in logged
    places = {step: record(whole, step)["position"] for step in range(1, STEPS + 1)}
    numbers = [place["epoch"] for place in places.values()]
    assert numbers == sorted(numbers)
    assert numbers[-1] >= 3  # in the second epoch
    lines = metrics(whole)
    assert [line["epoch"] for line in lines] == [number // 3 for number in numbers]
    assert {line["compilations"] > 0 for line in lines[1:]} == {False}
    last = next(step for step in places if numbers[step] > numbers[step - 1])  # of a part
    middle = next(step for step in range(last + 1, STEPS) if numbers[step] == numbers[step - 1])
    for step in (last, middle):
        run = shutil.copytree(whole, tmp_path / f"from {step}")
        for later in range(step + 1, STEPS + 1):  # as if it was killed after this step
            shutil.rmtree(run / "checkpoints" / str(later))
        shutil.rmtree(run / "averaged")
        assert f"from step {step} to" in run_command("train", f"--workdir={run}").stderr
        assert record(run, STEPS) == record(whole, STEPS)
        for ours, theirs in zip(metrics(run), lines, strict=True):
            assert (ours["loss"], ours["epoch"]) == (theirs["loss"], theirs["epoch"])
