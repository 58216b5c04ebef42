"""§5 Training: one pure step from state and batch to the next state."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, Key

from jax_transformer.checks import check_step
from jax_transformer.models.layers import segment_positions
from jax_transformer.models.transformer import Layout, Transformer
from jax_transformer.training.loss import LossSums, label_smoothed_cross_entropy
from jax_transformer.training.stacking import unstack


class Batch(NamedTuple):
    """Sentence pairs as token ids: each side ends with EOS, then PAD. Rows may be all PAD.

    With segments a row may hold several pairs, one after the other: the segment id is the
    pair's number in its row from 1 on, the same on both sides, and 0 for PAD.

    >>> source, target = jnp.array([[5, 6, 2], [7, 2, 0]]), jnp.array([[8, 2], [9, 2]])
    >>> Batch(source, target).source.shape
    (2, 3)
    """

    source: Any  # [B, S] of int, NumPy or JAX, like the others
    target: Any  # [B, T]
    source_segments: Any = None  # [B, S]
    target_segments: Any = None  # [B, T]


class TrainState(NamedTuple):
    """Everything needed to resume training."""

    step: Int[Array, ""]  # steps taken
    params: Any
    opt_state: optax.OptState
    key: Any  # a typed key, or its data on devices; each step folds its number in


class StepMetrics(NamedTuple):
    """What a step reports: sums over all devices, the norm of the mean gradient, and a check.

    The new state is sound if `params_finite` and the gradient norm is finite. Then so are
    Adam's moments: they are means of gradients and of their squares, and if a square
    overflows, the norm does too.
    """

    loss: LossSums
    source_tokens: Float[Array, ""]
    gradient_norm: Float[Array, ""]
    params_finite: Bool[Array, ""]  # whether all new parameters are


class WordMarks(NamedTuple):
    """For parsing with positions="words": boolean masks over the vocabulary."""

    source: Any  # [V]: ids that begin a word; EOS too, so that it has an index after the last word
    target: Any  # [V]: ids that complete a word: the tags of a tree


Reduce = Callable[[Any], Any]  # sums a tree over devices; the identity on one
Loss = Callable[..., LossSums]  # what `make_loss` returns


def shift_right(
    target: Int[Array, "B T"], bos_id: int, segments: Int[Array, "B T"] | None = None
) -> Int[Array, "B T"]:
    """Decoder input: BOS, then all but the last token (§3.1, "outputs (shifted right)").

    segments: as in `Batch`; each segment begins with BOS.
    """
    shifted = jnp.pad(target, ((0, 0), (1, 0)), constant_values=bos_id)[:, :-1]
    if segments is None:
        return shifted
    return jnp.where(segment_positions(segments) == 0, bos_id, shifted)


def row_layouts(
    batch: Batch, inputs: Int[Array, "B T"], word_marks: WordMarks | None = None
) -> tuple[Layout, Layout]:
    """The `Layout` of the source, and that of the decoder's inputs (`batch.target` shifted)."""
    source, target = (
        Layout() if segments is None else Layout(segments, segment_positions(segments))
        for segments in (batch.source_segments, batch.target_segments)
    )
    if word_marks is None:
        return source, target
    return (
        source._replace(words=source_word_index(batch.source, word_marks, source.positions)),
        target._replace(words=_count_words(inputs, word_marks.target, target.positions)),
    )


def source_word_index(
    source: Int[Array, "B S"], marks: WordMarks, positions: Int[Array, "B S"] | None = None
) -> Int[Array, "B S"]:
    """The index of each token's word in its own sentence, from 0."""
    return _count_words(source, marks.source, positions) - 1


def _count_words(
    tokens: Int[Array, "B T"], marks: Bool[Array, " V"], positions: Int[Array, "B T"] | None
) -> Int[Array, "B T"]:
    """How many marked tokens each segment has up to and including each token."""
    marked = jnp.asarray(marks, jnp.int32)[tokens]
    count = jnp.cumsum(marked, axis=1)
    if positions is None:
        return count
    start = jnp.arange(tokens.shape[1])[None] - positions  # column where the segment starts
    return count - jnp.take_along_axis(count - marked, start, axis=1)


def initial_state(
    model: Transformer, optimizer: optax.GradientTransformation, key: Key[Array, ""]
) -> TrainState:
    """Fresh parameters, drawn from `key`, at step 0.

    >>> config = ModelConfig(num_layers=1, d_model=16, d_ff=32, num_heads=2, d_k=8, d_v=8)
    >>> model = Transformer(config, vocabulary_size=20, pad_id=0)
    >>> state = initial_state(model, adam_with_warmup(16, warmup_steps=10), jax.random.key(0))
    >>> int(state.step), state.params["embedding"]["matrix"].shape
    (0, (20, 16))
    """
    params_key, training_key = jax.random.split(key)
    params = jax.jit(partial(initial_params, model))(params_key)
    return TrainState(jnp.zeros((), jnp.int32), params, optimizer.init(params), training_key)


def restored_state(
    step: int, params: Any, opt_state: optax.OptState, key: Key[Array, ""]
) -> TrainState:
    """The state after `step` steps of a run that began with `initial_state` and this key."""
    _, training_key = jax.random.split(key)
    return TrainState(jnp.asarray(step, jnp.int32), params, opt_state, training_key)


def initial_params(model: Transformer, key: Key[Array, ""]) -> Any:
    """Fresh parameters of the model."""
    token = jnp.zeros((1, 1), jnp.int32)
    layout = Layout(words=token if model.config.positions == "words" else None)
    return model.init(key, token, token, layout, layout)["params"]


