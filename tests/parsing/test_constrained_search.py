"""Beam search that writes only trees, over random logits of a step function."""

from functools import cache
from itertools import chain, product
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_transformer.errors import InputError
from jax_transformer.parsing.constrained_search import constrained_search
from jax_transformer.parsing.grammar import tree_grammar
from jax_transformer.parsing.linearize import delinearize

PAD, BOS, EOS = 0, 1, 2
IDS: Any = {"pad_id": PAD, "bos_id": BOS, "eos_id": EOS}
SYMBOLS = ["", "", "", "(A", "/A", "(B", "/B", "x", "\\(y", "", ""]
GRAMMAR = tree_grammar(SYMBOLS, EOS)
ALPHA = 0.3
WORDS = [1, 1, 2, 2, 3, 3, 4, 5, 8, 13, 21, 34, 0]
SLACK = 20
LENGTH = max(WORDS) + SLACK
CODES = 997  # hypotheses of one sentence share this number of tables of next logits


def favourite(random, words):
    """Ids of some tree: random runs of neighbours bracketed a few times."""
    parts = [[random.choice("xy")] for _ in range(words)]
    for _ in range(random.randint(0, 5)):
        first = random.randrange(len(parts))
        last = random.randint(first + 1, min(first + 4, len(parts)))
        label = random.choice("AB")
        parts[first:last] = [["(" + label, *chain(*parts[first:last]), "/" + label]]
    if len(parts) > 1:
        parts = [["(A", *chain(*parts), "/A"]]
    return [SYMBOLS.index("\\(y" if symbol == "y" else symbol) for symbol in parts[0]] + [EOS]


class Sentences:
    """Random logits after each prefix, with more or less weight on a tree of each sentence."""

    def __init__(self, seed):
        random, draw = Random(seed), np.random.default_rng(seed)
        self.table = draw.normal(size=(CODES, len(SYMBOLS))).astype(np.float32)
        self.favoured = np.full((len(WORDS), LENGTH), PAD, np.int32)
        for row, words in enumerate(WORDS):
            symbols = favourite(random, words) if words else [EOS]
            self.favoured[row, : len(symbols)] = symbols
        self.weight = draw.choice([0, 1, 2, 3, 9], len(WORDS)).astype(np.float32)

    def log_prob(self, sentence, tokens):
        """The model's own log P of an output, in float64."""
        code, total = 0, 0.0
        for position, token in enumerate(tokens):
            logits = self.table[code].astype(np.float64)
            logits[self.favoured[sentence, position]] += self.weight[sentence]
            total += logits[token] - np.log(np.exp(logits).sum())
            code = (code * 31 + token + 1) % CODES
        return total


def make_step(table, favoured, weight, beam_size):
    favoured, weight = (jnp.repeat(leaf, beam_size, axis=0) for leaf in (favoured, weight))

    def step(code, token, position):
        code = jnp.where(position == 0, 0, (code * 31 + token + 1) % CODES)
        liked = jax.nn.one_hot(favoured[:, position], len(SYMBOLS))
        return table[code] + weight[:, None] * liked, code

    return step, jnp.zeros(len(weight), jnp.int32)


@cache
def compiled(beam_size):
    """A jitted search: (table, favoured, weight, words, limits) -> hypotheses."""
    settings: Any = {"beam_size": beam_size, "length": LENGTH, "alpha": ALPHA} | IDS

    @jax.jit
    def run(table, favoured, weight, words, limits):
        step, state = make_step(table, favoured, weight, beam_size)
        own = {"words": words, "grammar": GRAMMAR, "n_best": beam_size}
        return constrained_search(step, state, limits, **own, **settings)

    return run


def limits_of(kind):
    """Of every sentence: the fewest symbols its trees need, or some more."""
    least = np.array([{0: 1, 1: 2}.get(count, count + 3) for count in WORDS])
    more = {"tight": 0, "depth": np.arange(len(WORDS)) % 5, "roomy": SLACK - 3}[kind]
    return least + more * (np.array(WORDS) > 0)


