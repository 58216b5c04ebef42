"""A run from its data to its score: prepare, train or continue, average, score."""

import contextlib
import logging
import signal
from itertools import islice
from typing import NamedTuple

from jax_transformer.data.prepare import text_lines
from jax_transformer.data.sources import Sources
from jax_transformer.errors import InputError
from jax_transformer.evaluation.evaluate import LONGEST, evaluate, main_score, samples
from jax_transformer.parallel import Devices
from jax_transformer.runs.best_step import average_run
from jax_transformer.runs.metrics_writer import OnLine
from jax_transformer.runs.preparation import prepare_run
from jax_transformer.runs.request import initial_params
from jax_transformer.runs.results import describe_decoding, save_scores
from jax_transformer.runs.run_dir import Run, RunFolder, step_range
from jax_transformer.runs.trainer import Trainer

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
    again: str = "",
) -> Outcome:
    """Prepare, train or continue, average and score in the locked folder.

    profile_steps, on_metrics, catch_signals: as for `Trainer.train`.
    again: the command that continues (default: experiments.train of the folder).

    Every process of the run calls it; process 0 locks and writes.
    """
    devices = Devices(dtype=run.config.model.compute_dtype)
    with contextlib.ExitStack() as lock:
        if devices.is_first:
            lock.enter_context(folder.written())
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
        if run.initial and not folder.has_checkpoints():
            initial = initial_params(run, run.initial, prepared.vocabulary, prepared.target)
        trainer = Trainer(run, folder, prepared, devices, initial)
        trainer.describe()
        _warn_of_steps(run)
        traced = profile_steps if devices.is_first else range(0)
        stop = trainer.train(traced, on_metrics, catch_signals=catch_signals)
        if stop:
            again = again or f"python -m experiments.train --workdir {folder.quoted}"
            text = f"\nstopped by {stop.name}; nothing is lost. Continue with\n  {again}"
        else:
            try:
                text = final_report(trainer, run.scored_on)
            except KeyboardInterrupt:
                score = f"python -m experiments.evaluate --workdir {folder.quoted}"
                logger.info("the trained model is saved; score it with\n  %s", score)
                raise
        devices.largest(0)()  # every process waits until everything is written
        return Outcome(stop, text if devices.is_first else "")


def _log_start(run: Run, folder: RunFolder, devices: Devices) -> None:
    logger.info("run         %s, seed %d, in %s", run.experiment, run.seed, folder.address)
    model = run.config.model
    logger.info(
        f"devices     {devices.describe()}; computing in {model.compute_dtype}, "
        f"products of float32 at {model.matmul_precision} precision"
    )


def _warn_of_steps(run: Run) -> None:
    """Warn if the steps are too few for the warm-up, or for the checkpoints to average."""
    training = run.config.training
    steps, last = training.steps, training.average_last
    saved = len(list(islice(filter(run.is_regular, range(1, steps + 1)), last)))
    if saved < last:
        logger.warning(
            f"training.steps={steps} gives {saved} of the checkpoints that training.average_last="
            f"{last} averages; set training.checkpoint_steps={max(1, steps // last)}"
        )
    if training.steps < training.warmup_steps:
        logger.warning(
            f"the learning rate never peaks: training.steps={training.steps} is below "
            f"training.warmup_steps={training.warmup_steps}; lower the warm-up to about a tenth"
        )


def final_report(trainer: Trainer, split: str = "test") -> str:
    """Average the last checkpoints, score the mean, and return a report for the user.

    split: the split to score on; dev if the run does not have it.

    Every process averages and decodes its share; process 0 scores and writes, and it alone returns
    the report, the others "".
    """
    run, folder = trainer.run, trainer.folder
    best = trainer.best if trainer.best and trainer.best.step else None
    with folder.in_turn(trainer.devices):
        steps, params = average_run(folder, run, best, trainer.abstract_params, trainer.origin)
    split = split if split in trainer.stores else "dev"
    sources, references = text_lines(folder, split)
    model = trainer.trained_model(params, "averaged", steps)
    translator = model.translator(devices=trainer.devices)
    logger.info(f"scoring     {split}, {len(sources):,} sentences")
    # Table 3 has the perplexity of the development text.
    loss = run.scored_on == "dev"
    found = evaluate(translator, run.config, sources, references, [main_score], loss=loss)
    if not trainer.devices.is_first:
        return ""
    (score,) = found.scores
    facts = {**found.facts, "split": split, "checkpoint": "averaged", "steps": steps}
    if best:
        facts["ends_at"] = str(best)
    model_facts = {name: facts[name] for name in ("split", "checkpoint", "steps")}
    others = [{**each.as_dict(), **found.counts, **model_facts} for each in found.losses]
    save_scores(folder, found.texts, [score], facts, others)
    counted = f" ({score.counted})" if score.counted else ""
    lines = [
        f"\naverage     of {len(steps)} checkpoints, {step_range(steps)}"
        + (f", up to {best}" if best else ""),
        f"{score.metric.upper()} {score.score:.2f}{counted}  {describe_decoding(facts)}",
        f"      {score.signature}\n      {score.detail}\n",
    ]
    lines += samples(sources, found.texts, references, trainer.labels, LONGEST)
    what = "Parse sentences" if trainer.parses else "Translate sentences"
    command = f"python -m experiments.translate --workdir {folder.quoted}"
    lines.append(f"\n{what} of your own, typed in or from a file (< FILE):\n  {command}")
    if run.corpus in HINTS and run.sources == Sources():
        lines.append(HINTS[run.corpus])
    return "\n".join(lines)
