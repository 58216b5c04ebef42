"""A run from its data to its score: prepare, train or continue, average, score."""

import contextlib
import logging
import signal
from pathlib import Path
from typing import Any, NamedTuple

from jax_transformer import demo
from jax_transformer.config import TrainingConfig, settings
from jax_transformer.data.corpora import check_weights
from jax_transformer.data.datasets import Corpus, FileCorpus
from jax_transformer.data.manifest import check_same
from jax_transformer.data.prepare import Prepared, prepare
from jax_transformer.data.wmt import DATASETS, TfdsCorpus
from jax_transformer.errors import InputError
from jax_transformer.parallel import Devices
from jax_transformer.parsing.treebank import (
    TreebankCorpus,
    own_trees,
    wall_street_journal,
)
from jax_transformer.runs.bucket import LARGE
from jax_transformer.runs.checkpoints import read_origin
from jax_transformer.runs.initial_model import initial_params, vocabularies_of
from jax_transformer.runs.metrics_writer import OnLine
from jax_transformer.runs.report import final_report
from jax_transformer.runs.run_dir import VOCABULARY_FILES, Run, RunFolder, check_trainable
from jax_transformer.runs.trainer import Trainer

logger = logging.getLogger(__name__)


def open_corpus(run: Run) -> Corpus:
    """Return the text of the run's files or, without files, the text that the experiment names."""
    if "train_source" in run.files:
        return FileCorpus(run.files)
    if "treebank_dir" in run.files:
        paths = wall_street_journal(run.files["treebank_dir"])
        return TreebankCorpus({**paths, **own_trees(run.files)})
    if "train_trees" in run.files:
        return TreebankCorpus(own_trees(run.files))
    if run.corpus in DATASETS:
        return TfdsCorpus(DATASETS[run.corpus], run.files["data_dir"])
    if run.corpus == "demo-trees":
        return TreebankCorpus(own_trees(demo.TREE_FILES))
    return FileCorpus(demo.TEXT_FILES)


def shared_folder(dataset: str, data_dir: str) -> RunFolder:
    """Return the folder of the vocabulary and tokens that runs of a data set share."""
    return RunFolder(Path(data_dir) / "jax_transformer" / dataset)


def prepare_run(run: Run, folder: RunFolder, *, writes: bool = True) -> Prepared:
    """Write config.json, and return the vocabulary and token stores, made or linked if missing.

    If nothing is trained in the folder yet, `run` replaces the run that was requested before.
    writes: False for a process that finds what process 0 has written.

    Raises InputError that lists every difference if the checkpoints in the folder are of other
    settings, text or vocabularies.
    """
    corpus = open_corpus(run)
    check_weights(run.config.data, corpus.splits())
    trained_on = read_origin(folder.checkpoints)
    if writes:
        _begin(run, folder, trained_on)
    shared = None
    if "data_dir" in run.files:
        shared = shared_folder(run.corpus, run.files["data_dir"])
    brought = {name: run.files[name] for name in VOCABULARY_FILES if name in run.files}
    if "init_from" in run.files:  # which is not needed any more once there is a checkpoint
        brought = vocabularies_of(folder if trained_on else RunFolder(run.files["init_from"]))
    return prepare(
        folder,
        corpus,
        run.config.data,
        run.seed,
        brought=brought,
        trained_on=trained_on,
        shared=shared if shared and shared.path != folder.path else None,
    )


def _begin(run: Run, folder: RunFolder, trained_on: dict[str, Any] | None) -> None:
    """Write the run to config.json, once it is known to be the one that the folder's model is of.

    trained_on: the copy of the manifest in the newest checkpoint, if there is one.
    """
    check_trainable(folder)
    found = folder.read_run()
    if trained_on:
        folder.manifest.restore(trained_on)
        steps, trained = run.config.training.steps, max(folder.trained_steps())
        if steps < min(trained, found.config.training.steps if found else trained):
            raise InputError(
                f"training.steps={steps}: expected at least {trained}, which are trained in "
                f"{folder.path}; give as many, or choose another --workdir"
            )
        check_same(folder.path, {"made_of": {"settings": run.fixed_settings()}}, trained_on)
        for (name, value, _), (_, before, _) in zip(
            settings(run.config), settings(found.config if found else run.config), strict=True
        ):
            if value != before:
                logger.info(f"continuing  with {name}={value}, {before} before")
    if run != found:
        folder.write_run(run)


class Outcome(NamedTuple):
    """The end of `train_run`."""

    stopped_by: signal.Signals | None  # None if the run is trained to its last step
    text: str  # the results, or how to continue; empty on all processes but the first


def train_run(
    run: Run,
    folder: RunFolder,
    profile_steps: range = range(0),
    on_metrics: OnLine | None = None,
    *,
    catch_signals: bool = True,
) -> Outcome:
    """Prepare, train or continue, average and score in the locked folder.

    profile_steps, on_metrics, catch_signals: as for `Trainer.train`.

    Every process of the run calls it; process 0 locks and writes.
    """
    devices = Devices(dtype=run.config.model.compute_dtype)
    with contextlib.ExitStack() as lock:
        if devices.is_first:
            lock.enter_context(folder.written(LARGE))
        with folder.in_turn(devices):
            if devices.is_first:
                lock.enter_context(folder.locked())
            elif folder.read_run() != run:
                raise InputError(
                    f"{folder.path}: expected what process 0 has begun there, found "
                    f"{'another run' if folder.config.exists() else 'no run'} on process "
                    f"{devices.process}; give all processes the same flags, and a --workdir that "
                    "all hosts share"
                )
            _log_start(run, folder, devices)
            prepared = prepare_run(run, folder, writes=devices.is_first)
            folder.read_results()  # so that a damaged file is found before the long work
        initial = None
        if "init_from" in run.files and not folder.has_checkpoints():
            initial = initial_params(run, prepared.vocabulary, prepared.target)
        trainer = Trainer(run, folder, prepared, devices, initial)
        trainer.describe()
        _warn_of_warm_up(run.config.training)
        traced = profile_steps if devices.is_first else range(0)
        stop = trainer.train(traced, on_metrics, catch_signals=catch_signals)
        if stop:
            text = (
                f"\nstopped by {stop.name}; nothing is lost. Continue with\n"
                f"  python -m experiments.train --workdir {folder.quoted}"
            )
        else:
            text = final_report(trainer, run.scored_on)
        devices.largest(0)()  # every process waits until everything is written
        return Outcome(stop, text if devices.is_first else "")


def _log_start(run: Run, folder: RunFolder, devices: Devices) -> None:
    logger.info("run         %s, seed %d, in %s", run.experiment, run.seed, folder.address)
    model = run.config.model
    logger.info(
        f"devices     {devices.describe()}; computing in {model.compute_dtype}, "
        f"products of float32 at {model.matmul_precision} precision"
    )


def _warn_of_warm_up(training: TrainingConfig) -> None:
    if training.steps < training.warmup_steps:
        logger.warning(
            f"the learning rate never peaks: training.steps={training.steps} is below "
            f"training.warmup_steps={training.warmup_steps}; lower the warm-up to about a tenth"
        )
