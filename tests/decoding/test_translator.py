"""Lines and pairs through the translator: order, blanks, cuts, windows, devices and shapes."""

import math

import jax
import numpy as np
import pytest
from refusals import refusal
from tiny_translator import model_of, params_of

from jax_transformer.config import DecodingConfig
from jax_transformer.decoding.batches import Batches, windows
from jax_transformer.decoding.generate import translate
from jax_transformer.decoding.request import Request
from jax_transformer.decoding.translator import Translator
from jax_transformer.parallel import Devices

# Blank ones, too long ones and one of each length: 2, 5, 9, 11 and 12 tokens and so on.
LINES = [
    "a cat",
    "",
    "the mat sat on the cat and the cat sat on a mat and the mat",
    "cat",
    "die matte",
    "   ",
    "a mat sat on the katze and a der matte",
    "the cat",
]
# Two lengths with one batch size each, so that little is compiled.
DECODING = DecodingConfig(beam_size=2, alpha=0.6, max_extra_length=2, batch_tokens=16)
MAX_LENGTH = 12
TWO = Request(n_best=2)


@pytest.fixture(scope="module")
def model(vocabulary):
    return model_of(vocabulary)


@pytest.fixture(scope="module")
def params(model):
    return params_of(model)


@pytest.fixture(scope="module")
def translators(model, params, vocabulary):
    """{device count: Translator}; each compiles its two shapes once."""
    own = model, params, vocabulary, DECODING
    return {n: Translator(*own, max_length=MAX_LENGTH, devices=Devices(n)) for n in (1, 8)}


@pytest.fixture(scope="module")
def expected(model, params, vocabulary):
    """Each line translated alone, by `translate` itself, cut by hand."""
    ids = {"bos_id": vocabulary.bos_id, "eos_id": vocabulary.eos_id}
    search = jax.jit(lambda source: translate(model, params, source, DECODING, n_best=2, **ids))
    results = []
    for line in LINES:
        tokens = vocabulary.encode(line)[: MAX_LENGTH - 1]
        if not tokens:
            results.append([])
            continue
        source = np.full((1, MAX_LENGTH), vocabulary.pad_id, np.int32)
        source[0, : len(tokens) + 1] = [*tokens, vocabulary.eos_id]
        found = jax.device_get(search(source))
        rows = [row[: row.index(vocabulary.eos_id) + 1] for row in found.tokens[0].tolist()]
        scores = found.scores[0].tolist(), found.log_probs[0].tolist()
        results.append([*zip(map(vocabulary.decode, rows), *scores, map(len, rows), strict=True)])
    return results


def assert_same(found, expected):
    assert [len(line) for line in found] == [len(line) for line in expected]
    for line, wanted in zip(found, expected, strict=True):
        for translation, (text, score, log_prob, tokens) in zip(line, wanted, strict=True):
            assert (translation.text, translation.num_tokens) == (text, tokens)
            np.testing.assert_allclose(translation.score, score, rtol=1e-5)
            np.testing.assert_allclose(translation.log_prob, log_prob, rtol=1e-5)


@pytest.mark.parametrize("count", [1, 8])
def test_translations_come_in_order_whatever_the_number_of_devices(translators, expected, count):
    found = translators[count].translate_lines(LINES, request=TWO)
    assert_same(found, expected)
    texts = [line[0].text for line in found if line]
    assert len(set(texts)) > len(texts) / 2  # so order can be seen


@pytest.mark.slow
def test_a_search_that_is_not_complete_at_the_usual_length_is_done_again(
    model, params, vocabulary, expected, monkeypatch
):
    monkeypatch.setattr(Translator, "usual_ratio", 0.5)
    translator = Translator(
        model, params, vocabulary, DECODING, max_length=MAX_LENGTH, devices=Devices(1)
    )
    assert_same(translator.translate_lines(LINES, request=TWO), expected)


def test_a_blank_line_has_no_translation(translators):
    blank = " ", "  ", "\t", " \t ", "\u00a0"
    found = translators[1].translate_lines(["", "cat", *blank], request=TWO)
    assert [len(line) for line in found] == [0, 2, 0, 0, 0, 0, 0]
    pairs = [("cat", "\t"), ("\t", "cat"), ("cat", "cat")]
    assert [score is None for score in translators[1].score_pairs(pairs)] == [True, True, False]
    assert translators[1].translate_lines([]) == []
    assert translators[1].translate_lines(["", " "]) == [[], []]


