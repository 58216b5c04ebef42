"""Batches: those of a run, and of given pairs for a training loop of one's own.

Which pairs an epoch has, in which order, and in which shapes (§5.1).
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

import numpy as np
from jaxtyping import Integer

from jax_transformer.checks import is_whole
from jax_transformer.data.batching import (
    Epoch,
    assign_shapes,
    batch_arrays,
    batches_from,
    learn_shapes,
    mixture_members,
    padding_share,
    plan_epoch,
    prefetch,
)
from jax_transformer.data.packing import Packing, kinds_of, learn_packing, pack_epoch
from jax_transformer.data.prepare import Prepared
from jax_transformer.data.resampling import Resampler
from jax_transformer.data.sources import pairs_of_epoch, training_splits
from jax_transformer.data.token_store import (
    Lengths,
    count_tokens,
    dropped,
    pair_lengths,
    places_in_stores,
)
from jax_transformer.errors import InputError, expect_a
from jax_transformer.evaluation.perplexity import PairBatches
from jax_transformer.parallel import Devices
from jax_transformer.runs.model import TrainedModel
from jax_transformer.runs.run_dir import Run
from jax_transformer.runs.trained import all_devices, pairs_of
from jax_transformer.training.train_step import Batch

logger = logging.getLogger(__name__)

MANY_PASSES = 100  # more than this are warned of

# ((epoch, index), plan of the epoch, batch on the devices)
Batches = Iterator[tuple[tuple[int, int], Epoch, Batch]]


class TrainingData:
    """The plan of a run's batches, a function of its seed and the number of the epoch alone.

    shapes: the shapes of its batches. parts: the parts of an epoch, more than one if text is
    re-segmented; plans and positions count parts. shapes_used: the number of shapes in the first
    epoch, once `describe` has planned it.
    """

    def __init__(
        self, run: Run, prepared: Prepared, devices: Devices, pad_ids: tuple[int, int]
    ) -> None:
        """Fit the shapes to the first epoch."""
        self._run, self._stores, self._devices, self._pads = run, prepared.stores, devices, pad_ids
        data = run.config.data
        self._corpora = {name: self._stores[name] for name in training_splits(self._stores)}
        self._trained_on = [*self._corpora.values()]
        self._sizes = {name: len(store) for name, store in self._corpora.items()}
        self._wanted = pairs_of_epoch(self._sizes, data)
        self._resampler, vocabularies = None, (prepared.vocabulary, prepared.target)
        if rate := data.subword_dropout:
            made = self._trained_on, self._members, vocabularies, rate, run.seed
            self._resampler = Resampler(*made)
        self.parts = self._resampler.parts if self._resampler else 1  # of an epoch
        train = self._lengths()
        dev = pair_lengths([self._stores["dev"]])
        # The shapes are fitted to the first epoch, because all epochs are much alike.
        first = self._members(0)
        size: dict[str, Any] = {
            "batch_tokens": run.config.training.batch_tokens,
            "multiple": devices.count * run.config.training.accumulate,
        }
        if data.packing:
            packing = learn_packing(*train, most=data.buckets, of=first, **size)
            self.shapes = packing.shapes
            self._shuffled = partial(pack_epoch, packing)
        else:
            longest = [max(int(t.max()), int(d.max())) for t, d in zip(train, dev, strict=True)]
            self.shapes = learn_shapes(
                train[0][first], train[1][first], most=data.buckets, longest=longest, **size
            )
            self._shuffled = self._shuffle(*train)
        self.shapes_used = 0

    def _lengths(self) -> tuple[Lengths, Lengths]:
        """Return the lengths of all pairs to train on; nothing else holds them while it trains."""
        return self._resampler.lengths if self._resampler else pair_lengths(self._trained_on)

    def _shuffle(
        self, source: Integer[np.ndarray, " pairs"], target: Integer[np.ndarray, " pairs"]
    ) -> Callable[..., Epoch]:
        """Return the function that plans an epoch of pairs with these lengths."""
        if self._run.config.data.packing:
            return partial(pack_epoch, Packing(*kinds_of(source, target), self.shapes))
        return partial(plan_epoch, assign_shapes(source, target, self.shapes), self.shapes)

    def _members(self, epoch: int) -> Integer[np.ndarray, " some"]:
        """Return the pairs of an epoch; their numbers run through all corpora."""
        sizes = [*self._sizes.values()]
        return mixture_members(sizes, self._wanted, seed=self._run.seed, epoch=epoch)

    def _plan(self, number: int) -> Epoch:
        """Return the batches of an epoch or, if text is re-segmented, of a part of one."""
        stores, shuffle = self._trained_on, (self._run.seed, number)
        if self._resampler:
            stores = self._resampler.part(number)
            plan = self._shuffle(*pair_lengths(stores))(shuffle=shuffle)
        else:
            plan = self._shuffled(shuffle=shuffle, of=self._members(number))
        return replace(plan, number=number, stores=stores)

    def describe(self) -> None:
        """Log the corpora and the batches."""
        for split, store in self._stores.items():
            logger.info(f"{split:<11} {len(store):,} pairs; dropped {dropped(store.description)}")
        if len(self._corpora) > 1:
            parts = [
                f"{size if count is None else count:,} from the {size:,} of {name}"
                for (name, size), count in zip(self._sizes.items(), self._wanted, strict=True)
            ]
            logger.info(f"mixture     pairs of an epoch: {', '.join(parts)}")
        if self._resampler:
            logger.info(f"resegment   {self._resampler.describe()}")
        plan = self._shuffled(shuffle=(self._run.seed, 0), of=self._members(0))
        share = padding_share(plan, self.shapes, self._lengths())
        names = ", ".join(f"{s.rows}x({s.source}+{s.target})" for s in self.shapes)
        logger.info(f"batches     {len(plan):,} an epoch, rows x (source + target tokens): {names}")
        if plan.segment_ids is not None:
            rows = int((plan.segment_ids == 1).sum())
            logger.info(f"packing     {len(plan.order):,} pairs in {rows:,} rows")
        steps = self._run.config.training.steps
        passes = steps / len(plan)
        shown = f"{steps:,} steps: {passes:,.{0 if passes >= 10 else 1}f} passes over the text"
        logger.info(f"length      {shown}")
        if passes > MANY_PASSES:
            logger.warning(f"{shown}; lower training.steps, or set training.keep_best")
        logger.info(f"padding     {share:.1%} of the tokens computed")
        self.shapes_used = len(np.unique(plan.shapes))
        logger.info(f"compiling   the training step {self.shapes_used} times, once for each shape")

    def batches(self, position: tuple[int, int]) -> Batches:
        """Yield the batches from a position in the data on, without an end."""
        part = self._devices.process, self._devices.processes
        plans: Iterator[Epoch] = map(self._plan, count(position[0]))
        with ExitStack() as stack:
            if self._resampler:  # cutting takes long, so it is done ahead
                plans = stack.enter_context(closing(prefetch(plans, 1)))
            for place, plan in batches_from(position, lambda _: next(plans)):
                batch = Batch(
                    *batch_arrays(plan.stores, plan, place[1], self.shapes, self._pads, part)
                )
                yield place, plan, self._devices.put_rows(batch)

    def tokens(self, plan: Epoch, index: int) -> tuple[int, int]:
        """Return the source tokens of a batch, and the tokens of both sides with padding."""
        shape = self.shapes[plan.shapes[index]]
        source = count_tokens(plan.stores, "source", plan.pairs(index))
        return source, shape.rows * (shape.source + shape.target)

    def lines(self, plan: Epoch, index: int) -> list[str]:
        """Return the lines of a batch's pairs in the text, as "7" or "7 of train_2"."""
        found = places_in_stores(plan.stores, plan.pairs(index))
        return [
            str(line) if name == "train" else f"{line} of {name}"
            for name, (_, store, places) in zip(self._corpora, found, strict=True)
            for line in sorted({*store.lines[places].tolist()})
        ]


