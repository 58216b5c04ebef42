"""§5 Training: one pure step from state and batch to the next state."""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Integer, Key, PyTree

from jax_transformer.checks import check_ids, check_parts, check_seed, check_tokens
from jax_transformer.errors import expect_a
from jax_transformer.models.layers import segment_positions
from jax_transformer.models.transformer import Transformer
from jax_transformer.training.loss import LossSums, label_smoothed_cross_entropy
from jax_transformer.types import AnyArray, Params


class Batch(NamedTuple):
    """Sentence pairs as token ids: each side ends with EOS, then PAD. Rows may be all PAD.

    With segments a row may hold several pairs, one after the other: the segment id is the
    pair's number in its row from 1 on, the same on both sides, and 0 for PAD. There is no BOS:
    `shift_right` adds it.

    >>> alone = Batch(source=jnp.array([[5, 6, 2], [7, 2, 0]]), target=jnp.array([[8, 2], [9, 2]]))
    >>> one_row = Batch(  # the same two pairs
    ...     source=jnp.array([[5, 6, 2, 7, 2]]),
    ...     target=jnp.array([[8, 2, 9, 2]]),
    ...     source_segments=jnp.array([[1, 1, 1, 2, 2]]),
    ...     target_segments=jnp.array([[1, 1, 2, 2]]),
    ... )
    """

    source: Int[AnyArray, "B S"]
    target: Int[AnyArray, "B T"]
    source_segments: Int[AnyArray, "B S"] | None = None
    target_segments: Int[AnyArray, "B T"] | None = None


class TrainState(NamedTuple):
    """The state of training between two steps. A checkpoint also has the position in the data."""

    step: Int[AnyArray, ""]  # the number of steps taken
    params: Params
    opt_state: optax.OptState
    seed: Integer[AnyArray, ""]  # the source of all randomness


class StepMetrics(NamedTuple):
    """Loss sums over all devices, and the norm of the mean gradient."""

    loss: LossSums
    gradient_norm: Float[Array, ""]


# loss(params, batch, key=None): sums over tokens, not means; random if a key is given. Training
# differentiates `smoothed` and divides by `tokens`; `nll` is only reported.
Loss = Callable[..., LossSums]
Reduce = Callable[[PyTree], PyTree]  # sums a tree over devices; the identity on one device


def shift_right(
    target: Int[AnyArray, "B T"], bos_id: int, segments: Int[AnyArray, "B T"] | None = None
) -> Int[Array, "B T"]:
    """Return the decoder's input: BOS, then all but the last token (Figure 1, "shifted right").

    segments: as in `Batch`; each segment begins with BOS.

    >>> shift_right(jnp.array([[8, 9, 2, 0]]), bos_id=1).tolist()
    [[1, 8, 9, 2]]
    >>> segments = jnp.array([[1, 1, 2, 2]])
    >>> shift_right(jnp.array([[8, 2, 9, 2]]), bos_id=1, segments=segments).tolist()
    [[1, 8, 1, 9]]
    """
    given = {} if segments is None else {"segments": segments}
    check_tokens(2**31, 2, target=target, **given)
    shifted = jnp.pad(target, ((0, 0), (1, 0)), constant_values=bos_id)[:, :-1]
    if segments is None:
        return shifted
    return jnp.where(segment_positions(segments) == 0, bos_id, shifted)


def make_loss(model: Transformer, bos_id: int, label_smoothing: float = 0.0) -> Loss:
    """Return `loss(params, batch, key=None) -> LossSums`, with dropout if a key is given.

    label_smoothing: the paper trains with 0.1 (§5.4); 0 is the negative log-likelihood.
    """
    expect_a(nn.Module, model=model)
    check_ids(model.output_size, bos_id=bos_id)

    def loss(params: Params, batch: Batch, key: Key[Array, ""] | None = None) -> LossSums:
        inputs = shift_right(batch.target, bos_id, batch.target_segments)
        segments = batch.source_segments, batch.target_segments
        rngs = {} if key is None else {"dropout": key}
        logits: Any = model.apply({"params": params}, batch.source, inputs, *segments, rngs=rngs)
        pad_id = model.output_pad_id
        return label_smoothed_cross_entropy(logits, batch.target, label_smoothing, pad_id)

    return loss


