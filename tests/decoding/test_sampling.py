"""Samples: their distribution by enumeration, and what a draw depends on."""

import itertools
from collections import Counter
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_transformer.decoding.beam_search import beam_search
from jax_transformer.decoding.constraints import beginning_with, masked_search
from jax_transformer.decoding.sampling import sample, truncated

PAD, BOS, EOS, SIZE, LENGTH = 0, 1, 2, 6, 4
SETTINGS = {"alpha": 0.0, "length": LENGTH, "bos_id": BOS, "eos_id": EOS, "pad_id": PAD}
SAMPLES = 20_000


@pytest.fixture(scope="module")
def table():
    """Logits [last token, next token]."""
    table = np.random.default_rng(5).normal(0, 1.2, (SIZE, SIZE))
    table[:, [PAD, BOS]] = -np.inf
    return table


def step_of(table):
    table = jnp.asarray(table, jnp.float32)
    return lambda state, token, position: (table[token], state)


@partial(jax.jit, static_argnames="samples")
def drawn(table, keys, each, samples):
    step, limits = step_of(table), np.full(len(keys), LENGTH)
    own = {"beam_size": samples, "n_best": samples, **each}
    return sample(step, (), limits, keys=keys, **own, **SETTINGS)


def draw(table, samples=SAMPLES, seed=0, numbers=(0,), options=({},)):
    """Samples of a sentence for each of the numbers; options: for each of them."""
    keys = jnp.stack([jax.random.fold_in(jax.random.key(seed), number) for number in numbers])
    usual = {"temperature": 1.0, "top_k": 0, "top_p": 1.0}
    each = {name: np.array([own.get(name, usual[name]) for own in options]) for name in usual}
    return drawn(table, keys, each, samples)


def kept(logits, temperature=1.0, top_k=0, top_p=1.0):
    """The distribution that a token is drawn from, by sorting."""
    p = np.exp(np.asarray(logits) / temperature)
    order = np.argsort(-p)
    if top_k:
        p[order[top_k:]] = 0
    p = p / p.sum()
    if top_p < 1:
        fewest = int(np.searchsorted(np.cumsum(p[order]), top_p)) + 1
        p[order[fewest:]] = 0
    return p / p.sum()


def all_outputs():
    for length in range(LENGTH):
        for words in itertools.product(range(3, SIZE), repeat=length):
            yield (*words, EOS)


def chi_square(found, expected):
    """Of counts and probabilities; also the degrees of freedom. Rare ones are one class."""
    rare = expected * found.sum() < 5
    found = np.append(found[~rare], found[rare].sum())
    expected = np.append(expected[~rare], expected[rare].sum()) * found.sum()
    usual = expected > 0
    assert (found[~usual] == 0).all()
    return ((found - expected)[usual] ** 2 / expected[usual]).sum(), usual.sum() - 1


OPTIONS = [
    {},
    {"temperature": 0.6},
    {"top_k": 2},
    {"top_p": 0.7},
    {"temperature": 1.5, "top_k": 3, "top_p": 0.8},
]


def test_outputs_have_the_distribution_of_an_enumeration_by_the_options_of_each_line(table):
    found = draw(table, numbers=range(5), options=OPTIONS).tokens.tolist()
    outputs = list(all_outputs())
    for options, drawn in zip(OPTIONS, found, strict=True):
        rows = np.array([kept(row, **options) for row in table])
        expected = np.array(
            [
                np.prod([rows[a, b] for a, b in itertools.pairwise((BOS, *tokens[:-1]))])
                * (1 if len(tokens) == LENGTH else rows[(BOS, *tokens)[-2], EOS])
                for tokens in outputs
            ]
        )
        assert expected.sum() == pytest.approx(1)
        counts = Counter(tuple(row[: row.index(EOS) + 1]) for row in drawn)
        assert counts.keys() <= {*outputs}
        statistic, freedom = chi_square(np.array([counts[each] for each in outputs]), expected)
        # Four standard deviations above the mean of chi-square.
        assert statistic < freedom + 4 * np.sqrt(2 * freedom), options


