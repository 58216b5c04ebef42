"""Run folders of earlier versions are read and continued, as docs/stability.md promises."""

import tarfile
from dataclasses import replace

import pytest
from commands import ROOT, metrics, results, run_command
from refusals import refusal

from jax_transformer.config import override
from jax_transformer.data.manifest import check_same
from jax_transformer.runs.run_dir import RunFolder


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


def test_the_command_of_a_run_of_1_0_goes_on_with_it_though_a_default_has_changed(tmp_path):
    with tarfile.open(ROOT / "tests" / "recorded" / "run_1_0.tar.xz") as packed:
        packed.extractall(tmp_path, filter="data")
    folder = RunFolder(tmp_path / "run")
    assert folder.run
    assert folder.run.config.model.fused_attention is False
    now = replace(folder.run, config=override(folder.run.config, "model.fused_attention=none"))
    made_of = {"settings": now.fixed_settings()}
    check_same(folder.path, {"made_of": made_of}, folder.manifest.copy())
    made_of["settings"]["model.d_ff"] = 1
    other = {"made_of": made_of}
    assert "model.d_ff=1" in refusal(check_same, folder.path, other, folder.manifest.copy())
