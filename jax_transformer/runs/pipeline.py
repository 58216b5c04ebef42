"""A run from its data to its score: prepare, train or continue, average, score."""

import contextlib
import logging
import os
import shutil
import signal
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from jax_transformer.data.prepare import Prepared, text_lines
from jax_transformer.data.sources import Sources
from jax_transformer.data.token_store import DESCRIPTION, open_store
from jax_transformer.errors import InputError, expect_a, located
from jax_transformer.evaluation.evaluate import LONGEST, SCORES, evaluate, samples
from jax_transformer.files import exclusive, expanded
from jax_transformer.models.transformer import as_computed
from jax_transformer.parallel import Devices
from jax_transformer.runs.averages import average_run
from jax_transformer.runs.load import load, load_vocabularies
from jax_transformer.runs.metrics_writer import OnLine
from jax_transformer.runs.model import TrainedModel
from jax_transformer.runs.preparation import prepare_run
from jax_transformer.runs.request import check_files, check_same_model, requested_run
from jax_transformer.runs.results import describe_decoding, save_scores
from jax_transformer.runs.run_dir import Initial, Run, RunFolder, step_range
from jax_transformer.runs.trainer import Trainer
from jax_transformer.runtime import enable_compilation_cache, end_after_others
from jax_transformer.types import Params

logger = logging.getLogger(__name__)

# A hint for the user of a model of the built-in grammar, by corpus.
HINT = (
    "Its vocabulary has about 450 words: people, animals, food, clothes, furniture, places and "
    'vehicles; try "{}"'
)
HINTS = {
    "demo": HINT.format("Where is the key?"),
    "demo-trees": HINT.format("Where is the key ?"),
}


def train(
    experiment: str | None = None,
    files: Mapping[str, str | os.PathLike | Sequence[str | os.PathLike]] | None = None,
    *settings: str,
    workdir: str | Path,
    seed: int | None = None,
    init_from: str | Path | TrainedModel | None = None,
    init_checkpoint: str | int | None = None,
    on_metrics: OnLine | None = None,
) -> TrainedModel:
    """Train a model, or go on training it, and return it with its `scores`.

        model = jt.train(
            "multi30k-en-de-cased",
            {"train_source": "train.en", "train_target": "train.de",
             "dev_source": "dev.en", "dev_target": "dev.de"},
            *("training.steps=3000", "training.keep_best=bleu"),
            workdir="runs/mine",
        )
        [s["score"] for s in model.scores if s["metric"] == "bleu"][-1]

    experiment: a name of `jt.experiments()`; None takes what the folder or `init_from` has, or the
      demo.
    files: the paths of text, trees and vocabularies, by the names of the flags of
      `python -m experiments.train`: "train_source", "dev_trees", "vocabulary" and so on. Each file
      of a list is a corpus for training; files of development and test text are read as one.
      subword-nmt's codes and vocabulary are a list of two.
    settings: changes of settings, as after --set.
    workdir: the run folder. After an interruption the same call goes on there, and a run that is
      trained to its last step is only scored again.
    seed: random seed of parameters, dropout and data order; None is the folder's, or 1.
    init_from: the folder of a run, or a model, to continue from as a new run; init_checkpoint:
      which checkpoint of that folder, as for `jt.load`.
    on_metrics: a function that is called with each new line of metrics.jsonl, a dict; if it
      returns True, training ends within a few steps, and the model is averaged and scored.

    Training uses all devices. It changes nothing in the process but JAX's compilation cache, which
    `jt.load` describes, and `sys.unraisablehook`, which from then on leaves out what TensorStore
    reports late. No signal is caught, so Ctrl-C loses the steps since the last checkpoint.
    Progress is logged at level INFO. Configure `logging` before the call, because orbax's first
    message gives Python's root logger a handler if it has none.
    Raises InputError for a mistake in the arguments or the data.
    """
    expect_a(Mapping, files=files or {})
    enable_compilation_cache()
    folder = RunFolder(workdir)
    given = {name: _paths(name, value) for name, value in (files or {}).items()}
    initial = folder.path / "initial"
    writes = isinstance(init_from, TrainedModel) and not initial.exists()
    trained, new = folder.trained_steps(), not folder.path.exists()
    if isinstance(init_from, TrainedModel):
        folder.mend_manifest()
        begun = folder.run.initial if trained and folder.run else None
        if begun and writes and Path(begun.run).name == initial.name and not folder.bucket:
            logger.warning("%s is gone; going on without a look at init_from", initial)
            writes = False
        else:
            saved = _saved(init_from, folder, initial)
            begun = None if writes else begun
            given["init_from"] = str(saved)
        if begun:
            given["init_from"] = begun.run  # it may have been moved since
    elif isinstance(init_from, str | os.PathLike):
        given["init_from"] = os.fspath(init_from)
    elif init_from is not None:
        raise InputError(
            "init_from: expected the folder of a run, or a model, found a "
            f"{type(init_from).__name__}; give one of those"
        )
    if init_checkpoint is not None:
        given["init_checkpoint"] = str(init_checkpoint)
    try:
        run = requested_run(folder, experiment, seed, settings, given)
        check_files(run, folder)
        train_run(run, folder, on_metrics=on_metrics, catch_signals=False)
    except InputError:
        if writes:
            _undo(folder, initial, new)
        raise
    return load(folder)


