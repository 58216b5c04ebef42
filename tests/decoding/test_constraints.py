"""Masks against an enumeration of all outputs of a small vocabulary."""

import itertools
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_transformer.decoding.beam_search import length_penalty
from jax_transformer.decoding.constraints import (
    at_least,
    beginning_with,
    except_in_prefix,
    masked_search,
    no_repeated_ngram,
    without_phrases,
)
from jax_transformer.decoding.phrases import phrase_automaton

PAD, BOS, EOS, SIZE, LENGTH, BEAM = 0, 1, 2, 6, 5, 80
IDS: Any = {"bos_id": BOS, "eos_id": EOS, "pad_id": PAD}
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


def searched(table, masks, *arguments, alpha=0.0, **settings):
    """The best output of each sentence by a beam with room for all, for each of the arguments.

    masks: a function of the space of outputs and of an argument.
    """
    rows = jnp.repeat(jnp.arange(2), BEAM)

    def step(state, token, position):
        return jnp.asarray(table, jnp.float32)[state, position, token], state

    @jax.jit
    def search(argument):
        return masked_search(
            step,
            rows,
            LIMITS,
            masks=lambda space: masks(space, argument),
            size=SIZE,
            beam_size=BEAM,
            length=LENGTH,
            alpha=alpha,
            **settings,
            **IDS,
        )

    for argument in arguments or [()]:
        found = search(argument)
        outputs = [row[: row.index(EOS) + 1] for row in found.tokens[:, 0].tolist()]
        yield outputs, found.log_probs[:, 0]


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


def assert_best(found, expected):
    for ours, theirs in zip(found, expected, strict=True):
        assert ours[0] == theirs[0]
        np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-5)


def test_outputs_have_the_minimum_length_or_that_of_their_limit(table):
    each = [np.full(2 * BEAM, fewest) for fewest in (1, 3, 5)]
    expected = [
        best(table, lambda _, tokens, limit, n=n: len(tokens) >= min(n, limit)) for n in (1, 3, 5)
    ]
    assert_best(searched(table, lambda space, own: [at_least(own, space)], *each), expected)


@pytest.mark.parametrize("n", [1, 2])
def test_no_ngram_comes_twice(table, n):
    table = table + np.where(np.arange(SIZE) == 3, 3, 0)

    def masks(space, _):  # only long outputs have repetitions
        return [at_least(4, space), no_repeated_ngram(n, space)]

    expected = best(table, lambda _, tokens, limit: len(tokens) >= 4 and not repeats(tokens, n))
    assert expected[0] != best(table, lambda _, tokens, limit: len(tokens) >= 4)[0]
    assert_best(searched(table, masks), [expected])


@pytest.mark.parametrize("phrases", [["a"], ["ab a", "b"]])
def test_no_phrase_is_in_an_output_but_at_its_limit(table, phrases):
    texts = ["", "", "", " a", "b", " b"]
    automaton = phrase_automaton(phrases, texts, EOS)
    words = re.compile("|".join(rf"\b{phrase}\b" for phrase in phrases))

    def allowed(_, tokens, limit):
        text = "".join(texts[token] for token in tokens)
        if len(tokens) == limit:  # its last word may complete a phrase
            text = text.rpartition(" ")[0] + " "
        return not words.search(text)

    found = searched(table, lambda space, _: [without_phrases(automaton, space)])
    assert_best(found, [best(table, allowed)])


def test_an_output_begins_with_its_prefix_and_log_p_counts_it(table):
    cases = [[], [5, 5, 3]], [[3, EOS], [4, 4, EOS]], [[5, 3, 4, 4], [3]]
    each = [np.array([[*row, *[-1] * (4 - len(row))] for row in case]) for case in cases]

    def masks(space, prefix):
        return [beginning_with(jnp.repeat(prefix, BEAM, axis=0), space)]

    expected = [best(table, lambda i, tokens, _, c=c: tokens[: len(c[i])] == c[i]) for c in cases]
    assert_best(searched(table, masks, *each), expected)


def test_outputs_are_ranked_by_what_follows_their_prefix(table):
    """A prefix that is unlikely would reward length, if its log P were divided by it too."""
    table = table - 20 * (np.arange(SIZE) == 5)
    prefixes = [[5, 5], [5]]

    def score(table, sentence, tokens):
        prefix = prefixes[sentence]
        chosen = log_p(table, sentence, tokens) - log_p(table, sentence, prefix)
        return chosen / float(length_penalty(len(tokens) - len(prefix), 1.0))

    def whole(table, sentence, tokens):
        return log_p(table, sentence, tokens) / float(length_penalty(len(tokens), 1.0))

    def allowed(sentence, tokens, _):
        begins = tokens[: len(prefixes[sentence])] == prefixes[sentence] != tokens[:-1]
        return begins and len(tokens) >= 4

    prefix = np.repeat([[5, 5], [5, -1]], BEAM, axis=0)
    found = searched(
        table,
        lambda space, _: [beginning_with(prefix, space), at_least(4, space)],
        alpha=1.0,
        given=np.array([2, 1]),
    )
    expected = best(table, allowed, score)
    assert_best(found, [expected])
    assert expected[0] != best(table, allowed, whole)[0]


def test_a_mask_can_let_a_prefix_be_and_still_remember_it(table):
    prefix = np.repeat([[3, 3], [-1, -1]], BEAM, axis=0)

    def masks(space, _):
        once = except_in_prefix(no_repeated_ngram(1, space), space)
        return [once, beginning_with(prefix, space)]

    def allowed(i, tokens, _):
        if i:
            return not repeats(tokens, 1)
        return tokens[:2] == [3, 3] and not repeats(tokens[1:], 1)

    assert_best(searched(table, masks, given=np.array([2, 0])), [best(table, allowed)])
