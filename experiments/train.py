r"""Train a Transformer: prepare what is missing, train or continue, average, score.

python -m experiments.train                                  the built-in demo, minutes on a CPU
python -m experiments.train --experiment=multi30k-en-de-cased --workdir=runs/mine \
    --train_source=train.en --train_target=train.de --dev_source=dev.en --dev_target=dev.de
python -m experiments.train --workdir=runs/mine              continue after the last checkpoint
python -m experiments.train --experiment=big --settings      list all settings
"""

import os
import re
import sys

from absl import flags
from absl import logging as absl_logging

from experiments import cli
from experiments.cli import FLAGS
from experiments.shared_flags import define_integer, define_run_flags, run_from_flags
from jax_transformer.config import SETTINGS, settings
from jax_transformer.declared import choices, meaning
from jax_transformer.errors import InputError
from jax_transformer.runs.request import check_files
from jax_transformer.runtime import (
    one_of_several,
    prepare_process,
    start_processes,
    without_triton,
)

define_run_flags()
flags.DEFINE_enum(
    "distributed",
    None,
    ["auto", "none"],
    "auto: join the processes that Slurm, Open MPI or a Cloud TPU pod has started. none: train in "
    "this one alone. Elsewhere give --coordinator_address, --num_processes and --process_id "
    "instead.",
)
flags.DEFINE_string(
    "coordinator_address",
    None,
    "Address of process 0, as host:port; give the same to all processes.",
)
define_integer("num_processes", None, "Number of processes that train.", lower_bound=1)
define_integer("process_id", None, "Number of this process, counted from 0.", lower_bound=0)
define_integer(
    "heartbeat_seconds",
    100,
    "End all processes if one has not answered for this many seconds.",
    lower_bound=5,
)
LISTED = flags.DEFINE_bool("settings", False, "Print every setting, its value and meaning.")
PROFILE_STEPS = flags.DEFINE_string(
    "profile_steps", None, "Steps to trace for TensorBoard's profiler, as in 100:110 (inclusive)."
)

BY_HAND = ("coordinator_address", "num_processes", "process_id")


@cli.command
def main() -> int:
    """Train the run that the flags describe, or list its settings."""
    run, folder = run_from_flags()
    if LISTED.value:
        cli.show(f"the settings of {run.experiment}; --set section.name=value changes one")
        for name, value in settings(run.config).items():
            hint = SETTINGS[name]
            several = "|".join(map(str, choices(hint)))
            cli.show(f"{name}={value}: {meaning(hint)}" + (f" [{several}]" if several else ""))
        return 0
    check_files(run, folder)
    steps = _profile_steps(run.config.training.steps)
    prepare_process()
    _start_processes(run.config.model.compute_dtype)
    from jax_transformer.runs.pipeline import train_run

    return cli.show_outcome(train_run(run, folder, steps))


def _profile_steps(steps: int) -> range:
    """Return --profile_steps. Raises InputError unless they are among the training's `steps`."""
    text = PROFILE_STEPS.value
    if text is None:
        return range(0)
    match = re.fullmatch(r"(\d{1,10}):(\d{1,10})", text, re.ASCII)
    first, last = map(int, match.groups()) if match else (0, 0)
    if not 1 <= first <= last <= steps:
        raise InputError(
            f"--profile_steps={text}: expected FIRST:LAST among the steps 1 to {steps}, as in "
            f"1:{min(10, steps)}; give other steps, or leave the flag out"
        )
    return range(first, last + 1)


def _start_processes(dtype: str) -> None:
    """Join the processes that the flags describe; only process 0 then shows more than errors.

    Call it before JAX computes anything. dtype: as in model.compute_dtype. Raises InputError for
    flags that contradict each other, or if a launcher has started several processes and no flag is
    about them.
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
            f"--{' and --'.join(given)}: expected --{' and --'.join(missing)}, too, found none; "
            "give all three"
        )
    if given and FLAGS.distributed:
        raise InputError(f"--distributed cannot be combined with --{given[0]}; remove one of them")
    if given or FLAGS.distributed == "auto":
        if dtype == "float32":
            without_triton()
        start_processes(
            *(FLAGS[name].value for name in BY_HAND), heartbeat_seconds=FLAGS.heartbeat_seconds
        )
    import jax

    from jax_transformer.parallel import this_process

    process, processes = this_process()
    if processes > 1 and not jax.distributed.is_initialized():
        raise InputError(
            f"expected one process, found {processes} that share these devices, as the hosts of a "
            "TPU slice do; give --distributed=auto on all of them"
        )
    if process:
        absl_logging.set_verbosity(absl_logging.ERROR)
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115


if __name__ == "__main__":
    cli.run(main)
