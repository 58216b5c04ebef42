"""Searching a stream of sentences in slots against searching each of them alone."""

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import numpy as np
import pytest
from tiny_translator import CONFIG, params_of

from jax_transformer.config import DecodingConfig
from jax_transformer.decoding.ensemble import Ensemble
from jax_transformer.decoding.generate import ModelDecoder, translate
from jax_transformer.decoding.slots import Stream, empty_slots
from jax_transformer.models.transformer import Transformer
from jax_transformer.parsing.word_positions import WordTransformer

PAD, BOS, EOS, SIZE = 0, 1, 2, 14
IDS: Any = {"bos_id": BOS, "eos_id": EOS}
SLOTS, S = 16, 8
MODEL = Transformer(CONFIG, SIZE, PAD)
LOCAL = Transformer(replace(CONFIG, attention_radius=2), SIZE, PAD)
LEARNED = Transformer(replace(CONFIG, positions="learned", max_positions=S + 5), SIZE, PAD)
COUNTS = bytes([0, 0, 0, *[1, 0] * 5, 1])
WORDS = WordTransformer(CONFIG, SIZE, PAD, word_starts=COUNTS, tags=COUNTS)
DECODING = DecodingConfig(beam_size=3, alpha=0.6, max_extra_length=5)


@pytest.fixture(scope="module")
def sources():
    """Five batches and a half of sentences of many lengths."""
    random = np.random.default_rng(3)
    rows = np.full((88, S), PAD, np.int32)
    for row in rows:
        tokens = random.integers(3, SIZE, random.integers(1, S))
        row[: len(tokens) + 1] = [*tokens, EOS]
    return rows


def streamed(stream, params, sources, together=SLOTS, seed=None):
    """The outputs by sentence, and the number of sentences that each call answered.

    together: new sentences in a call. seed: draws how many they are, and the steps after them.
    """
    make = partial(stream.slots, size=SLOTS)
    slots = empty_slots(jax.eval_shape(make, params, sources[:SLOTS]))
    advance = jax.jit(stream.advance, donate_argnums=1)
    random = np.random.default_rng(seed)
    answers, counts, first = {}, [], 0
    while len(answers) < len(sources):
        count = together if seed is None else random.integers(0, together + 1)
        own = sources[first : first + count]
        number = np.full(together, -1, np.int32)
        rows = np.full((together, S), PAD, np.int32)
        number[: len(own)], rows[: len(own)] = np.arange(first, first + len(own)), own
        first += len(own)
        steps = 1000 if first == len(sources) else 0 if seed is None else random.integers(0, 5)
        arguments = rows, number, np.array(steps)
        slots, (numbers, found) = jax.device_get(advance(params, slots, *arguments))
        counts.append(int((numbers >= 0).sum()))
        for place in np.flatnonzero(numbers >= 0):
            assert numbers[place] not in answers
            answers[int(numbers[place])] = [leaf[place] for leaf in found]
    assert (slots.number == -1).all()
    return answers, counts


@pytest.mark.parametrize("seed", [1, 2])
def test_outputs_do_not_depend_on_when_a_sentence_comes(seed, sources):
    params = params_of(MODEL)
    stream = Stream(MODEL, DECODING, BOS, EOS, 1, S + 5, ModelDecoder(MODEL))
    answers, counts = streamed(stream, params, sources, together=5, seed=seed)
    assert len(counts) > len(sources) // 5
    expected = jax.device_get(translate(MODEL, params, sources, DECODING, length=S + 5, **IDS))
    for number, tokens in enumerate(expected.tokens):
        np.testing.assert_array_equal(answers[number][0], tokens)
        np.testing.assert_allclose(answers[number][1], expected.scores[number], rtol=1e-4)


@pytest.mark.parametrize(
    ("model", "decoding", "length"),
    [
        (MODEL, DECODING, S + 5),
        (MODEL, DECODING, 9),  # some outputs are longer
        (MODEL, replace(DECODING, patience=1.0, narrowing=True), S + 5),
        (MODEL, replace(DECODING, beam_size=1), S + 5),
        (LOCAL, DECODING, S + 5),
        (WORDS, DECODING, S + 5),
        (LEARNED, DECODING, S + 5),  # the slots of outputs that fill the table are used again
    ],
    ids=["exact", "short", "narrowing", "greedy", "local", "words", "learned"],
)
def test_a_stream_has_the_outputs_of_each_sentence_alone(model, decoding, length, sources):
    params, n_best = params_of(model), decoding.beam_size
    stream = Stream(model, decoding, BOS, EOS, n_best, length, ModelDecoder(model))
    answers, counts = streamed(stream, params, sources)
    assert counts[0] == 0 < counts[1] < len(sources)  # sentences stay for the next call
    settings = {"n_best": n_best, "length": length, **IDS}
    alone = jax.jit(lambda params, source: translate(model, params, source, decoding, **settings))
    complete = 0
    for number, source in enumerate(sources):
        expected = [leaf[0] for leaf in jax.device_get(alone(params, source[None]))]
        found = answers[number]
        assert found[3] == expected[3]
        if expected[3]:  # others are searched again
            complete += 1
            np.testing.assert_array_equal(found[0], expected[0])
            np.testing.assert_allclose(found[1], expected[1], rtol=1e-4, atol=1e-4)
            np.testing.assert_allclose(found[2], expected[2], rtol=1e-4, atol=1e-4)
    assert complete == len(sources) if length > 9 else 0 < complete < len(sources)


def test_a_stream_of_an_ensemble_has_its_outputs(sources):
    models = MODEL, Transformer(replace(CONFIG, num_layers=2), SIZE, PAD)
    ensemble = Ensemble(models, (0.3, 0.7))
    params = [params_of(model) for model in models]
    stream = Stream(MODEL, DECODING, BOS, EOS, 1, S + 5, ensemble)
    answers, _ = streamed(stream, params, sources[:40])
    settings = {"decoder": ensemble, "length": S + 5, **IDS}
    expected = jax.device_get(translate(MODEL, params, sources[:40], DECODING, **settings))
    for number, tokens in enumerate(expected.tokens):
        np.testing.assert_array_equal(answers[number][0], tokens)
