"""Run folders of earlier versions are read and continued, as docs/stability.md promises."""

import tarfile

import pytest
from commands import ROOT, metrics, results, run_command


@pytest.mark.slow
def test_a_run_folder_of_1_0_has_the_scores_that_it_had_and_is_continued(tmp_path):
    with tarfile.open(ROOT / "tests" / "recorded" / "run_1_0.tar.xz") as packed:
        packed.extractall(tmp_path, filter="data")
    run = tmp_path / "run"
    run_command("evaluate", f"--workdir={run}", "--split=dev")
    (now,) = (each["score"] for each in results(run) if each["metric"] == "perplexity")
    assert now == pytest.approx(metrics(run, "dev")[-1]["perplexity"], rel=1e-4)
    done = run_command("train", f"--workdir={run}", "--set=training.steps=21")
    assert "from step 20 to 21" in done.stderr
