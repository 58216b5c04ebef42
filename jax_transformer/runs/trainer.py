"""The loop around the pure step: data in order, metrics out, checkpoints, safe stops."""

import dataclasses
import logging
import math
import time
from functools import partial
from typing import Any

import jax
import numpy as np

from jax_transformer.data.batching import (
    Epoch,
    Mixture,
    assign_shapes,
    batch_arrays,
    batches_from,
    padding_share,
    plan_epoch,
)
from jax_transformer.data.bucketing import learn_shapes
from jax_transformer.data.packing import learn_packing, pack_epoch
from jax_transformer.data.prepare import Prepared, text_lines
from jax_transformer.data.token_store import SIDES, dropped
from jax_transformer.decoding.translator import Translator
from jax_transformer.errors import InputError
from jax_transformer.evaluation.bleu import perplexity
from jax_transformer.evaluation.perplexity import SHAPES, summed_loss
from jax_transformer.evaluation.scoring import decode, greedy, monitored_score
from jax_transformer.parallel import Devices
from jax_transformer.runs.checkpoints import Checkpoints
from jax_transformer.runs.loading import abstract_params, build_model, open_translator
from jax_transformer.runs.metrics_writer import MetricsLog
from jax_transformer.runs.preemption import Stop
from jax_transformer.runs.report import Progress
from jax_transformer.runs.run_dir import Run, RunFolder
from jax_transformer.training.optimizer import adam_with_warmup, learning_rate
from jax_transformer.training.train_step import (
    Batch,
    StepMetrics,
    initial_state,
    make_eval_step,
    make_train_step,
    restored_state,
)

logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Done:
    """A step that was dispatched: its number, its place in the data, and what it will report."""

    step: int
    epoch: int
    index: int
    plan: Epoch
    metrics: StepMetrics  # still on the devices


