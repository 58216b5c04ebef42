"""Beam search against enumeration of every sequence, and against a beam search in plain lists."""

import itertools
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_transformer.decoding.beam_search import beam_search, length_power, top_k
from jax_transformer.decoding.sampling import sample

PAD, EOS, BOS = 0, 1, 2  # all three are ordinary tokens in the middle of an output
MISSING = -np.inf


class Tables(NamedTuple):
    """For each of B sentences, what follows each prefix."""

    prefixes: dict[tuple[int, ...], int]
    logits: np.ndarray  # [B, prefixes, V], float32

    def log_probs(self, sentence: int) -> np.ndarray:
        """[prefixes, V], in float64."""
        logits = self.logits[sentence].astype(np.float64)
        shifted = logits - logits.max(-1, keepdims=True)
        return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def random_tables(seed, batch, size, length, spread=2.0) -> Tables:
    """Independent logits for every prefix of up to `length` - 1 tokens."""
    random = np.random.default_rng(seed)
    prefixes = [p for n in range(length) for p in itertools.product(range(size), repeat=n)]
    scale = random.uniform(0.1, spread, (batch, 1, 1))
    logits = scale * random.normal(size=(batch, len(prefixes), size))
    logits[:, :, EOS] += random.uniform(-3, 3, (batch, 1))  # some sentences end early, some late
    return Tables({p: i for i, p in enumerate(prefixes)}, logits.astype(np.float32))


def make_search(batch, size, length, beam_size, alpha, seen: Any = None, **settings):
    """A jitted search over tables, whose state is the prefix as a number in base V.

    So every answer also shows that the state is reordered along with its hypotheses.
    seen: a list to which each step appends its position.
    """
    first = np.cumsum([0] + [size**n for n in range(length)])  # index of the first n-token prefix

    def search(logits, max_lengths):
        def step(state, token, position):
            if seen is not None:
                jax.debug.callback(lambda position: seen.append(int(position)), position)
            digit = jnp.where(position == 0, 0, token)  # BOS is no part of the prefix
            code = state["code"] * jnp.where(position == 0, 1, size) + digit
            index = jnp.asarray(first)[position] + code
            return logits[state["sentence"], index], {**state, "code": code, "last": token}

        rows = batch * beam_size
        state = {
            "code": jnp.zeros(rows, jnp.int32),
            "last": jnp.full(rows, -1, jnp.int32),
            "sentence": jnp.repeat(jnp.arange(batch), beam_size),
        }
        ids = {"bos_id": BOS, "eos_id": EOS, "pad_id": PAD}
        settings_ = {"beam_size": beam_size, "length": length, "alpha": alpha, **settings}
        return beam_search(step, state, max_lengths, **ids, **settings_)

    return jax.jit(search)


def penalty(length, alpha):
    return ((5 + length) / 6) ** alpha


def every_sequence(
    tables, sentence, max_length, alpha, allowed=lambda last, token: True, penalty=penalty
):
    """All sequences that end by `max_length`: (score, log P, tokens), best first."""
    log_probs, found = tables.log_probs(sentence), []
    others = [token for token in range(tables.logits.shape[-1]) if token != EOS]
    for length in range(1, max_length + 1):
        for start in itertools.product(others, repeat=length - 1):
            tokens = (*start, EOS)
            if not all(map(allowed, (BOS, *start), tokens)):
                continue
            steps = [log_probs[tables.prefixes[tokens[:i]], tokens[i]] for i in range(length)]
            found.append((sum(steps) / penalty(length, alpha), sum(steps), tokens))
    return sorted(found, reverse=True)


