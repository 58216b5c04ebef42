"""Words are counted, by the model that encodes their number."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

from jax_transformer.models.layers import positional_encoding
from jax_transformer.parsing.word_positions import count_marked, word_encoding

MARKS = bytes([0, 0, 1, 0, 1, 1])


@pytest.mark.parametrize("packed", [False, True])
def test_marked_tokens_are_counted_in_each_sentence_of_a_row(packed):
    random = np.random.default_rng(0)
    tokens, positions = random.integers(0, 6, (7, 12)), np.arange(12)[None]
    if packed:  # sentences of 1 to 4 tokens
        lengths = random.integers(1, 5, (7, 12))
        positions = np.stack([np.concatenate([np.arange(n) for n in row])[:12] for row in lengths])
    found = np.asarray(count_marked(tokens, MARKS, positions))
    positions = np.broadcast_to(positions, tokens.shape)
    for row, column in np.ndindex(tokens.shape):
        sentence = tokens[row, column - positions[row, column] : column + 1]
        assert found[row, column] == sum(MARKS[token] for token in sentence)


def test_half_of_the_word_encoding_is_the_token_s_position_and_half_its_word_s():
    words = np.array([[0, 0, 1, 2], [0, 1, 1, 1]])
    positions = jnp.arange(5, 9)[None]
    found = word_encoding(positions, jnp.array(words), 12)
    for row in range(2):
        np.testing.assert_array_equal(found[row, :, :6], positional_encoding(positions[0], 6))
    for pair, rate in enumerate([math.pi, math.pi / 10, math.pi / 100]):
        np.testing.assert_allclose(found[:, :, 6 + 2 * pair], np.sin(rate * words), atol=1e-6)
        np.testing.assert_allclose(found[:, :, 7 + 2 * pair], np.cos(rate * words), atol=1e-6)