def test_a_line_of_just_the_longest_length_is_not_cut(translators, vocabulary, caplog):
    line = "a" + " a" * (MAX_LENGTH - 2)
    assert len(vocabulary.encode(line)) == MAX_LENGTH - 1
    translators[1].translate_lines([line])
    assert not caplog.records
    translators[1].translate_lines([line + " a"])
    assert len(caplog.records) == 1


def test_windows_read_no_line_before_they_must():
    read, size = [], 3

    def lines():
        for number, line in enumerate(LINES):
            read.append(number)
            yield line

    parts = windows(lines(), size)
    assert read == []
    for first in range(1, len(LINES) + 1, size):
        assert next(parts) == (first, LINES[first - 1 : first - 1 + size])
        assert len(read) == min(first - 1 + size, len(LINES))
    assert next(parts, None) is None


@pytest.mark.parametrize(("count", "batch_tokens"), [(8, 1), (3, 100), (1, 4096)])
def test_texts_of_any_size_and_length_need_few_shapes(model, vocabulary, count, batch_tokens):
    random = np.random.default_rng(0)
    decoding = DecodingConfig(batch_tokens=batch_tokens)
    translator = Translator(model, {}, vocabulary, decoding, max_length=256, devices=Devices(count))
    shapes, scoring = set(), set()
    for _ in range(30):
        sizes = [random.geometric(0.03, 90).clip(0, 255).tolist() for _ in range(2)]
        sides = [[[7] * size for size in side] for side in sizes]
        shapes |= {source.shape for _, source in translator.batches.of(sides[0])}
        for _, (source, target) in translator.batches.of(*sides):
            assert source.shape == target.shape
            scoring.add(source.shape)
    assert {length for _, length in shapes} <= {24, 48, 96, 192, 256}
    assert {length for _, length in scoring} <= {24, 48, 96, 192, 306}
    per_length = max(1, int(np.log(batch_tokens / 24 + 1) / np.log(4)) + 1)
    assert len(shapes) <= 5 * per_length
    for rows, length in shapes | scoring:
        assert rows % count == 0
        assert rows * length <= max(batch_tokens + (count - 1) * length, count * length)
    if count == 1:  # a single line costs no full batch: 170 // 4 // 4 // 4 rows of 24
        ((rows, source),) = translator.batches.of([[7]])
        assert (rows, source.shape) == ([0], (2, 24))


def test_much_text_is_padded_to_lengths_between(model, vocabulary):
    """Once as many tokens of padding were added to lines of a length as compiling costs."""
    alone = Batches((vocabulary, vocabulary), 100, 100, tokens=240, devices=1, compile_tokens=150)
    sides = [[7] * size for size in [20, 15, 14, 9, 3, 0]]  # 21, 16, 15, 10 and 4 with EOS
    lengths = [[source.shape[1] for _, source in alone.of(sides)] for _ in range(12)]
    # 16 and 15 are padded to 24 by 16 tokens a time, 10 by 12 and 4 by 16: in turn 16, 8 and 12.
    assert lengths[0] == [24]
    of_two = [[source.shape[1] for _, source in alone.of(sides[1:3])] for _ in range(2)]
    assert of_two == [[16], [16]]
    assert [source.shape[1] for _, source in alone.of(sides[3:4])] == [16]
    for _ in range(3):
        list(alone.of(sides))
    assert [source.shape[1] for _, source in alone.of(sides[3:4])] == [12]
    never = Batches((vocabulary, vocabulary), 100, 100, tokens=240, devices=1)
    assert {source.shape for _ in range(99) for _, source in never.of(sides)} == {(10, 24)}


def test_scores_that_are_not_numbers_are_an_error_that_names_the_line(translators):
    broken = jax.tree.map(lambda leaf: np.full_like(leaf, np.nan), translators[1].params)
    translator = translators[1].with_params(broken)
    for first, line in ((7, "line 8"), (None, "lines[1]")):
        message = refusal(translator.translate_lines, ["", "a cat"], first)
        assert message.startswith(f"{line}: ")
        message = refusal(translator.score_pairs, [("", "a"), ("a cat", "die katze")], first)
        place = line.replace("lines", "sources") if first is None else f"source {line}"
        assert message.startswith(f"{place}: expected a score")


