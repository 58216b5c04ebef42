"""Beam search against enumeration of every sequence, and against a plain-Python beam search."""

import itertools
from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import io_callback

from jax_transformer.decoding.beam_search import beam_search, largest_of, length_penalty, scored
from jax_transformer.models.products import FEW_ROWS

PAD, EOS, BOS = 0, 1, 2  # all three are tokens like others until they are fed or found
MISSING = -np.inf


class Tables(NamedTuple):
    """For each of B sentences, logits of what follows each prefix."""

    prefixes: dict[tuple[int, ...], int]
    logits: np.ndarray  # [B, prefixes, V]

    def log_probs(self, sentence, prefix):
        """In float64."""
        logits = self.logits[sentence, self.prefixes[prefix]].astype(np.float64)
        shifted = logits - logits.max()
        return shifted - np.log(np.exp(shifted).sum())


def random_tables(seed, batch, size, length, spread=2.0):
    """Logits drawn apart for every prefix of up to `length` - 1 tokens."""
    random = np.random.default_rng(seed)
    prefixes = [p for n in range(length) for p in itertools.product(range(size), repeat=n)]
    scale = random.uniform(0.1, spread, (batch, 1, 1))
    logits = scale * random.normal(size=(batch, len(prefixes), size))
    logits[:, :, EOS] += random.uniform(-3, 3, (batch, 1))  # early ends here, late ones there
    return Tables({p: i for i, p in enumerate(prefixes)}, logits.astype(np.float32))


def make_search(batch, size, length, beam_size, alpha, **settings):
    """A jitted search over tables; its state is the prefix itself, and nothing else."""
    first = np.cumsum([0] + [size**n for n in range(length)])  # where prefixes of n tokens begin

    def search(logits, max_lengths):
        def step(state, token, position):
            sentence = state["sentence"]
            # The prefix as a number in base V; BOS is no part of it.
            digit = jnp.where(position == 0, 0, token)
            code = state["code"] * jnp.where(position == 0, 1, size) + digit
            fed = state["fed"].at[:, 0, position].set(token)
            return (
                logits[sentence, jnp.asarray(first)[position] + code],
                {"code": code, "fed": fed, "sentence": sentence},
            )

        rows = batch * beam_size
        state = {
            "code": jnp.zeros(rows, jnp.int32),
            "sentence": jnp.repeat(jnp.arange(batch), beam_size),
            "fed": jnp.full((rows, 1, length), -1),
        }
        return beam_search(
            step,
            state,
            max_lengths,
            beam_size=beam_size,
            length=length,
            alpha=alpha,
            bos_id=BOS,
            eos_id=EOS,
            pad_id=PAD,
            **settings,
        )

    return jax.jit(search)


def penalty(length, alpha):
    return ((5 + length) / 6) ** alpha


def every_sequence(tables, sentence, max_length, alpha):
    """All sequences that end by `max_length`: (score, log P, tokens), best first."""
    others = [token for token in range(tables.logits.shape[-1]) if token != EOS]
    found = []
    for length in range(1, max_length + 1):
        for start in itertools.product(others, repeat=length - 1):
            tokens = (*start, EOS)
            log_prob = sum(tables.log_probs(sentence, tokens[:i])[tokens[i]] for i in range(length))
            found.append((log_prob / penalty(length, alpha), log_prob, tokens))
    return sorted(found, reverse=True)


def beam_by_hand(tables, sentence, max_length, alpha, beam_size, enough=None):
    """The search of the paper in lists, to the last length or until `enough` have ended."""
    alive, finished, ended = [(0.0, ())], [], 0
    for length in range(1, max_length + 1):
        candidates = [
            (log_prob + following[token], (*prefix, token))
            for log_prob, prefix in alive
            for following in [tables.log_probs(sentence, prefix)]
            for token in ([EOS] if length == max_length else range(len(following)))
        ]
        candidates.sort(key=lambda candidate: -candidate[0])
        candidates = candidates[: 2 * beam_size if beam_size > 1 else 1]
        finished += [
            (log_prob / penalty(length, alpha), log_prob, tokens)
            for log_prob, tokens in candidates
            if tokens[-1] == EOS
        ]
        finished = sorted(finished, key=lambda entry: -entry[0])[:beam_size]
        alive = [c for c in candidates if c[1][-1] != EOS][:beam_size]
        ended += sum(tokens[-1] == EOS for _, tokens in candidates[:beam_size])
        if enough is not None and ended >= enough:
            return finished
    return finished