def _undo(folder: RunFolder, initial: Path, new: bool) -> None:
    """Remove the initial model, which would stop a call with another, unless the run needs it.

    new: True if the call has made the folder, which goes too if no text is encoded.
    """
    folder.reread()
    own = folder.run and folder.run.initial
    named = bool(own and Path(own.run) == initial)
    if new and (named or not folder.run) and not [*folder.path.glob("tokens/*/store.json")]:
        with contextlib.suppress(BlockingIOError), exclusive(folder.path / "lock", wait=False):
            shutil.rmtree(os.path.realpath(folder.path))
    elif not named:
        shutil.rmtree(initial)


def _paths(name: str, given: Any) -> str | list[str]:
    with located(name):
        return [*map(expanded, given)] if isinstance(given, list | tuple) else expanded(given)


def _saved(model: TrainedModel, folder: RunFolder, initial: Path) -> Path:
    """Return the folder inside of a run that holds its initial model, written there if missing."""
    if folder.bucket:
        raise InputError(
            f"init_from: expected a run's address for a run in {folder.address}, found a model; "
            "write it with model.save(address) and give that"
        )
    if not initial.exists():
        model.save(initial)
    elif not _same(load(initial).params, model.params):
        raise InputError(
            f"{initial}: expected the model that init_from gives, found another; give another "
            "workdir"
        )
    return initial


def _same(one: Params, other: Params) -> bool:
    same = jax.tree.structure(one) == jax.tree.structure(other)
    return same and jax.tree.all(jax.tree.map(np.array_equal, one, other))


class Outcome(NamedTuple):
    """The end of `train_run`."""

    stopped_by: signal.Signals | None  # None if no signal ended training
    text: str  # the results, or how to continue; empty on all processes but the first


def train_run(
    run: Run,
    folder: RunFolder,
    profile_steps: range = range(0),
    on_metrics: OnLine | None = None,
    *,
    catch_signals: bool = True,
    again: str = "",
) -> Outcome:
    """Prepare, train or continue, average and score; process 0 locks the folder and writes.

    profile_steps, on_metrics, catch_signals: as for `Trainer.train`.
    again: the command that continues (default: experiments.train of the folder).
    """
    devices = Devices(dtype=run.config.model.compute_dtype)
    if devices.is_first and devices.processes > 1:
        end_after_others()
    with contextlib.ExitStack() as lock:
        if devices.is_first:
            lock.enter_context(folder.written())
        with folder.in_turn(devices):
            if devices.is_first:
                lock.enter_context(folder.locked())
            elif not folder.appears() or folder.run != run:
                raise InputError(
                    f"{folder.path}: expected what process 0 has begun there, found "
                    f"{'another run' if folder.config.exists() else 'no run'} on process "
                    f"{devices.process}; give all processes the same flags, and a --workdir that "
                    "all hosts share"
                )
            logger.info("run         %s, seed %d, in %s", run.experiment, run.seed, folder.address)
            logger.info(
                f"devices     {devices.describe()}; computing in {run.config.model.compute_dtype}, "
                f"products of float32 at {run.config.model.matmul_precision} precision"
            )
            prepared = prepare_run(run, folder) if devices.is_first else _prepared(folder)
            folder.read_results()  # so that a damaged file is found before the long work
        initial = None
        if run.initial and not folder.trained_steps():
            initial = _initial_params(run, run.initial, prepared)
        trainer = Trainer(run, folder, prepared, devices, initial)
        trainer.describe()
        _warn_of_steps(run)
        traced = profile_steps if devices.is_first else range(0)
        stop = trainer.train(traced, on_metrics, catch_signals=catch_signals)
        again = again or f"python -m experiments.train --workdir {folder.quoted}"
        if stop:
            text = f"\nstopped by {stop.name}; nothing is lost. Continue with\n  {again}"
        else:
            try:
                text = final_report(trainer)
            except KeyboardInterrupt:
                logger.info("the trained model is saved; average and score it with\n  %s", again)
                raise
        lock.close()  # here, because copying to a bucket may take minutes
        devices.largest(0)()  # every process waits until everything is written
        return Outcome(stop, text if devices.is_first else "")