def gradients(
    loss: Loss,
    params: Params,
    batch: Batch,
    key: Key[Array, ""] | None = None,
    reduce: Reduce = lambda tree: tree,
    accumulate: int = 1,
) -> tuple[Params, LossSums]:
    """Return the gradient of `smoothed` / `tokens` over all devices, and the loss sums.

        gradient, sums = gradients(loss, params, batch)

    Gradients are summed, reduced, and divided once by the global count: with ragged
    batches a mean of per-device means would give a different gradient.
    accumulate: the number of equal parts that the rows are split into, which are computed one
      after another to save memory. The result differs only by the dropout drawn and by rounding.
    """
    check_parts(batch.source, accumulate)
    # `jax.shard_map` itself sums the gradient of parameters that all devices share, and `reduce`
    # would sum it again. A zero made of this device's rows makes the parameters its own.
    zero = 0 * batch.source.sum()
    params = jax.tree.map(lambda leaf: leaf + zero.astype(leaf.dtype), params)

    def part_gradients(part: Batch, rows: Int[AnyArray, " R"]) -> tuple[Params, LossSums]:
        part_key = key if accumulate == 1 or key is None else jax.random.fold_in(key, rows[0])

        def smoothed(params: Params) -> tuple[Float[Array, ""], LossSums]:
            sums = loss(params, part, part_key)
            return sums.smoothed, sums

        return jax.grad(smoothed, has_aux=True)(params)

    rows = jnp.arange(batch.source.shape[0])
    part_size = len(rows) // accumulate if accumulate > 1 else None
    summed, sums = reduce(optax.microbatch(part_gradients, (0, 1), part_size)(batch, rows))
    tokens = jnp.where(sums.tokens > 0, sums.tokens, 1.0)
    return jax.tree.map(lambda g: g / tokens, summed), sums


def make_train_step(
    loss: Loss, optimizer: optax.GradientTransformation, accumulate: int = 1
) -> Callable[..., tuple[TrainState, StepMetrics]]:
    """Return `train_step(state, batch, reduce, replica_index) -> (state, metrics)`, pure.

    loss: `make_loss(...)`, or any `loss(params, batch, key) -> LossSums`; a key is always given;
      a loss without randomness ignores it.
    reduce, replica_index: on several devices, a function that sums a tree over them, and this
      device's index, which gives it its own dropout. Nothing else here depends on devices.

    >>> import jax_transformer as jt
    >>> config = jt.ModelConfig(num_layers=1, d_model=16, d_ff=32, num_heads=2, d_k=8, d_v=8)
    >>> model = Transformer(config, vocabulary_size=20, pad_id=0)
    >>> optimizer = jt.adam_with_warmup(16, warmup_steps=10)
    >>> state = initial_state(model, optimizer, seed=0)
    >>> loss = make_loss(model, bos_id=1, label_smoothing=0.1)
    >>> train_step = jax.jit(make_train_step(loss, optimizer))
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
        replica_index: Int[AnyArray, ""] | int = 0,
    ) -> tuple[TrainState, StepMetrics]:
        _, key = _keys(state.seed)
        key = jax.random.fold_in(jax.random.fold_in(key, state.step), replica_index)
        gradient, sums = gradients(loss, state.params, batch, key, reduce, accumulate)
        updates, opt_state = optimizer.update(gradient, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
        metrics = StepMetrics(sums, optax.tree_utils.tree_norm(gradient))
        return TrainState(state.step + 1, params, opt_state, state.seed), metrics

    return train_step


def initial_state(
    model: Transformer,
    optimizer: optax.GradientTransformation,
    seed: int | Integer[AnyArray, ""],
    params: Params | None = None,
) -> TrainState:
    """Return the state at step 0, with the given parameters or fresh ones, drawn with `seed`.

    >>> import jax_transformer as jt
    >>> config = jt.ModelConfig(num_layers=1, d_model=16, d_ff=32, num_heads=2, d_k=8, d_v=8)
    >>> model = Transformer(config, vocabulary_size=20, pad_id=0)
    >>> state = initial_state(model, jt.adam_with_warmup(16, warmup_steps=10), seed=0)
    >>> int(state.step), state.params["embedding"]["matrix"].shape
    (0, (20, 16))
    """
    expect_a(nn.Module, model=model)
    check_seed(seed)
    key, _ = _keys(seed)
    params = jax.jit(partial(initial_params, model))(key) if params is None else params
    return TrainState(jnp.int32(0), params, optimizer.init(params), jnp.uint32(seed))


def initial_params(model: Transformer, key: Key[Array, ""]) -> Params:
    """Return fresh parameters of the model."""
    token = jnp.zeros((1, 1), jnp.int32)
    return model.init(key, token, token)["params"]


def abstract_params(model: Transformer) -> PyTree[jax.ShapeDtypeStruct]:
    """Return shapes and types of the parameters, without making them."""
    return _traced(model)  # pyright: ignore[reportArgumentType]  # flax's modules have a hash


@lru_cache(maxsize=8)  # tracing a model of six layers takes a third of a second
def _traced(model: Transformer) -> PyTree[jax.ShapeDtypeStruct]:
    return jax.eval_shape(partial(initial_params, model), jax.random.key(0))


def _keys(seed: int | Integer[AnyArray, ""]) -> tuple[Key[Array, ""], Key[Array, ""]]:
    """Return the key that draws the parameters, and the one that steps fold their number into."""
    params_key, dropout_key = jax.random.split(jax.random.key(seed))
    return params_key, dropout_key
