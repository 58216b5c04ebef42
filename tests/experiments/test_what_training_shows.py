"""What training tells a user: how long it is, what is wrong with its steps, and how to go on."""

import pytest
from commands import metrics, run_command, setting_flags, text_flags
from refusals import refusal

from jax_transformer import progress
from jax_transformer.runs import pipeline
from jax_transformer.runs.request import check_files, requested_run
from jax_transformer.runs.run_dir import RunFolder

FEW = {
    "training.steps": 3,
    "training.log_steps": 50,
    "training.checkpoint_steps": 50,
    "training.batch_tokens": 4096,
    "model.norm_position": "pre",  # which some formats cannot express
}


@pytest.mark.slow
@pytest.mark.release
def test_too_few_steps_are_told_and_shown_one_by_one_and_an_interrupted_score_is_caught_up(
    text, tmp_path, monkeypatch
):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(progress, "LOG_SECONDS", 0)
    own = [f"--workdir={tmp_path}/run", "--experiment=base", *text_flags(text)]
    with monkeypatch.context() as patch:
        patch.setattr(pipeline, "final_report", interrupt)
        done = run_command("train", *own, *setting_flags(**FEW), fails=130)
    lines = done.stderr.splitlines()
    (checkpoints,) = (line for line in lines if "training.average_last=3" in line)
    assert lines.index(checkpoints) < lines.index("training    from step 0 to 3 steps")
    assert all(f"training    {step} of 3 steps" in done.stderr for step in (1, 2, 3))
    assert any("3 of 3 steps" in line and "compiling" in line for line in lines)
    assert " 3 steps: 3.0 passes " in done.stderr
    assert f"experiments.evaluate --workdir {tmp_path}/run" in done.stderr
    assert "export" not in done.stderr
    assert len(metrics(tmp_path / "run")) == 1
    again = run_command("train", f"--workdir={tmp_path}/run")
    assert "BLEU" in again.stdout
    many = [f"--workdir={tmp_path}/many", *own[1:], *setting_flags(**FEW)]
    with monkeypatch.context() as patch:
        patch.setattr(pipeline.Trainer, "train", interrupt)
        done = run_command("train", *many, "--set=training.steps=900", fails=130)
    (warning,) = (line for line in done.stderr.splitlines() if line.startswith("warning: 900"))
    assert "900 passes" in warning


def test_some_of_the_files_of_an_old_run_are_refused_with_how_to_continue(tmp_path):
    folder = RunFolder(tmp_path)
    files = {f"{split}_{side}": "x" for split in ("train", "dev") for side in ("source", "target")}
    folder.write_run(requested_run(folder, "base", None, (), files))
    run = requested_run(folder, None, None, (), {"train_source": "new", "train_target": "new"})
    assert "--dev_source" in refusal(check_files, run)
    assert "leave the flags out to continue" in refusal(check_files, run, folder)
    assert "leave the flags" not in refusal(check_files, run, RunFolder(tmp_path / "new"))
