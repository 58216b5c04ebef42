"""Train a Transformer: prepare what is missing, train or continue, average, score.

python -m experiments.train                                  the built-in demo, minutes on a CPU
python -m experiments.train --train_source=train.en --train_target=train.de \\
    --dev_source=dev.en --dev_target=dev.de --workdir=runs/mine
python -m experiments.train --workdir=runs/mine              continue where it stopped
"""

from experiments.cli import (
    asked_run,
    define_run,
    define_workdir,
    open_door,
    say,
)
from experiments.corpus import check_corpus, prepare_run
from jax_transformer.runs.run_dir import Run, RunFolder


def define_flags() -> None:
    """This door's flags."""
    define_workdir(required=False)
    define_run()


def main() -> int:
    """All of it, in one locked folder."""
    run, folder = asked_run()
    check_corpus(run)
    with folder.locked():
        return _train_and_score(folder.settle(run), folder)


def _train_and_score(run: Run, folder: RunFolder) -> int:
    # JAX takes seconds to load and allocates early: mistakes in flags are told before.
    from jax_transformer.parallel import Devices
    from jax_transformer.runs.trainer import Trainer, final_report
    from jax_transformer.runtime import prepare_process

    prepare_process()
    devices = Devices()
    say(f"run         {run.experiment}, seed {run.seed}, in {folder.path}")
    say(f"devices     {devices.describe()}")
    prepared = prepare_run(run, folder)
    trainer = Trainer(run, folder, prepared, devices)
    trainer.describe()
    if received := trainer.train():
        say(
            f"\nstopped by {received.name}; nothing is lost. Continue with\n"
            f"  python -m experiments.train --workdir {folder.quoted}"
        )
        return 128 + received
    final_report(trainer, run.scored_on)
    return 0


if __name__ == "__main__":
    open_door(define_flags, main, __doc__)