def beam_in_lists(tables, sentence, max_length, alpha, beam_size, enough=None, narrowing=False):
    """The search of the paper in lists, to the last length or until `enough` have ended.

    Then only those end that are among the `beam_size` best candidates of their step. Narrowing:
    only so many candidates count as have not ended of the beam's size, as in Marian.
    """
    log_probs = tables.log_probs(sentence)
    alive, finished, ended = [(0.0, ())], [], 0
    for length in range(1, max_length + 1):
        candidates = [
            (log_prob + log_probs[tables.prefixes[prefix], token], (*prefix, token))
            for log_prob, prefix in alive
            for token in ([EOS] if length == max_length else range(log_probs.shape[-1]))
        ]
        candidates.sort(key=lambda candidate: -candidate[0])
        candidates = candidates[: 2 * beam_size if beam_size > 1 else 1]
        if narrowing:
            candidates = candidates[: beam_size - ended]
        finished += [
            (log_prob / penalty(length, alpha), log_prob, tokens)
            for log_prob, tokens in (candidates if enough is None else candidates[:beam_size])
            if tokens[-1] == EOS
        ]
        finished = sorted(finished, key=lambda entry: -entry[0])[:beam_size]
        alive = [c for c in candidates if c[1][-1] != EOS][:beam_size]
        ended += sum(tokens[-1] == EOS for _, tokens in candidates[:beam_size])
        if enough is not None and ended >= enough:
            break
    return finished


def assert_same(found, sentence, expected, n_best):
    """The hypotheses of one sentence are those expected, then missing ones.

    Two whose scores float32 cannot tell apart may stand in either order.
    """
    tokens, scores, log_probs, complete = (np.asarray(leaf)[sentence] for leaf in found)
    assert complete
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


@pytest.mark.parametrize("search", [beam_search, partial(sample, keys=jax.random.key(0)[None])])
@pytest.mark.parametrize("dtype", ["bfloat16", "float64"])
def test_log_p_is_float32_whatever_the_type_of_the_logits(search, dtype):
    with jax.enable_x64(dtype == "float64"):
        logits = jnp.array([[-2.3, -2.3, -1.2, -1.2, -1.6]], dtype)
        best = search(
            lambda state, token, position: (jnp.repeat(logits, len(token), axis=0), state),
            (), np.array([1]), beam_size=1, length=1, alpha=0.6, bos_id=BOS, eos_id=EOS, pad_id=PAD,
        )  # fmt: skip
        expected = np.asarray(logits, np.float32)[0]
    assert best.log_probs.dtype == np.float32
    log_p = expected[EOS] - np.log(np.exp(expected).sum())
    assert float(best.log_probs[0, 0]) == pytest.approx(log_p, rel=1e-6)


# ---- A beam wide enough for every prefix ----------------------------------------------------


# Vocabulary size, length, beam: one place more than there are sequences, which stays missing.
# With V = 2 only one token can continue a prefix, so most of the beam stays empty.
@pytest.mark.parametrize(
    ("size", "length", "beam_size", "alpha", "settings"),
    [
        (2, 3, 4, 0.6, {}),
        (3, 5, 32, 0.6, {}),
        (4, 4, 41, 0.0, {}),
        (4, 4, 41, 1.0, {"penalty": length_power}),
    ],
)
def test_a_beam_with_room_for_everything_finds_what_enumeration_finds(
    size, length, beam_size, alpha, settings
):
    batch = 12
    tables = random_tables(beam_size, batch, size, length)
    max_lengths = np.random.default_rng(beam_size).integers(1, length + 1, batch)
    max_lengths[:2] = 1, length
    search = make_search(batch, size, length, beam_size, alpha, n_best=beam_size, **settings)
    found = search(tables.logits, max_lengths)
    own = (lambda n, a: n**a) if settings else penalty
    for sentence, max_length in enumerate(max_lengths.tolist()):
        expected = every_sequence(tables, sentence, max_length, alpha, penalty=own)
        assert_same(found, sentence, expected, beam_size)


# ---- Narrow beams ---------------------------------------------------------------------------

SIZE, LENGTH, BATCH = 4, 6, 150


@pytest.fixture(scope="module")
def ordinary():
    """(tables, max_lengths) of many random sentences with limits of every length."""
    max_lengths = np.random.default_rng(8).integers(1, LENGTH + 1, BATCH)
    max_lengths[::2] = LENGTH
    return random_tables(7, BATCH, SIZE, LENGTH), max_lengths


