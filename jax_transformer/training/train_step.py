"""§5 Training: one pure step from state and batch to the next state."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.extend.core import jaxpr_as_fun
from jax.interpreters.partial_eval import dce_jaxpr
from jaxtyping import Array, Float, Int, Key

from jax_transformer.models.layers import segment_positions
from jax_transformer.models.transformer import Transformer
from jax_transformer.training.loss import LossSums, label_smoothed_cross_entropy


class Batch(NamedTuple):
    """Pairs of token ids, each with EOS behind it, then PAD. Rows may be all PAD.

    With segments a row may hold several pairs, one behind the other: the number of each
    token's pair in its row from 1 on, alike on both sides, and 0 for PAD.

    >>> source, target = jnp.array([[5, 6, 2], [7, 2, 0]]), jnp.array([[8, 2], [9, 2]])
    >>> Batch(source, target).source.shape
    (2, 3)
    """

    source: Int[Array, "B S"] | Int[np.ndarray, "B S"]
    target: Int[Array, "B T"] | Int[np.ndarray, "B T"]
    source_segments: Int[Array, "B S"] | Int[np.ndarray, "B S"] | None = None
    target_segments: Int[Array, "B T"] | Int[np.ndarray, "B T"] | None = None


class TrainState(NamedTuple):
    """All that changes in training, and nothing else."""

    step: Int[Array, ""]  # steps taken
    params: Any
    optimizer: optax.OptState
    key: Key[Array, ""]  # constant; each step folds its number in


class StepMetrics(NamedTuple):
    """What a step reports: sums over all devices, and the norm of the mean gradient."""

    loss: LossSums
    source_tokens: Float[Array, ""]
    gradient_norm: Float[Array, ""]


Reduce = Callable[[Any], Any]  # sums a tree over devices; the identity on one


def shift_right(
    target: Int[Array, "B T"], bos_id: int, segments: Int[Array, "B T"] | None = None
) -> Int[Array, "B T"]:
    """Decoder input: BOS, then all but the last token (§3.1, "outputs (shifted right)").

    segments: as in `Batch`; each pair begins with BOS.
    """
    shifted = jnp.pad(target, ((0, 0), (1, 0)), constant_values=bos_id)[:, :-1]
    if segments is None:
        return shifted
    return jnp.where(segment_positions(segments) == 0, bos_id, shifted)


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
    # `init` runs the model on a sentence to meet its parameters. Of that run only what they are
    # drawn by is needed: some fifteen functions, each compiled for itself, instead of eighty.
    run = _initial_params.trace(model, params_key)
    drawing, _ = dce_jaxpr(run.jaxpr.jaxpr, [True] * len(run.jaxpr.out_avals), instantiate=True)
    leaves = jaxpr_as_fun(run.jaxpr.replace(jaxpr=drawing))(params_key)
    params = jax.tree.unflatten(jax.tree.structure(run.out_info), leaves)
    return TrainState(jnp.zeros((), jnp.int32), params, optimizer.init(params), training_key)


def restored_state(
    step: int, params: Any, optimizer: optax.OptState, key: Key[Array, ""]
) -> TrainState:
    """What `initial_state` with the same key has become after so many steps."""
    _, training_key = jax.random.split(key)
    return TrainState(jnp.asarray(step, jnp.int32), params, optimizer, training_key)


def abstract_params(model: Transformer) -> Any:
    """Shapes and types of the parameters, without making them."""
    # Layers of a stack have the same, so a model with one of each is asked: tracing `init` is slow.
    one = model.clone(config=dataclasses.replace(model.config, num_layers=1))
    shapes: Any = jax.eval_shape(partial(_initial_params, one), jax.random.key(0))
    for i in range(1, model.config.num_layers):
        shapes |= {f"{stack}_{i}": shapes[f"{stack}_0"] for stack in ("encoder", "decoder")}
    return shapes


@partial(jax.jit, static_argnums=0)  # so that it is traced once
def _initial_params(model: Transformer, key: Key[Array, ""]) -> Any:
    token = jnp.zeros((1, 2), jnp.int32)
    return model.init(key, token, token)["params"]


def loss_sums(
    model: Transformer,
    params: Any,
    batch: Batch,
    bos_id: int,
    label_smoothing: float = 0.0,
    key: Key[Array, ""] | None = None,
) -> LossSums:
    """The model's loss on a batch; with a key, under dropout."""
    rngs = {} if key is None else {"dropout": key}
    source, target, *segments = jax.tree.map(jnp.asarray, batch)
    inputs = shift_right(target, bos_id, segments[1])
    logits: Any = model.apply({"params": params}, source, inputs, *segments, rngs=rngs)
    return label_smoothed_cross_entropy(logits, target, label_smoothing, model.pad_id)


