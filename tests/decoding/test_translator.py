"""Lines through the translator: order, blanks, cuts, windows, devices and shapes."""

import random
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

from jax_transformer.config import DecodingConfig, ModelConfig
from jax_transformer.data.vocabulary import train_vocabulary
from jax_transformer.decoding.beam_search import Hypotheses
from jax_transformer.decoding.generate import translate
from jax_transformer.decoding.translator import Translator
from jax_transformer.errors import InputError
from jax_transformer.models.transformer import Transformer
from jax_transformer.parallel import Begun, Devices, RowMap

TEXT = ["the cat sat on the mat", "die katze sitzt auf der matte", "a cat and a mat"] * 4
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
CONFIG = ModelConfig(num_layers=1, d_model=8, d_ff=16, num_heads=2, d_k=4, d_v=4)
# Two lengths with one batch size each, so that little is compiled.
DECODING = DecodingConfig(beam_size=2, alpha=0.6, max_extra_length=2, batch_tokens=16)
MAX_LENGTH = 12


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
def translators(model, params, vocabulary):
    """{device count: Translator of two best}; each compiles its two shapes once."""
    return {
        count: Translator(
            model,
            params,
            vocabulary,
            DECODING,
            max_length=MAX_LENGTH,
            devices=Devices(count),
            n_best=2,
        )
        for count in (1, 3, 8)
    }


@pytest.fixture(scope="module")
def expected(model, params, vocabulary):
    """Each line translated alone, by `translate` itself, cut by hand."""
    search = jax.jit(
        lambda source: translate(
            model,
            params,
            source,
            DECODING,
            bos_id=vocabulary.bos_id,
            eos_id=vocabulary.eos_id,
            n_best=2,
        )
    )
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
        results.append(
            list(
                zip(
                    [vocabulary.decode(row) for row in rows],
                    found.scores[0].tolist(),
                    found.log_probs[0].tolist(),
                    [len(row) for row in rows],
                    strict=True,
                )
            )
        )
    return results


def assert_same(found, expected):
    assert [len(line) for line in found] == [len(line) for line in expected]
    for line, wanted in zip(found, expected, strict=True):
        for translation, (text, score, log_prob, tokens) in zip(line, wanted, strict=True):
            assert (translation.text, translation.tokens) == (text, tokens)
            np.testing.assert_allclose(translation.score, score, rtol=1e-5)
            np.testing.assert_allclose(translation.log_prob, log_prob, rtol=1e-5)


@pytest.mark.parametrize("count", [1, 3, 8])
def test_translations_come_in_order_whatever_the_number_of_devices(translators, expected, count):
    found = translators[count].translate_lines(LINES, lambda _: None)
    assert_same(found, expected)
    texts = [line[0].text for line in found if line]
    assert len(set(texts)) > len(texts) / 2  # so order can be told


@pytest.mark.parametrize("window", [1, 3, 100])
def test_windows_change_no_translation(translators, expected, window):
    assert_same(list(translators[1].stream(LINES, window, lambda _: None)), expected)


def test_greedy_search_may_leave_scores_out(model, params, vocabulary):
    texts, scores = [], []
    for wanted in (True, False):
        translator = Translator(
            model,
            params,
            vocabulary,
            DecodingConfig(beam_size=1),
            max_length=MAX_LENGTH,
            devices=Devices(1),
            scores=wanted,
        )
        best = [line[0] for line in translator.translate_lines(LINES, lambda _: None) if line]
        texts.append([(found.text, found.tokens) for found in best])
        scores.append(np.array([(found.score, found.log_prob) for found in best]))
        translator.set_params(jax.tree.map(lambda leaf: np.full_like(leaf, np.nan), params))
        with pytest.raises(InputError, match=r"^line 8: .*not numbers"):
            translator.translate_lines(["", "a cat"], pytest.fail, first=7)
    assert texts[0] == texts[1]
    assert (scores[0] < 0).all()
    assert np.isnan(scores[1]).all()


def test_a_blank_line_has_no_translation(translators):
    found = translators[1].translate_lines(["", "cat", " ", "  "], lambda _: None)
    assert [len(line) for line in found] == [0, 2, 0, 0]
    assert translators[1].translate_lines([], lambda _: None) == []
    assert translators[1].translate_lines(["", " "], lambda _: None) == [[], []]


@pytest.mark.parametrize("window", [1, 3, 100])
def test_a_line_that_is_too_long_is_cut_with_a_warning_of_its_number(
    translators, vocabulary, window
):
    warned = []
    lines = [*LINES, LINES[2]]
    list(translators[1].stream(lines, window, warned.append))
    long = {i: len(vocabulary.encode(line)) for i, line in enumerate(lines, 1)}
    long = {number: length for number, length in long.items() if length > MAX_LENGTH - 1}
    assert {3, 9} <= set(long)
    assert warned == [
        f"line {number}: expected at most 11 tokens, found {length}; "
        "translated the first of them only"
        for number, length in long.items()
    ]


def test_a_line_of_just_the_longest_length_is_not_cut(translators, vocabulary):
    line, warned = "a" + " a" * (MAX_LENGTH - 2), []
    assert len(vocabulary.encode(line)) == MAX_LENGTH - 1
    translators[1].translate_lines([line], warned.append)
    assert warned == []
    translators[1].translate_lines([line + " a"], warned.append)
    assert len(warned) == 1


def test_the_n_best_come_best_first_and_differ(translators, vocabulary):
    for line in translators[1].translate_lines(LINES, lambda _: None):
        if line:
            assert line[0].score >= line[1].score
            assert line[0] != line[1]