def abstract_params(model: Transformer) -> Any:
    """Shapes and types of the parameters, without making them."""
    return jax.eval_shape(partial(initial_params, model), jax.random.key(0))


def make_loss(
    model: Transformer,
    bos_id: int,
    label_smoothing: float = 0.0,
    word_marks: WordMarks | None = None,
) -> Loss:
    """`loss(params, batch, key=None) -> LossSums`: with dropout if a key is given.

    word_marks: required if config.positions is "words", else None.
    """

    check_step(model, bos_id, label_smoothing)

    def loss(params: Any, batch: Batch, key: Key[Array, ""] | None = None) -> LossSums:
        batch = jax.tree.map(jnp.asarray, batch)
        inputs = shift_right(batch.target, bos_id, batch.target_segments)
        layouts = row_layouts(batch, inputs, word_marks)
        rngs = {} if key is None else {"dropout": key}
        logits: Any = model.apply(
            {"params": unstack(params)}, batch.source, inputs, *layouts, rngs=rngs
        )
        return label_smoothed_cross_entropy(logits, batch.target, label_smoothing, model.pad_id)

    return loss


def gradients(
    loss: Loss,
    params: Any,
    batch: Batch,
    key: Key[Array, ""] | None = None,
    reduce: Reduce = lambda tree: tree,
    accumulate: int = 1,
) -> tuple[Any, LossSums]:
    """Gradient of the loss per target token over all devices, and the loss sums.

    Gradients are summed, reduced, and divided once by the global count: with ragged
    batches a mean of per-device means would give a different gradient.
    accumulate: the number of equal parts that the rows are split into, which are computed one
    after another to save memory. The result differs only by the dropout drawn and by rounding.
    """

    def part_gradients(part: Batch, key: Key[Array, ""] | None) -> tuple[Any, LossSums]:
        def smoothed(params: Any) -> tuple[Float[Array, ""], LossSums]:
            sums = loss(params, part, key)
            return sums.smoothed, sums

        return jax.grad(smoothed, has_aux=True)(params)

    if accumulate == 1:
        summed, sums = part_gradients(batch, key)
    else:
        summed, sums = _sum_part_gradients(part_gradients, batch, key, accumulate)
    summed, sums = reduce((summed, sums))
    tokens = jnp.maximum(sums.tokens, 1.0)
    return jax.tree.map(lambda g: g / tokens, summed), sums


def _sum_part_gradients(
    part_gradients: Callable[..., Any], batch: Batch, key: Key[Array, ""] | None, count: int
) -> Any:
    """Sum of `part_gradients` over `count` parts of the rows; one at a time is in memory."""
    parts = jax.tree.map(lambda leaf: leaf.reshape(count, -1, *leaf.shape[1:]), batch)

    def add(total: Any, number_and_part: tuple[Array, Batch]) -> tuple[Any, None]:
        number, part = number_and_part
        part_key = None if key is None else jax.random.fold_in(key, number)
        return jax.tree.map(jnp.add, total, part_gradients(part, part_key)), None

    first = jax.tree.map(lambda leaf: leaf[0], parts)
    zeros = optax.tree_utils.tree_zeros_like(jax.eval_shape(part_gradients, first, key))
    return jax.lax.scan(add, zeros, (jnp.arange(count), parts))[0]


def make_train_step(
    model: Transformer,
    optimizer: optax.GradientTransformation,
    bos_id: int,
    label_smoothing: float,
    accumulate: int = 1,
    word_marks: WordMarks | None = None,
) -> Callable[..., tuple[TrainState, StepMetrics]]:
    """`train_step(state, batch, reduce, replica_index) -> (state, metrics)`, pure.

    reduce: sums a tree over devices.  replica_index: this device's index among all,
    which gives each device its own dropout. Nothing else here knows of devices.

    >>> config = ModelConfig(num_layers=1, d_model=16, d_ff=32, num_heads=2, d_k=8, d_v=8)
    >>> model = Transformer(config, vocabulary_size=20, pad_id=0)
    >>> optimizer = adam_with_warmup(16, warmup_steps=10)
    >>> state = initial_state(model, optimizer, jax.random.key(0))
    >>> train_step = jax.jit(make_train_step(model, optimizer, bos_id=1, label_smoothing=0.1))
    >>> batch = Batch(source=jnp.array([[5, 6, 2]]), target=jnp.array([[8, 9, 2]]))
    >>> for _ in range(20):
    ...     state, metrics = train_step(state, batch)
    >>> int(state.step), float(metrics.loss.tokens), bool(metrics.loss.nll < 1)
    (20, 3.0, True)
    """
    loss = make_loss(model, bos_id, label_smoothing, word_marks)

    def train_step(
        state: TrainState,
        batch: Batch,
        reduce: Reduce = lambda tree: tree,
        replica_index: Int[Array, ""] | int = 0,
    ) -> tuple[TrainState, StepMetrics]:
        key = jax.random.fold_in(jax.random.fold_in(state.key, state.step), replica_index)
        gradient, sums = gradients(loss, state.params, batch, key, reduce, accumulate)
        updates, opt_state = optimizer.update(gradient, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
        source_tokens = reduce((batch.source != model.pad_id).sum().astype(jnp.float32))
        finite = jnp.stack([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(params)]).all()
        norm = optax.tree_utils.tree_norm(gradient)
        metrics = StepMetrics(sums, source_tokens, norm, finite)
        return TrainState(state.step + 1, params, opt_state, state.key), metrics

    return train_step
