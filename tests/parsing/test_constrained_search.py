"""Beam search that writes trees: over random logits of a step function, and with a model."""

from functools import cache
from itertools import chain, product
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import io_callback

from jax_transformer.config import DecodingConfig, ModelConfig
from jax_transformer.decoding.beam_search import beam_search
from jax_transformer.decoding.generate import log_probabilities, parse, translate
from jax_transformer.errors import InputError
from jax_transformer.models.transformer import Transformer
from jax_transformer.parsing.constrained_search import tree_search
from jax_transformer.parsing.grammar import deepest, start, tree_grammar, within
from jax_transformer.parsing.linearize import rebuild

PAD, BOS, EOS = 0, 1, 2
IDS: Any = {"pad_id": PAD, "bos_id": BOS, "eos_id": EOS}
SYMBOLS = ["<pad>", "<s>", "</s>", "(A", "/A", "(B", "/B", "x", "\\(y", "(C", "/D"]
GRAMMAR = tree_grammar(SYMBOLS, **IDS)
ALPHA = 0.3
WORDS = [1, 1, 2, 2, 3, 3, 4, 5, 8, 13, 21, 34, 60, 120, 200, 0]
SLACK = 20
LENGTH = max(WORDS) + SLACK
CODES = 997  # hypotheses of one sentence have one of so many next logits


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
def compiled(beam_size, n_best):
    """(parses, hypotheses without a grammar) of (table, favoured, weight, words, limits)."""
    settings: Any = {
        "beam_size": beam_size,
        "length": LENGTH,
        "alpha": ALPHA,
        "n_best": n_best,
    } | IDS

    @jax.jit
    def run(table, favoured, weight, words, limits):
        step, state = make_step(table, favoured, weight, beam_size)
        parses = tree_search(step, state, words, limits, GRAMMAR, **settings)
        return parses, beam_search(step, state, limits, **settings)

    return run


def limits_of(kind, words=WORDS):
    """Of every sentence: the fewest symbols its trees need, or some more."""
    least = np.array([{0: 1, 1: 2}.get(count, count + 3) for count in words])
    more = {"tight": 0, "depth": np.arange(len(words)) % 5, "roomy": SLACK - 3}[kind]
    return least + more * (np.array(words) > 0)


@cache
def found(beam_size, kind, seed, n_best=None):
    sentences = Sentences(seed)
    run = compiled(beam_size, n_best or min(beam_size, 3))
    given = sentences.table, sentences.favoured, sentences.weight
    parses, free = jax.device_get(run(*given, np.array(WORDS), limits_of(kind)))
    return sentences, parses, free


CASES = [*product([1, 4, 21], ["tight", "depth"], [1]), *product([1, 4, 21], ["roomy"], [2, 3])]


def output(tokens):
    tokens = tokens.tolist()
    return tokens[: tokens.index(EOS) + 1]


def is_tree(tokens, words):
    """By `rebuild`, of an output with its end mark."""
    symbols = [SYMBOLS[token] for token in tokens]
    if set(tokens[:-1]) & set(IDS.values()) or tokens[-1] != EOS:
        return False
    try:
        rebuild(symbols[:-1], [f"w{number}" for number in range(words)])
    except InputError:
        return False
    return True


@pytest.mark.parametrize("case", CASES)
def test_every_output_is_a_tree_over_just_its_words_within_its_limit(case):
    _, parses, _ = found(*case)
    for row, (words, limit) in enumerate(zip(WORDS, limits_of(case[1]), strict=True)):
        tokens, scores, _ = (leaf[row] for leaf in parses.hypotheses)
        if words == 0:
            continue
        assert np.isfinite(scores[0])
        for each in tokens[np.isfinite(scores)]:
            assert is_tree(output(each), words)
            assert len(output(each)) <= limit
            assert not each[len(output(each)) :].any()
        there = [tuple(each) for each in tokens[np.isfinite(scores)].tolist()]
        assert len(set(there)) == len(there)
        assert (scores[1:] <= scores[:-1]).all()
        assert not tokens[~np.isfinite(scores)].any()


