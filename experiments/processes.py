"""The flags of train for one of several processes, usually one on each host."""

import os
import sys

from absl import flags
from absl import logging as absl_logging

from experiments.cli import FLAGS
from experiments.flag_types import define_integer
from jax_transformer.errors import InputError
from jax_transformer.runtime.processes import one_of_several, start_processes

flags.disclaim_key_flags()

BY_HAND = ("coordinator_address", "num_processes", "process_id")


def define_process_flags() -> None:
    """Define --distributed, --coordinator_address, --num_processes, --process_id and the like."""
    meaning = "auto: join the processes that Slurm, Open MPI or a Cloud TPU pod has started. none: "
    meaning += "train in this one alone. Elsewhere give --coordinator_address, --num_processes and "
    meaning += "--process_id instead."
    flags.DEFINE_enum("distributed", None, ["auto", "none"], meaning)
    meaning = "Address of process 0, as host:port; give the same to all processes."
    flags.DEFINE_string("coordinator_address", None, meaning)
    define_integer("num_processes", None, "Number of processes that train.", lower_bound=1)
    define_integer("process_id", None, "Number of this process, counted from 0.", lower_bound=0)
    meaning = "End all processes if one has not answered for this many seconds."
    define_integer("heartbeat_seconds", 100, meaning, lower_bound=5)


def start_processes_from_flags() -> None:
    """Join the processes that the flags describe; only process 0 then shows more than errors.

    Call it before JAX computes anything. Raises InputError for flags that contradict each other,
    or if a launcher has started several processes and no flag is about them.
    """
    given = [name for name in BY_HAND if FLAGS[name].value is not None]
    if not given and FLAGS.distributed is None and (variable := one_of_several()):
        raise InputError(
            f"{variable}={os.environ[variable]}: a launcher has started several processes, each of "
            "which would train a model of its own; give --distributed=auto to train one model in "
            "all of them, or --distributed=none if that is intended"
        )
    if given and (missing := [name for name in BY_HAND if name not in given]):
        raise InputError(
            f"--{' and --'.join(given)} also requires --{' and --'.join(missing)}; give all three"
        )
    if given and FLAGS.distributed:
        raise InputError(f"--distributed cannot be combined with --{given[0]}; remove one of them")
    if given or FLAGS.distributed == "auto":
        start_processes(
            *(FLAGS[name].value for name in BY_HAND), heartbeat_seconds=FLAGS.heartbeat_seconds
        )
    from jax_transformer.parallel import this_process

    if this_process()[0]:
        absl_logging.set_verbosity(absl_logging.ERROR)
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