def test_a_greedy_search_that_met_nan_does_not_spoil_the_next(vocabulary):
    model = model_of(vocabulary, num_layers=2, tie_embeddings=False, tie_source=False)
    params = params_of(model)
    params["embedding"]["matrix"][vocabulary.encode("sat")[0]] = np.nan
    decoding = DecodingConfig(beam_size=1, max_extra_length=2, batch_tokens=16)
    translator = Translator(model, params, vocabulary, decoding, max_length=MAX_LENGTH)
    before = translator.translate_lines(["a cat"])
    assert refusal(translator.translate_lines, ["the sat"]).startswith("line 1: ")
    assert translator.translate_lines(["a cat"]) == before


# ---- Scores of given pairs ------------------------------------------------------------------

PAIRS = [
    ("a cat", "die katze"),
    ("", "die matte"),
    ("the mat sat on the cat", "die matte"),
    ("cat", ""),
    ("the cat sat", "die katze sitzt a"),
    ("mat", "  "),
    ("a", "a"),
    ("the cat", "die katze sitzt"),
]
MAX_TARGET = MAX_LENGTH + DECODING.max_extra_length


@pytest.fixture(scope="module")
def score_alone(model, params, vocabulary):
    """(source, target) -> (log P, tokens) of one pair alone, in float64 from the logits."""
    apply = jax.jit(lambda source, target: model.apply({"params": params}, source, target))

    def score(source, target):
        source = [*vocabulary.encode(source)[: MAX_LENGTH - 1], vocabulary.eos_id]
        target = [*vocabulary.encode(target), vocabulary.eos_id]
        inputs = np.full((1, MAX_TARGET), vocabulary.pad_id, np.int32)
        inputs[0, : len(target)] = [vocabulary.bos_id, *target[:-1]]
        sources = np.full((1, MAX_LENGTH), vocabulary.pad_id, np.int32)
        sources[0, : len(source)] = source
        logits = np.asarray(apply(sources, inputs), np.float64)[0]
        total = 0.0
        for position, token in enumerate(target):
            weights = np.exp(logits[position] - logits[position].max())
            total += math.log(weights[token] / weights.sum())
        return total, len(target)

    return score


def assert_scored(found, pairs, score_alone):
    assert len(found) == len(pairs)
    for score, (source, target) in zip(found, pairs, strict=True):
        if not source.strip() or not target.strip():
            assert score is None
            continue
        log_prob, tokens = score_alone(source, target)
        assert score.num_tokens == tokens
        assert score.log_prob == pytest.approx(log_prob, abs=1e-4)
        assert score.per_token == pytest.approx(log_prob / tokens, abs=1e-4)


@pytest.mark.parametrize("count", [1, 8])
def test_pair_scores_come_in_order_and_are_those_of_the_logits(translators, score_alone, count):
    assert_scored(translators[count].score_pairs(PAIRS), PAIRS, score_alone)


def test_a_source_too_long_is_cut_and_a_target_too_long_has_no_score(
    translators, score_alone, caplog
):
    most = "a" + " a" * (MAX_TARGET - 2)
    long = most + " a"
    pairs = [("cat", most), ("a", "a"), (long, "die katze"), ("cat", long), (long, long)]
    found = translators[1].score_pairs(pairs)
    assert_scored(found[:3], pairs[:3], score_alone)
    assert found[3:] == [None, None]
    assert [record.getMessage() for record in caplog.records] == [
        "source line 3, source line 5: expected at most 11 tokens; used the first 11 only",
        "target line 4, target line 5: expected at most 13 tokens; gave no score",
    ]
    caplog.clear()
    translators[1].score_pairs([("cat", "a"), (long, "a"), (long, long)], 20, each=4)
    assert [record.getMessage() for record in caplog.records] == [
        "source line 6: expected at most 11 tokens; used the first 11 only",
        "target line 22: expected at most 13 tokens; gave no score",
    ]


def test_a_translation_scores_what_the_search_reported_for_it(translators, vocabulary):
    sources = [source for source, _ in PAIRS if source]
    best = [
        (source, translation)
        for source, found in zip(
            sources, translators[1].translate_lines(sources, request=TWO), strict=True
        )
        for translation in found
        # The same text can be written in other pieces, which are other tokens.
        if [*vocabulary.encode(translation.text), vocabulary.eos_id] == [*translation.tokens]
    ]
    assert len(best) > 5
    scores = translators[1].score_pairs([(source, found.text) for source, found in best])
    for score, (_, translation) in zip(scores, best, strict=True):
        assert score.log_prob == pytest.approx(translation.log_prob, abs=1e-4)