@pytest.fixture(scope="module")
def overtaking():
    """The first token decides: to end, or to go on to the limit.

    Going on is less likely, but a longer output has a larger penalty, so it may still win.
    """
    tables = random_tables(9, BATCH, SIZE, LENGTH, spread=1.0)
    for prefix, index in tables.prefixes.items():
        if prefix:
            tables.logits[:, index, EOS] += 12 if len(prefix) == LENGTH - 1 else -12
            tables.logits[:, index, 3] += 9
    return tables, np.full(BATCH, LENGTH)


@pytest.fixture(scope="module")
def search():
    """A search for each (beam_size, alpha, n_best) and settings, compiled once."""

    @cache
    def compiled(beam_size, alpha, n_best, **settings):
        run = make_search(BATCH, SIZE, LENGTH, beam_size, alpha, n_best=n_best, **settings)
        return lambda tables, limits: jax.device_get(run(tables.logits, limits))

    return compiled


@pytest.mark.parametrize(
    ("beam_size", "alpha", "n_best"), [(1, 0.6, 1), (3, 1.0, 1), (3, 1.0, 3), (4, 0.0, 4)]
)
@pytest.mark.parametrize("kind", ["ordinary", "overtaking"])
def test_a_narrow_beam_finds_what_a_search_in_lists_that_never_stops_early_finds(
    request, search, kind, beam_size, alpha, n_best
):
    tables, limits = request.getfixturevalue(kind)
    found = search(beam_size, alpha, n_best)(tables, limits)
    for sentence, limit in enumerate(limits.tolist()):
        expected = beam_in_lists(tables, sentence, limit, alpha, beam_size)
        assert_same(found, sentence, expected[:n_best], n_best)


@pytest.mark.parametrize(
    ("beam_size", "n_best", "patience", "enough"),
    [(3, 1, 0.5, 2), (3, 3, 0.5, 2), (2, 1, 1.7, 4), (1, 1, 1.0, 1), (2, 1, 1e-9, 1)],
)
def test_patience_stops_a_sentence_when_enough_of_its_hypotheses_have_ended(
    ordinary, search, beam_size, n_best, patience, enough
):
    tables, limits = ordinary
    found = search(beam_size, 1.0, n_best, patience=patience)(tables, limits)
    for sentence, limit in enumerate(limits.tolist()):
        expected = beam_in_lists(tables, sentence, limit, 1.0, beam_size, enough)
        assert_same(found, sentence, expected[:n_best], n_best)
    if beam_size == 3:  # a search that goes on finds something better somewhere
        exact = search(beam_size, 1.0, n_best)(tables, limits)
        assert (exact.scores > np.asarray(found.scores) + 1e-6).any()


def test_more_outputs_change_none_of_the_first(ordinary, search):
    one, three = (search(3, 1.0, n, patience=0.5)(*ordinary) for n in (1, 3))
    for ours, more in zip(one[:3], three[:3], strict=True):
        np.testing.assert_array_equal(ours, more[:, :1])


def test_the_beam_may_narrow_with_each_output_that_ends(ordinary):
    tables, limits = ordinary
    settings: Any = {"n_best": 3, "patience": 1.0, "narrowing": True}
    found = make_search(BATCH, SIZE, LENGTH, 3, 1.0, **settings)(tables.logits, limits)
    wider = 0  # sentences for which a beam that does not narrow finds something else
    for sentence, limit in enumerate(limits.tolist()):
        expected = beam_in_lists(tables, sentence, limit, 1.0, 3, enough=3, narrowing=True)
        assert_same(found, sentence, expected, 3)
        wider += expected != beam_in_lists(tables, sentence, limit, 1.0, 3, enough=3)
    assert wider


def test_a_sentence_that_is_complete_with_less_room_has_the_answer_of_all_the_room(
    ordinary, search
):
    tables, limits = ordinary
    whole = search(3, 1.0, 3)(tables, limits)
    short = make_search(BATCH, SIZE, LENGTH - 2, 3, 1.0, n_best=3)(tables.logits, limits)
    complete = np.asarray(short.complete)
    assert 0 < complete[limits > LENGTH - 2].sum() < (limits > LENGTH - 2).sum()
    assert complete[limits <= LENGTH - 2].all()
    assert (whole.tokens[complete, :, LENGTH - 2 :] == PAD).all()
    for name in ("scores", "log_probs"):
        found = np.asarray(getattr(short, name))[complete]
        np.testing.assert_array_equal(found, getattr(whole, name)[complete])
    assert (whole.tokens[complete, :, : LENGTH - 2] == short.tokens[complete]).all()