def _prepared(folder: RunFolder) -> Prepared:
    """Return what process 0 has prepared; the text may be other, or absent, on this host."""
    folder.fetch_steps(folder.checkpoints)  # as `prepare_run` does on process 0
    stores, manifest = {}, folder.manifest
    for split in manifest.made_of["splits"]:
        tokens = folder.tokens(split)
        description = manifest.content(tokens / DESCRIPTION, "start all processes again")
        stores[split] = open_store(tokens, description)
    return Prepared(*load_vocabularies(folder), stores)


def _initial_params(run: Run, initial: Initial, prepared: Prepared) -> Params:
    """Return the parameters of a run's initial model, which must have the run's vocabularies."""
    folder = RunFolder(initial.run)
    check_same_model(run.config, folder)
    model = load(folder, initial.checkpoint or None)
    theirs = model.vocabulary.fingerprint, model.target_vocabulary.fingerprint
    if theirs != (prepared.vocabulary.fingerprint, prepared.target.fingerprint):
        raise InputError(
            f"--init_from={folder.address}: expected the vocabularies that this run was prepared "
            "with, found others; choose another --workdir"
        )
    logger.info(f"continuing  from {folder.address}: {model.description}")
    return model.params


def _warn_of_steps(run: Run) -> None:
    """Warn of too few steps for the warm-up, and too few checkpoints to average."""
    training = run.config.training
    steps, last = training.steps, training.average_last
    saved = len(list(islice(filter(run.is_regular, range(1, steps + 1)), last)))
    if saved < last:
        every = round(steps / (4 * last))
        remedy = f"training.checkpoint_steps={every}, which averages about the last quarter"
        logger.warning(
            f"training.steps={steps} gives {saved} of the checkpoints that training.average_last="
            f"{last} averages; set {remedy if every else 'a lower training.average_last'}"
        )
    if training.keep_checkpoints < last:
        logger.warning(
            f"training.keep_checkpoints={training.keep_checkpoints} keeps fewer checkpoints than "
            f"training.average_last={last} averages; raise it"
        )
    if training.steps < training.warmup_steps:
        logger.warning(
            f"the learning rate never peaks: training.steps={training.steps} is below "
            f"training.warmup_steps={training.warmup_steps}; lower the warm-up to about a tenth"
        )


def final_report(trainer: Trainer) -> str:
    """Average the last checkpoints, score the mean, and return a report for the user.

    Every process decodes its share; process 0 scores and writes, and the others return "".
    """
    run, folder = trainer.run, trainer.folder
    best = trainer.development.best
    best = best if best and best.step else None
    with folder.in_turn(trainer.devices):
        end = max(folder.trained_steps(), default=None)  # on_metrics may have chosen it
        params_like, origin = trainer.abstract_params, trainer.origin
        steps, params = average_run(folder, run, best, params_like, origin, end=end)
    best = best if best and best.step in steps else None
    trainer.devices.check_same("an average", folder.averaged, steps, params)
    split = run.scored_on if run.scored_on in trainer.stores else "dev"
    sources, references = text_lines(folder, split)
    model = replace(trainer.model, params=params, checkpoint="averaged", steps=steps)
    transposed = trainer.devices.prefer_transposed  # as for a model that is loaded
    params = as_computed(params, run.config.model, transposed=transposed)
    translator = model.translator(devices=trainer.devices)
    translator = translator.with_params(trainer.devices.replicate(params))
    logger.info(f"scoring     {split}, {len(sources):,} sentences")
    # Table 3 has the perplexity of the development text.
    loss = run.scored_on == "dev"
    first = SCORES[run.task.name].first
    found = evaluate(translator, run.config, sources, references, [first], loss=loss)
    if not trainer.devices.is_first:
        return ""
    (score,) = found.scores
    facts = {"split": split, "checkpoint": "averaged", "steps": steps}
    save_scores(folder, found, facts | ({"ends_at": str(best)} if best else {}))
    counted = f" ({score.counted})" if score.counted else ""
    decoding = describe_decoding(found, split, "averaged")
    lines = [
        f"\naverage     of {len(steps)} checkpoints, {step_range(steps)}"
        + (f", up to {best}" if best else ""),
        f"{score.metric.upper()} {score.score:.2f}{counted}  {decoding}",
        f"      {score.signature}\n      {score.detail}\n",
    ]
    lines += samples(sources, found.texts, references, translator.shown, LONGEST)
    lines += [
        f"\n{run.task.invitation} of your own, typed in or from a file (< FILE):",
        f"  python -m experiments.translate --workdir {folder.quoted}",
    ]
    if run.corpus in HINTS and run.sources == Sources():
        lines.append(HINTS[run.corpus])
    return "\n".join(lines)
