"""The formula of the FLOPs against XLA's own count."""

from typing import Any

import jax
import numpy as np
import pytest

from jax_transformer.config import ModelConfig
from jax_transformer.evaluation.flops import count_training_flops
from jax_transformer.models.transformer import Transformer
from jax_transformer.training.optimizer import adam_with_warmup
from jax_transformer.training.train_step import (
    Batch,
    initial_state,
    make_loss,
    make_train_step,
)

# No two widths are alike, so that none can replace another; wide enough for products to dominate.
UNEQUAL = ModelConfig(num_layers=2, d_model=320, d_ff=800, num_heads=3, d_k=96, d_v=160)


def test_xla_counts_the_same_flops_in_a_training_step_within_1_percent():
    """The whole step, with dropout and Adam, and with the scores that are computed again."""
    config, vocabulary_size, source, target = UNEQUAL, 5000, 30, 70
    pairs = 1000
    model = Transformer(config, vocabulary_size, pad_id=0)
    optimizer = adam_with_warmup(config.d_model, 4000)
    state = jax.eval_shape(lambda: initial_state(model, optimizer, 0))
    batch = Batch(*(np.ones((pairs, length), np.int32) for length in (source, target)))
    step = jax.jit(make_train_step(make_loss(model, 1, 0.1), optimizer))
    counted: Any = step.lower(state, batch).cost_analysis()
    formula = pairs * count_training_flops(config, vocabulary_size, source, target)
    scores = config.num_heads * config.d_k * (source**2 + target**2 + source * target)
    formula += pairs * 2 * config.num_layers * scores
    assert counted["flops"] == pytest.approx(formula, rel=0.01)
