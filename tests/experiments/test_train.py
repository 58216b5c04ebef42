"""experiments.train: what it writes, what it reuses, what it refuses."""

import gzip
import json
import math
import re
import time
from importlib.metadata import version

import numpy as np
import pytest
from commands import (
    EVERY,
    STEPS,
    flat_params,
    metrics,
    results,
    run_command,
    setting_flags,
    text_flags,
)

from jax_transformer import progress
from jax_transformer.runs import pipeline
from jax_transformer.runs.checkpoints import Checkpoints
from jax_transformer.runs.trainer import Trainer


def test_a_run_leaves_settings_vocabulary_tokens_checkpoints_metrics_and_a_score(trained):
    assert {path.name for path in trained.iterdir()} >= {
        *("config.json", "vocabulary.model", "tokens", "checkpoints", "averaged"),
        *("metrics.jsonl", "starts.jsonl", "tensorboard", "results.json"),
    }
    checkpoints = [path.name for path in (trained / "checkpoints").iterdir()]
    assert {int(name) for name in checkpoints} == set(range(EVERY, STEPS + 1, EVERY))
    settings = json.loads((trained / "config.json").read_text(encoding="utf-8"))["config"]
    assert settings["training"]["steps"] == STEPS
    assert (settings["model"]["d_k"], settings["model"]["d_v"]) == (8, 8)  # 16 / 2 heads
    (result,) = results(trained)
    assert result.items() >= {"metric": "bleu", "split": "test", "checkpoint": "averaged"}.items()
    assert result["steps"] == [STEPS - 2 * EVERY, STEPS - EVERY, STEPS]
    assert "tok:13a" in result["signature"]
    (start,) = map(json.loads, (trained / "starts.jsonl").read_text("utf-8").splitlines())
    assert start == {"step": 0, **result["environment"]}
    assert (start["jax"], start["devices"]) == (version("jax"), "8 x cpu (cpu)")
    printed = (trained.parent / "stdout").read_text(encoding="utf-8")
    assert f"BLEU {result['score']:.2f}" in printed
    assert f"-m experiments.translate --workdir {trained.with_name('first')}" in printed
    logged = (trained.parent / "stderr").read_text(encoding="utf-8")
    assert "\ndevices     8 x cpu" in logged
    assert ", 2 heads of d_k 8, d_v 8; vocabulary 85\n" in logged
    assert f"\ntraining    from step 0 to {STEPS} steps\n" in logged


