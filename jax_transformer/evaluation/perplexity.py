"""§6.2 Loss and perplexity of given translations, teacher forced, in a few static shapes."""

import logging
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from jax_transformer.config import Config
from jax_transformer.data.batching import Epoch, batch_arrays, plan_epoch
from jax_transformer.data.bucketing import Shape, assign_shapes, learn_shapes
from jax_transformer.data.token_store import Encoders, Rules, TokenStore, encode_pairs
from jax_transformer.decoding.translator import Translator
from jax_transformer.evaluation.bleu import perplexity
from jax_transformer.evaluation.parse_scores import symbol_lines
from jax_transformer.evaluation.score import Score
from jax_transformer.models.transformer import Transformer
from jax_transformer.parallel import Devices
from jax_transformer.parsing.parser import Parser
from jax_transformer.progress import Progress
from jax_transformer.training.loss import LossSums
from jax_transformer.training.train_step import Batch, make_loss
from jax_transformer.types import Params

logger = logging.getLogger(__name__)

SHAPES = 4  # the maximum, because each shape is compiled for this one text


class Loss(NamedTuple):
    """Sums over the target tokens, in nats, as in `loss.LossSums`, but accumulated in float64."""

    smoothed: float
    nll: float
    tokens: float


def summed_loss(
    evaluate: Callable[[Params, Batch], LossSums],
    params: Params,
    store: TokenStore,
    plan: Epoch,
    shapes: Sequence[Shape],
    pad_ids: tuple[int, int],
    between: Callable[[], None] | None = None,
) -> Loss:
    """Sum the loss over every batch of the plan; `params` are already on the devices.

    between: a function to call after each batch.
    """
    sums = np.zeros(3)
    with Progress("loss", len(plan), "batches") as progress:
        for index in range(len(plan)):
            batch = Batch(*batch_arrays([store], plan, index, shapes, pad_ids))
            sums += np.array(evaluate(params, batch), np.float64)
            progress.update()
            if between:
                between()
    return Loss(*sums.tolist())


def loss_scores(
    translator: Translator,
    config: Config,
    sources: Sequence[str],
    references: Sequence[str],
    between: Callable[[], None] | None = None,
) -> tuple[list[Score], dict[str, int]]:
    """Return (scores, sentence counts): smoothed loss, NLL and perplexity of the references.

    translator: the model; the references of a `Parser` are trees. between: a function to call after
    each batch. As in training, pairs with a
    blank side, with more than data.max_length tokens or with a label that no training tree has are
    left out, and counted. If no pair remains, the scores are empty, and a warning is logged.
    """
    vocabulary, target = translator.vocabulary, translator.target_vocabulary
    if isinstance(translator, Parser):
        references = symbol_lines(references)
    pairs = list(zip(range(1, len(sources) + 1), sources, references, strict=True))
    store = encode_pairs(pairs, Encoders(vocabulary, target), Rules(config.data.max_length))
    facts = {"sentences": len(store), "left_out": len(sources) - len(store)}
    if not len(store):
        reasons = "is blank, longer than data.max_length, or has an unknown label"
        logger.warning(f"no loss: a side of every pair {reasons}")
        return [], facts
    label_smoothing = config.training.label_smoothing
    loss = _store_loss(translator, label_smoothing, store, between)
    detail = f"{loss.tokens:,.0f} tokens of {facts['sentences']:,} sentences"
    if facts["left_out"]:
        detail += f"; {facts['left_out']:,} left out"
    of = f"teacher-forced|vocab:{target.size}.{target.fingerprint[:8]}|eos:yes"
    smoothing = f"smoothing:{label_smoothing:g}|less-entropy"
    return [
        Score("loss", loss.smoothed / loss.tokens, f"nats/token|{smoothing}|{of}", detail),
        Score("nll", loss.nll / loss.tokens, f"nats/token|{of}", detail),
        Score("perplexity", perplexity(loss.nll, loss.tokens), f"exp(nll)|per-piece|{of}", detail),
    ], facts


@lru_cache(maxsize=4)  # so that a model compiles once, however often it is evaluated
def _eval_step(devices: Devices, model: Transformer, bos_id: int, smoothing: float) -> Any:
    return devices.eval_step(make_loss(model, bos_id, smoothing))


def _store_loss(
    translator: Translator,
    label_smoothing: float,
    store: TokenStore,
    between: Callable[[], None] | None,
) -> Loss:
    model, devices = translator.model, translator.devices
    lengths = store.lengths("source"), store.lengths("target")
    # Decoding's batch size: training's was chosen for other machines than this one.
    tokens = translator.decoding.batch_tokens
    shapes = learn_shapes(*lengths, most=SHAPES, batch_tokens=tokens, multiple=devices.count)
    plan = plan_epoch(assign_shapes(*lengths, shapes), shapes, shuffle=None)
    bos_id, pads = translator.target_vocabulary.bos_id, (model.pad_id, model.output_pad_id)
    evaluate = _eval_step(devices, model, bos_id, label_smoothing)  # pyright: ignore
    return summed_loss(evaluate, translator.params, store, plan, shapes, pads, between)