def test_a_draw_depends_on_seed_line_and_sample_alone_and_log_p_is_the_models_own(table):
    options: Any = [{}, {"temperature": 0.8, "top_k": 3}, {}]
    three: Any = {"samples": 8, "numbers": (7, 3, 11), "options": options}
    among = draw(table, **three)
    alone = draw(table, samples=5, numbers=(3,), options=options[1:2])
    np.testing.assert_array_equal(among.tokens[1, :5], alone.tokens[0])
    other = draw(table, seed=1, **three)
    assert (among.tokens != other.tokens).any(axis=(1, 2)).all()
    assert len({tuple(row) for row in among.tokens[0].tolist()}) > 2
    for row, log_prob in zip(among.tokens[1].tolist(), among.log_probs[1], strict=True):
        assert float(log_prob) == pytest.approx(log_p(table, row[: row.index(EOS) + 1]), rel=1e-5)


def test_keys_of_the_older_kind_draw_what_keys_do(table):
    keys = jax.random.split(jax.random.key(1), 2)
    found, expected = (drawn(table, own, {}, 4) for own in (jax.random.key_data(keys), keys))
    np.testing.assert_array_equal(found.tokens, expected.tokens)


def test_a_sample_is_scored_by_what_follows_its_prefix(table):
    prefix = np.repeat([[5, 3]], 4, axis=0)
    settings: Any = {**SETTINGS, "alpha": 1.0, "beam_size": 4, "n_best": 4, "size": SIZE}
    settings |= {"masks": lambda space: [beginning_with(prefix, space)], "given": np.array([2])}
    search = partial(masked_search, step_of(table), (), np.array([LENGTH]), search=sample)
    found = jax.jit(lambda keys: search(keys=keys, **settings))(jax.random.key(4)[None])
    given = log_p(table, (5, 3))
    for row, log_prob, score in zip(
        found.tokens[0].tolist(), found.log_probs[0], found.scores[0], strict=True
    ):
        tokens = row[: row.index(EOS) + 1]
        assert float(log_prob) == pytest.approx(log_p(table, tokens), rel=1e-5)
        expected = (float(log_prob) - given) / ((5 + len(tokens) - 2) / 6)
        assert float(score) == pytest.approx(expected, rel=1e-4)


def log_p(table, tokens):
    log_probs = np.asarray(jax.nn.log_softmax(jnp.asarray(table), axis=-1))
    return float(sum(log_probs[a, b] for a, b in itertools.pairwise((BOS, *tokens))))


GREEDY = [
    {"temperature": 0.0},
    {"temperature": 0.0, "top_k": 3, "top_p": 0.9},
    {"temperature": 1.2e-38},
    {"top_p": 1.2e-38},
    {"top_p": 1e-45},  # which a CPU takes for 0
]


def test_without_chance_each_sample_is_the_greedy_output(table):
    found = draw(table * 30, samples=5, numbers=range(5), options=GREEDY)
    search = partial(beam_search, step_of(table * 30), (), beam_size=1, **SETTINGS)
    greedy = jax.jit(search)(np.array([LENGTH]))
    assert (np.asarray(found.tokens) == np.asarray(greedy.tokens[0, 0])).all()
    np.testing.assert_allclose(found.log_probs, float(greedy.log_probs[0, 0]), atol=1e-5)


def test_a_sample_that_nothing_may_follow_is_missing_and_stops_nobody_else(table):
    table = table.copy()
    table[3] = -np.inf  # nothing follows a 3

    def allowed(last):
        return jnp.asarray(np.isfinite(table))[last]

    logits = jnp.asarray(np.where(np.isfinite(table), table, -5), jnp.float32)
    found = jax.jit(
        lambda keys: sample(
            lambda state, token, position: (logits[token], token), jnp.zeros(64, jnp.int32),
            np.array([LENGTH]), keys=keys, beam_size=64, n_best=64, allowed=allowed, **SETTINGS,
        )
    )(jax.random.key(1)[None])  # fmt: skip
    missing = np.asarray(found.scores[0]) == -np.inf
    assert 0 < missing.sum() < 64
    assert found.complete.all()
    assert (found.log_probs[0][missing] == -np.inf).all()
    assert (found.tokens[0][missing] == PAD).all()
    assert (found.tokens[0][~missing] != 3).all()
    assert (found.tokens[0][~missing] == EOS).sum(axis=1).all()


def test_of_equal_probabilities_top_k_and_top_p_keep_all():
    even = jnp.log(jnp.array([[0.25, 0.25, 0.25, 0.25]]))
    assert jnp.isfinite(truncated(even, top_k=2)).all()
    assert jnp.isfinite(truncated(even, top_p=0.3)).all()
