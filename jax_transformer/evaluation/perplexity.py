"""§6.2 Loss and perplexity of given translations, teacher forced, in a few static shapes."""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jax_transformer.data.batching import Epoch, batch_arrays, plan_epoch
from jax_transformer.data.bucketing import Shape, assign_shapes, learn_shapes
from jax_transformer.data.token_store import Rules, TokenStore, open_store, write_store
from jax_transformer.evaluation.bleu import Score, perplexity
from jax_transformer.parallel import Devices
from jax_transformer.parsing.parser import word_marks
from jax_transformer.runs.loading import TrainedModel
from jax_transformer.training.train_step import Batch, make_loss

SHAPES = 4  # at most, because each is compiled for this one text


class Loss(NamedTuple):
    """Sums over the target tokens, in nats, as in `loss.LossSums`, but accumulated in float64."""

    smoothed: float
    nll: float
    tokens: float


def summed_loss(
    evaluate: Callable[[Any, Batch], Any],
    params: Any,
    store: TokenStore,
    plan: Epoch,
    shapes: Sequence[Shape],
    pad_id: int,
) -> Loss:
    """The loss over every batch of the plan; `params` are already on the devices."""
    sums = np.zeros(3)
    for index in range(len(plan)):
        batch = Batch(*batch_arrays(store, plan, index, shapes, pad_id))
        sums += np.array(evaluate(params, batch), np.float64)
    return Loss(*sums.tolist())


def loss_scores(
    trained: TrainedModel,
    params: Any,
    devices: Devices,
    sources: Sequence[str],
    references: Sequence[str],
) -> tuple[list[Score], dict[str, int]]:
    """(scores, counts of sentences): smoothed loss, NLL and perplexity of the references.

    params: those of `trained`, replicated. As in training, pairs with a blank side or with more
    than data.max_length tokens are left out, and counted. No scores where no pair remains.
    """
    pairs = list(zip(range(1, len(sources) + 1), sources, references, strict=True))
    rules = Rules(trained.run.config.data.max_length)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokens"
        write_store(path, lambda start: pairs[start:], trained.encoders, rules, {})
        store = open_store(path)
        facts = {"sentences": len(store), "left_out": len(sources) - len(store)}
        if not len(store):
            return [], facts
        loss = _store_loss(trained, params, devices, store)
    detail = f"{loss.tokens:,.0f} tokens of {facts['sentences']:,} sentences"
    if facts["left_out"]:
        detail += f"; {facts['left_out']:,} left out"
    vocabulary = trained.vocabulary
    of = f"teacher-forced|vocab:{vocabulary.size}.{vocabulary.fingerprint[:8]}|eos:yes"
    smoothing = f"smoothing:{trained.run.config.training.label_smoothing:g}|less-entropy"
    return [
        Score("loss", loss.smoothed / loss.tokens, f"nats/token|{smoothing}|{of}", detail),
        Score("nll", loss.nll / loss.tokens, f"nats/token|{of}", detail),
        Score("perplexity", perplexity(loss.nll, loss.tokens), f"exp(nll)|per-piece|{of}", detail),
    ], facts


def _store_loss(trained: TrainedModel, params: Any, devices: Devices, store: TokenStore) -> Loss:
    config, vocabulary = trained.run.config, trained.vocabulary
    lengths = store.lengths("source"), store.lengths("target")
    # Of decoding's size, not of training's: that was chosen for other machines than this one.
    tokens = config.decoding.batch_tokens
    shapes = learn_shapes(*lengths, most=SHAPES, batch_tokens=tokens, multiple=devices.count)
    plan = plan_epoch(assign_shapes(*lengths, shapes), shapes, shuffle=None)
    smoothing = config.training.label_smoothing
    marks = word_marks(trained.module, vocabulary, trained.symbols)
    evaluate = devices.eval_step(make_loss(trained.module, vocabulary.bos_id, smoothing, marks))
    return summed_loss(evaluate, params, store, plan, shapes, vocabulary.pad_id)
