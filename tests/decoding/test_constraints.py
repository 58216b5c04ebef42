"""Masks against an enumeration of all outputs of a small vocabulary."""

import itertools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_transformer.decoding.beam_search import beam_search, length_penalty, length_power
from jax_transformer.decoding.constraints import (
    at_least,
    beginning_with,
    except_in_prefix,
    masked_search,
    no_repeated_ngram,
    without_phrases,
)
from jax_transformer.decoding.phrases import phrase_automaton

PAD, BOS, EOS, SIZE, LENGTH = 0, 1, 2, 6, 5
IDS = {"bos_id": BOS, "eos_id": EOS, "pad_id": PAD}
LIMITS = np.array([5, 4])


@pytest.fixture(scope="module")
def table():
    """Logits [sentence, position, last token, next token]."""
    table = np.random.default_rng(3).normal(0, 1.5, (2, LENGTH, SIZE, SIZE))
    table[..., [PAD, BOS]] = -np.inf
    return table


def log_p(table, sentence, tokens):
    log_probs = table - np.log(np.exp(table).sum(-1, keepdims=True))
    pairs = itertools.pairwise([BOS, *tokens])
    return sum(log_probs[sentence, i, a, b] for i, (a, b) in enumerate(pairs))


def all_outputs(limit):
    for length in range(limit):
        for words in itertools.product(range(3, SIZE), repeat=length):
            yield [*words, EOS]


def searched(table, masks, beam_size=80, alpha=0.0, **settings):
    """The best output of each sentence by a beam with room for all."""
    rows = jnp.repeat(jnp.arange(2), beam_size)

    def step(state, token, position):
        return jnp.asarray(table, jnp.float32)[state, position, token], state

    found = jax.jit(
        lambda rows: masked_search(
            step,
            rows,
            LIMITS,
            masks=masks,
            size=SIZE,
            search=beam_search,
            beam_size=beam_size,
            length=LENGTH,
            alpha=alpha,
            **settings,
            **IDS,
        )
    )(rows)
    outputs = [row[: row.index(EOS) + 1] for row in found.tokens[:, 0].tolist()]
    return outputs, found.log_probs[:, 0]


def best(table, allowed, score=log_p):
    """The best outputs that are allowed, by enumeration, and their log P."""
    found = []
    for sentence, limit in enumerate(LIMITS):
        outputs = [tokens for tokens in all_outputs(limit) if allowed(sentence, tokens, limit)]
        found.append(max(outputs, key=lambda tokens: score(table, sentence, tokens)))
    return found, [log_p(table, i, tokens) for i, tokens in enumerate(found)]


def repeats(tokens, n):
    ngrams = [tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)]
    return len(set(ngrams)) < len(ngrams)


@pytest.mark.parametrize("fewest", [1, 3, 5])
def test_outputs_have_the_minimum_length_or_that_of_their_limit(table, fewest):
    outputs, log_probs = searched(table, lambda space: [at_least(fewest, space)])
    expected = best(table, lambda _, tokens, limit: len(tokens) >= min(fewest, limit))
    assert outputs == expected[0]
    np.testing.assert_allclose(log_probs, expected[1], rtol=1e-5)


@pytest.mark.parametrize("n", [1, 2])
def test_no_ngram_comes_twice(table, n):
    table = table + np.where(np.arange(SIZE) == 3, 3, 0)

    def masks(space):  # only long outputs have repetitions
        return [at_least(4, space), no_repeated_ngram(n, space)]

    outputs, log_probs = searched(table, masks)
    expected = best(table, lambda _, tokens, limit: len(tokens) >= 4 and not repeats(tokens, n))
    assert expected[0] != best(table, lambda _, tokens, limit: len(tokens) >= 4)[0]
    assert outputs == expected[0]
    np.testing.assert_allclose(log_probs, expected[1], rtol=1e-5)


@pytest.mark.parametrize("phrases", [["a"], ["ab"], ["ab a", "b"]])
def test_no_phrase_is_in_an_output_but_at_its_limit(table, phrases):
    texts = ["", "", "", " a", "b", " b"]
    automaton = phrase_automaton(phrases, texts, EOS)
    words = re.compile("|".join(rf"\b{phrase}\b" for phrase in phrases))

    def allowed(_, tokens, limit):
        text = "".join(texts[token] for token in tokens)
        if len(tokens) == limit:  # its last word may complete a phrase
            text = text.rpartition(" ")[0] + " "
        return not words.search(text)

    outputs, log_probs = searched(table, lambda space: [without_phrases(automaton, space)])
    expected = best(table, allowed)
    assert outputs == expected[0]
    np.testing.assert_allclose(log_probs, expected[1], rtol=1e-5)


@pytest.mark.parametrize(
    "prefixes", [[[4], [3, 5]], [[], [5, 5, 3]], [[3, EOS], [4, 4, EOS]], [[5, 3, 4, 4], [3]]]
)
def test_an_output_begins_with_its_prefix_and_log_p_counts_it(table, prefixes):
    prefix = np.array([[*row, *[-1] * (4 - len(row))] for row in prefixes])

    def masks(space):
        return [beginning_with(np.repeat(prefix, 80, axis=0), space)]

    outputs, log_probs = searched(table, masks)
    expected = best(table, lambda i, tokens, _: tokens[: len(prefixes[i])] == prefixes[i])
    assert outputs == expected[0]
    np.testing.assert_allclose(log_probs, expected[1], rtol=1e-5)


@pytest.mark.parametrize("penalty", [length_penalty, length_power])
def test_outputs_are_ranked_by_what_follows_their_prefix(table, penalty):
    """A prefix that is unlikely would reward length, if its log P were divided by it too."""
    table = table - 20 * (np.arange(SIZE) == 5)
    prefixes = [[5, 5], [5]]

    def score(table, sentence, tokens):
        prefix = prefixes[sentence]
        chosen = log_p(table, sentence, tokens) - log_p(table, sentence, prefix)
        return chosen / float(penalty(len(tokens) - len(prefix), 1.0))

    def whole(table, sentence, tokens):
        return log_p(table, sentence, tokens) / float(penalty(len(tokens), 1.0))

    def begins(sentence, tokens, _):
        return tokens[: len(prefixes[sentence])] == prefixes[sentence] != tokens[:-1]

    prefix = np.repeat([[5, 5], [5, -1]], 80, axis=0)
    outputs, log_probs = searched(
        table,
        lambda space: [beginning_with(prefix, space), at_least(4, space)],
        alpha=1.0,
        penalty=penalty,
        given=np.array([2, 1]),
    )
    expected = best(table, lambda *args: begins(*args) and len(args[1]) >= 4, score)
    assert outputs == expected[0]
    np.testing.assert_allclose(log_probs, expected[1], rtol=1e-5)
    assert expected[0] != best(table, lambda *args: begins(*args) and len(args[1]) >= 4, whole)[0]


def test_a_mask_can_let_a_prefix_be_and_still_remember_it(table):
    prefix = np.repeat([[3, 3], [-1, -1]], 80, axis=0)

    def masks(space):
        once = except_in_prefix(no_repeated_ngram(1, space), space)
        return [once, beginning_with(prefix, space)]

    outputs, _ = searched(table, masks, given=np.array([2, 0]))
    expected = best(
        table,
        lambda i, tokens, _: (
            not repeats(tokens, 1) if i else tokens[:2] == [3, 3] and not repeats(tokens[1:], 1)
        ),
    )
    assert outputs == expected[0]
