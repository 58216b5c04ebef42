"""The training loop around the pure step (§5): data in order, metrics, checkpoints.

The loop runs ahead of the devices: it dispatches up to `RUN_AHEAD` steps while one is computed, and
a thread puts the next batches on the devices, so that these need not wait for the loop. A step has
ended when its metrics are read back. Anything else that is computed on the devices waits for every
step that was dispatched, so the clock of a line of metrics is read before that.
"""

import logging
import math
import signal
import time
from collections import deque
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from jax_transformer.config import settings
from jax_transformer.data.batching import prefetch
from jax_transformer.data.prepare import Prepared
from jax_transformer.errors import InputError
from jax_transformer.files import encode_json
from jax_transformer.parallel import Agreement, Devices
from jax_transformer.progress import Progress
from jax_transformer.runs.averages import ENDED, mean_with_last
from jax_transformer.runs.batches import Batches, TrainingData
from jax_transformer.runs.best import NAME as BEST
from jax_transformer.runs.best import Development, best_of
from jax_transformer.runs.checkpoints import Checkpoints
from jax_transformer.runs.load import build_model
from jax_transformer.runs.metrics_writer import (
    MetricsWriter,
    OnLine,
    StepRecord,
    compilation_events,
)
from jax_transformer.runs.model import TrainedModel
from jax_transformer.runs.preemption import KINDS, Preemption
from jax_transformer.runs.run_dir import Run, RunFolder
from jax_transformer.runs.step import schedule_of, stack_params, training_step, unstack
from jax_transformer.runtime import return_freed_memory
from jax_transformer.training.train_step import TrainState, abstract_params, initial_state
from jax_transformer.types import Params

logger = logging.getLogger(__name__)

RUN_AHEAD = 2  # a stop waits for all of them, so there are few
BATCHES_AHEAD = 4
ASKED = 255  # instead of a signal's number: on_metrics returned True


