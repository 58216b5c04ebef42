"""experiments.average, on a run with random parameters."""

import jax
import numpy as np
import pytest
from commands import files_of, only_error, run_command
from small_run import write_run

import jax_transformer as jt
from jax_transformer.runs.run_dir import RunFolder


@pytest.mark.slow
def test_the_mean_of_the_last_checkpoints_is_saved_unless_somebody_holds_the_lock(tmp_path):
    run = write_run(tmp_path / "run")
    before = files_of(run / "averaged")
    with RunFolder(run).locked():
        assert str(run) in only_error("average", f"--workdir={run}", "--last=2")
    assert files_of(run / "averaged") == before
    assert "steps 1, 2" in run_command("average", f"--workdir={run}", "--last=2").stdout
    found = jt.load(run)
    assert found.steps == [1, 2]
    each = [jt.load(run, step).params for step in (1, 2)]
    expected = jax.tree.map(lambda *pair: np.mean(pair, axis=0), *each)
    jax.tree.map(np.testing.assert_array_almost_equal, found.params, expected)
