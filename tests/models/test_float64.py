"""The whole model in float64 against loops over the paper's equations, without any mask."""

import math
from typing import Any

import jax
import numpy as np
from random_params import random_params

from jax_transformer.config import ModelConfig
from jax_transformer.models.transformer import Transformer

PAD, BOS, EOS, SIZE = 0, 1, 2, 15
DOUBLE: Any = "float64"  # no setting for users
CONFIG = ModelConfig(
    num_layers=2,
    d_model=12,
    d_ff=20,
    num_heads=3,
    d_k=4,
    d_v=5,
    attention_bias=True,
)
object.__setattr__(CONFIG, "compute_dtype", DOUBLE)  # which would be refused
MODEL = Transformer(CONFIG, vocabulary_size=SIZE, pad_id=PAD)
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


def add_and_norm(params, x: np.ndarray, sublayer: np.ndarray) -> np.ndarray:
    """LayerNorm(x + Sublayer(x)) of one position, §3.1."""
    added = x + sublayer
    centred = added - added.mean()
    normalised = centred / math.sqrt((centred**2).mean() + 1e-6)
    return normalised * params["norm"]["scale"] + params["norm"]["bias"]


def feed_forward(params, x: np.ndarray) -> np.ndarray:
    """FFN(x) of one position, equation (2)."""
    inner = np.maximum(0, x @ params["inner"]["kernel"] + params["inner"]["bias"])
    return inner @ params["outer"]["kernel"] + params["outer"]["bias"]


def embed(matrix: np.ndarray, tokens: list[int]) -> np.ndarray:
    """Embeddings times sqrt(d_model) (§3.4) plus sines and cosines (§3.5)."""
    result = matrix[tokens] * math.sqrt(CONFIG.d_model)
    for position, i in np.ndindex(len(tokens), CONFIG.d_model // 2):
        angle = position / 10000 ** (2 * i / CONFIG.d_model)
        result[position, 2 * i] += math.sin(angle)
        result[position, 2 * i + 1] += math.cos(angle)
    return result


def logits_by_loops(params, source: list[int], target: list[int]) -> np.ndarray:
    """Figure 1 for one pair without padding, position by position: [T, V]."""
    matrix = params["embedding"]["matrix"]  # in three places
    encoded = embed(matrix, source)
    for number in range(CONFIG.num_layers):
        layer, before = params[f"encoder_{number}"], encoded.copy()
        for t, x in enumerate(before):
            x = add_and_norm(
                layer["self_attention_norm"], x, attend(layer["self_attention"], x, before)
            )
            encoded[t] = add_and_norm(
                layer["feed_forward_norm"], x, feed_forward(layer["feed_forward"], x)
            )
    decoded = embed(matrix, target)
    for number in range(CONFIG.num_layers):
        layer, before = params[f"decoder_{number}"], decoded.copy()
        for t, x in enumerate(before):
            past = before[: t + 1]  # itself and what came before
            x = add_and_norm(
                layer["self_attention_norm"], x, attend(layer["self_attention"], x, past)
            )
            x = add_and_norm(
                layer["cross_attention_norm"], x, attend(layer["cross_attention"], x, encoded)
            )
            decoded[t] = add_and_norm(
                layer["feed_forward_norm"], x, feed_forward(layer["feed_forward"], x)
            )
    return decoded @ matrix.T


def test_logits_are_the_paper_s_equations_looped_over_positions_in_float64():
    """To 1e-6 of logits near 3: scores, softmax, angles and logits are float32 even here."""
    with jax.enable_x64(True):
        params = random_params(MODEL, np.float64)
        found = np.asarray(jax.jit(MODEL.apply)({"params": params}, SOURCE, TARGET))
    for row in range(3):
        source, target = (side[row][side[row] != PAD].tolist() for side in (SOURCE, TARGET))
        expected = logits_by_loops(params, source, target)
        np.testing.assert_allclose(found[row, : len(target)], expected, rtol=0, atol=1e-6)