def test_a_search_stops_when_nothing_can_change_the_answer_and_sooner_with_patience():
    tables = random_tables(4, 2, 3, 6, spread=0.2)
    seen: list[int] = []
    exact, patient = (
        make_search(2, 3, 6, beam_size=2, alpha=1.0, seen=seen, patience=p) for p in (0.0, 1.0)
    )

    def steps_taken(search, max_lengths):
        seen.clear()
        jax.block_until_ready(search(tables.logits, np.array(max_lengths)))
        jax.effects_barrier()
        return len(seen)

    tables.logits[:, :, EOS] = 8.0  # the first candidate ends, with nearly all the mass
    assert steps_taken(exact, [6, 6]) == 1
    tables.logits[:, :, EOS] = -8.0  # nothing ends before the limit
    assert steps_taken(exact, [6, 6]) == 6
    assert steps_taken(exact, [2, 1]) == 2
    tables.logits[:, :, EOS] = 0.0  # as likely to end as not
    assert steps_taken(patient, [6, 6]) < steps_taken(exact, [6, 6])


# ---- Tokens that may not follow -------------------------------------------------------------


def test_only_allowed_tokens_are_written_and_log_p_stays_that_of_all_tokens():
    """Here no token may follow itself, and 0 may not come first."""
    size, length, beam_size, batch = 4, 4, 16, 8
    tables = random_tables(6, batch, size, length)

    def allowed(last, token):
        return last != token and (last, token) != (BOS, 0)

    table = np.array([[allowed(last, token) for token in range(size)] for last in range(size)])
    search = make_search(
        *(batch, size, length, beam_size, 0.6),
        n_best=beam_size,
        allowed=lambda state: jnp.asarray(table)[state["last"]],
    )
    limits = np.array([1, 2, 3, 4, 4, 4, 4, 4])
    found = search(tables.logits, limits)
    for sentence, limit in enumerate(limits.tolist()):
        expected = every_sequence(tables, sentence, limit, 0.6, allowed)
        assert len(expected) < beam_size
        assert_same(found, sentence, expected, beam_size)


def test_a_sentence_that_nothing_may_follow_has_no_output_and_stops_nobody_else():
    tables, limits = random_tables(6, 4, 4, 4), np.array([4, 4, 2, 1])
    searched = make_search(4, 4, 4, 3, 0.6, n_best=3)
    free = searched(tables.logits, limits)

    def allowed(state):
        return jnp.broadcast_to((state["sentence"] != 1)[:, None], (12, 4))

    found = make_search(4, 4, 4, 3, 0.6, n_best=3, allowed=allowed)(tables.logits, limits)
    assert_same(found, 1, [], 3)
    for one, other in zip(found, free, strict=True):
        np.testing.assert_array_equal(np.delete(one, 1, axis=0), np.delete(other, 1, axis=0))
    # Nor is a token with a logit of minus infinity ever written.
    tables.logits[:, :, 3] = -np.inf
    without = searched(tables.logits, limits)
    assert (np.asarray(free.tokens) == 3).any()
    assert not (np.asarray(without.tokens) == 3).any()
    assert not np.isnan(np.asarray(without.scores)).any()
    assert np.isfinite(np.asarray(without.scores)[:, 0]).all()


# ---- Parts ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "k", "chunk"), [(7, 6, 1), (7, 1, 2), (7, 3, 1), (997, 5, 8), (997, 8, 50)]
)
def test_top_k_is_that_of_jax_with_ties_and_minus_infinity(size, k, chunk):
    random = np.random.default_rng(size)
    values = random.integers(0, 20, (6, size)).astype(np.float32)  # many are equal
    values[random.random(values.shape) < 0.3] = -np.inf
    values[0] = -np.inf
    values[1, : size // 2] = -np.inf
    for one, other in zip(
        top_k(jnp.asarray(values), k, chunk), jax.lax.top_k(values, k), strict=True
    ):
        np.testing.assert_array_equal(one, other)