class Trainer:
    """One run: its model, its data and its folder."""

    def __init__(
        self, run: Run, folder: RunFolder, prepared: Prepared, devices: Devices, stop: Stop
    ) -> None:
        """Plan the data and close over the pure functions; nothing is compiled yet."""
        self.run, self.folder, self.devices, self.stop = run, folder, devices, stop
        self.vocabulary, self.symbols = prepared.vocabulary, prepared.symbols
        self.stores = prepared.stores
        self.model = build_model(run, self.vocabulary, self.symbols)
        self.abstract_params = abstract_params(self.model)
        training, model = run.config.training, run.config.model
        self.optimizer = adam_with_warmup(
            model.d_model,
            training.warmup_steps,
            training.learning_rate_scale,
            training.adam_b1,
            training.adam_b2,
            training.adam_epsilon,
        )
        bos, smoothing = self.vocabulary.bos_id, training.label_smoothing
        self._step = devices.train_step(
            make_train_step(self.model, self.optimizer, bos, smoothing, training.accumulate)
        )
        self._evaluate = devices.sum_over(make_eval_step(self.model, bos, smoothing))
        self._plan_data()
        self._translator: Translator | None = None

    def _plan_data(self) -> None:
        train, dev = self.stores["train"].lengths, self.stores["dev"].lengths
        source, target = train("source"), train("target")
        own = int((self.stores["train"].lines > 0).sum())  # extra trees have negative numbers
        share = self.run.config.data.extra_share
        self.mixture = Mixture(own, share) if own < len(source) else None
        # Rows are made to fit an epoch; those of a mixture are much alike, so the first will do.
        of = self._members(0)
        most, dev_lengths = self.run.config.data.buckets, (dev("source"), dev("target"))
        size: dict[str, Any] = {
            "batch_tokens": self.run.config.training.batch_tokens,
            "multiple": self.devices.count * self.run.config.training.accumulate,
        }
        if self.run.config.data.packing:
            packing = learn_packing(source, target, most=most, of=of, **size)
            self.shapes = packing.shapes
            self._shuffled = partial(pack_epoch, packing)
            self._dev_shapes = learn_shapes(*dev_lengths, most=min(SHAPES, most), **size)
        else:
            some = slice(None) if of is None else of
            longest = [max(int(train(side).max()), int(dev(side).max())) for side in SIDES]
            self.shapes = self._dev_shapes = learn_shapes(
                source[some], target[some], most=most, longest=longest, **size
            )
            assigned = assign_shapes(source, target, self.shapes)
            self._shuffled = partial(plan_epoch, assigned, self.shapes)
        dev_assigned = assign_shapes(*dev_lengths, self._dev_shapes)
        self._dev_plan = plan_epoch(dev_assigned, self._dev_shapes, shuffle=None)

    def _members(self, epoch: int) -> Any:
        """The pairs of an epoch; None for all."""
        count = len(self.stores["train"])
        return self.mixture.members(count, self.run.seed, epoch) if self.mixture else None

    def _plan(self, epoch: int) -> Epoch:
        """The batches of an epoch of training."""
        return self._shuffled(shuffle=(self.run.seed, epoch), of=self._members(epoch))

    def describe(self) -> None:
        """Tell a person what is about to be trained, and on what."""
        count = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(self.abstract_params))
        model = self.run.config.model
        logger.info(
            f"model       {count:,} parameters: {model.num_layers} + {model.num_layers} layers, "
            f"d_model {model.d_model}, d_ff {model.d_ff}, {model.num_heads} heads; "
            f"vocabulary {self.vocabulary.size:,}"
            + (f", {self.symbols.size:,} symbols of trees" if self.symbols else "")
        )
        for split, store in self.stores.items():
            logger.info(f"{split:<11} {len(store):,} pairs; dropped {dropped(store.manifest)}")
        if self.mixture:
            own, others = self.mixture.own, len(self.stores["train"]) - self.mixture.own
            logger.info(f"mixture     {own:,} own trees in each epoch, and of {others:,} others")
        plan = self._plan(0)
        share = padding_share(plan, self.shapes, self.stores["train"])
        names = ", ".join(f"{s.rows}x({s.source}+{s.target})" for s in self.shapes)
        logger.info(f"batches     {len(plan):,} an epoch, rows x (source + target tokens): {names}")
        if plan.places is not None:
            rows = int((plan.places == 1).sum())
            logger.info(f"packing     {len(plan.order):,} pairs in {rows:,} rows")
        logger.info(f"padding     {share:.1%} of the tokens computed")
        used = len(np.unique(plan.shapes))
        logger.info(
            f"compiling   the training step {used} times, once for each shape when it first comes"
        )

    def train(self) -> None:
        """From the last good checkpoint, or from scratch, to the last step."""
        training = self.run.config.training
        keep = training.keep_checkpoints
        with Checkpoints(self.folder.checkpoints, keep=keep) as checkpoints:
            state, step, position = self._start(checkpoints)
            left = step < training.steps
            said = f"from step {step:,} to" if left else f"is done: {step:,} of"
            logger.info(f"training    {said} {training.steps:,} steps")
            self._log = MetricsLog(self.folder, step)
            self._progress = Progress(step, training.steps)
            try:
                with self.stop.deferred():
                    if step and self._evaluation_due(step) and not self._log.has_dev(step):
                        self._evaluate_dev(step, state.params)  # the one a stop came before
                    if left and not self.stop.requested:
                        self._loop(state, step, position, checkpoints)
            finally:
                self._progress.close()
                self._log.close()

    def _start(self, checkpoints: Checkpoints) -> tuple[Any, int, tuple[int, int]]:
        key, params_like = jax.random.key(self.run.seed), self.abstract_params
        saved = checkpoints.restore_latest(
            params_like, jax.eval_shape(self.optimizer.init, params_like)
        )
        if saved is None:
            state = initial_state(self.model, self.optimizer, key)
            return self.devices.replicate(state), 0, (0, 0)
        state = restored_state(saved.step, saved.params, saved.optimizer, key)
        position = (saved.position["epoch"], saved.position["index"])
        if saved.position["devices"] != self.devices.count:
            logger.info(
                f"devices     were {saved.position['devices']} before: batches are cut otherwise "
                "now, so the rest of this epoch differs a little from what it would have been"
            )
        return self.devices.replicate(state), saved.step, position

    def _loop(
        self, state: Any, step: int, position: tuple[int, int], checkpoints: Checkpoints
    ) -> None:
        training = self.run.config.training
        pending: list[Done] = []
        self._saved = time.monotonic()
        store, pad = self.stores["train"], self.vocabulary.pad_id
        planned = batches_from(position, self._plan)
        while True:
            with self._log.making_input():
                (epoch, index), plan = next(planned)
                batch = Batch(*batch_arrays(store, plan, index, self.shapes, pad))
            state, metrics = self._step(state, batch)
            step += 1
            done = Done(step, epoch, index, plan, metrics)
            pending.append(done)
            if len(pending) > 1:  # stay one step ahead of the devices, not more
                jax.block_until_ready(pending[-2].metrics)
            last = step == training.steps or self.stop.requested
            save = last or self._checkpoint_due(step)
            evaluate = self._evaluation_due(step)
            if save or evaluate or step % training.log_steps == 0:
                self._account(pending, checkpoints)
                pending = []
            if save:
                self._save(done, state, checkpoints)
            if evaluate and not self.stop.requested:
                self._evaluate_dev(step, state.params)
                self._log.restart_clock()
            if last:
                return

    def _checkpoint_due(self, step: int) -> bool:
        training = self.run.config.training
        if not training.checkpoint_minutes:
            return step % training.checkpoint_steps == 0
        return time.monotonic() - self._saved >= 60 * training.checkpoint_minutes

    def _evaluation_due(self, step: int) -> bool:
        training = self.run.config.training
        return step % training.evaluate_steps == 0 or step == training.steps

    def _save(self, done: Done, state: Any, checkpoints: Checkpoints) -> None:
        params, optimizer = self.devices.first((state.params, state.optimizer))
        if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((params, optimizer))):
            found = "parameters or moments of Adam that are not"
            raise InputError(self._not_finite(done, found, checkpoints))
        place = {"epoch": done.epoch, "index": done.index + 1, "devices": self.devices.count}
        checkpoints.save(done.step, params, optimizer, place)
        self._saved = time.monotonic()

    def _account(self, pending: list[Done], checkpoints: Checkpoints) -> None:
        """Fetch what the steps reported; refuse to go on from a number that is not finite."""
        fetched = [self.devices.first(done.metrics) for done in pending]
        for done, metrics in zip(pending, fetched, strict=True):
            if not np.isfinite([metrics.loss.smoothed, metrics.gradient_norm]).all():
                loss = metrics.loss.smoothed / max(metrics.loss.tokens, 1)
                found = f"loss {loss:g} and gradient norm {metrics.gradient_norm:g}"
                raise InputError(self._not_finite(done, found, checkpoints))
        shapes = [self.shapes[done.plan.shapes[done.index]] for done in pending]
        computed = sum(shape.rows * (shape.source + shape.target) for shape in shapes)
        model, training = self.run.config.model, self.run.config.training
        rate = learning_rate(
            pending[-1].step, model.d_model, training.warmup_steps, training.learning_rate_scale
        )
        line = self._log.training_line(pending[-1], fetched, computed, float(rate))
        self._progress.update(line["step"], line["loss"], line["tokens_per_second"])

    def _not_finite(self, done: Done, found: str, checkpoints: Checkpoints) -> str:
        lines = sorted(self.stores["train"].lines[done.plan.pairs(done.index)].tolist())
        checkpoints.wait()
        good = checkpoints.steps()
        return (
            f"step {done.step}: expected finite loss, gradient and parameters, found {found} "
            f"on the training sentences of lines {', '.join(map(str, lines))}; the last good "
            f"checkpoint is {good[-1] if good else 'none, nothing was saved yet'}; try a smaller "
            "training.learning_rate_scale in another --workdir"
        )

    def _evaluate_dev(self, step: int, params: Any) -> None:
        start = time.perf_counter()
        store, pad = self.stores["dev"], self.vocabulary.pad_id
        loss, nll, tokens = summed_loss(
            self._evaluate, params, store, self._dev_plan, self._dev_shapes, pad
        )
        decoding = greedy(self.run.config.decoding)
        if self._translator is None:
            self._translator = open_translator(
                self.run.config,
                self.model,
                self.devices.first(params),
                self.vocabulary,
                self.symbols,
                decoding,
                devices=self.devices,
                scores=False,
            )
        else:
            self._translator.params = params
        sources = text_lines(self.folder, "dev", "source")
        references = text_lines(self.folder, "dev", "target")
        texts = decode(self._translator, sources).texts
        score = monitored_score(texts, references, self.run.config.data)
        line = {
            "step": step,
            "split": "dev",
            "loss": loss / tokens,
            "nll": nll / tokens,
            "perplexity": perplexity(nll, tokens),
            f"greedy_{score.metric}": score.score,
            "seconds": round(time.perf_counter() - start, 3),
        }
        self._log.write(line)
        label = {"bleu": "BLEU"}.get(score.metric, "F1 with gold's tags")
        logger.info(
            f"dev         step {step:,}: loss {line['loss']:.3f}, perplexity "
            f"{line['perplexity']:.3f}, greedy {label} {score.score:.2f}"
        )