def found(beam_size, kind, seed):
    sentences = Sentences(seed)
    given = sentences.table, sentences.favoured, sentences.weight
    run = compiled(beam_size)
    return sentences, jax.device_get(run(*given, np.array(WORDS), limits_of(kind)))


CASES = [(1, "tight", 1), (1, "roomy", 2), (4, "tight", 1), (4, "depth", 1), (4, "roomy", 2)]


def output(tokens):
    tokens = tokens.tolist()
    return tokens[: tokens.index(EOS) + 1]


def is_tree(tokens, words):
    """Whether `delinearize` accepts an output that ends with EOS."""
    symbols = [SYMBOLS[token] for token in tokens]
    if "" in symbols[:-1] or tokens[-1] != EOS:
        return False
    try:
        delinearize(symbols[:-1], [f"w{number}" for number in range(words)])
    except InputError:
        return False
    return True


@pytest.mark.parametrize("case", CASES)
def test_every_output_is_a_tree_over_its_words_and_log_p_is_the_models_own(case):
    """Log P is not renormalized over what the grammar allows."""
    sentences, trees = found(*case)
    for row, (words, limit) in enumerate(zip(WORDS, limits_of(case[1]), strict=True)):
        tokens, scores, log_probs, _ = (leaf[row] for leaf in trees)
        if words == 0:
            continue
        count = np.isfinite(scores).sum()
        assert count >= 1
        assert not tokens[count:].any()
        outputs = [output(each) for each in tokens[:count]]
        assert len(set(map(tuple, outputs))) == count
        assert (scores[1:] <= scores[:-1]).all()
        for rank, each in enumerate(outputs):
            assert is_tree(each, words)
            assert len(each) <= limit
            assert not tokens[rank, len(each) :].any()
        expected = np.array([sentences.log_prob(row, each) for each in outputs])
        np.testing.assert_allclose(log_probs[:count], expected, rtol=1e-4, atol=1e-4)
        penalties = [((5 + len(each)) / 6) ** ALPHA for each in outputs]
        np.testing.assert_allclose(scores[:count], expected / penalties, rtol=1e-4, atol=1e-4)


def test_batch_mates_do_not_change_a_tree():
    sentences, together = found(4, "roomy", 2)
    given = sentences.table, sentences.favoured, sentences.weight
    rows = [3, 7, 9, 11]
    padding = ~np.isin(np.arange(len(WORDS)), rows)
    words = np.where(padding, 0, WORDS)
    apart = jax.device_get(compiled(4)(*given, words, limits_of("roomy")))
    for of_rows, of_all in zip(apart, together, strict=True):
        np.testing.assert_array_equal(of_rows[rows], of_all[rows])
    assert (apart.scores[padding] == -np.inf).all()


def every_tree(words, limit):
    """Ids of all trees of this number of words within the limit, with their end marks."""
    ids = range(3, len(SYMBOLS))
    strings = ([*each, EOS] for n in range(1, limit) for each in product(ids, repeat=n))
    return [tokens for tokens in strings if is_tree(tokens, words)]


@pytest.mark.parametrize(("words", "limit"), [(1, 6), (2, 5)])
def test_a_beam_with_room_for_all_trees_finds_them_all_with_their_log_p(words, limit):
    sentences, expected = Sentences(5), every_tree(words, limit)
    size = len(expected) + 1
    assert size > 8
    given = sentences.table, sentences.favoured[:1], sentences.weight[:1]

    @jax.jit
    def run(table, favoured, weight):
        step, state = make_step(table, favoured, weight, size)
        settings: Any = {"beam_size": size, "length": limit, "alpha": ALPHA, "n_best": size} | IDS
        found = {"words": jnp.array([words]), "grammar": GRAMMAR}
        return constrained_search(step, state, jnp.array([limit]), **found, **settings)

    tokens, scores, log_probs, _ = (leaf[0] for leaf in jax.device_get(run(*given)))
    outputs = [output(each) for each in tokens[:-1]]
    assert sorted(outputs) == sorted(expected)
    assert scores[-1] == -np.inf  # there is no other
    of_model = [sentences.log_prob(0, each) for each in outputs]
    np.testing.assert_allclose(log_probs[:-1], of_model, rtol=1e-5)
