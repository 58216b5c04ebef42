"""Train a Transformer: prepare what is missing, train or continue, average, score.

python -m experiments.train                                  the built-in demo, minutes on a CPU
python -m experiments.train --train_source=train.en --train_target=train.de \\
    --dev_source=dev.en --dev_target=dev.de --workdir=runs/mine
python -m experiments.train --workdir=runs/mine              continue where it stopped
python -m experiments.train --experiment=big --settings      list all settings
"""

import logging

from absl import app, flags

from experiments import cli
from experiments.corpus import check_corpus, prepare_run
from experiments.run_flags import (
    define_run_flags,
    described_run,
    settings_table,
)
from jax_transformer.parallel import Devices
from jax_transformer.runs.report import final_report
from jax_transformer.runs.run_dir import Run, RunFolder
from jax_transformer.runs.trainer import Trainer
from jax_transformer.runtime import prepare_process

define_run_flags()
SETTINGS = flags.DEFINE_bool("settings", False, "Print every setting, its value and meaning.")

logger = logging.getLogger(__name__)


@cli.command()
def main() -> int:
    """Prepare, train, average and score in one locked folder."""
    run, folder = described_run()
    if SETTINGS.value:
        print(settings_table(run.config))
        return 0
    check_corpus(run)
    prepare_process()
    with folder.locked():
        return _train(folder.resolve_run(run), folder)


def _train(run: Run, folder: RunFolder) -> int:
    devices = Devices()
    logger.info("run         %s, seed %d, in %s", run.experiment, run.seed, folder.path)
    logger.info("devices     %s", devices.describe())
    trainer = Trainer(run, folder, prepare_run(run, folder), devices)
    trainer.describe()
    if stop_signal := trainer.train():
        print(
            f"\nstopped by {stop_signal.name}; nothing is lost. Continue with\n"
            f"  python -m experiments.train --workdir {folder.quoted}"
        )
        return 128 + stop_signal
    print(final_report(trainer, run.scored_on))
    return 0


if __name__ == "__main__":
    app.run(main)
