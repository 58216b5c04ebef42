"""Continuing from a run's model, as a command and from Python."""

import os
import shutil
import signal

import jax
import numpy as np
import pytest
from commands import EVERY, SETTINGS, STEPS, metrics, record, results, run_command, text_flags

import jax_transformer as jt
from jax_transformer.errors import InputError
from jax_transformer.runs.pipeline import train

SHORT = {
    "training.steps": 2 * EVERY,
    "training.learning_rate": 0.002,
    "training.warmup_steps": 5,
    "training.evaluate_steps": EVERY,
}


SHORT_FLAGS = [f"--set={name}={value}" for name, value in SHORT.items()]


def flat(params):
    leaves = jax.tree_util.tree_leaves_with_path(params)
    return {"/".join(part.key for part in path): np.asarray(leaf) for path, leaf in leaves}


def files_of_text(text):
    """The text as jt.train takes it."""
    return dict(flag.removeprefix("--").split("=", 1) for flag in text_flags(text))


@pytest.fixture
def parent(trained, tmp_path):
    return shutil.copytree(trained, tmp_path / "parent")


@pytest.fixture
def command(text, parent, tmp_path):
    run = tmp_path / "run"
    return ["train", f"--workdir={run}", f"--init_from={parent}", *text_flags(text)]


@pytest.mark.slow
def test_a_run_continues_from_another_and_goes_on_without_it_bit_for_bit(
    command, trained, parent, tmp_path
):
    run = tmp_path / "run"
    done = run_command(*command, f"--init_checkpoint={STEPS}", *SHORT_FLAGS)
    assert f"continuing  from {parent}: base, {STEPS} checkpoint, step {STEPS}" in done.stderr
    dev = metrics(run, "dev")
    assert [line["step"] for line in dev] == [0, EVERY, 2 * EVERY]
    for name in ("nll", "loss", "greedy_bleu"):
        assert dev[0][name] == metrics(trained, "dev")[-1][name]
    nll = [line["nll"] for line in metrics(run)]
    assert np.mean(nll[EVERY:]) < np.mean(nll[:EVERY])
    assert [line["learning_rate"] for line in metrics(run)][3:7] == pytest.approx(
        [0.0016, 0.002, 0.002, 0.002]
    )
    assert (run / "vocabulary.model").read_bytes() == (trained / "vocabulary.model").read_bytes()
    assert jt.load(run).config.model == jt.load(trained).config.model

    last = record(run, 2 * EVERY)
    shutil.rmtree(parent)
    shutil.rmtree(run / "checkpoints" / str(2 * EVERY))
    run_command(*command, f"--init_checkpoint={STEPS}", *SHORT_FLAGS)
    assert record(run, 2 * EVERY) == last
    assert [line["step"] for line in metrics(run, "dev")] == [0, EVERY, 2 * EVERY]


@pytest.mark.release
def test_frozen_parts_keep_every_bit_and_the_others_change(command, parent, tmp_path):
    freeze = "embedding,encoder,decoder_0/cross_attention"
    run_command(*command, *SHORT_FLAGS, f"--set=training.freeze={freeze}")
    before, after = (flat(jt.load(folder).params) for folder in (parent, tmp_path / "run"))
    same = {name for name in before if before[name].tobytes() == after[name].tobytes()}
    frozen = ("embedding/", "encoder_0/", "decoder_0/cross_attention")
    assert same == {name for name in before if name.startswith(frozen)}
    assert "decoder_0/cross_attention_norm/norm/scale" in same
    assert len(same) < len(before)


@pytest.mark.release
def test_training_from_python_is_the_command(text, trained, tmp_path, flags):
    files = files_of_text(text)
    settings = [f"{name}={value}" for name, value in SETTINGS.items()]
    lines = []
    model = train(
        "base", files, *settings, workdir=tmp_path / "run", seed=7, on_metrics=lines.append
    )
    assert record(tmp_path / "run", STEPS) == record(trained, STEPS)
    assert model.scores == results(tmp_path / "run")
    assert [line["step"] for line in lines if line["split"] == "dev"] == [STEPS // 2, STEPS]
    assert [line for line in lines if line["split"] == "train"] == metrics(tmp_path / "run")


@pytest.mark.release
def test_a_model_that_was_changed_in_python_is_trained_until_a_callback_ends_it(
    text, trained, tmp_path
):
    files = files_of_text(text)
    model = jt.load(trained)
    changed = model.with_params(jax.tree.map(lambda leaf: leaf * 0.5, model.params))
    short = [f"{name}={value}" for name, value in SHORT.items()]
    again = train(
        None,
        files,
        *(*short, "training.checkpoint_steps=5", "training.average_last=2"),
        workdir=tmp_path / "second",
        init_from=changed,
        on_metrics=lambda line: line["step"] == 6,
    )
    assert again.steps[0] == 5
    assert 6 <= again.steps[1] <= 9  # the step that ended it counts
    assert again.scores[-1]["steps"] == again.steps
    run_command("average", f"--workdir={tmp_path / 'second'}")  # with it, too
    assert jt.load(tmp_path / "second").steps == again.steps
    initial = jt.load(tmp_path / "second" / "initial")
    assert flat(initial.params).keys() == flat(changed.params).keys()
    np.testing.assert_array_equal(
        flat(initial.params)["embedding/matrix"], flat(changed.params)["embedding/matrix"]
    )
    with pytest.raises(InputError, match="found another"):
        train(None, files, workdir=tmp_path / "second", init_from=model)
    moved = tmp_path / "moved"
    (tmp_path / "second").rename(moved)
    later = {"workdir": moved, "on_metrics": lambda line: line["step"] > 11}
    assert train(None, files, init_from=changed, **later).steps[1] > 11
    shutil.rmtree(moved / "initial")  # once there is a checkpoint, it is needed no longer
    more = "training.steps=20", "training.evaluate_steps=20"
    assert train(None, files, *more, init_from=model, workdir=moved).steps[1] == 20
    assert not (moved / "initial").exists()
    third = tmp_path / "third"  # the callback ends it at the score of step 0
    once = train(None, files, *short, workdir=third, init_from=model, on_metrics=lambda _: True)
    assert 1 <= once.steps[0] <= 4


@pytest.mark.release
def test_ctrl_c_in_python_is_python_s_and_what_was_trained_is_kept(text, tmp_path):
    def stop(line):
        assert signal.getsignal(signal.SIGINT) is before
        if line["step"] == 30:
            os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    files = files_of_text(text)
    settings = [f"{name}={value}" for name, value in SETTINGS.items()]
    with pytest.raises(KeyboardInterrupt):
        train("base", files, *settings, workdir=tmp_path / "run", on_metrics=stop)
    assert 30 <= metrics(tmp_path / "run")[-1]["step"] < STEPS
