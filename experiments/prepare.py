"""Prepare text without training: download WMT where it is missing, vocabulary, tokens.

python -m experiments.prepare --dataset=wmt14-en-de          once, for all runs that read it
python -m experiments.prepare --experiment=base --train_source=europarl.en,news.en \\
    --train_target=europarl.de,news.de --dev_source=dev.en --dev_target=dev.de

After a stop the same command goes on near where it was.
"""

import time
from shlex import quote

from absl import flags

from experiments.cli import FLAGS, asked_run, define_run, define_workdir, open_door, say
from experiments.corpus import check_corpus, prepare_run, shared_folder
from jax_transformer.data.token_store import dropped
from jax_transformer.data.wmt import DATASETS, TfdsCorpus, default_data_dir, download
from jax_transformer.errors import InputError
from jax_transformer.runs.run_dir import Run, RunFolder


def define_flags() -> None:
    """This door's flags."""
    define_workdir(required=False)
    define_run()
    flags.DEFINE_enum(
        "dataset",
        None,
        list(DATASETS),
        "Prepare this for all runs that read it; with the settings of its base experiment, in "
        "--data_dir. Instead of --experiment.",
    )


def main() -> int:
    """All of it, in one locked folder."""
    run, folder = _asked()
    check_corpus(run)
    with folder.locked():
        _download(run)
        _prepare(folder.settle(run), folder)
    return 0


def _asked() -> tuple[Run, RunFolder]:
    """The run that the flags describe; that of --dataset lies beside the data."""
    if not FLAGS.dataset:
        return asked_run()
    if FLAGS.experiment:
        raise InputError("--dataset: expected no --experiment beside it; give one of them")
    experiment = f"{FLAGS.dataset}-base"
    if any(FLAGS[name].value for name in ("train_source", "dev_source")):
        return asked_run(experiment)
    return asked_run(experiment, shared_folder(FLAGS.dataset, FLAGS.data_dir or default_data_dir()))


def _download(run: Run) -> None:
    if "data_dir" not in run.files:
        return
    corpus = TfdsCorpus(DATASETS[run.corpus], run.files["data_dir"])
    if corpus.folder() is None:
        say(f"download    {corpus.name} to {corpus.data_dir} ...")
        download(corpus.name, corpus.data_dir)


def _prepare(run: Run, folder: RunFolder) -> None:
    start = time.monotonic()
    say(f"prepare     {run.experiment}, seed {run.seed}, in {folder.path}")
    prepared = prepare_run(run, folder)
    say(f"vocabulary  {prepared.vocabulary.size:,} pieces")
    for split, store in prepared.stores.items():
        tokens = [int(store.offsets[side][-1]) for side in ("source", "target")]
        say(
            f"{split:<11} {len(store):,} pairs, {tokens[0]:,} + {tokens[1]:,} tokens; dropped "
            f"{dropped(store.manifest)}"
        )
    say(f"prepared    in {time.monotonic() - start:,.0f} s; train with")
    if "data_dir" in run.files:
        where = f"--experiment={run.experiment} --data_dir={quote(run.files['data_dir'])}"
    else:
        where = f"--workdir={folder.quoted}"
    say(f"  python -m experiments.train {where}")


if __name__ == "__main__":
    open_door(define_flags, main, __doc__)
