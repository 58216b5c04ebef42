r"""Train a Transformer: prepare what is missing, train or continue, average, score.

python -m experiments.train                                  the built-in demo, minutes on a CPU
python -m experiments.train --experiment=multi30k-en-de-cased --workdir=runs/mine \
    --train_source=train.en --train_target=train.de --dev_source=dev.en --dev_target=dev.de
python -m experiments.train --workdir=runs/mine              continue after the last checkpoint
python -m experiments.train --experiment=big --settings      list all settings
"""

import re

from absl import app, flags

from experiments import cli
from experiments.processes import define_process_flags, start_processes_from_flags
from experiments.run_flags import define_run_flags, run_from_flags
from jax_transformer.config import SETTINGS, settings
from jax_transformer.declared import choices, meaning
from jax_transformer.errors import InputError
from jax_transformer.runs.request import check_files
from jax_transformer.runtime import prepare_process
from jax_transformer.runtime.processes import end_process

define_run_flags()
define_process_flags()
LISTED = flags.DEFINE_bool("settings", False, "Print every setting, its value and meaning.")
PROFILE_STEPS = flags.DEFINE_string(
    "profile_steps", None, "Trace steps for TensorBoard's profiler, as in 100:110, both included."
)


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
    start_processes_from_flags()
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


if __name__ == "__main__":
    try:
        app.run(main, flags_parser=cli.parse_flags)
    except SystemExit as end:
        if end.code == 2:  # the usual end would wait ten minutes for orbax after a failed save
            end_process(2, always=True)
        raise