def gradients(
    model: Transformer,
    params: Any,
    batch: Batch,
    bos_id: int,
    label_smoothing: float,
    key: Key[Array, ""] | None = None,
    reduce: Reduce = lambda tree: tree,
    accumulate: int = 1,
) -> tuple[Any, LossSums]:
    """Gradient of the loss per target token over all devices, and the loss sums.

    Gradients are summed, reduced, and divided once by the global count: with ragged
    batches a mean of per-device means would be another gradient.
    accumulate: parts the rows are cut into, one computed after another; it changes the
    memory needed and the dropout drawn, and nothing else.
    """

    def of_part(part: Batch, key: Key[Array, ""] | None) -> tuple[Any, LossSums]:
        def smoothed(params: Any) -> tuple[Float[Array, ""], LossSums]:
            sums = loss_sums(model, params, part, bos_id, label_smoothing, key)
            return sums.smoothed, sums

        return jax.grad(smoothed, has_aux=True)(params)

    if accumulate == 1:
        summed, sums = of_part(batch, key)
    else:
        summed, sums = _sum_of_parts(of_part, batch, key, accumulate)
    summed, sums = reduce((summed, sums))
    tokens = jnp.maximum(sums.tokens, 1.0)
    return jax.tree.map(lambda g: g / tokens, summed), sums


def _sum_of_parts(
    of_part: Callable[..., Any], batch: Batch, key: Key[Array, ""] | None, count: int
) -> Any:
    """Sum of `of_part` over `count` parts of the rows, in a loop that holds one at a time."""
    parts = jax.tree.map(lambda leaf: leaf.reshape(count, -1, *leaf.shape[1:]), batch)

    def add(total: Any, numbered: tuple[Array, Batch]) -> tuple[Any, None]:
        number, part = numbered
        own = None if key is None else jax.random.fold_in(key, number)
        return jax.tree.map(jnp.add, total, of_part(part, own)), None

    first = jax.tree.map(lambda leaf: leaf[0], parts)
    nothing = jax.tree.map(
        lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(of_part, first, key)
    )
    return jax.lax.scan(add, nothing, (jnp.arange(count), parts))[0]


def make_train_step(
    model: Transformer,
    optimizer: optax.GradientTransformation,
    bos_id: int,
    label_smoothing: float,
    accumulate: int = 1,
) -> Callable[..., tuple[TrainState, StepMetrics]]:
    """`train_step(state, batch, reduce, shard) -> (state, metrics)`, pure.

    reduce: sums over devices, `shard`: the index of this device, which gives it dropout
    of its own. Nothing else here knows of devices.

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

    def train_step(
        state: TrainState,
        batch: Batch,
        reduce: Reduce = lambda tree: tree,
        shard: Int[Array, ""] | int = 0,
    ) -> tuple[TrainState, StepMetrics]:
        key = jax.random.fold_in(jax.random.fold_in(state.key, state.step), shard)
        mean, sums = gradients(
            model, state.params, batch, bos_id, label_smoothing, key, reduce, accumulate
        )
        updates, optimizer_state = optimizer.update(mean, state.optimizer, state.params)
        params = optax.apply_updates(state.params, updates)
        source_tokens = reduce((batch.source != model.pad_id).sum().astype(jnp.float32))
        metrics = StepMetrics(sums, source_tokens, optax.tree_utils.tree_norm(mean))
        return TrainState(state.step + 1, params, optimizer_state, state.key), metrics

    return train_step


def make_eval_step(
    model: Transformer, bos_id: int, label_smoothing: float
) -> Callable[..., LossSums]:
    """`eval_step(params, batch) -> LossSums` without dropout."""

    def eval_step(params: Any, batch: Batch) -> LossSums:
        return loss_sums(model, params, batch, bos_id, label_smoothing)

    return eval_step
