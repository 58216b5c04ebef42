"""Pairs through the scorer: float64 from the model's logits, whatever stands beside them."""

import math

import jax
import numpy as np
import pytest

from jax_transformer.config import DecodingConfig, ModelConfig
from jax_transformer.data.vocabulary import train_vocabulary
from jax_transformer.decoding.scorer import Scorer
from jax_transformer.decoding.translator import Translator
from jax_transformer.models.transformer import Transformer
from jax_transformer.parallel import Begun, Devices, RowMap

TEXT = ["the cat sat on the mat", "die katze sitzt auf der matte", "a cat and a mat"] * 4
PAIRS = [
    ("a cat", "die katze"),
    ("", "die matte"),
    ("the mat sat on the cat and a mat", "die matte"),
    ("cat", ""),
    ("the cat sat", "die katze sitzt auf der matte und a cat"),
    ("mat", "  "),
    ("a", "a"),
    ("the cat", "die katze sitzt"),
    ("on the mat", "auf der matte"),
]
BLANK = {1, 3, 5}
CONFIG = ModelConfig(num_layers=1, d_model=8, d_ff=16, num_heads=2, d_k=4, d_v=4)
MAX_SOURCE, MAX_TARGET = 30, 36


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    return train_vocabulary(TEXT, 50, tmp_path_factory.mktemp("vocabulary") / "v.model", up_to=True)


@pytest.fixture(scope="module")
def model(vocabulary):
    return Transformer(CONFIG, vocabulary.size, vocabulary.pad_id)


@pytest.fixture(scope="module")
def params(model):
    token = np.zeros((1, 2), np.int32)
    params = jax.jit(lambda key: model.init(key, token, token)["params"])(jax.random.key(1))
    return jax.device_get(jax.tree.map(lambda leaf: 1.7 * leaf, params))


@pytest.fixture(scope="module")
def scorers(model, params, vocabulary):
    return {
        count: Scorer(
            model,
            params,
            vocabulary,
            max_source=MAX_SOURCE,
            max_target=MAX_TARGET,
            batch_tokens=64,
            devices=Devices(count),
        )
        for count in (1, 3)
    }


@pytest.fixture(scope="module")
def by_hand(model, params, vocabulary):
    """(source, target) -> (log P, tokens) of one pair alone, in float64 from the logits."""
    apply = jax.jit(lambda source, target: model.apply({"params": params}, source, target))

    def score(source, target):
        source = [*vocabulary.encode(source)[: MAX_SOURCE - 1], vocabulary.eos_id]
        target = [*vocabulary.encode(target), vocabulary.eos_id]
        inputs = np.full((1, MAX_TARGET), vocabulary.pad_id, np.int32)
        inputs[0, : len(target)] = [vocabulary.bos_id, *target[:-1]]
        sources = np.full((1, MAX_SOURCE), vocabulary.pad_id, np.int32)
        sources[0, : len(source)] = source
        logits = np.asarray(apply(sources, inputs), np.float64)[0]
        total = 0.0
        for position, token in enumerate(target):
            weights = np.exp(logits[position] - logits[position].max())
            total += math.log(weights[token] / weights.sum())
        return total, len(target)

    return score


def assert_scored(found, pairs, by_hand):
    assert len(found) == len(pairs)
    for score, (source, target) in zip(found, pairs, strict=True):
        if not source.strip() or not target.strip():
            assert score is None
            continue
        log_prob, tokens = by_hand(source, target)
        assert score.tokens == tokens
        assert score.log_prob == pytest.approx(log_prob, abs=1e-4)
        assert score.per_token == pytest.approx(log_prob / tokens, abs=1e-4)


@pytest.mark.parametrize("count", [1, 3])
def test_scores_come_in_order_and_are_those_of_the_logits(scorers, by_hand, count):
    assert_scored(scorers[count].score_pairs(PAIRS, pytest.fail), PAIRS, by_hand)


