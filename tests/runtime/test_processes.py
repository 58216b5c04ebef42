"""What the environment says of other processes."""

import os

import jax
import pytest

from jax_transformer.runtime import processes

INTERACTIVE = {"SLURM_NTASKS": "4"}  # salloc's shell, and a batch script


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        (INTERACTIVE, None),
        (INTERACTIVE | {"SLURM_STEP_ID": "0"}, "SLURM_NTASKS"),
        (INTERACTIVE | {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "4"}, "SLURM_NTASKS"),
        # An interactive step: srun starts the shell of the allocation.
        (INTERACTIVE | {"SLURM_STEP_ID": "4294967290", "SLURM_STEP_NUM_TASKS": "1"}, None),
        (INTERACTIVE | {"OMPI_COMM_WORLD_SIZE": "2"}, "OMPI_COMM_WORLD_SIZE"),
        ({}, None),
    ],
)
def test_an_allocation_of_slurm_is_several_processes_only_in_a_step(
    variables, expected, monkeypatch
):
    for name in [*os.environ]:
        if name.startswith(("SLURM_", "OMPI_")):
            monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert processes.one_of_several() == expected


def test_processes_do_not_look_for_each_other_behind_a_proxy(monkeypatch):
    proxies = {"http_proxy": "http://127.0.0.1:9", "HTTPS_PROXY": "http://b", "no_proxy": "c"}
    for name, value in proxies.items():
        monkeypatch.setenv(name, value)
    seen = []
    monkeypatch.setattr(jax.distributed, "initialize", lambda *_, **__: seen.append({**os.environ}))
    preemption = jax.config.jax_enable_preemption_service  # pyright: ignore
    monkeypatch.setattr("sys.excepthook", None)
    try:
        processes.start_processes("localhost:1", 2, 0)
    finally:
        jax.config.update("jax_enable_preemption_service", preemption)
    assert not [name for name in seen[0] if name.lower().endswith("_proxy")]
    assert {name: os.environ[name] for name in proxies} == proxies
