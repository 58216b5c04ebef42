r"""Prepare data without training: download WMT if it is missing, make vocabulary and tokens.

python -m experiments.prepare --dataset=wmt14-en-de --data_dir=data
python -m experiments.prepare --experiment=base --train_source=train.en --train_target=train.de \
    --dev_source=dev.en --dev_target=dev.de

It takes the flags of experiments.train that describe a run. Without --workdir, WMT is prepared in
--data_dir, once for all runs that read it. After an interruption the same command continues.
"""

import logging
import time
from dataclasses import replace
from shlex import quote

from absl import flags

from experiments import cli
from experiments.cli import FLAGS
from experiments.shared_flags import VOCABULARY_FLAGS, define_run_flags, run_from_flags
from jax_transformer.data.wmt import DATASETS, TfdsCorpus, check_can_download, download
from jax_transformer.errors import InputError
from jax_transformer.presets import find_experiment
from jax_transformer.runs.request import check_files, wmt_folder

define_run_flags()
flags.DEFINE_enum("dataset", None, list(DATASETS), "Short for --experiment=DATASET-base.")

logger = logging.getLogger(__name__)


@cli.command
def main() -> None:
    """Download and prepare in one locked folder."""
    if FLAGS.dataset and FLAGS.experiment:
        raise InputError("--dataset cannot be combined with --experiment; remove one of them")
    if FLAGS.dataset:
        FLAGS.experiment = f"{FLAGS.dataset}-base"
    from jax_transformer.data.token_store import dropped
    from jax_transformer.runs.preparation import prepare_run, shared_folder

    corpus_name = find_experiment(FLAGS.experiment or "demo").corpus
    alone = FLAGS.workdir or FLAGS.train_source or FLAGS.init_from
    if shared := corpus_name in DATASETS and not alone:
        FLAGS.data_dir = wmt_folder(FLAGS.data_dir)
        FLAGS.workdir = str(shared_folder(corpus_name, FLAGS.data_dir).path)
    run, folder = run_from_flags()
    if shared and not any(FLAGS[name].value for name in VOCABULARY_FLAGS):
        run = replace(run, vocabularies=None)  # not that of the last preparation
    check_files(run)
    train_flags = f"--workdir={folder.quoted}"
    data_dir = run.sources.data_dir
    if shared:
        settings = [f"--seed={run.seed}"] if run.seed != FLAGS["seed"].default else []
        settings += [f"--set={quote(change)}" for change in FLAGS.set]
        given = [f"--experiment={run.experiment}", f"--data_dir={quote(data_dir)}"]
        for name, paths in (vars(run.vocabularies) if run.vocabularies else {}).items():
            given += [f"--{name}={quote(path)}" for path in paths]
        train_flags = " ".join([*given, *settings])
    start = time.monotonic()
    corpus = TfdsCorpus(DATASETS[run.corpus], data_dir) if data_dir else None
    missing = corpus is not None and corpus.folder() is None
    if corpus and missing:
        check_can_download(corpus.name)  # before a folder is made
    with folder.written(), folder.locked():
        if corpus and data_dir and missing:
            logger.info("download    %s to %s ...", corpus.name, data_dir)
            download(corpus.name, data_dir)
        logger.info("prepare     %s, seed %d, in %s", run.experiment, run.seed, folder.address)
        prepared = prepare_run(run, folder)
    cli.show(f"vocabulary  {prepared.vocabulary.size:,} pieces")
    if prepared.target is not prepared.vocabulary:
        cli.show(f"target      {prepared.target.size:,} pieces")
    for split, store in prepared.stores.items():
        source, target = (int(store.offsets[side][-1]) for side in ("source", "target"))
        cli.show(
            f"{split:<11} {len(store):,} pairs, {source:,} + {target:,} tokens; dropped "
            f"{dropped(store.description)}"
        )
    cli.show(f"prepared    in {time.monotonic() - start:,.0f} s; train with")
    cli.show(f"  python -m experiments.train {train_flags}")


if __name__ == "__main__":
    cli.run(main)
