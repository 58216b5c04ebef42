"""The whole model in float64 against loops over the paper's equations, without any mask.

The paper's model, and then one setting of its relatives after the other.
"""

import dataclasses
import math
from typing import Any

import jax
import numpy as np
import pytest
from random_params import random_params

from jax_transformer.config import ModelConfig
from jax_transformer.models.transformer import Transformer

PAD, BOS, EOS, SIZE = 0, 1, 2, 15
DOUBLE: Any = "float64"  # no setting for users
CONFIG = ModelConfig(
    num_layers=2, d_model=12, d_ff=20, num_heads=3, d_k=4, d_v=5, attention_bias=True
)
SOURCE = np.array([[7, 3, 9, 12, EOS, PAD], [5, 14, EOS, PAD, PAD, PAD], [4, 4, 8, 13, 6, EOS]])
TARGET = np.array([[BOS, 8, 8, 10, 3], [BOS, 6, PAD, PAD, PAD], [BOS, 11, 5, 9, PAD]])


def softmax(scores: np.ndarray) -> np.ndarray:
    exponentials = np.exp(scores - scores.max())
    return exponentials / exponentials.sum()


def attend(params, x: np.ndarray, legal: np.ndarray) -> np.ndarray:
    """MultiHead of one position x [d_model] over the positions that it may see, legal [K, d_model].

    Equation (1) and §3.2.2.
    """
    result = params["output"]["bias"].copy()
    for head in range(CONFIG.num_heads):
        query, keys, values = (
            array @ params[name]["kernel"][:, head] + params[name]["bias"][head]
            for name, array in (("query", x), ("key", legal), ("value", legal))
        )
        weights = softmax(keys @ query / math.sqrt(CONFIG.d_k))
        result += (weights @ values) @ params["output"]["kernel"][head]
    return result


def normalised(params, x: np.ndarray, config: ModelConfig) -> np.ndarray:
    """LayerNorm(x) of one position."""
    centred = x - x.mean()
    return (
        centred / math.sqrt((centred**2).mean() + config.norm_epsilon) * params["scale"]
        + params["bias"]
    )


def feed_forward(params, x: np.ndarray, activation: str) -> np.ndarray:
    """FFN(x) of one position, equation (2), or with another activation."""
    inner = x @ params["inner"]["kernel"] + params["inner"]["bias"]
    if activation == "relu":
        inner = np.maximum(0, inner)
    elif activation == "swish":
        inner = inner / (1 + np.exp(-inner))
    else:  # gelu: x times the distribution function of the normal distribution
        inner = inner * [(1 + math.erf(y / math.sqrt(2))) / 2 for y in inner]
    return inner @ params["outer"]["kernel"] + params["outer"]["bias"]


def embed(params, side: str, tokens: list[int], config: ModelConfig) -> np.ndarray:
    """Embeddings times sqrt(d_model) (§3.4) plus sines and cosines (§3.5), or a table's rows."""
    name = "target_embedding" if side == "target" and not config.tie_source else "embedding"
    result = params[name]["matrix"][tokens] * math.sqrt(config.d_model)
    if config.positions == "learned":
        return result + params["position_table"][: len(tokens)]
    for position, i in np.ndindex(len(tokens), config.d_model // 2):
        angle = position / 10000 ** (2 * i / config.d_model)
        result[position, 2 * i] += math.sin(angle)
        result[position, 2 * i + 1] += math.cos(angle)
    return result


def layer_by_loops(params, x: np.ndarray, config: ModelConfig, encoded=None) -> np.ndarray:
    """One layer of a stack, position by position; encoded: None in the encoder."""
    pre = config.norm_position == "pre"
    result = np.empty_like(x)

    def before(name, y):
        return normalised(params[f"{name}_norm"]["norm"], y, config) if pre else y

    def after(name, y, sublayer):
        added = y + sublayer
        return added if pre else normalised(params[f"{name}_norm"]["norm"], added, config)

    inputs = np.stack([before("self_attention", y) for y in x])
    for t, y in enumerate(x):
        legal = inputs if encoded is None else inputs[: t + 1]  # itself and what came before
        y = after("self_attention", y, attend(params["self_attention"], inputs[t], legal))
        if encoded is not None:
            query = before("cross_attention", y)
            y = after("cross_attention", y, attend(params["cross_attention"], query, encoded))
        inner = feed_forward(params["feed_forward"], before("feed_forward", y), config.activation)
        result[t] = after("feed_forward", y, inner)
    return result


def logits_by_loops(params, source, target, config: ModelConfig) -> np.ndarray:
    """Figure 1 for one pair without padding, position by position: [T, V]."""
    encoded = embed(params, "source", source, config)
    for number in range(config.num_layers):
        encoded = layer_by_loops(params[f"encoder_{number}"], encoded, config)
    if config.norm_position == "pre":
        encoded = np.stack([normalised(params["encoder_norm"], x, config) for x in encoded])
    decoded = embed(params, "target", target, config)
    for number in range(config.decoder_layers or config.num_layers):
        decoded = layer_by_loops(params[f"decoder_{number}"], decoded, config, encoded)
    if config.norm_position == "pre":
        decoded = np.stack([normalised(params["decoder_norm"], x, config) for x in decoded])
    matrix = params["embedding" if config.tie_source else "target_embedding"]["matrix"]
    return decoded @ matrix.T + params.get("output_bias", 0)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"activation": "swish", "norm_epsilon": 1e-3, "decoder_layers": 1, "tie_source": False},
        {
            "activation": "gelu",
            "output_bias": True,
            "norm_position": "pre",
            "positions": "learned",
            "max_positions": 8,
        },
    ],
    ids=str,
)
def test_logits_are_the_equations_looped_over_positions_in_float64(changes):
    """To 1e-6 of logits near 3: scores, softmax, angles and logits are float32 even here."""
    config = dataclasses.replace(CONFIG, **changes)
    object.__setattr__(config, "compute_dtype", DOUBLE)  # which would be refused
    model = Transformer(config, vocabulary_size=SIZE, pad_id=PAD)
    with jax.enable_x64(True):
        params = random_params(model, np.float64)
        found = np.asarray(jax.jit(model.apply)({"params": params}, SOURCE, TARGET))
    for row in range(3):
        source, target = (side[row][side[row] != PAD].tolist() for side in (SOURCE, TARGET))
        expected = logits_by_loops(params, source, target, config)
        np.testing.assert_allclose(found[row, : len(target)], expected, rtol=0, atol=1e-6)
