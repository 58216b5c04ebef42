"""The data of a run: its text, vocabularies and token stores, and config.json. It needs no JAX."""

import logging
from pathlib import Path
from typing import Any

from jax_transformer import demo
from jax_transformer.config import settings
from jax_transformer.data.manifest import check_same
from jax_transformer.data.prepare import Prepared, prepare
from jax_transformer.data.sources import Corpus, Sources, check_weights
from jax_transformer.data.wmt import DATASETS, TfdsCorpus
from jax_transformer.errors import InputError
from jax_transformer.files import write_bytes, write_json
from jax_transformer.runs.request import vocabularies_of
from jax_transformer.runs.run_dir import Run, RunFolder, check_trainable

logger = logging.getLogger(__name__)


def open_corpus(run: Run) -> Corpus:
    """Return the text of the run's files or, without files, the text that the experiment names."""
    sources = run.sources
    if sources.data_dir:
        return TfdsCorpus(DATASETS[run.corpus], sources.data_dir)
    if sources == Sources():
        files = demo.TREE_FILES if run.corpus == "demo-trees" else demo.TEXT_FILES
        sources = Sources.named({name: [path] for name, path in files.items()}, run.task.text)
    return run.task.corpus(sources)


def shared_folder(dataset: str, data_dir: str) -> RunFolder:
    """Return the folder of the vocabulary and tokens that runs of a data set share."""
    return RunFolder(Path(data_dir) / "jax_transformer" / dataset)


def prepare_run(run: Run, folder: RunFolder) -> Prepared:
    """Write config.json, and return the vocabulary and token stores, made or linked if missing.

    If nothing is trained in the folder yet, `run` replaces the run that was requested before.

    Raises InputError that lists every difference if the checkpoints in the folder are of other
    settings, text or vocabularies.
    """
    folder.fetch_tokens()
    corpus = open_corpus(run)
    check_weights(run.config.data, corpus.splits())
    trained_on = None
    if folder.trained_steps():
        from jax_transformer.runs.checkpoints import read_description  # it imports JAX and orbax

        folder.fetch_steps(folder.checkpoints)
        trained_on = read_description(folder.checkpoints)["origin"]
    before = _begin(run, folder, trained_on)
    shared = None
    if run.sources.data_dir:
        shared = shared_folder(run.corpus, run.sources.data_dir)
    given = vars(run.vocabularies) if run.vocabularies else {}
    if run.initial:  # which is not needed any more once there is a checkpoint
        given = vocabularies_of(folder if trained_on else RunFolder(run.initial.run))
    try:
        prepared = prepare(
            folder,
            corpus,
            run.config.data,
            run.seed,
            given={name: [*paths] for name, paths in given.items() if paths},
            trained_on=trained_on,
            shared=shared if shared and shared.path != folder.path else None,
        )
    except (InputError, OSError):
        if before and not trained_on:  # so that what was refused is not asked for again
            folder.reread()  # the manifest that is written, without the text that was refused
            folder.write_run(before)
            folder.manifest.write()
        raise
    if run != folder.run:  # of a trained model; `prepare` would have refused other text
        folder.write_run(run)
        folder.manifest.write()
    return prepared


def _begin(run: Run, folder: RunFolder, trained_on: dict[str, Any] | None) -> Run | None:
    """Check that the run is the one that the folder's model is of; without a model, write it.

    Returns the run that the folder had before.
    trained_on: the copy of the manifest in the newest checkpoint, if there is one.
    """
    folder.reread()
    check_trainable(folder)
    found = folder.run
    if trained_on:
        folder.manifest.restore(trained_on)
        steps, trained = run.config.training.steps, max(folder.trained_steps())
        if steps < min(trained, found.config.training.steps if found else trained):
            raise InputError(
                f"training.steps={steps}: expected at least {trained}, which are trained in "
                f"{folder.path}; raise it, or choose another --workdir"
            )
        check_same(folder.path, {"made_of": {"settings": run.fixed_settings()}}, trained_on)
        before = settings(found.config if found else run.config)
        for name, value in settings(run.config).items():
            if value != before[name]:
                logger.info(f"continuing  with {name}={value}, {before[name]} before")
    elif folder.read_results():
        old = folder.results.with_name("results.before.json")
        logger.warning(f"{folder.results} has scores of a model that is gone; {old} has them now")
        write_bytes(old, folder.results.read_bytes())
        write_json(folder.results, [])
    folder.manifest.made_of["settings"] = run.fixed_settings()  # a kill may have lost them
    if run != found and not trained_on:
        folder.write_run(run)
    return found