def batches(
    model: TrainedModel,
    sources: Sequence[str],
    targets: Sequence[str],
    *,
    batch_tokens: int = 4096,
    epochs: int | None = 1,
    seed: int = 1,
) -> Iterator[Batch]:
    """Return shuffled batches of sentence pairs as token ids of the model's vocabularies.

        loss = jt.make_loss(model.module, model.target_vocabulary.bos_id, label_smoothing=0.1)
        optimizer = optax.adam(1e-4)
        step = jax.jit(jt.make_train_step(loss, optimizer))
        state = jt.initial_state(model.module, optimizer, 1, model.params)
        for batch in jt.batches(model, sources, targets, epochs=3):
            state, metrics = step(state, batch)
        model.with_params(jax.device_get(state.params)).save("runs/own")

    sources, targets: two lists of N sentences; for a parser sentences and their trees.
    batch_tokens: the maximum number of source tokens, and of target tokens, in a batch.
    epochs: the number of passes over the pairs, each in another order; None for endless passes.
    seed: random seed of these orders, 0 or more.

    The batches have at most four shapes, so that a jitted step compiles at most four times. Pairs
    with a blank side or more than config.data.max_length tokens are left out. Raises InputError for
    lists of different lengths, if no pair remains, if one is longer than batch_tokens, and for
    numbers that are out of range.
    """
    expect_a(TrainedModel, model=model)
    passes = 1 if epochs is None else epochs
    numbers = ("batch_tokens", batch_tokens, 1), ("epochs", passes, 1), ("seed", seed, 0)
    for name, value, least in numbers:
        if not is_whole(value) or value < least:
            raise InputError(f"batches: expected {name} of at least {least}, found {value!r}")
    sources, targets = pairs_of("batches", sources, targets)
    vocabularies, most = (model.vocabulary, model.target_vocabulary), model.config.data.max_length
    search = model.translator(devices=all_devices(model.config.model.compute_dtype))
    lines = search.source_lines(sources), search.target_lines(targets)
    given = model.module, vocabularies, *lines
    size = {"max_length": most, "batch_tokens": batch_tokens}
    found = PairBatches(*given, **size) if sources else None
    if not found or not len(found.store):
        raise InputError(
            f"batches: expected pairs of 1 to {most:,} tokens, found none among "
            f"{len(sources):,}; give other text"
        )
    longest = int(max(side.max() for side in found.lengths))
    if batch_tokens < longest:
        raise InputError(
            f"batches: expected batch_tokens of at least {longest:,}, the tokens of the longest "
            f"line, found {batch_tokens:,}; raise it"
        )
    order = count() if epochs is None else range(epochs)
    return (batch for epoch in order for batch in found.epoch((int(seed), epoch)))
