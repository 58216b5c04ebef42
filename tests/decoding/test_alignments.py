"""Attention of single steps, and word alignments out of it, against loops in Python."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from tiny_translator import CONFIG, params_of

from jax_transformer.decoding.alignments import cross_attention, word_alignment
from jax_transformer.models.transformer import Transformer

BOS, EOS = 1, 2


def test_the_attention_is_that_of_the_search_s_step_that_predicts_the_token():
    model = Transformer(CONFIG, vocabulary_size=20, pad_id=0)
    source, target = np.array([[5, 6, 7, EOS, 0]]), np.array([[8, 9, 5, EOS, 0, 0]])
    params = params_of(model)

    apply = partial(model.apply, {"params": params})
    memory = jax.jit(
        lambda source: apply(apply(source, method="encode"), source, method="remember")
    )(source)

    @jax.jit
    def step(*inputs):
        return apply(memory, *inputs, method="decode_step", mutable=["intermediates"])

    cache, rows = model.empty_cache(1, 4), []
    for position, token in enumerate([BOS, 8, 9, 5]):
        (_, cache), sown = step(cache, jnp.array([token]), jnp.array(position))
        maps = sown["intermediates"]["decoder_0"]["cross_attention"]["attention_weights"]
        rows.append(maps[0][0, :, 0])
    expected = jnp.stack(rows)  # [T, H, S]

    @jax.jit
    def at_once(params):
        found = partial(cross_attention, model, params, source, target, bos_id=BOS, layer=0)
        return found(), found(head=1)

    mean, one = at_once(params)
    assert mean.shape == one.shape == (1, 6, 5)
    np.testing.assert_allclose(mean[0, :4], expected.mean(axis=1), atol=1e-5)
    np.testing.assert_allclose(one[0, :4], expected[:, 1], atol=1e-5)


def test_alignments_are_those_of_loops_over_words_and_pieces():
    random = np.random.default_rng(0)
    for _ in range(100):
        source, target = (np.sort(random.integers(0, 5, random.integers(1, 9))) for _ in range(2))
        weights = random.dirichlet(np.ones(12), size=10)
        weights[:, len(source)] += 5  # the end mark
        weights[len(target)] += 5
        expected = []
        for word in sorted(set(target.tolist())):
            totals = {}
            for t, s in np.ndindex(len(target), len(source)):
                if target[t] == word:
                    totals[int(source[s])] = totals.get(int(source[s]), 0.0) + weights[t, s]
            expected.append((max(totals, key=lambda each: totals[each]), word))
        assert word_alignment(weights, source.tolist(), target.tolist()) == sorted(expected)
    assert word_alignment(weights, [], [0]) == word_alignment(weights, [0], []) == []
