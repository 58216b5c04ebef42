"""training.keep_best and stop_after: the best evaluated step, however often a run is stopped."""

import shutil
from pathlib import Path

import pytest
from commands import EVERY, STEPS, flat_params, metrics, record, results, run_command
from small_run import write_run

import jax_transformer as jt
from jax_transformer.evaluation.evaluate import METRICS
from jax_transformer.evaluation.score import Score
from jax_transformer.runs.averages import save_average
from jax_transformer.runs.best import BestStep
from jax_transformer.runs.checkpoints import read_description
from jax_transformer.runs.run_dir import RunFolder

# Equal at 60 and 80, then worse.
BLEU = {20: 5.0, 40: 7.0, 60: 9.0, 80: 9.0, 100: 8.0, 120: 1.0, 140: 2.0}
SETTINGS = {
    "training.keep_best": "bleu",
    "training.stop_after": 3,
    "training.steps": 10 * STEPS,
    "training.evaluate_steps": EVERY,
    "training.checkpoint_steps": EVERY // 2,
    "training.keep_checkpoints": 2,
}


@pytest.fixture
def scripted(flags, tmp_path, monkeypatch):
    """A command whose dev BLEU is that of the table."""
    run = tmp_path / "run"

    def main_score(*_, **__):
        return Score("bleu", BLEU[metrics(run)[-1]["step"]], "scripted")

    monkeypatch.setitem(METRICS, "bleu", METRICS["bleu"]._replace(score=main_score))
    return ["train", f"--workdir={run}", *flags, *(f"--set={n}={v}" for n, v in SETTINGS.items())]


def saved(run: Path) -> list[int]:
    return sorted(int(path.name) for path in (run / "checkpoints").iterdir())


@pytest.mark.release
def test_training_ends_without_a_better_score_and_the_model_is_that_up_to_the_best(
    scripted, tmp_path
):
    run = tmp_path / "run"
    done = run_command(*scripted)
    assert "the best bleu on dev, 9, at step 60; training ends" in done.stderr
    assert "up to the best bleu on dev, 9, at step 60" in done.stdout
    assert saved(run) == [40, 50, 60, 110, 120]
    assert flat_params(run, "averaged")[0] == [40, 50, 60]
    assert jt.load(run, checkpoint="best").steps == [60]
    assert results(run)[-1]["ends_at"] == "the best bleu on dev, 9, at step 60"
    run_command("average", f"--workdir={run}", "--last=2")
    assert flat_params(run, "averaged")[0] == [50, 60]
    position = read_description(run / "averaged")["position"]
    assert position["best"] == record(run, 120)["position"]["best"]  # as at the end of training

    last = record(run, 120)
    shutil.rmtree(run / "checkpoints" / "120")  # as if it was killed at 110
    (run / "metrics.jsonl").unlink()
    assert "from step 110 to 1,200 steps" in run_command("train", f"--workdir={run}").stderr
    assert saved(run) == [40, 50, 60, 110, 120]
    assert record(run, 120) == last
    assert last["position"]["best"]["evaluations_since"] == 3

    longer = run_command("train", f"--workdir={run}", "--set=training.stop_after=4")
    assert "from step 120 to 1,200 steps" in longer.stderr
    assert saved(run)[-1] == 140


@pytest.mark.release
def test_the_dev_scores_may_be_of_the_average(flags, tmp_path):
    run = tmp_path / "run"
    settings = ["--set=training.evaluate_average=true", "--set=training.keep_best=chrf"]
    run_command("train", f"--workdir={run}", *flags, *settings)
    last = metrics(run, "dev")[-1]
    assert last["step"] == STEPS
    assert {"greedy_bleu", "greedy_chrf"} < last.keys()
    run_command("average", f"--workdir={run}")  # of the best step, unless that is the last
    best = jt.load(run, checkpoint="best").steps
    assert best in ([STEPS // 2], [STEPS])
    model = jt.load(run)
    assert model.steps[-1:] == best
    run_command("evaluate", f"--workdir={run}", "--split=dev")
    loss = next(entry for entry in results(run)[::-1] if entry["metric"] == "nll")
    line = next(line for line in metrics(run, "dev") if line["step"] == best[0])
    assert line["nll"] == pytest.approx(loss["score"], rel=1e-5)


def test_scores_that_are_no_numbers_are_never_the_best():
    best = BestStep("loss").after(10, {"loss": float("nan")}).after(20, {"loss": 2.0})
    assert (best.step, best.evaluations_since) == (20, 0)
    assert best.after(30, {"loss": float("nan")}).step == 20


def test_a_step_that_is_evaluated_again_after_a_resume_counts_once():
    best = BestStep("bleu").after(10, {"bleu": 9.0}).after(20, {"bleu": 8.0})
    assert best.after(20, {"bleu": 8.0}) == best


def test_average_knows_the_best_step_of_an_evaluation_after_the_last_checkpoint(tmp_path):
    folder = RunFolder(write_run(tmp_path / "run", "training.keep_best=bleu"))
    origin, params = folder.manifest.copy(), dict(jt.load(folder, "last").params)
    best = vars(BestStep("bleu", step=2, score=9.0, evaluated=2))
    save_average(folder.averaged, params, [2], origin, best=best)  # at the end of training
    assert "steps 2\n" in run_command("average", f"--workdir={folder.path}").stdout
    assert jt.load(folder.path, "best").steps == [2]
    for path in folder.averaged.glob("*/description/metadata"):
        path.write_bytes(b"damaged")
    assert "steps 1, 2\n" in run_command("average", f"--workdir={folder.path}").stdout
