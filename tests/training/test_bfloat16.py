"""The demo's model learns in bfloat16 as it does in float32."""

import dataclasses
import itertools
import re

import jax
import numpy as np
import pytest

from jax_transformer.models.transformer import Transformer
from jax_transformer.presets import find_experiment
from jax_transformer.training.optimizer import adam_with_warmup
from jax_transformer.training.train_step import Batch, initial_state, make_loss, make_train_step
from tools.demo.sentences import random_sentences

STEPS, ROWS, LENGTH, WORDS, PAD, BOS, EOS = 100, 32, 16, 400, 0, 1, 2


def batches() -> list[Batch]:
    """Sentences of the demo, a word or a mark a token; rare words share one with another."""
    ids: dict[str, int] = {}

    def row(text: str) -> list[int]:
        tokens = [
            ids.setdefault(word, len(ids) % WORDS + 3) for word in re.findall(r"\w+|\S", text)
        ]
        tokens = [*tokens[: LENGTH - 1], EOS]
        return tokens + [PAD] * (LENGTH - len(tokens))

    pairs = [
        (row(each.english), row(each.german))
        for each in itertools.islice(random_sentences(seed=1), STEPS * ROWS)
    ]
    sides = np.array(pairs, np.int32).reshape(STEPS, ROWS, 2, LENGTH)
    return [Batch(rows[:, 0], rows[:, 1]) for rows in sides]


def losses(dtype: str, data: list[Batch]) -> np.ndarray:
    """Nats per token of each step."""
    demo = find_experiment("demo").config()
    small = {"num_layers": 1, "d_model": 64, "d_ff": 128, "d_k": 16, "d_v": 16}
    config = dataclasses.replace(demo.model, compute_dtype=dtype, **small)
    training = demo.training
    model = Transformer(config, WORDS + 3, PAD)
    optimizer = adam_with_warmup(
        config.d_model, training.warmup_steps, training.learning_rate_scale
    )
    state = initial_state(model, optimizer, seed=0)
    step = jax.jit(make_train_step(make_loss(model, BOS, label_smoothing=0.1), optimizer))
    found = []
    for batch in data:
        state, metrics = step(state, batch)
        found.append(metrics.loss.nll / metrics.loss.tokens)
    return np.array(found)


@pytest.mark.slow
@pytest.mark.release
def test_the_loss_in_bfloat16_follows_that_in_float32():
    data = batches()
    exact, rounded = losses("float32", data), losses("bfloat16", data)
    assert exact[-10:].mean() < exact[:10].mean() - 2  # it has learnt much by then
    assert np.abs(rounded - exact).max() > 1e-5
    means = [curve.reshape(-1, 10).mean(axis=1) for curve in (exact, rounded)]
    np.testing.assert_allclose(means[1], means[0], rtol=0.02)