@pytest.mark.parametrize("case", CASES)
def test_scores_are_the_models_own_log_p_with_nothing_made_up_for_what_is_forbidden(case):
    sentences, parses, _ = found(*case)
    best, scores, log_probs = parses.hypotheses
    for row, rank in np.argwhere(np.isfinite(scores) & (np.array(WORDS) > 0)[:, None]):
        tokens = output(best[row, rank])
        expected = sentences.log_prob(row, tokens)
        np.testing.assert_allclose(log_probs[row, rank], expected, rtol=1e-4, atol=1e-4)
        penalty = ((5 + len(tokens)) / 6) ** ALPHA
        np.testing.assert_allclose(scores[row, rank], expected / penalty, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("beam_size", [1, 4, 21])
def test_where_the_search_without_a_grammar_ends_in_a_tree_its_answer_stands(beam_size):
    trees = others = 0
    for _, kind, seed in [case for case in CASES if case[0] == beam_size]:
        _, parses, free = found(beam_size, kind, seed)
        for row, words in enumerate(WORDS):
            unaided = bool(words) and is_tree(output(free.tokens[row, 0]), words)
            assert parses.unaided[row] == unaided
            if unaided or not words:
                for ours, theirs in zip(parses.hypotheses, free, strict=True):
                    np.testing.assert_array_equal(ours[row, 0], theirs[row, 0])
            trees, others = trees + unaided, others + (words > 0 and not unaided)
    assert min(trees, others) >= 8


def test_pruning_alone_would_change_some_answers_that_were_trees():
    """Which is why there are two searches: of both, only they keep all of these."""
    count, limit = 400, 10
    words: Any = np.arange(count) % 3 + 2
    settings: Any = {"beam_size": 2, "length": limit, "alpha": ALPHA} | IDS

    @jax.jit
    def run(table, favoured, weight):
        step, state = make_step(table, favoured, weight, 2)
        tree = start(jnp.repeat(words, 2), jnp.repeat(words + 5, 2), deepest(limit))
        follow, both, legal = within(GRAMMAR, tree, step, state)
        pruned = beam_search(follow, both, words + 5, legal=legal, **settings)
        free = beam_search(step, state, words + 5, **settings)
        return pruned, free, tree_search(step, state, words, words + 5, GRAMMAR, **settings)

    changed = 0
    for seed in range(20):
        random, draw = Random(seed), np.random.default_rng(seed)
        favoured = np.zeros((count, limit), np.int32)
        for row in range(count):
            symbols = favourite(random, words[row])[:limit]
            favoured[row, : len(symbols)] = symbols
        given = Sentences(seed).table, favoured, draw.uniform(2, 5, count).astype(np.float32)
        pruned, free, (found, _) = jax.device_get(run(*given))
        for row in range(count):
            if is_tree(output(free.tokens[row, 0]), words[row]):
                np.testing.assert_array_equal(found.tokens[row, 0], free.tokens[row, 0])
                changed += (pruned.tokens[row, 0] != free.tokens[row, 0]).any()
    assert changed >= 3


def test_all_outputs_that_were_trees_without_a_grammar_stay_among_the_best():
    """Those of both searches are pooled: none is lost to a worse one."""
    mixed = 0
    for _, kind, seed in [case for case in CASES if case[0] == 4]:
        _, parses, free = found(4, kind, seed)
        for row, words in enumerate(WORDS):
            if words:
                trees = [is_tree(output(tokens), words) for tokens in free.tokens[row]]
                worst = parses.hypotheses.scores[row].min()
                kept = {tuple(tokens) for tokens in parses.hypotheses.tokens[row].tolist()}
                for tokens, score, tree in zip(
                    free.tokens[row], free.scores[row], trees, strict=True
                ):
                    assert not tree or score <= worst or tuple(tokens.tolist()) in kept
                mixed += any(trees) and not all(trees)
    assert mixed >= 3


def test_a_better_tree_of_the_second_search_does_not_displace_the_answer():
    """So the answer is the same however many outputs are asked for."""
    a, end, x = (SYMBOLS.index(symbol) for symbol in ("(A", "/A", "x"))
    table = np.full((3, len(SYMBOLS), len(SYMBOLS)), 1e-4)  # P(next | last) by position
    table[0, BOS, [end, x, a]] = 0.4, 0.25, 0.2  # the tree in (A falls out of a beam of two
    table[1, end, 3:], table[1, x, EOS], table[1, x, 3:], table[1, a, x] = 0.09, 0.2, 0.08, 1
    table[2, x, end] = table[2, end, EOS] = 1
    logits = jnp.log(table)

    def step(state, token, position):
        return logits[jnp.minimum(position, 2), token], state

    settings: Any = {"beam_size": 2, "length": 5, "alpha": 0.0, "n_best": 2} | IDS
    one, limit = jnp.array([1]), jnp.array([5])
    best, unaided = tree_search(step, jnp.zeros(2), one, limit, GRAMMAR, **settings)
    assert output(best.tokens[0, 0]) == [x, EOS]
    assert np.asarray(unaided).tolist() == [True]
    tree = start(jnp.array([1, 1]), jnp.array([5, 5]), deepest(5))
    follow, both, legal = within(GRAMMAR, tree, step, jnp.zeros(2))
    better = beam_search(follow, both, limit, legal=legal, **settings)
    assert output(better.tokens[0, 0]) == [a, x, end, EOS]
    assert better.scores[0, 0] > best.scores[0, 0]


def test_batch_mates_do_not_change_a_parse():
    sentences, together, _ = found(4, "roomy", 2)
    given = sentences.table, sentences.favoured, sentences.weight
    rows = [3, 7, 9, 11]  # the others become rows that only fill the batch
    words = np.where(np.isin(np.arange(len(WORDS)), rows), WORDS, 0)
    parses, _ = jax.device_get(compiled(4, 3)(*given, words, limits_of("roomy")))
    assert len(set(together.unaided[rows].tolist())) == 2
    for row in rows:
        assert parses.unaided[row] == together.unaided[row]
        for apart, among in zip(parses.hypotheses, together.hypotheses, strict=True):
            np.testing.assert_array_equal(apart[row], among[row])


def every_tree(words, limit):
    """Ids of all trees of so many words within the limit, with their end marks."""
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
        tree = start(jnp.full(size, words), jnp.full(size, limit), deepest(limit))
        step, state, legal = within(GRAMMAR, tree, *make_step(table, favoured, weight, size))
        settings: Any = {"beam_size": size, "length": limit, "alpha": ALPHA, "n_best": size} | IDS
        return beam_search(step, state, jnp.array([limit]), legal=legal, **settings)

    tokens, scores, log_probs = (leaf[0] for leaf in jax.device_get(run(*given)))
    outputs = [output(each) for each in tokens[:-1]]
    assert sorted(outputs) == sorted(expected)
    assert scores[-1] == -np.inf  # there is no other
    of_model = [sentences.log_prob(0, each) for each in outputs]
    np.testing.assert_allclose(log_probs[:-1], of_model, rtol=1e-5)


def test_the_second_search_is_made_for_the_rows_that_need_it_alone():
    """One of 12 words that is a tree at once does not prolong that of 2 words."""
    calls = []

    def steps(needy):
        calls.clear()
        liked = [["(A", *["x"] * 12, "/A", "</s>"], ["(A", "x", *"xx" * needy, "/A", "</s>"]]
        if not needy:
            liked[1] = ["(A", "x", "x", "/A", "</s>"]
        favoured = np.zeros((2, 20), np.int32)
        for row, symbols in enumerate(liked):
            favoured[row, : len(symbols)] = [SYMBOLS.index(symbol) for symbol in symbols]
        favoured = jnp.array(favoured)

        def step(state, token, position):
            io_callback(calls.append, None, position, ordered=True)
            liked = jax.nn.one_hot(favoured[:, position], len(SYMBOLS))
            return 9 * liked, state

        settings: Any = {"beam_size": 1, "length": 20, "alpha": ALPHA} | IDS
        words, limits = jnp.array([12, 2]), jnp.array([20, 6])
        parses = tree_search(step, jnp.zeros(2), words, limits, GRAMMAR, **settings)
        assert np.asarray(parses.unaided).tolist() == [True, not needy]
        return [int(position) for position in calls]

    assert steps(needy=False) == list(range(15))
    assert steps(needy=True) == [*range(15), *range(5)]


CONFIG = ModelConfig(num_layers=1, d_model=8, d_ff=16, num_heads=2, d_k=4, d_v=4)
MODEL = Transformer(CONFIG, len(SYMBOLS), PAD)
SOURCE: Any = np.array([[5, 6, 7, EOS, 0], [0] * 5, [9, 8, 7, 6, EOS], [3, EOS, 0, 0, 0]], np.int32)
LEAST = DecodingConfig(beam_size=3, alpha=ALPHA, max_extra_length=3)


@pytest.fixture(scope="module")
def params():
    init = jax.jit(lambda key: MODEL.init(key, SOURCE, SOURCE)["params"])
    return jax.tree.map(lambda leaf: 1.7 * leaf, init(jax.random.key(4)))


def test_an_untrained_model_parses_also_what_was_cut_and_with_the_least_room(params):
    words = np.array([2, 0, 9, 1])  # the third has more words than its source has tokens

    @jax.jit
    def run(params, words):
        settings: Any = {"bos_id": BOS, "eos_id": EOS, "n_best": 2, "max_words": 9}
        parses = parse(MODEL, params, SOURCE, words, GRAMMAR, LEAST, **settings)
        best = parses.hypotheses.tokens[:, 0]
        return parses, log_probabilities(MODEL, params, SOURCE, best, bos_id=BOS)

    (hypotheses, unaided), log_probs = jax.device_get(run(params, words))
    assert hypotheses.tokens.shape == (4, 2, 12)
    assert not unaided[:3].any()
    for row, limit in [(0, 7), (2, 12), (3, 5)]:
        for tokens in hypotheses.tokens[row][np.isfinite(hypotheses.scores[row])]:
            assert is_tree(output(tokens), words[row])
            assert len(output(tokens)) <= limit
        np.testing.assert_allclose(hypotheses.log_probs[row, 0], log_probs[row].sum(), rtol=1e-4)
    assert hypotheses.tokens[1, 0].tolist() == [EOS, *[PAD] * 11]


def test_without_a_grammar_parsing_is_translating(params):
    @jax.jit
    def both(params):
        settings: Any = {"bos_id": BOS, "eos_id": EOS, "n_best": 3}
        parses = parse(MODEL, params, SOURCE, jnp.array([3, 0, 2, 1]), None, LEAST, **settings)
        return parses, translate(MODEL, params, SOURCE, LEAST, **settings)

    parses, translations = both(params)
    assert parses.unaided is None
    jax.tree.map(np.testing.assert_array_equal, parses.hypotheses, translations)


def test_a_limit_that_leaves_no_room_for_a_tree_is_refused_before_the_search(params):
    decoding = DecodingConfig(max_extra_length=2)
    words = jnp.array([2, 0, 3, 1])
    with pytest.raises(InputError, match=r"max_extra_length=2: expected 3 or more"):
        parse(MODEL, params, SOURCE, words, GRAMMAR, decoding, bos_id=BOS, eos_id=EOS)


def test_a_grammar_of_other_symbols_than_the_models_is_refused(params):
    grammar = tree_grammar(SYMBOLS[:-1], **IDS)
    words = jnp.array([2, 0, 3, 1])
    settings: Any = {"bos_id": BOS, "eos_id": EOS}
    with pytest.raises(AssertionError, match="the grammar is of other symbols"):
        jax.eval_shape(lambda: parse(MODEL, params, SOURCE, words, grammar, LEAST, **settings))