def test_metrics_are_nats_per_token_with_perplexity_rate_and_speed(trained):
    lines = metrics(trained)
    assert [line["step"] for line in lines] == list(range(1, STEPS + 1))
    for line in lines:
        assert line["perplexity"] == pytest.approx(math.exp(line["nll"]))
        step = line["step"]
        formula = 16**-0.5 * min(step**-0.5, step * 30**-1.5)
        assert line["learning_rate"] == pytest.approx(formula, rel=1e-5)
        assert 0 < line["tokens_per_second"] <= line["tokens_per_second_with_padding"]
        assert line["seconds"] >= 0
    # Nothing learned: about log of the vocabulary; later the text's own regularity is in it.
    assert lines[0]["nll"] == pytest.approx(math.log(85), rel=0.3)
    assert lines[-1]["nll"] < lines[0]["nll"] - 0.5
    assert [line["step"] for line in metrics(trained, "dev")] == [STEPS // 2, STEPS]


def test_no_step_is_compiled_again_once_its_shape_came(trained):
    lines = metrics(trained)
    assert lines[-1]["epoch"] > 5
    assert sum(line["compilations"] for line in lines if line["epoch"] == 0)  # each shape
    assert not any(line["compilations"] for line in lines if line["epoch"] > 0)


@pytest.mark.slow
def test_what_is_not_finite_stops_the_run_before_a_checkpoint(text, tmp_path):
    settings = setting_flags(
        training__learning_rate=1e30,
        training__checkpoint_steps=1,
        model__dropout_rate=0,
    )
    command = ["train", f"--workdir={tmp_path}", "--experiment=base", *text_flags(text), *settings]
    line = run_command(*command, fails=2).stderr.splitlines()[-1]
    assert "found loss" in line
    assert line.endswith("a smaller training.learning_rate in another --workdir")
    steps = sorted(int(path.name) for path in (tmp_path / "checkpoints").iterdir())
    assert line.startswith(f"error: step {len(steps) + 1}: expected finite")
    last = f"the last good checkpoint is {steps[-1]}" if steps else "no checkpoint is saved yet"
    assert last in line
    lines = line.split("of lines ")[1].split(";")[0].split(" and ")[0].split(", ")
    assert {int(number) for number in lines} <= set(range(1, 121))
    for step in steps:
        assert np.isfinite(flat_params(tmp_path, step)[1]).all()
    for written in (tmp_path / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
        json.loads(written, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


@pytest.mark.release
def test_a_loss_above_that_of_a_guess_is_warned_of_once_after_the_warm_up(text, tmp_path):
    settings = setting_flags(
        training__learning_rate_scale=100,
        training__warmup_steps=40,
        training__log_steps=5,
        training__steps=70,
        model__dropout_rate=0,
        decoding__beam_size=1,
        decoding__max_extra_length=2,
    )
    command = ["train", f"--workdir={tmp_path}", "--experiment=base", *text_flags(text), *settings]
    logged = run_command(*command).stderr
    ((step, found),) = re.findall(r"warning: step (\d+): .* 2 ln 85.* found ([\d.]+)", logged)
    losses = {entry["step"]: entry["loss"] for entry in metrics(tmp_path)}
    assert int(step) == min(at for at, loss in losses.items() if at > 40 and loss > 8.9)
    assert float(found) == pytest.approx(losses[int(step)], rel=1e-3)


@pytest.mark.release
def test_the_steps_of_a_profile_are_traced_where_tensorboard_looks_for_them(flags, tmp_path):
    few = ["--set=training.steps=9", "--set=decoding.beam_size=1", "--set=training.log_steps=4"]
    command = ["train", f"--workdir={tmp_path}", *flags, *few]
    logged = run_command(*command, "--profile_steps=3:5").stderr
    assert f"profile     traced; tensorboard --logdir {tmp_path / 'tensorboard'}\n" in logged
    folder = tmp_path / "tensorboard" / "plugins" / "profile"
    (trace,) = folder.glob("*/*.trace.json.gz")
    (protobuf,) = folder.glob("*/*.xplane.pb")
    assert protobuf.stat().st_size > 1000
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    steps = [event["args"]["step_num"] for event in events if event.get("name") == "train"]
    assert sorted(map(int, steps)) == [3, 4, 5]
    # What a step was read back for, it was logged for; no line is lost.
    assert [line["step"] for line in metrics(tmp_path)] == [2, 4, 5, 8, 9]


@pytest.mark.release
def test_too_few_steps_are_shown_one_by_one_and_an_interrupted_score_is_made_up_for(
    text, tmp_path, monkeypatch
):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    few = {"training.steps": 3, "training.log_steps": 50, "training.checkpoint_steps": 50}
    few |= {"training.batch_tokens": 4096, "training.keep_checkpoints": 2}
    monkeypatch.setattr(progress, "LOG_SECONDS", 0)
    own = [f"--workdir={tmp_path}/run", "--experiment=base", *text_flags(text)]
    with monkeypatch.context() as patch:
        patch.setattr(pipeline, "final_report", interrupt)
        done = run_command("train", *own, *setting_flags(**few), fails=130)
    lines = done.stderr.splitlines()
    before = lines[: lines.index("training    from step 0 to 3 steps")]
    steps, kept = (line for line in before if "training.average_last=3" in line)
    assert steps.startswith("warning: training.steps=3 gives 1 ")
    assert kept.startswith("warning: training.keep_checkpoints=2 keeps fewer ")
    assert all(f"training    {step} of 3 steps" in done.stderr for step in (1, 2, 3))
    assert " 3 steps: 3.0 passes " in done.stderr
    score = f"experiments.evaluate --workdir {tmp_path}/run"
    assert f"{score}\n" in done.stderr
    assert len(metrics(tmp_path / "run")) == 1
    again = run_command("train", f"--workdir={tmp_path}/run", "--profile_steps=1:3")
    assert "BLEU" in again.stdout
    assert "--profile_steps: step 3 is done, so nothing is traced" in again.stderr
    own = [flag for flag in own if not flag.startswith("--test")] + [f"--workdir={tmp_path}/dev"]
    with monkeypatch.context() as patch:
        patch.setattr(pipeline, "final_report", interrupt)
        done = run_command("train", *own[1:], *setting_flags(**few), fails=130)
    assert f"{tmp_path}/dev --split=dev\n" in done.stderr


@pytest.mark.release
def test_the_seconds_of_steps_are_without_those_of_saves_and_evaluations(
    flags, tmp_path, monkeypatch
):
    def pause(*_, **__):
        time.sleep(0.2)

    monkeypatch.setattr(Trainer, "_evaluate_dev", pause)
    monkeypatch.setattr(Checkpoints, "save", pause)
    often = ["log_steps=5", "checkpoint_steps=8", "evaluate_steps=12", "steps=24"]
    changes = [f"--set=training.{name}" for name in often]
    run_command("train", f"--workdir={tmp_path}", *flags, *changes, fails=None)  # nothing is saved
    lines = metrics(tmp_path)
    assert [line["step"] for line in lines] == [5, 8, 10, 12, 15, 16, 20, 24]
    # Two saves and an evaluation came before the last line.
    others = lines[-1]["total_seconds"] - sum(line["seconds"] for line in lines)
    assert others > 2.9 * 0.2