@pytest.mark.parametrize("window", [1, 2, 3])
def test_a_stream_reads_no_line_before_it_must(translators, window):
    read = []

    def lines():
        for number, line in enumerate(LINES):
            read.append(number)
            yield line

    stream = translators[1].stream(lines(), window, lambda _: None)
    assert read == []
    for done in range(1, len(LINES) + 1):
        next(stream)
        assert len(read) == min(-(-done // window) * window, len(LINES))
    assert next(stream, None) is None


class Compiled(NamedTuple):
    """Devices that only note which shapes they are given, and answer EOS."""

    count: int  # pyright: ignore[reportIncompatibleMethodOverride]
    shapes: list
    answer: list

    def replicate(self, tree):
        return tree

    def map_rows(self, function):
        def begin(params, rows):
            self.shapes.append(rows.shape)
            tokens = np.zeros((len(rows), 1, 9), np.int32)
            tokens[:, 0, : len(self.answer)] = self.answer
            found: Any = (tokens, *(np.full((len(rows), 1), -1.0),) * 2)
            return Begun(lambda: Hypotheses(*found))

        return RowMap(begin)


def noting(model, vocabulary, count, batch_tokens, max_length=256, answer=(2,)):
    decoding = DecodingConfig(batch_tokens=batch_tokens, beam_size=3)
    devices = Compiled(count, [], list(answer))
    translator = Translator(
        model,
        {},
        vocabulary,
        decoding,
        max_length=max_length,
        devices=devices,  # type: ignore[arg-type]
    )
    return translator, devices.shapes


@pytest.mark.parametrize("count", [1, 3, 8])
@pytest.mark.parametrize("batch_tokens", [1, 100, 4096])
def test_texts_of_any_size_and_length_compile_few_shapes(model, vocabulary, count, batch_tokens):
    random = np.random.default_rng(0)
    translator, shapes = noting(model, vocabulary, count, batch_tokens)
    for _ in range(60):
        lines = ["a" + " a" * int(n) for n in random.geometric(0.03, random.integers(1, 90))]
        found = translator.translate_lines(lines, lambda _: None)
        assert all(len(line) == 1 for line in found)
    assert len({length for _, length in shapes}) <= 5  # 24, 48, 96, 192 and 256
    per_length = max(1, int(np.log(batch_tokens / 24 + 1) / np.log(4)) + 1)
    assert len(set(shapes)) <= 5 * per_length
    for rows, length in shapes:
        assert rows % count == 0
        assert rows * length <= max(batch_tokens + (count - 1) * length, count * length)


def test_a_single_line_costs_no_full_batch(model, vocabulary):
    translator, shapes = noting(model, vocabulary, 1, 4096)
    translator.translate_lines(["cat"], lambda _: None)
    assert shapes == [(2, 24)]  # 160 rows of 24 would be full; 160 / 4 / 4 / 4


def test_what_fills_no_batch_goes_with_somewhat_longer_lines_and_no_others(model, vocabulary):
    translator, _ = noting(model, vocabulary, 1, 384)

    def shapes(*counts):
        """Of the batches of so many lines that have `length` tokens with EOS."""
        encoded = [[7] * (length - 1) for length, count in counts for _ in range(count)]
        random.Random(0).shuffle(encoded)
        return [(len(rows), *source.shape) for rows, source in translator._batches(encoded)]

    # Longest first; 16 rows of 24, 8 of 48, 4 of 96.
    assert shapes((24, 17), (40, 9)) == [(2, 2, 48), (8, 8, 48), (16, 16, 24)]
    assert shapes((8, 3), (40, 2)) == [(5, 8, 48)]
    assert shapes((8, 3), (49, 2)) == [(2, 4, 96), (3, 4, 24)]
    assert shapes((24, 1), (48, 1), (96, 1)) == [(1, 1, 96), (2, 2, 48)]
    assert shapes((48, 17)) == [(1, 2, 48), (8, 8, 48), (8, 8, 48)]


def test_every_line_stands_in_a_batch_that_holds_all_of_it(model, vocabulary):
    translator, _ = noting(model, vocabulary, 1, 300, max_length=20)
    encoded = [vocabulary.encode("a" + " a" * n) for n in range(19) for _ in range(7)]
    rows = {}
    for members, source in translator._batches(encoded):
        for row, i in enumerate(members):
            rows[i] = [token for token in source[row].tolist() if token != vocabulary.pad_id]
        assert (source[len(members) :] == vocabulary.pad_id).all()
    assert rows == {i: [*tokens, vocabulary.eos_id] for i, tokens in enumerate(encoded)}


def test_a_padding_token_inside_an_output_counts_as_one_of_its_tokens(model, vocabulary):
    """An untrained model may say anything."""
    answer = [7, vocabulary.pad_id, 8, vocabulary.eos_id]
    translator, _ = noting(model, vocabulary, 1, 100, answer=answer)
    [[found]] = translator.translate_lines(["cat"], lambda _: None)
    assert found.tokens == 4
    assert found.text == vocabulary.decode([7, 8])


def test_other_parameters_give_other_translations_of_the_same_lines(translators, params):
    translator = translators[1]
    before = translator.translate_lines(LINES, lambda _: None)
    translator.set_params(jax.tree.map(lambda leaf: leaf * 0.5, params))
    after = translator.translate_lines(LINES, lambda _: None)
    translator.set_params(params)
    assert after != before
    assert translator.translate_lines(LINES, lambda _: None) == before


def test_scores_that_are_not_numbers_are_an_error_that_names_the_line(translators, params):
    broken = jax.tree.map(lambda leaf: np.full_like(leaf, np.nan), params)
    translator = translators[1]
    translator.set_params(broken)
    try:
        with pytest.raises(InputError, match=r"^line 8: .*not numbers"):
            translator.translate_lines(["", "a cat"], pytest.fail, first=7)
    finally:
        translator.set_params(params)
