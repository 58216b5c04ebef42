"""Prepare text without training: download WMT where it is missing, vocabulary, tokens.

python -m experiments.prepare --dataset=wmt14-en-de          once, for all runs that read it
python -m experiments.prepare --experiment=base --train_source=europarl.en,news.en \\
    --train_target=europarl.de,news.de --dev_source=dev.en --dev_target=dev.de

After an interruption the same command continues near where it was.
"""

import logging
import time
from shlex import quote

from absl import app, flags

from experiments import cli
from experiments.cli import FLAGS
from experiments.pipeline import prepare_run, shared_folder
from experiments.run_flags import check_files, define_run_flags, described_run
from jax_transformer.data.token_store import dropped
from jax_transformer.data.wmt import DATASETS, TfdsCorpus, default_data_dir, download
from jax_transformer.errors import InputError
from jax_transformer.runs.run_dir import Run, RunFolder

define_run_flags()
flags.DEFINE_enum(
    "dataset",
    None,
    list(DATASETS),
    "Prepare this for all runs that read it; with the settings of its base experiment, in "
    "--data_dir. Instead of --experiment.",
)

logger = logging.getLogger(__name__)


@cli.command()
def main() -> None:
    """Download and prepare in one locked folder."""
    run, folder = _described_run()
    check_files(run)
    with folder.locked():
        if "data_dir" in run.files:
            corpus = TfdsCorpus(DATASETS[run.corpus], run.files["data_dir"])
            if corpus.folder() is None:
                logger.info("download    %s to %s ...", corpus.name, corpus.data_dir)
                download(corpus.name, corpus.data_dir)
        _prepare(folder.resolve_run(run), folder)


def _described_run() -> tuple[Run, RunFolder]:
    """The run that the flags describe; the one of --dataset has its folder in --data_dir."""
    if not FLAGS.dataset:
        return described_run()
    if FLAGS.experiment or FLAGS.train_source:
        raise InputError("--dataset: expected no --experiment and no text with it; leave one out")
    data_dir = FLAGS.data_dir or default_data_dir()
    return described_run(f"{FLAGS.dataset}-base", shared_folder(FLAGS.dataset, data_dir))


def _prepare(run: Run, folder: RunFolder) -> None:
    start = time.monotonic()
    logger.info("prepare     %s, seed %d, in %s", run.experiment, run.seed, folder.path)
    prepared = prepare_run(run, folder)
    print(f"vocabulary  {prepared.vocabulary.size:,} pieces")
    for split, store in prepared.stores.items():
        source, target = (int(store.offsets[side][-1]) for side in ("source", "target"))
        print(
            f"{split:<11} {len(store):,} pairs, {source:,} + {target:,} tokens; dropped "
            f"{dropped(store.manifest)}"
        )
    print(f"prepared    in {time.monotonic() - start:,.0f} s; train with")
    where = f"--workdir={folder.quoted}"
    if "data_dir" in run.files:
        where = f"--experiment={run.experiment} --data_dir={quote(run.files['data_dir'])}"
    print(f"  python -m experiments.train {where}")


if __name__ == "__main__":
    app.run(main)