class Trainer:
    """A run with its model, its data and its folder."""

    def __init__(
        self,
        run: Run,
        folder: RunFolder,
        prepared: Prepared,
        devices: Devices,
        initial: Params | None = None,
    ) -> None:
        """Plan the data and make the step functions; nothing is compiled yet.

        initial: the parameters to begin with, if there is no checkpoint; None to draw them.
        """
        self.run, self.folder, self.devices = run, folder, devices
        self._initial = initial
        self.stores, self.origin = prepared.stores, folder.manifest.copy()
        vocabularies = prepared.vocabulary, prepared.target
        self.module = build_model(run, *vocabularies)
        self.model = TrainedModel(run, *vocabularies, self.module, {}, "last", [])  # no parameters
        self.abstract_params = abstract_params(self.module)
        self.optimizer, step = training_step(run.config, self.module, prepared.target.bos_id)
        self._step, self._unstack = devices.train_step(step), devices.on_each(unstack)
        pads = self.module.pad_id, self.module.output_pad_id
        self.data = TrainingData(run, prepared, devices, pads)
        decoding = replace(run.config.decoding, beam_size=1, narrowing=False)
        greedy = self.model.translator(decoding, devices=devices)
        self.development = Development(run, folder, greedy)
        self._tracing = self._has_scored = False
        self._compiled: set[int] = set()  # the shapes of batches that were compiled

    def describe(self) -> None:
        """Log the model, the data and the batches."""
        count = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(self.abstract_params))
        model, source = self.run.config.model, self.model.vocabulary
        target = self.model.target_vocabulary
        sizes = f"{source.size:,}"
        if target is not source:
            sizes += f", {target.size:,} {self.run.task.target_pieces}"
        logger.info(
            f"model       {count:,} parameters: {model.num_layers} + {model.num_decoder_layers} "
            f"layers, d_model {model.d_model}, d_ff {model.d_ff}, {model.num_heads} heads "
            f"of d_k {model.d_k}, d_v {model.d_v}; vocabulary {sizes}"
        )
        self.data.describe()

    def train(
        self,
        profile_steps: range = range(0),
        on_metrics: OnLine | None = None,
        *,
        catch_signals: bool = True,
    ) -> signal.Signals | None:
        """Train from the last good checkpoint, or from scratch, to the last step.

        profile_steps: the steps to trace for TensorBoard's profiler.
        on_metrics: a function that is called with each line of metrics, in process 0; training ends
          a few steps after it returned True.
        catch_signals: False to leave signals to the caller, who then loses the steps since the last
          checkpoint.

        Returns None if training ended by itself: after the last step, by stop_after, or because
        on_metrics asked for it. If a signal to any of the processes ends training before,
        all of them stop, a checkpoint is saved, and the signal is returned.
        """
        training = self.run.config.training
        with (  # so that a first signal does not interrupt the last save either
            Preemption(KINDS if catch_signals else ()) as preemption,
            Checkpoints(
                self.folder.checkpoints,
                keep=training.keep_checkpoints,
                regular=self.run.is_regular,
            ) as checkpoints,
        ):
            self._checkpoints, self._profile_steps = checkpoints, profile_steps
            self._preemption = preemption
            state, step, position, seconds = self._start()
            left = step < training.steps and not self.development.ended
            done = f"from step {step:,} to" if left else f"is done: {step:,} of"
            logger.info(f"training    {done} {training.steps:,} steps")
            if profile_steps and profile_steps[-1] <= step:
                last = profile_steps[-1]
                logger.warning(f"--profile_steps: step {last:,} is done, so nothing is traced")
            writes = self.devices.is_first
            if left and writes:
                self.folder.append_start(step)
            self._metrics = MetricsWriter(
                self.folder, step, seconds, writes=writes, on_line=on_metrics
            )
            lines = [f"experiment={self.run.experiment}", f"seed={self.run.seed}"]
            lines += [f"{name}={value}" for name, value in settings(self.run.config).items()]
            self._metrics.write_text("settings", step, "\n".join(lines))
            always = not catch_signals and on_metrics is None  # a program that shows nothing else
            self._progress = Progress(
                "training", training.steps, "steps", done=step, delay=0, always=always
            )
            try:
                due = self._evaluation_due(step) and not self._was_evaluated(step)
                if self.devices.largest(due)():
                    self._evaluate_dev(step, state.params)  # the stop at this step skipped it
                with closing(prefetch(self.data.batches(position), BATCHES_AHEAD)) as batches:
                    stop = self._loop(state, step, batches)
            finally:
                self._progress.close()
                self._metrics.close()
                self._trace(False)
        stop = stop or self._agreed_signal()  # it may have come during the last save
        return signal.Signals(stop) if stop not in (0, ASKED) else None

    def _start(self) -> tuple[TrainState, int, tuple[int, int], float]:
        """Return (state on the devices, step, (epoch, index) of the next batch, seconds so far)."""
        params_like = self.abstract_params
        with self.folder.in_turn(self.devices):  # process 0 renames corrupt ones
            saved = self._checkpoints.restore_latest(
                params_like, jax.eval_shape(self.optimizer.init, params_like)
            )
        position = saved.position if saved else {}
        # A copy of a bucket, or a cached list of files, may lack the newest. The position is unique
        # for each save.
        begin = [saved.step, encode_json(position)] if saved else self._initial
        data = encode_json(sorted(self.origin["sums"].items()))
        self.devices.check_same("data", self.folder.path, data)
        found = f"step {saved.step}" if saved else "another model" if self._initial else "none"
        self.devices.check_same(f"a checkpoint ({found})", self.folder.checkpoints, begin)
        self.development.best = best_of(position, self.run.config.training)
        self._keep_best()
        if saved is None:
            state = initial_state(self.module, self.optimizer, self.run.seed, self._initial)
            return self._on_devices(jax.device_get(state)), 0, (0, 0), 0.0
        step, seed = np.array(saved.step, np.int32), np.array(self.run.seed, np.uint32)
        state = TrainState(step, saved.params, saved.optimizer, seed)
        position = (saved.position["epoch"], saved.position["index"])
        were, parts = saved.position, self.run.config.training.accumulate
        before = were["devices"], were.get("parts", parts)
        if math.prod(before) != self.devices.count * parts:
            logger.info(
                "batches     are cut otherwise than before, with {} devices x {} parts: in this "
                "epoch some pairs are read twice, and others not at all".format(*before)
            )
        return self._on_devices(state), saved.step, position, saved.position["seconds"]

    def _loop(self, state: TrainState, step: int, batches: Batches) -> int:
        """Take steps to the last one; return the number of the signal that ended them, or 0."""
        training = self.run.config.training
        in_flight: deque[StepRecord] = deque()  # dispatched, and not read back
        self._window: list[StepRecord] = []  # read back since the last line of metrics
        self._warned_of_loss = False
        self._restart_save_clock()
        self._trace(step + 1 in self._profile_steps)
        agree = Agreement(self.devices)
        # Before the first step there is nothing to save, and nothing that on_metrics could end.
        stopping = self._agreed_signal()
        stopping = 0 if stopping == ASKED and not step else stopping
        self._metrics.lap()
        while step < training.steps and not (stopping or self.development.ended):
            state, record = self._dispatch(state, step + 1, batches)
            step = record.step
            in_flight.append(record)
            stopping = agree(self._stop)
            evaluate = self._evaluation_due(step) and not stopping
            save = stopping or self._checkpoint_due(step) or (evaluate and self.development.best)
            trace = step + 1 in self._profile_steps
            turns = trace != self._tracing
            waiting = save or evaluate or turns  # these need the step's result
            while in_flight and (waiting or len(in_flight) > RUN_AHEAD or in_flight[0].is_done):
                self._read_back(in_flight.popleft())
            if waiting:
                self._log()
            if evaluate:
                self._evaluate_dev(step, state.params)
                stopping = self._agreed_signal()  # it may have come meanwhile
                save = save or stopping
            if stopping:
                logger.info(f"stopping    saving step {step:,} ...")
            if save:  # after the evaluation, whose score decides which checkpoints are kept
                self._save(record, state)
            self._trace(trace)
            if waiting:
                self._metrics.lap()  # the time of a save or an evaluation is not a step's
        return stopping

    def _agreed_signal(self) -> int:
        return self.devices.largest(self._stop)()

    @property
    def _stop(self) -> int:
        """The signal that came, or ASKED; 0 to go on."""
        return self._preemption.signal or (ASKED if self._metrics.ends else 0)

    def _was_evaluated(self, step: int) -> bool:
        best = self.development.best
        return self._metrics.has_dev(step) and (not best or best.evaluated == step)

    def _keep_best(self) -> None:
        best = self.development.best
        if best and best.step:
            self._checkpoints.keep_best(best.step, self.run.config.training.average_last)

    def _trace(self, on: bool) -> None:
        """Begin or end the trace; every step must have ended."""
        if on and not self._tracing:
            jax.profiler.start_trace(self.folder.tensorboard)
            self._tracing = True
        elif self._tracing and not on:
            self._tracing = False
            jax.profiler.stop_trace()
            logger.info("profile     traced; tensorboard --logdir %s", self.folder.tensorboard)

    def _dispatch(
        self, state: TrainState, step: int, batches: Batches
    ) -> tuple[TrainState, StepRecord]:
        """Start the step with the next batch, and do not wait for it."""
        start = time.perf_counter()
        (number, index), plan, batch = next(batches)
        seconds = time.perf_counter() - start
        before = len(compilation_events())
        with (
            self._compiling(int(plan.shapes[index])),
            jax.profiler.StepTraceAnnotation("train", step_num=step),
        ):
            state, metrics = self._step(state, batch)
        if compilations := len(compilation_events()) - before:
            return_freed_memory()
        epoch = number // self.data.parts
        return state, StepRecord(step, epoch, index, plan, metrics, seconds, compilations)

    def _compiling(self, shape: int) -> AbstractContextManager[None]:
        """Show during the block that a shape is compiled, if it is the first batch of it."""
        if shape in self._compiled:
            return nullcontext()
        self._compiled.add(shape)
        number = len(self._compiled)
        of = max(number, self.data.shapes_used)
        return self._progress.noting(f"compiling {number} of {of} shapes")

    def _checkpoint_due(self, step: int) -> bool:
        training = self.run.config.training
        if not training.checkpoint_minutes:
            return self.run.is_regular(step)
        due = time.monotonic() - self._clock_started >= 60 * training.checkpoint_minutes
        return bool(self._agree_on_time(due)) or step == training.steps

    def _evaluation_due(self, step: int) -> bool:
        if not step:  # the model that training continues from
            return self._initial is not None
        training = self.run.config.training
        return step % training.evaluate_steps == 0 or step == training.steps

    def _save(self, record: StepRecord, state: TrainState) -> None:
        self._metrics.lap()  # the time of an evaluation counts, too
        self._restart_save_clock()
        params, optimizer = self._on_host((state.params, state.opt_state))
        if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(params)):
            raise self._not_finite(record, "parameters that are not")
        number = record.plan.number  # that of the epoch, or of its part
        place: dict[str, Any] = {"epoch": number, "index": record.index + 1}
        place["devices"], place["parts"] = self.devices.count, self.run.config.training.accumulate
        place["seconds"] = self._metrics.total_seconds
        if self.development.best:
            place[BEST] = vars(self.development.best)
        if self._metrics.ends:
            place[ENDED] = True
        self._checkpoints.save(record.step, params, optimizer, place, self.origin)

    def _on_devices(self, state: TrainState) -> TrainState:
        """Copy a host's state to every device."""
        few = self.devices.prefer_few_arrays
        return self.devices.replicate(stack_params(state) if few else state)

    def _on_host(self, tree: PyTree) -> PyTree:
        """Return a tree as NumPy arrays, in the shapes of the model's parameters."""
        return unstack(self.devices.unreplicate(tree))

    def _restart_save_clock(self) -> None:
        self._clock_started = time.monotonic()
        self._agree_on_time = Agreement(self.devices)  # forgets the request that was just met

    def _read_back(self, record: StepRecord) -> None:
        """Wait for a step and take in its metrics. Raises InputError if they are not finite."""
        metrics = self.devices.unreplicate(record.metrics)
        loss = float(metrics.loss.smoothed / max(metrics.loss.tokens, 1))
        if not np.isfinite([loss, metrics.gradient_norm]).all():
            found = f"loss {loss:g} and gradient norm {metrics.gradient_norm:g}"
            raise self._not_finite(record, found)
        self._window.append(record._replace(metrics=metrics))
        self._progress.update()
        if record.step % self.run.config.training.log_steps == 0:
            self._log()

    def _log(self) -> None:
        """Write a line for the steps since the last line."""
        if not self._window:
            return
        seconds = self._metrics.lap()  # first: computing the rate waits for later steps
        window, self._window = self._window, []
        rate = schedule_of(self.run.config)(window[-1].step)
        counts = [self.data.tokens(record.plan, record.index) for record in window]
        tokens = sum(source for source, _ in counts), sum(computed for _, computed in counts)
        line = self._metrics.write_window(window, *tokens, float(rate), seconds)
        note = f"loss {line['loss']:.3f}, {line['tokens_per_second']:,.0f} tokens/s"
        self._progress.update(0, note)
        if window[-1].step > self.run.config.training.warmup_steps:
            self._warn_of_loss(window[-1].step, line["loss"])

    def _warn_of_loss(self, step: int, loss: float) -> None:
        """Warn if the loss becomes higher than 2 ln V, where ln V is that of a blind guess."""
        size = self.model.target_vocabulary.size
        too_high = loss > 2 * math.log(size)
        if too_high and not self._warned_of_loss:
            logger.warning(
                f"step {step}: expected a loss below {2 * math.log(size):.1f} nats a token, "
                f"2 ln {size}, after the warm-up, found {loss:.4g}; unless it falls again, "
                f"{self._remedy}"
            )
        self._warned_of_loss = too_high

    @property
    def _remedy(self) -> str:
        constant = self.run.config.training.learning_rate  # beside which the scale does nothing
        name = "learning_rate" if constant else "learning_rate_scale"
        return f"try a smaller training.{name} in another --workdir"

    def _not_finite(self, record: StepRecord, found: str) -> InputError:
        lines = self.data.lines(record.plan, record.index)
        shown = ", ".join(lines[:10])
        shown += f" and {len(lines) - 10:,} more" if len(lines) > 10 else ""
        self._checkpoints.wait()
        good = self._checkpoints.steps()
        last = f"the last good checkpoint is {good[-1]}" if good else "no checkpoint is saved yet"
        return InputError(
            f"step {record.step}: expected finite loss, gradient and parameters, found {found} "
            f"on the training sentences of lines {shown}; {last}; {self._remedy}"
        )

    def _evaluate_dev(self, step: int, params: Params) -> None:
        """Score the dev text, unless a signal comes meanwhile."""
        first, self._has_scored = not self._has_scored, True
        note = "compiling what scores the development text" if first else "scoring"
        if self.run.config.training.evaluate_average:
            host = self._on_host(params)
            with self.folder.in_turn(self.devices):
                host = mean_with_last(self.folder, self.run, step, host, self._checkpoints)
            self.devices.check_same("an average", self.folder.checkpoints, host)
            params = self.devices.replicate(host)
        else:
            params = self._unstack(params)
        try:
            with self._progress.noting(note):
                self.development.evaluate(step, params, self._metrics, self._leave_if_stopped)
        except _Interrupted:
            logger.info(f"dev         step {step:,}: skipped, because training stops")
        self._keep_best()

    def _leave_if_stopped(self) -> None:
        # Several processes would have to agree, so they finish the evaluation.
        if self._preemption.signal and self.devices.processes == 1:
            raise _Interrupted


class _Interrupted(Exception):
    """A signal came during an evaluation."""
