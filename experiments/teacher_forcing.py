"""The loss of known translations: what the training loop's dev evaluation and evaluate share."""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.restore import Trained
from jax_transformer.batching import (
    Epoch,
    Shape,
    TokenStore,
    assign_shapes,
    batch_arrays,
    learn_shapes,
    open_store,
    plan_epoch,
    write_store,
)
from jax_transformer.devices import Devices
from jax_transformer.metrics import Score, perplexity
from jax_transformer.training import Batch, make_eval_step

SHAPES = 4  # each is compiled once and used for one text only


class Loss(NamedTuple):
    """Sums over the target tokens, in nats, as in `loss.LossSums` but added up in float64."""

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
    trained: Trained,
    params: Any,
    devices: Devices,
    sources: Sequence[str],
    references: Sequence[str],
) -> tuple[list[Score], dict[str, int]]:
    """(smoothed loss, NLL, perplexity of the references; what they are over), teacher forced.

    As in training, pairs with a blank side or one over data.max_length tokens are left
    out, and counted. No score where no pair is left.
    """
    config, vocabulary = trained.run.config, trained.vocabulary
    pairs = zip(range(1, len(sources) + 1), sources, references, strict=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokens"
        write_store(path, pairs, vocabulary, config.data.max_length, {})
        store = open_store(path)
        facts = {"sentences": len(store), "left_out": len(sources) - len(store)}
        if not len(store):
            return [], facts
        lengths = store.lengths("source"), store.lengths("target")
        shapes = learn_shapes(
            *lengths,
            most=SHAPES,
            batch_tokens=config.decoding.batch_tokens,
            multiple=devices.count,
        )
        plan = plan_epoch(assign_shapes(*lengths, shapes), shapes, shuffle=None)
        smoothing = config.training.label_smoothing
        step = devices.sum_over(make_eval_step(trained.model, vocabulary.bos_id, smoothing))
        loss = summed_loss(step, params, store, plan, shapes, vocabulary.pad_id)
    of = f"teacher-forced|vocab:{vocabulary.size}.{vocabulary.fingerprint[:8]}|eos:yes"
    detail = f"{loss.tokens:,.0f} tokens of {facts['sentences']:,} sentences" + (
        f"; {facts['left_out']:,} left out" if facts["left_out"] else ""
    )
    smoothed, nll = loss.smoothed / loss.tokens, loss.nll / loss.tokens
    name = f"nats/token|smoothing:{smoothing:g}|less-entropy|{of}"
    return [
        Score("loss", smoothed, name, detail),
        Score("nll", nll, f"nats/token|{of}", detail),
        Score("perplexity", perplexity(loss.nll, loss.tokens), f"exp(nll)|per-piece|{of}", detail),
    ], facts
