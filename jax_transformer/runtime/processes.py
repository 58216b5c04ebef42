"""The start and the end of a process that is one of several: JAX's own distributed runtime."""

import contextlib
import os
import re
import sys
from collections.abc import Iterator
from typing import Any

from jax_transformer.errors import InputError

SHUTDOWN_SECONDS = 20  # time that a process waits for the others at its end


def start_processes(
    coordinator: str | None = None,
    processes: int | None = None,
    process: int | None = None,
    *,
    heartbeat_seconds: int = 100,
) -> None:
    """Join the processes of a run, before JAX does anything else; waits until all are here.

    coordinator: the host:port of process 0. processes: the number of processes. process: this
    process's number, from 0 on. Without these three JAX gets them from Slurm, Open MPI or the Cloud
    TPU. Raises InputError if it finds none of these, or they are not valid.
    heartbeat_seconds: end all processes if one has not answered for this many seconds.
    """
    import jax

    # Its handler of SIGTERM would replace Python's default, and swallow the signal.
    jax.config.update("jax_enable_preemption_service", False)
    sys.excepthook = _end_with_traceback
    try:
        with _without_proxies():
            jax.distributed.initialize(
                coordinator,
                processes,
                process,
                # Under Slurm it would hide all but one GPU, even with explicit arguments.
                cluster_detection_method="deactivate" if coordinator else None,
                heartbeat_timeout_seconds=heartbeat_seconds,
                shutdown_timeout_seconds=SHUTDOWN_SECONDS,
            )
    except (ValueError, RuntimeError) as error:
        found = " ".join(str(error).split())
        raise InputError(
            f"expected the {processes or 'processes'} of this run to find each other at "
            f"{coordinator or 'what Slurm, Open MPI or the Cloud TPU names'}, found: {found}; "
            "see docs/devices.md"
        ) from error


@contextlib.contextmanager
def _without_proxies() -> Iterator[None]:
    """Hide the proxies in the environment: gRPC would look for process 0 behind them, for ever."""
    names = [name for name in os.environ if name.lower().endswith("_proxy")]
    hidden = {name: os.environ.pop(name) for name in names}
    try:
        yield
    finally:
        os.environ.update(hidden)


def one_of_several() -> str | None:
    """Return the variable by which a launcher gives the number of processes, None if not over 1.

    Slurm's number is that of an allocation, whose shell and batch script are one process; srun
    starts a step of several. Raises InputError if its value is not a number.
    """
    step = os.environ.get("SLURM_STEP_ID") and os.environ.get("SLURM_STEP_NUM_TASKS") != "1"
    for name in ("SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE"):
        count = os.environ.get(name) or "1"
        if not re.fullmatch("[0-9]{1,9}", count):
            raise InputError(
                f"{name}={count}: expected a number of processes; unset the variable, or give "
                "--distributed=none"
            )
        if int(count) > 1 and (step or not name.startswith("SLURM")):
            return name
    return None


def end_process(status: int, *, always: bool = False) -> None:
    """End this process at once if it is one of several: the others notice it, and end too.

    The usual end would wait for devices that wait for other processes. always: True to end it at
    once even if it is the only one.
    """
    jax = sys.modules.get("jax")  # a process that has not imported it is the only one
    if always or (jax and jax.distributed.is_initialized()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _end_with_traceback(*error: Any) -> None:
    sys.__excepthook__(*error)
    end_process(1)
