"""What compared trainers work on, parameters and batches in one file; and our own turn at it."""

import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.contender import Prepared
from benchmarks.measuring import (
    BOS_ID,
    PAD_ID,
    SHAPES,
    Shape,
    device_memory,
    square_matrices,
    square_product,
)
from benchmarks.train_step import ragged_batch
from jax_transformer.config import TrainingConfig
from jax_transformer.export.arrays import flat_arrays
from jax_transformer.models.transformer import Transformer
from jax_transformer.parallel import Devices
from jax_transformer.runtime.cpu import keep_freed_memory
from jax_transformer.training.optimizer import adam_with_warmup
from jax_transformer.training.train_step import (
    Batch,
    TrainState,
    abstract_params,
    initial_state,
    loss_sums,
    make_train_step,
)

TRAINING = TrainingConfig()  # the paper's label smoothing, warm-up and Adam


def write_work(shape: Shape, steps: int, path: Path) -> int:
    """One turn of training as an .npz: parameters, and `steps` batches; its real target tokens.

    "source" and "target" are [steps, B, T]; parameters are named by their place in the tree,
    such as "encoder_0/self_attention/query/kernel".
    """
    batches = [ragged_batch(shape, seed) for seed in range(1, steps + 1)]
    source = np.stack([batch.source for batch in batches])
    target = np.stack([batch.target for batch in batches])
    arrays: Any = flat_arrays(random_params(shape))
    np.savez(path, source=source, target=target, **arrays)
    return int((target != PAD_ID).sum())


def random_params(shape: Shape) -> Any:
    """The parameters that a run of this shape begins with."""
    model = Transformer(shape.model, shape.vocabulary_size, PAD_ID)
    optimizer = adam_with_warmup(shape.model.d_model, TRAINING.warmup_steps)
    return jax.device_get(initial_state(model, optimizer, jax.random.key(1)).params)


def read_params(path: str, model: Transformer) -> Any:
    """The parameters of a file that has them by their `flat_arrays` names, as the model's tree."""
    name = partial(jax.tree_util.keystr, simple=True, separator="/")
    with np.load(path) as work:
        return jax.tree_util.tree_map_with_path(
            lambda place, _: work[name(place)], abstract_params(model)
        )


def prepare(
    path: str,
    shape: str,
    dropout: float | None,
    attention_dropout: float,
    dtype: str,
    fused_attention: bool = False,
) -> Prepared:
    """Our training step on one device. dropout: None for that of the shape.

    A turn gives the loss of each step, in nats per target token, under dropout; "loss"
    among the facts is that of the first batch before any step, without dropout.
    """
    keep_freed_memory()
    changes: dict[str, Any] = {
        "attention_dropout_rate": attention_dropout,
        "compute_dtype": dtype,
        "fused_attention": fused_attention,
    }
    if dropout is not None:
        changes["dropout_rate"] = dropout
    config = replace(SHAPES[shape].model, **changes)
    model = Transformer(config, SHAPES[shape].vocabulary_size, PAD_ID)
    with np.load(path) as work:
        batches = [Batch(*pair) for pair in zip(work["source"], work["target"], strict=True)]
    devices = Devices(1)
    optimizer = adam_with_warmup(config.d_model, TRAINING.warmup_steps)
    params = devices.replicate(read_params(path, model))
    smoothing = TRAINING.label_smoothing
    sums = jax.jit(lambda params, batch: loss_sums(model, params, batch, BOS_ID, smoothing))(
        params, batches[0]
    )
    state = TrainState(jnp.zeros((), jnp.int32), params, optimizer.init(params), jax.random.key(1))
    step = devices.train_step(make_train_step(model, optimizer, BOS_ID, smoothing))

    # On a CPU a step that begins before the last one's memory is free takes as much again.
    waits = devices.devices[0].platform == "cpu"

    def take_turn() -> list[float]:
        nonlocal state
        found = []
        for batch in batches:
            state, metrics = step(state, batch)
            if waits:
                jax.block_until_ready((state, metrics))
            found.append(metrics)
        jax.block_until_ready(state)
        return [float(metrics.loss.smoothed / metrics.loss.tokens) for metrics in found]

    facts = {"loss": float(sums.smoothed / sums.tokens), "about": devices.describe()}
    return Prepared(take_turn, len(batches), facts, device_memory)


def prepare_peak(sizes: list[int], dtype: str) -> Prepared:
    """The machine's matrix products: a turn gives the FLOP/s of the fastest of one each.

    Operands of `dtype`, results in float32, as the model's products are.
    """
    matrices = square_matrices(sizes, dtype)

    def take_turn() -> float:
        best = 0.0
        for matrix in matrices:
            start = time.perf_counter()
            square_product(matrix).block_until_ready()
            best = max(best, 2 * matrix.shape[0] ** 3 / (time.perf_counter() - start))
        return best

    return Prepared(take_turn, facts={"about": f"square products in {dtype}"})