@pytest.mark.parametrize("window", [1, 4])
def test_neither_batch_mates_nor_windows_change_a_score(scorers, by_hand, window):
    pairs = [*PAIRS[::-1], *PAIRS[4:], *PAIRS[:2]]
    assert_scored(list(scorers[1].stream(pairs, window, pytest.fail)), pairs, by_hand)


def test_a_stream_reads_no_pair_before_it_must(scorers):
    read = []
    stream = scorers[1].stream((read.append(i) or pair for i, pair in enumerate(PAIRS)), 2, print)
    assert read == []
    for done in range(1, len(PAIRS) + 1):
        next(stream)
        assert len(read) == min(-(-done // 2) * 2, len(PAIRS))
    assert next(stream, None) is None


def test_a_source_too_long_is_cut_and_a_target_too_long_has_no_score(scorers, vocabulary, by_hand):
    most = "a" + " a" * (MAX_TARGET - 2)
    assert len(vocabulary.encode(most)) == MAX_TARGET - 1
    long = most + " a"
    pairs = [("cat", most), ("a", "a"), (long, "die katze"), ("cat", long), (long, long)]
    warned = []
    found = list(scorers[1].stream(pairs, 2, warned.append))
    assert_scored(found[:3], pairs[:3], by_hand)
    assert found[3:] == [None, None]
    start = f"expected at most {MAX_SOURCE - 1} tokens, found {MAX_TARGET}; used the first"
    assert warned == [
        f"source, line 3: {start} of them only",
        f"target, line 4: expected at most {MAX_TARGET - 1} tokens, found {MAX_TARGET}; "
        "gave it no score",
        f"source, line 5: {start} of them only",
        f"target, line 5: expected at most {MAX_TARGET - 1} tokens, found {MAX_TARGET}; "
        "gave it no score",
    ]


def test_a_translation_scores_what_the_search_reported_for_it(model, params, vocabulary, scorers):
    translator = Translator(
        model,
        params,
        vocabulary,
        DecodingConfig(beam_size=4, max_extra_length=6),
        max_length=MAX_SOURCE,
        devices=Devices(1),
        n_best=4,
    )
    sources = [source for i, (source, _) in enumerate(PAIRS) if i not in BLANK]
    found = translator.translate_lines(sources, pytest.fail)
    best = [
        (source, translation)
        for source, translations in zip(sources, found, strict=True)
        for translation in translations
        # The same text can be said in other pieces, which are other tokens.
        if len(vocabulary.encode(translation.text)) == translation.tokens - 1 > 0
    ]
    assert len(best) > 5
    scores = scorers[1].score_pairs([(s, t.text) for s, t in best], pytest.fail)
    same = [
        abs(score.log_prob - translation.log_prob) < 1e-4
        for score, (_, translation) in zip(scores, best, strict=True)
    ]
    assert sum(same) > 0.8 * len(same)


def test_few_shapes_are_compiled_and_none_is_larger_than_asked(model, params, vocabulary):
    scorer = Scorer(
        model,
        params,
        vocabulary,
        max_source=64,
        max_target=80,
        batch_tokens=256,
        devices=Devices(3),
    )
    shapes = []

    def note(_, pair):
        shapes.append(pair[0].shape)
        return Begun(lambda: np.zeros(len(pair[0])))

    scorer._total = RowMap(note)
    random = np.random.default_rng(0)
    for _ in range(50):
        lengths = random.integers(1, 63, (random.integers(1, 40), 2))
        pairs = [("a" + " a" * (s - 1), "a" + " a" * (t - 1)) for s, t in lengths.tolist()]
        assert None not in scorer.score_pairs(pairs, pytest.fail)
    assert {length for _, length in shapes} <= {8, 12, 16, 24, 32, 48, 64, 80}
    assert len(set(shapes)) <= 8 * 4
    assert all(rows % 3 == 0 and (rows - 3) * length < 256 for rows, length in shapes)
