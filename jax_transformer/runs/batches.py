"""Batches of sentence pairs for a training loop of one's own."""

from collections.abc import Iterator, Sequence
from itertools import count

from jax_transformer.data.batching import batch_arrays, plan_epoch
from jax_transformer.data.bucketing import assign_shapes, learn_shapes
from jax_transformer.data.text import single_lines
from jax_transformer.data.token_store import Encoders, Rules, encode_pairs
from jax_transformer.errors import InputError
from jax_transformer.evaluation.parse_scores import symbol_lines
from jax_transformer.evaluation.perplexity import SHAPES
from jax_transformer.runs.model import TrainedModel
from jax_transformer.training.train_step import Batch


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
    epochs: how often each pair comes, in another order each time; None: without an end.
    seed: random seed of these orders, 0 or more.

    The batches have at most four shapes, so that a jitted step compiles at most four times. Pairs
    with a blank side or more than config.data.max_length tokens are left out. Raises InputError for
    lists of different lengths, if no pair remains or is longer than batch_tokens, and for numbers
    that are out of range.
    """
    passes = 1 if epochs is None else epochs
    numbers = ("batch_tokens", batch_tokens, 1), ("epochs", passes, 1), ("seed", seed, 0)
    for name, value, least in numbers:
        if type(value) is not int or value < least:
            raise InputError(f"batches: expected {name} of at least {least}, found {value!r}")
    sources, targets = single_lines(sources, "sources"), single_lines(targets, "targets")
    if len(sources) != len(targets):
        raise InputError(
            f"batches: expected a target for each source, found {len(sources):,} sources and "
            f"{len(targets):,} targets; give lists of the same length"
        )
    lines = symbol_lines(targets) if model.labels else targets
    pairs = list(zip(range(1, len(sources) + 1), sources, lines, strict=True))
    encoders = Encoders(model.vocabulary, model.target_vocabulary)
    store = encode_pairs(pairs, encoders, Rules(model.config.data.max_length))
    if not len(store):
        raise InputError(
            f"batches: expected pairs of 1 to {model.config.data.max_length:,} tokens, found none "
            f"among {len(sources):,}; give other text"
        )
    lengths = store.lengths("source"), store.lengths("target")
    if batch_tokens < (longest := int(max(side.max() for side in lengths))):
        raise InputError(
            f"batches: expected batch_tokens of at least {longest:,}, the tokens of the longest "
            f"line, found {batch_tokens:,}; raise it"
        )
    shapes = learn_shapes(*lengths, most=SHAPES, batch_tokens=batch_tokens, multiple=1)
    assigned, pads = (
        assign_shapes(*lengths, shapes),
        (model.module.pad_id, model.module.output_pad_id),
    )
    order = count() if epochs is None else range(epochs)
    plans = (plan_epoch(assigned, shapes, shuffle=(seed, epoch)) for epoch in order)
    return (
        Batch(*batch_arrays([store], plan, index, shapes, pads))
        for plan in plans
        for index in range(len(plan))
    )
