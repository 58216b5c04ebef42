"""The turn of flax's own example, examples/wmt, at the training of benchmarks.training_work.

It comes with flax's sources, not with its wheel: `pip download --no-deps --no-binary=flax flax`.
"""

import importlib
import logging
import sys
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import jax_utils

from benchmarks.contender import Prepared, RefusalError
from benchmarks.measuring import device_memory

ITS_MODELS = ["Transformer", "TransformerConfig"]
ITS_TRAINING = ["TrainState", "create_learning_rate_schedule", "train_step"]
# What its train.py imports and its step never calls: reading data, writing logs.
NOT_TIMED = ["clu", "ml_collections", "tensorflow", "input_pipeline", "bleu"]


def prepare(
    path: str,
    folder: str,
    dropout: float,
    attention_dropout: float,
    dtype: str,
    label_smoothing: float,
    warmup_steps: int,
) -> Prepared:
    """Its model, loss, `train_step`, optimizer and pmap as its train.py puts them together.

    folder: examples/wmt. Its layers normalise before they work and have a norm behind each
    stack more, so "loss" is not among the facts. Raises RefusalError where the folder is not it.
    """
    models, train = _imported(folder)
    with np.load(path) as work:
        sizes = _sizes({name: work[name].shape for name in work.files})
        sides = [work[name] for name in ("source", "target")]
    config = models.TransformerConfig(
        **sizes,
        share_embeddings=True,
        logits_via_embedding=True,
        dtype=jnp.dtype(dtype),
        max_len=max(side.shape[2] for side in sides),
        dropout_rate=dropout,
        attention_dropout_rate=attention_dropout,
    )
    peak = (config.emb_dim * warmup_steps) ** -0.5  # of Equation (3), at the warm-up's end
    schedule = train.create_learning_rate_schedule(peak, warmup_steps)
    model = models.Transformer(config.replace(deterministic=True))
    init_key, dropout_key = jax.random.split(jax.random.key(1))
    state = train.TrainState.create(
        apply_fn=model.apply,
        params=jax.jit(model.init)(init_key, sides[0][0], sides[1][0])["params"],
        tx=optax.adamw(schedule, b1=0.9, b2=0.98, eps=1e-9, weight_decay=0.0),
        dynamic_scale=None,
    )
    step = jax.pmap(
        partial(
            train.train_step,
            config=config,
            learning_rate_fn=schedule,
            label_smoothing=label_smoothing,
        ),
        axis_name="batch",
        donate_argnums=(0,),
        devices=jax.devices()[:1],
    )
    state = jax_utils.replicate(state, jax.devices()[:1])
    keys = dropout_key[None]

    waits = jax.devices()[0].platform == "cpu"  # as ours, see training_work

    def take_turn() -> list[float]:
        nonlocal state
        found = []
        for source, target in zip(*sides, strict=True):
            batch = {"inputs": source[None], "targets": target[None]}
            state, metrics = step(state, batch, dropout_rng=keys)
            if waits:
                jax.block_until_ready((state, metrics))
            found.append(metrics)
        jax.block_until_ready(state.params)
        return [float(metrics["loss"][0] / metrics["denominator"][0]) for metrics in found]

    about = {"about": f"1 x {jax.devices()[0].device_kind}"}
    return Prepared(take_turn, len(sides[0]), about, device_memory)


def _imported(folder: str) -> tuple[Any, Any]:
    """Its `models` and `train`; what the step does not need is not loaded."""
    logging.getLogger("absl").setLevel(logging.ERROR)
    importlib.import_module("flax.training.checkpoints")  # which looks for the real TensorFlow
    sys.path.insert(0, str(Path(folder).resolve()))
    sys.modules.update({name: MagicMock() for name in NOT_TIMED})
    try:
        models, train = (importlib.import_module(name) for name in ("models", "train"))
        for module, names in ((models, ITS_MODELS), (train, ITS_TRAINING)):
            for name in names:
                getattr(module, name)
        return models, train
    except (ImportError, AttributeError) as error:
        raise RefusalError(
            f"--flax_wmt={folder}: expected the folder examples/wmt of flax's sources; {error}"
        ) from error


def _sizes(shapes: dict[str, tuple[int, ...]]) -> dict[str, int]:
    """The sizes of our parameters, by the names its configuration has for them."""
    d_model, heads, d_k = shapes["encoder_0/self_attention/query/kernel"]
    return {
        "vocab_size": shapes["embedding/matrix"][0],
        "output_vocab_size": shapes["embedding/matrix"][0],
        "emb_dim": d_model,
        "num_heads": heads,
        "num_layers": len({n.split("/")[0] for n in shapes if n.startswith("encoder_")}),
        "qkv_dim": heads * d_k,
        "mlp_dim": shapes["encoder_0/feed_forward/inner/kernel"][1],
    }
