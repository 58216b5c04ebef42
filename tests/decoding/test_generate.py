"""Translating with a model against a loop over its own teacher-forced logits."""

from functools import partial

import jax
import numpy as np
import pytest
from tiny_translator import CONFIG, params_of

from jax_transformer.config import DecodingConfig
from jax_transformer.decoding.generate import log_probabilities, translate
from jax_transformer.models.transformer import Transformer
from jax_transformer.parsing.word_positions import WordTransformer

PAD, BOS, EOS, SIZE = 0, 1, 2, 14
MODEL = Transformer(CONFIG, SIZE, PAD)
SOURCES = [[5, 6, 7, EOS], [9, EOS], [13, 12, 11, 10, 9, EOS], [3, 3, EOS]]
LONGEST = 6 + 4  # the source's length, and the most that an output may be longer


def padded(rows, length):
    return np.array([[*row, *[PAD] * (length - len(row))] for row in rows], np.int32)


@pytest.fixture(scope="module")
def params():
    return params_of(MODEL)


@jax.jit
def teacher_forced(params, source, target):
    return MODEL.apply({"params": params}, source, target)


def log_softmax(logits):
    logits = np.asarray(logits, np.float64)
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def run(params, beam_size):
    """The hypotheses of all sources, as NumPy arrays."""
    decoding = DecodingConfig(beam_size=beam_size, alpha=0.6, max_extra_length=4)
    settings = {"decoding": decoding, "n_best": beam_size, "bos_id": BOS, "eos_id": EOS}
    search = jax.jit(partial(translate, MODEL, **settings))
    return jax.device_get(search(params, padded([*SOURCES, []], 6)))


@pytest.fixture(scope="module")
def found(params):
    return run(params, 3)


def outputs(found, sentence):
    """List (tokens to EOS, score, log P)."""
    return [
        (tokens[: tokens.index(EOS) + 1], score, log_prob)
        for tokens, score, log_prob in zip(
            *(leaf[sentence].tolist() for leaf in found[:3]), strict=True
        )
    ]


def test_scores_are_teacher_forced_log_p_over_the_penalty(params, found):
    """Cache, beam and reordering change nothing of what the model computes at once."""
    source = padded(SOURCES, 6)
    for rank in range(3):
        targets = [outputs(found, sentence)[rank][0] for sentence in range(4)]
        inputs = padded([[BOS, *tokens[:-1]] for tokens in targets], LONGEST)
        log_probs = log_softmax(teacher_forced(params, source, inputs))
        for sentence, tokens in enumerate(targets):
            expected = sum(log_probs[sentence, i, token] for i, token in enumerate(tokens))
            _, score, log_prob = outputs(found, sentence)[rank]
            assert abs(log_prob - expected) < 1e-4
            assert abs(score - expected / ((5 + len(tokens)) / 6) ** 0.6) < 1e-4


def test_a_beam_of_one_follows_the_likeliest_token_of_the_model(params):
    greedy = run(params, 1)
    source, targets = padded(SOURCES, 6), [[] for _ in SOURCES]
    for position in range(LONGEST):
        inputs = padded([[BOS, *tokens][:LONGEST] for tokens in targets], LONGEST)
        logits = np.asarray(teacher_forced(params, source, inputs))
        for row, tokens in enumerate(targets):
            if EOS not in tokens:
                at_limit = position + 1 == len(SOURCES[row]) + 4
                tokens.append(EOS if at_limit else int(logits[row, position].argmax()))
    assert [outputs(greedy, sentence)[0][0] for sentence in range(4)] == targets
    assert len({tuple(tokens) for tokens in targets}) > 1


def test_an_output_is_at_most_max_extra_length_longer_than_its_own_source(found):
    lengths = [len(tokens) for row in range(4) for tokens, *_ in outputs(found, row)]
    limits = [len(source) + 4 for source in SOURCES for _ in range(3)]
    assert all(length <= limit for length, limit in zip(lengths, limits, strict=True))
    assert any(length == limit for length, limit in zip(lengths, limits, strict=True))
    assert found.tokens[4, 0].tolist() == [EOS] + [PAD] * (LONGEST - 1)  # an empty row ends at once
    assert not any(np.isnan(leaf).any() for leaf in found)


def test_pad_is_a_token_like_any_other_before_the_end(params):
    """Samples may contain it, and the log P of their tokens sum to that of the whole."""
    source, target = padded(SOURCES[:2], 6), padded([[5, PAD, 6, PAD, EOS], [EOS]], 7)
    inputs = padded([[BOS, *row[:-1]] for row in target.tolist()], 7)
    log_probs = log_softmax(teacher_forced(params, source, inputs))
    expected = np.take_along_axis(log_probs, target[:, :, None], axis=2)[:, :, 0]
    expected[0, 5:] = expected[1, 1:] = 0
    found = jax.jit(partial(log_probabilities, MODEL, bos_id=BOS))(params, source, target)
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.release
def test_a_model_that_counts_words_translates_with_the_log_p_that_it_scores():
    """The search counts words as it writes; scoring counts them in the whole output."""
    starts, tags = np.isin(np.arange(SIZE), [EOS, 3, 5, 9, 12]), np.isin(np.arange(SIZE), [4, 6])
    model = WordTransformer(CONFIG, SIZE, PAD, word_starts=starts.tobytes(), tags=tags.tobytes())
    params, source = params_of(model), padded(SOURCES, 6)
    decoding = DecodingConfig(beam_size=3, alpha=0.6, max_extra_length=4)
    search = partial(translate, model, decoding=decoding, n_best=3, bos_id=BOS, eos_id=EOS)
    score = partial(log_probabilities, model, bos_id=BOS)
    found = jax.device_get(jax.jit(search)(params, source))
    tokens = found.tokens.reshape(12, LONGEST)
    log_probs = jax.jit(score)(params, source.repeat(3, axis=0), tokens).sum(axis=1)
    np.testing.assert_allclose(found.log_probs.reshape(12), log_probs, atol=1e-4)