def assert_same(found, sentence, expected, n_best):
    """The hypotheses of one sentence are those expected, then missing ones.

    Two whose scores float32 cannot tell apart may stand in either order.
    """
    tokens, scores, log_probs = (np.asarray(leaf)[sentence] for leaf in found)
    assert len(tokens) == n_best
    by_tokens = {sequence: (score, log_prob) for score, log_prob, sequence in expected}
    count = min(len(expected), n_best)
    sequences = [tuple(row[: row.index(EOS) + 1]) for row in tokens[:count].tolist()]
    assert len(set(sequences)) == count
    for rank, sequence in enumerate(sequences):
        assert (tokens[rank, len(sequence) :] == PAD).all()
        both = (scores[rank], log_probs[rank])
        np.testing.assert_allclose(both, by_tokens[sequence], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(scores[rank], expected[rank][0], rtol=1e-5, atol=1e-6)
    assert (scores[count:] == MISSING).all()
    assert (log_probs[count:] == MISSING).all()
    assert (tokens[count:] == PAD).all()


# size, length, then a beam with room for every prefix and one more than all sequences.
EXHAUSTIVE = [(3, 5, 32), (4, 4, 41), (5, 3, 22)]


@pytest.mark.parametrize(
    ("case", "alpha"),
    [(0, 0.6), (1, 0.0), (1, 0.6), (1, 1.0), (2, 1.0)],
)
def test_a_beam_with_room_for_everything_finds_what_enumeration_finds(case, alpha):
    size, length, beam_size = EXHAUSTIVE[case]
    batch = 24
    tables = random_tables(case, batch, size, length)
    max_lengths = np.random.default_rng(case).integers(1, length + 1, batch)
    max_lengths[:2] = 1, length
    search = make_search(batch, size, length, beam_size, alpha, n_best=beam_size)
    found = search(tables.logits, max_lengths)
    for sentence, max_length in enumerate(max_lengths.tolist()):
        expected = every_sequence(tables, sentence, max_length, alpha)
        assert len(expected) < beam_size  # so the last place is always missing
        assert_same(found, sentence, expected, beam_size)


SMALL = {"size": 4, "length": 6, "batch": 150}


@pytest.fixture(scope="module")
def small():
    """(tables, max_lengths) of many random sentences, limits of every kind among them."""
    tables = random_tables(7, SMALL["batch"], SMALL["size"], SMALL["length"])
    max_lengths = np.random.default_rng(8).integers(1, SMALL["length"] + 1, SMALL["batch"])
    max_lengths[::2] = SMALL["length"]
    return tables, max_lengths


@pytest.fixture(scope="module")
def overtaking():
    """The same, where all is said with the first token: to end, or to go on to the limit.

    To go on is less likely, but a longer output pays less for it, so it may still win.
    """
    tables = random_tables(9, SMALL["batch"], SMALL["size"], SMALL["length"], spread=1.0)
    for prefix, index in tables.prefixes.items():
        if prefix:
            tables.logits[:, index, EOS] += 12 if len(prefix) == SMALL["length"] - 1 else -12
            tables.logits[:, index, 3] += 9
    return tables, np.full(SMALL["batch"], SMALL["length"])


@pytest.fixture(scope="module")
def compiled():
    """search(beam_size, alpha, n_best, early_stop), each compiled once."""

    @cache
    def search(beam_size, alpha, n_best, early_stop):
        shape = SMALL["batch"], SMALL["size"], SMALL["length"]
        run = make_search(*shape, beam_size, alpha, n_best=n_best, early_stop=early_stop)
        return lambda sentences: jax.device_get(run(sentences[0].logits, sentences[1]))

    return search


@pytest.fixture(scope="module")
def searched(small, compiled):
    """The results of `compiled` searches of `small`."""
    return cache(lambda *settings: compiled(*settings)(small))


@pytest.mark.parametrize(("beam_size", "alpha"), [(2, 0.6), (3, 1.0), (4, 0.0)])
def test_a_narrow_beam_finds_what_a_beam_search_in_plain_lists_finds(
    small, searched, beam_size, alpha
):
    tables, max_lengths = small
    found = searched(beam_size, alpha, beam_size, False)
    missed = 0
    for sentence, max_length in enumerate(max_lengths.tolist()):
        expected = beam_by_hand(tables, sentence, max_length, alpha, beam_size)
        assert_same(found, sentence, expected, beam_size)
        best = every_sequence(tables, sentence, min(max_length, 4), alpha)[0]
        missed += expected[0][0] < best[0] - 1e-9
    assert missed > 0  # the beams are narrow enough to err, so erring alike means something


def test_greedy_search_without_scores_finds_the_same_outputs(small):
    """Whatever has ended, and where nothing is allowed, stays so."""
    tables, limits = small
    shape = SMALL["batch"], SMALL["size"], SMALL["length"]

    def some(state):
        return (jnp.arange(SMALL["size"]) != 3)[None] & (state["sentence"] > 2)[:, None]

    for allowed in (None, some):
        settings = {"beam_size": 1, "alpha": 0.6, "allowed": allowed, "early_stop": False}
        with_scores = make_search(*shape, **settings)(tables.logits, limits)
        without = make_search(*shape, **settings, scores=False)(tables.logits, limits)
        np.testing.assert_array_equal(without.tokens, with_scores.tokens)
        there = np.isfinite(with_scores.scores)
        assert there.all() == (allowed is None)
        for values in (without.scores, without.log_probs):
            np.testing.assert_array_equal(values, np.where(there, 0.0, -np.inf))


@pytest.mark.parametrize("scores", [True, False])
@pytest.mark.parametrize("forbidden", [-5.0, 40.0])
@pytest.mark.parametrize("apart", [1e-4, 1e-6])
def test_greedy_search_goes_by_logits_however_log_p_rounds(scores, forbidden, apart):
    """Two logits `apart`, far below log P so far, and below one that is not allowed."""
    hopeless = jnp.array([5000.0, -9.0, -9.0, 0.0, 0.0])  # token 0 is not allowed, so 3 comes first
    logits = jnp.array([forbidden, -9.0, -9.0, 0.0, apart])

    def step(state, token, position):
        return jnp.where(position == 0, hopeless, logits)[None], state

    found = beam_search(
        step,
        jnp.zeros(1),
        jnp.array([3]),
        beam_size=1,
        length=3,
        alpha=0.0,
        bos_id=BOS,
        eos_id=EOS,
        pad_id=PAD,
        allowed=lambda state: jnp.arange(5)[None] > 0,
        scores=scores,
    )
    assert found.tokens.tolist() == [[[3, 4, EOS]]]
    assert (found.log_probs[0, 0] < -4999) == scores


def test_greedy_search_without_scores_computes_no_exponential():
    def search(scores):
        return beam_search(
            lambda state, token, position: (jnp.zeros((1, 5)) + token[:, None], state),
            (),
            jnp.array([3]),
            beam_size=1,
            length=3,
            alpha=0.6,
            bos_id=BOS,
            eos_id=EOS,
            pad_id=PAD,
            scores=scores,
        )

    for scores in (True, False):
        text = str(jax.make_jaxpr(search, static_argnums=0)(scores))
        assert [f"= {name} " in text for name in ("exp", "log")] == [scores] * 2


@pytest.mark.parametrize(("beam_size", "alpha", "n_best"), [(3, 1.0, 1), (4, 0.0, 4), (3, 1.0, 3)])
def test_stopping_early_does_not_change_the_answer(
    small, overtaking, compiled, beam_size, alpha, n_best
):
    """Neither in one batch, which leaves when its last sentence may, nor for each alone."""
    early = compiled(beam_size, alpha, n_best, True)
    late = compiled(beam_size, alpha, beam_size, False)
    one = make_search(1, SMALL["size"], SMALL["length"], beam_size, alpha, n_best=n_best)
    alone = jax.jit(jax.vmap(one))
    for tables, limits in (small, overtaking):
        expected = late((tables, limits))
        apart = jax.device_get(alone(tables.logits[:, None], limits[:, None]))
        for found in (early((tables, limits)), type(apart)(*(leaf[:, 0] for leaf in apart))):
            np.testing.assert_array_equal(found.tokens, expected.tokens[:, :n_best])
            np.testing.assert_allclose(found.scores, expected.scores[:, :n_best], rtol=1e-6)
            np.testing.assert_allclose(found.log_probs, expected.log_probs[:, :n_best], rtol=1e-6)


def test_a_bound_with_the_penalty_of_the_next_length_would_change_the_answer(overtaking):
    """So the test above can fail: some of its sentences do need the largest penalty."""
    tables, _ = overtaking
    changed = 0
    for sentence in range(SMALL["batch"]):
        ended = tables.log_probs(sentence, ())[EOS]
        best = np.delete(tables.log_probs(sentence, ()), EOS).max()
        _, _, winner = beam_by_hand(tables, sentence, SMALL["length"], 1.0, 3)[0]
        changed += len(winner) > 1 and best / penalty(2, 1.0) < ended
    assert changed > 5


@pytest.mark.parametrize(
    "stages",
    [
        {"room": 1},
        {"room": SMALL["length"] + 1},
        {"compact": 1},
        {"compact": SMALL["batch"] // 4},
        {"room": 2, "compact": SMALL["batch"] // 3},  # does not divide the batch
        {"room": 2, "compact": SMALL["batch"] - 1},
    ],
)
def test_sentences_that_go_on_by_themselves_with_more_room_change_nothing(small, stages):
    tables, limits = small
    whole = make_search(SMALL["batch"], SMALL["size"], SMALL["length"], 3, 0.6)
    parts = make_search(SMALL["batch"], SMALL["size"], SMALL["length"], 3, 0.6, **stages)
    given = tables.logits, limits
    for one, other in zip(whole(*given), parts(*given), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("size", [1, 7, 64, 997, 1000])  # 997 is a prime
@pytest.mark.parametrize(("rows", "count"), [(1, 1), (1, 5), (3, 6)])
@pytest.mark.parametrize("batch", [6, FEW_ROWS + 1])  # tokens one below another, or side by side
def test_the_largest_log_probs_are_those_of_jax_ties_and_all(size, rows, count, batch):
    draw = np.random.default_rng(size)
    logits = draw.integers(0, 20, (batch, rows, size)).astype(np.float32)  # many are equal
    before = draw.integers(-3, 0, (batch, rows)).astype(np.float32)
    allowed = draw.random(logits.shape) < 0.7
    allowed[0] = False
    count = min(count, rows * size)
    of_rows = [jnp.array(leaf.reshape(-1, *leaf.shape[2:])) for leaf in (logits, before, allowed)]
    found = largest_of(scored(*of_rows), rows, count)
    total = jnp.where(of_rows[2], all_log_probs(scored(*of_rows[:2]), size), -jnp.inf)
    total = total.reshape(batch, -1)
    expected, places = jax.lax.top_k(total, count)
    np.testing.assert_array_equal(found.log_probs, expected)
    there = np.isfinite(expected)
    assert there.any()
    np.testing.assert_array_equal(found.parent[there], places[there] // size)
    np.testing.assert_array_equal(found.token[there], places[there] % size)
    assert ((found.parent >= 0) & (found.parent < rows)).all()


@pytest.mark.parametrize("size", [50, 53])
@pytest.mark.parametrize("rows", [6, FEW_ROWS + 1])
def test_log_probs_are_those_of_the_prefix_and_a_log_softmax(size, rows):
    draw = np.random.default_rng(2)
    logits, before = draw.normal(0, 30, (rows, size)), draw.normal(-5, 2, rows)
    shifted = logits - logits.max(axis=1, keepdims=True)
    expected = before[:, None] + shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    found = scored(jnp.array(logits, jnp.float32), jnp.array(before, jnp.float32))
    np.testing.assert_allclose(all_log_probs(found, size), expected, rtol=1e-6, atol=1e-5)
    for token in (0, 3, size - 1):
        np.testing.assert_allclose(found.of_token(token), expected[:, token], rtol=1e-6, atol=1e-5)


def all_log_probs(found, size):
    """[N, V], chunk by chunk."""
    rows = jnp.arange(len(found.before))
    chunks = [found.of_chunks(rows, jnp.full_like(rows, i)) for i in range(found.maxima().shape[1])]
    return jnp.concatenate(chunks, axis=1)[:, :size]


def recorded(tables, max_lengths, length, **settings):
    """(hypotheses, calls): a search, and what its state held in each call of its step."""
    size, beam_size, calls = tables.logits.shape[-1], settings["beam_size"], []
    rows = len(max_lengths) * beam_size

    def look_up(fed, token, position):
        fed = np.concatenate([np.asarray(fed)[:, 1:], np.asarray(token)[:, None]], axis=1)
        calls.append((int(position), fed))
        prefixes = [tuple(row[length - position :].tolist()) for row in fed]
        known = [tables.prefixes.get(prefix, 0) for prefix in prefixes]  # not before the start
        logits = tables.logits[np.arange(rows) // beam_size, known]
        return logits.astype(np.float32), fed

    def step(state, token, position):
        shapes = ((rows, size), jnp.float32), ((rows, length), jnp.int32)
        results = tuple(jax.ShapeDtypeStruct(*shape) for shape in shapes)
        fed = state["fed"]["tokens"][:, :, 0]
        logits, fed = io_callback(look_up, results, fed, token, position, ordered=True)
        return logits, {"fed": {"tokens": fed[:, :, None]}}

    found = beam_search(
        step,
        {"fed": {"tokens": jnp.full((rows, length, 1), -1)}},
        jnp.asarray(max_lengths),
        length=length,
        bos_id=BOS,
        eos_id=EOS,
        pad_id=PAD,
        **settings,
    )
    return jax.device_get(found), calls


def test_each_row_of_the_state_follows_its_hypothesis():
    length, beam_size, batch = 6, 3, 4
    tables = random_tables(3, batch, 4, length)
    tables.logits[:, :, EOS] -= 8  # long hypotheses
    found, calls = recorded(
        tables, [6, 6, 5, 6], length, beam_size=beam_size, alpha=0.6, n_best=3, early_stop=False
    )
    assert calls[0][0] == 0
    assert (calls[0][1][:, -1] == BOS).all()
    checked = 0
    for sentence in range(batch):
        rows = slice(sentence * beam_size, (sentence + 1) * beam_size)
        for tokens in found.tokens[sentence].tolist():
            end = tokens.index(EOS)
            fed = calls[end][1][rows].tolist()  # what the state held when EOS was foreseen
            assert [BOS, *tokens[:end]] in [row[length - end - 1 :] for row in fed]
            checked += end >= 3
    assert checked >= 8  # long enough to have been moved between rows


def test_stopping_early_takes_fewer_steps_and_none_waits_for_a_finished_sentence():
    length = 6
    tables = random_tables(4, 2, 3, length, spread=0.2)
    tables.logits[:, :, EOS] = 8.0  # the first candidate ends, with nearly all the mass
    _, early = recorded(tables, [6, 6], length, beam_size=2, alpha=0.6)
    _, late = recorded(tables, [6, 6], length, beam_size=2, alpha=0.6, early_stop=False)
    _, limited = recorded(tables, [2, 1], length, beam_size=2, alpha=0.6, early_stop=False)
    assert [len(calls) for calls in (early, late, limited)] == [1, 6, 2]


@pytest.mark.parametrize(
    ("beam_size", "n_best", "patience", "enough"),
    [
        (3, 1, 1.0, 3),
        (3, 3, 1.0, 3),
        (3, 1, 0.5, 2),
        (3, 3, 0.5, 3),
        (2, 1, 1.7, 4),
        (2, 1, 1e300, 99),
        (1, 1, 1.0, 1),
    ],
)
def test_patience_leaves_a_sentence_when_so_many_have_ended(
    small, beam_size, n_best, patience, enough
):
    """Each by itself: what the others of the batch need changes nothing."""
    tables, limits = small
    alpha, whole = 1.0, (SMALL["batch"], SMALL["size"], SMALL["length"], beam_size)
    settings = {"n_best": n_best, "patience": patience, "early_stop": False}
    found = make_search(*whole, alpha, **settings)(tables.logits, limits)
    apart = make_search(*whole, alpha, **settings, room=2, compact=8)(tables.logits, limits)
    exact = make_search(*whole, alpha, n_best=n_best)(tables.logits, limits)
    for one, other in zip(found, apart, strict=True):
        np.testing.assert_array_equal(one, other)
    for sentence, limit in enumerate(limits.tolist()):
        expected = beam_by_hand(tables, sentence, limit, alpha, beam_size, enough)
        assert_same(found, sentence, expected[:n_best], n_best)
    missed = (np.asarray(exact.scores) > np.asarray(found.scores) + 1e-6).sum()
    assert missed > 0 or beam_size == 1 or patience > 1  # else it means something


def test_patience_takes_fewer_steps():
    length = 6
    tables = random_tables(5, 2, 3, length, spread=0.2)
    tables.logits[:, :, EOS] = 0.0  # as likely to end as not
    settings = {"beam_size": 2, "alpha": 1.0}
    _, exact = recorded(tables, [6, 6], length, **settings)
    _, left = recorded(tables, [6, 6], length, **settings, patience=1.0)
    assert len(left) < len(exact)


def test_a_beam_of_one_takes_the_likeliest_token_until_the_end(small):
    tables, max_lengths = small
    shape = SMALL["batch"], SMALL["size"], SMALL["length"]
    found = make_search(*shape, 1, 0.6)(tables.logits, max_lengths)
    ended_early = 0
    for sentence, max_length in enumerate(max_lengths.tolist()):
        tokens, log_prob = (), 0.0
        while EOS not in tokens:
            following = tables.log_probs(sentence, tokens)
            token = EOS if len(tokens) + 1 == max_length else int(following.argmax())
            tokens, log_prob = (*tokens, token), log_prob + following[token]
        expected = [(log_prob / penalty(len(tokens), 0.6), log_prob, tokens)]
        assert_same(found, sentence, expected, 1)
        ended_early += len(tokens) < max_length
    assert 20 < ended_early < SMALL["batch"]


def test_outputs_keep_to_their_limits_end_in_eos_and_are_padded_behind_it(small, searched):
    _, max_lengths = small
    for settings in [(3, 1.0, 1, True), (4, 0.0, 4, True)]:
        tokens, scores, log_probs = searched(*settings)
        assert not np.isnan(scores).any()
        assert not np.isnan(log_probs).any()
        assert (scores[:, 1:] <= scores[:, :-1]).all()
        for sentence, rank in np.argwhere(np.isfinite(scores)).tolist():
            output = tokens[sentence, rank].tolist()
            end = output.index(EOS)
            assert end + 1 <= max_lengths[sentence]
            assert set(output[end + 1 :]) <= {PAD}
        assert (tokens[~np.isfinite(scores)] == PAD).all()
        assert np.isfinite(scores[:, 0]).all()


@pytest.mark.parametrize("beam_size", [1, 4])
def test_two_tokens_and_a_wide_beam_give_no_nan(beam_size):
    """With V = 2 one thing alone can go on, so most of the beam stays empty."""
    tables = random_tables(5, 3, 2, 3)
    found = make_search(3, 2, 3, beam_size, 0.6, n_best=beam_size)(
        tables.logits, np.array([1, 2, 3])
    )
    for sentence, max_length in enumerate([1, 2, 3]):
        if beam_size > 1:
            expected = every_sequence(tables, sentence, max_length, 0.6)
            assert len(expected) == max_length
        else:
            expected = beam_by_hand(tables, sentence, max_length, 0.6, 1)
        assert_same(found, sentence, expected, beam_size)


def test_a_token_that_cannot_follow_is_never_in_an_output():
    """Logits of -inf, as a grammar of allowed tokens gives them, lead to no NaN."""
    tables = random_tables(6, 4, 4, 4)
    tables.logits[:, :, 3] = -np.inf
    found = make_search(4, 4, 4, 3, 0.6, n_best=3)(tables.logits, np.array([4, 4, 2, 1]))
    assert not (np.asarray(found.tokens) == 3).any()
    assert not np.isnan(np.asarray(found.scores)).any()
    assert np.isfinite(np.asarray(found.scores)[:, 0]).all()


def test_the_length_penalty_is_that_of_wu_et_al():
    assert float(length_penalty(1, 0.6)) == 1.0  # (6 / 6)^0.6
    np.testing.assert_allclose(length_penalty(7, 1.0), 2.0, rtol=1e-6)  # 12 / 6
    np.testing.assert_allclose(length_penalty(19, 0.5), 2.0, rtol=1e-6)  # (24 / 6)^(1/2)
    np.testing.assert_allclose(length_penalty(13, 2.0), 9.0, rtol=1e-6)  # (18 / 6)^2
    np.testing.assert_allclose(length_penalty(7, 0.6), 1.5157166, rtol=1e-6)  # 2^0.6
    assert float(length_penalty(50, 0.0)) == 1.0


def test_a_score_is_log_p_over_the_penalty_of_the_length_with_eos(small, searched):
    tokens, scores, log_probs = searched(3, 1.0, 3, True)
    found = np.isfinite(scores)
    lengths = (tokens == EOS).argmax(-1) + 1
    expected = log_probs[found] * 6 / (5 + lengths[found])
    np.testing.assert_allclose(scores[found], expected, rtol=1e-6)
