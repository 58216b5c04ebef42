"""Samples: their distribution by enumeration, and what a draw depends on."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_transformer.decoding.masks import beginning_with, masked_search
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


def draw(table, samples=SAMPLES, seed=0, numbers=(0,), limit=LENGTH, **options):
    keys = jnp.stack([jax.random.fold_in(jax.random.key(seed), number) for number in numbers])
    limits = np.full(len(numbers), limit)
    return jax.jit(
        lambda keys: sample(
            step_of(table), (), limits, keys=keys, beam_size=samples, n_best=samples, **SETTINGS,
            **options,
        )
    )(keys)  # fmt: skip


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


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"temperature": 0.6},
        {"top_k": 2},
        {"top_p": 0.7},
        {"temperature": 1.5, "top_k": 3, "top_p": 0.8},
    ],
)
def test_outputs_have_the_distribution_of_an_enumeration(table, options):
    rows = np.array([kept(row, **options) for row in table])
    outputs = list(all_outputs())
    expected = np.array(
        [
            np.prod([rows[a, b] for a, b in itertools.pairwise((BOS, *tokens[:-1]))])
            * (1 if len(tokens) == LENGTH else rows[(BOS, *tokens)[-2], EOS])
            for tokens in outputs
        ]
    )
    assert expected.sum() == pytest.approx(1)
    found = draw(table, **options).tokens[0].tolist()
    counts = np.zeros(len(outputs))
    for row in found:
        counts[outputs.index(tuple(row[: row.index(EOS) + 1]))] += 1
    statistic, freedom = chi_square(counts, expected)
    # Four standard deviations above the mean of chi-square.
    assert statistic < freedom + 4 * np.sqrt(2 * freedom)


def test_log_p_is_that_of_the_model_whatever_the_draw(table):
    found = draw(table, samples=50, temperature=0.5, top_k=2)
    log_probs = np.asarray(jax.nn.log_softmax(jnp.asarray(table), axis=-1))
    for row, log_prob in zip(found.tokens[0].tolist(), found.log_probs[0], strict=True):
        tokens = [BOS, *row[: row.index(EOS) + 1]]
        expected = sum(log_probs[a, b] for a, b in itertools.pairwise(tokens))
        assert log_prob == pytest.approx(expected, rel=1e-5)


def test_a_draw_depends_on_seed_line_and_sample_alone(table):
    among = draw(table, samples=8, numbers=(7, 3, 11))
    alone = draw(table, samples=5, numbers=(3,))
    np.testing.assert_array_equal(among.tokens[1, :5], alone.tokens[0])
    other = draw(table, samples=8, numbers=(7, 3, 11), seed=1)
    assert (among.tokens != other.tokens).any(axis=(1, 2)).all()
    assert len({tuple(row) for row in among.tokens[0].tolist()}) > 2


def test_a_sample_goes_on_after_a_prefix(table):
    keys = jax.random.key(4)[None]
    prefix = np.repeat([[5, 3]], 300, axis=0)
    found = masked_search(
        step_of(table), (), np.array([LENGTH]), masks=lambda *_: [beginning_with(prefix, SIZE)],
        search=sample, keys=keys, beam_size=300, n_best=300, **SETTINGS,
    )  # fmt: skip
    np.testing.assert_array_equal(found.tokens[0, :, :2], prefix)
    third = np.bincount(np.asarray(found.tokens)[0, :, 2], minlength=SIZE)
    statistic, freedom = chi_square(third, kept(table[3]))
    assert statistic < freedom + 4 * np.sqrt(2 * freedom)


def test_of_equal_probabilities_top_k_and_top_p_keep_all():
    even = jnp.log(jnp.array([[0.25, 0.25, 0.25, 0.25]]))
    assert jnp.isfinite(truncated(even, top_k=2)).all()
    assert jnp.isfinite(truncated(even, top_p=0.3)).all()
