"""§6.2 Loss and perplexity of given translations, teacher forced, in a few static shapes."""

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from jax_transformer.config import Config
from jax_transformer.data.batching import (
    Shape,
    assign_shapes,
    batch_arrays,
    learn_shapes,
    plan_epoch,
)
from jax_transformer.data.token_store import Rules, encode_pairs
from jax_transformer.data.vocabularies.base import Vocabulary
from jax_transformer.decoding.line_search import LineSearch
from jax_transformer.evaluation.bleu import perplexity
from jax_transformer.evaluation.score import Score
from jax_transformer.models.transformer import Transformer
from jax_transformer.parallel import Devices
from jax_transformer.progress import Progress
from jax_transformer.training.train_step import Batch, make_loss

logger = logging.getLogger(__name__)

SHAPES = 4  # the maximum, because each shape is compiled for this one text


class PairBatches:
    """Batches of given pairs in at most four shapes, without blank, too long and unknown ones."""

    def __init__(
        self,
        model: Transformer,
        vocabularies: tuple[Vocabulary, Vocabulary],
        sources: Sequence[str],
        targets: Sequence[str],
        *,
        max_length: int,
        batch_tokens: int,
        multiple: int = 1,
    ) -> None:
        """Encode the pairs; the targets of a parser are lines of symbols.

        batch_tokens: the maximum of a batch's side. multiple: divides the rows of each batch.
        """
        pairs = list(zip(range(1, len(sources) + 1), sources, targets, strict=True))
        self.store = encode_pairs(pairs, vocabularies, Rules(max_length))
        self.lengths = self.store.lengths("source"), self.store.lengths("target")
        self._pads = model.pad_id, model.output_pad_id
        self._size: dict[str, Any] = {"batch_tokens": batch_tokens, "multiple": multiple}

    @cached_property
    def _shapes(self) -> list[Shape]:
        return learn_shapes(*self.lengths, most=SHAPES, **self._size)

    def epoch(self, shuffle: tuple[int, int] | None = None) -> Iterator[Batch]:
        """Yield the batches of one pass. shuffle: (seed, number); None for the order of lengths."""
        plan = plan_epoch(assign_shapes(*self.lengths, self._shapes), self._shapes, shuffle=shuffle)
        for index in range(len(plan)):
            yield Batch(*batch_arrays([self.store], plan, index, self._shapes, self._pads))


def loss_scores(
    translator: LineSearch,
    config: Config,
    sources: Sequence[str],
    references: Sequence[str],
    between: Callable[[], None] | None = None,
) -> tuple[list[Score], dict[str, int]]:
    """Return (scores, sentence counts): smoothed loss, NLL and perplexity of the references.

    The references of a `Parser` are trees. Pairs that `PairBatches` leaves out are counted. If no
    pair remains, there are no scores, and a warning is logged.
    """
    model, devices = translator.model, translator.devices
    vocabulary, target = translator.vocabulary, translator.target_vocabulary
    # Decoding's batch size: training's was chosen for other machines than this one.
    tokens = translator.decoding.batch_tokens
    batches = PairBatches(
        *(model, (vocabulary, target)),
        *(translator.source_lines(sources), translator.target_lines(references)),
        max_length=config.data.max_length,
        batch_tokens=tokens,
        multiple=devices.count,
    )
    facts = {"sentences": len(batches.store), "left_out": len(sources) - len(batches.store)}
    if not len(batches.store):
        reasons = "is blank, longer than data.max_length, or has an unknown label"
        logger.warning(f"no loss: a side of every pair {reasons}")
        return [], facts
    smoothing = config.training.label_smoothing
    evaluate = _eval_step(devices, model, target.bos_id, smoothing)  # pyright: ignore
    sums = np.zeros(3)
    with Progress("loss", len(batches.store), "sentences") as progress:
        for batch in batches.epoch():
            sums += np.array(evaluate(translator.params, batch), np.float64)
            progress.update(int((batch.source[:, 0] != vocabulary.pad_id).sum()))
            if between:
                between()
    smoothed, nll, count = sums.tolist()
    detail = f"{count:,.0f} tokens of {facts['sentences']:,} sentences"
    if facts["left_out"]:
        detail += f"; {facts['left_out']:,} left out"
    of = f"teacher-forced|vocab:{target.size}.{target.fingerprint[:8]}|eos:yes"
    smoothed_of = f"nats/token|smoothing:{smoothing:g}|less-entropy|{of}"
    return [
        Score("loss", smoothed / count, smoothed_of, detail),
        Score("nll", nll / count, f"nats/token|{of}", detail),
        Score("perplexity", perplexity(nll, count), f"exp(nll)|per-piece|{of}", detail),
    ], facts


@lru_cache(maxsize=4)  # so that a model compiles once, however often it is evaluated
def _eval_step(devices: Devices, model: Transformer, bos_id: int, smoothing: float) -> Any:
    return devices.eval_step(make_loss(model, bos_id, smoothing))
