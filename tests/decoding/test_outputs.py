"""Samples, prefixes and constraints through lines of text, and ensembles."""

import dataclasses
import math
import re
from functools import partial

import jax
import jaxtyping
import numpy as np
import pytest
from refusals import refusal

from jax_transformer.config import DecodingConfig, ModelConfig
from jax_transformer.data.vocabularies.sentencepiece import train_vocabulary
from jax_transformer.decoding import generate
from jax_transformer.decoding.ensemble import Ensemble
from jax_transformer.decoding.generate import log_probabilities
from jax_transformer.decoding.line_search import Line
from jax_transformer.decoding.request import Request, request_of
from jax_transformer.decoding.sampling import sample
from jax_transformer.decoding.translator import Translator
from jax_transformer.errors import InputError
from jax_transformer.models.transformer import Transformer
from jax_transformer.parallel import Devices

TEXT = ["the cat sat on the mat", "die katze sitzt auf der matte", "a cat and a mat"] * 4
LINES = ["a cat", "", "the mat sat on the mat", "cat", "die matte", "the cat sat"]
CONFIG = ModelConfig(num_layers=1, d_model=8, d_ff=16, num_heads=2, d_k=4, d_v=4)
DECODING = DecodingConfig(beam_size=2, alpha=0.6, max_extra_length=4, batch_tokens=64)

scored = jax.jit(log_probabilities, static_argnums=0, static_argnames="bos_id")


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    return train_vocabulary(TEXT, 50, tmp_path_factory.mktemp("vocabulary") / "v.model", up_to=True)


def model_of(vocabulary, d_ff=16):
    config = dataclasses.replace(CONFIG, d_ff=d_ff)
    return Transformer(config, vocabulary.size, vocabulary.pad_id)


@pytest.fixture(scope="module")
def params(vocabulary):
    return params_of(model_of(vocabulary), 1)


def params_of(model, seed):
    token = np.zeros((1, 2), np.int32)
    drawn = jax.jit(lambda key: model.init(key, token, token)["params"])(jax.random.key(seed))
    return jax.device_get(jax.tree.map(lambda leaf: 1.7 * leaf, drawn))


@pytest.fixture(scope="module")
def translate(vocabulary, params):
    """A function of options and prefixes that gives the outputs of LINES."""

    def translate(prefixes=None, lines=LINES, first=1, devices=1, batch_tokens=64, **options):
        translator = Translator(
            model_of(vocabulary),
            params,
            vocabulary,
            dataclasses.replace(DECODING, batch_tokens=batch_tokens),
            max_length=24,
            devices=Devices(devices),
        )
        given = options | ({} if prefixes is None else {"prefixes": prefixes})
        return translator.translate_lines(lines, first, request_of(given, "translate"))

    return translate


def test_samples_are_the_same_in_any_batch_and_on_any_number_of_devices(translate):
    options = {"samples": 3, "temperature": 1.2, "top_p": 0.9, "seed": 5}
    whole = translate(**options)
    assert [len(outputs) for outputs in whole] == [3, 0, 3, 3, 3, 3]
    assert len({output.text for outputs in whole for output in outputs}) > 6
    eight = translate(devices=8, batch_tokens=24, **options)
    windows = translate(lines=LINES[:3], **options) + translate(lines=LINES[3:], first=4, **options)
    for other in (eight, windows):
        assert [[o.text for o in outputs] for outputs in other] == [
            [o.text for o in outputs] for outputs in whole
        ]
    assert translate(**options | {"seed": 6}) != whole


def test_lines_with_other_values_of_options_share_a_batch_and_nothing_else(vocabulary, params):
    translator = Translator(
        model_of(vocabulary), params, vocabulary, DECODING, max_length=24, devices=Devices(1)
    )
    each = [
        Request(samples=3, temperature=0.7, top_k=4, seed=1),
        Request(samples=3, top_p=0.6, seed=2, min_length=5),
        Request(samples=3, temperature=1.5, seed=3),
    ]
    texts, numbers = ["a cat", "die matte", "the mat sat"], [4, 4, 9]
    lines = [
        Line(text, "", number, request=request)
        for text, number, request in zip(texts, numbers, each, strict=True)
    ]
    for line, found in zip(lines, translator.search(lines), strict=True):
        (alone,) = translator.translate_lines([line.text], line.number, line.request)
        assert [output.tokens for output in found] == [output.tokens for output in alone]


def test_log_p_of_a_sample_is_that_of_its_tokens(vocabulary, params):
    model, ids = model_of(vocabulary), {"bos_id": vocabulary.bos_id, "eos_id": vocabulary.eos_id}
    source = np.array([[*vocabulary.encode("a cat"), vocabulary.eos_id]])
    drawn = partial(sample, keys=jax.random.split(jax.random.key(3), 1), temperature=1.3)
    decoding = dataclasses.replace(DECODING, beam_size=12)
    found = jax.jit(
        lambda params: generate.translate(
            model, params, source, decoding, n_best=12, search=drawn, **ids
        )
    )(params)
    expected = scored(
        model, params, np.repeat(source, 12, axis=0), found.tokens[0], bos_id=vocabulary.bos_id
    ).sum(axis=1)
    # An untrained model draws PAD too, which scoring takes for the end of a row.
    lengths = (found.tokens[0] == vocabulary.eos_id).argmax(axis=1) + 1
    usual = (found.tokens[0] != vocabulary.pad_id).sum(axis=1) == lengths
    assert usual.sum() > 6
    np.testing.assert_allclose(found.log_probs[0][usual], expected[usual], rtol=1e-4)


@pytest.mark.parametrize("patience", [0.0, 0.5])
def test_the_outputs_of_a_line_are_the_best_that_differ(vocabulary, params, patience):
    decoding = dataclasses.replace(
        DECODING, beam_size=100, max_extra_length=1, patience=patience, alpha=1.0
    )
    model, ids = model_of(vocabulary), {"bos_id": vocabulary.bos_id, "eos_id": vocabulary.eos_id}
    translator = Translator(model, params, vocabulary, decoding, max_length=24, devices=Devices(1))
    source = np.array([[*vocabulary.encode("a"), vocabulary.eos_id]])
    found = jax.jit(partial(generate.translate, model, decoding=decoding, n_best=100, **ids))(
        params, source
    )
    all_found = vocabulary.decode_batch(np.asarray(found.tokens[0]).tolist())
    all_found = all_found[: int(np.isfinite(found.scores[0]).sum())]
    expected = list(dict.fromkeys(all_found))
    assert len(expected) < len(all_found)
    for n in (1, 9, 100):
        (line,) = translator.translate_lines(["a"], request=Request(n_best=n))
        assert [output.text for output in line] == expected[:n]


def test_outputs_begin_with_their_prefixes_and_a_new_word(translate):
    prefixes = ["die", "die", "", "the cat", "auf der", "a m"]
    outputs = translate(prefixes)
    assert outputs[1] == []
    for prefix, found in zip(prefixes, outputs, strict=True):
        for output in found:
            assert re.match(re.escape(prefix) + r"(\W|$)", output.text) or not prefix, output.text
    inside = translate([""] * 5 + ["a m"], inside_word=True)
    assert inside[5][0].text.startswith("a m")
    assert inside[:5] == translate()[:5]


def test_a_prefix_may_end_with_a_phrase_that_is_forbidden_after_it(translate):
    prefixes = ["the cat"] * len(LINES)
    for outputs in translate(prefixes, without=["cat", "the cat", "mat"]):
        for output in outputs:
            assert re.match(r"the cat(\W|$)", output.text), output.text
            inner = output.text.removeprefix("the cat").rsplit(" ", 1)[0]
            assert not {"cat", "mat"} & set(re.findall(r"\w+", inner))


def test_a_prefix_may_be_as_long_as_an_output_or_longer_than_the_usual_limit(translate):
    long = "the cat sat on the mat and a cat"
    assert translate(["", "", "", long, "", ""])[3][0].text.startswith(long)


def test_prefixes_that_do_not_fit_are_refused(translate):
    with pytest.raises(InputError, match="one for each of 6 lines, found 1"):
        translate(["a"])
    with pytest.raises(InputError, match=r"prefix of line 3: .* unknown letters"):
        translate(["", "", "☃", "", "", ""])


def test_no_output_has_a_forbidden_phrase_or_a_repetition(translate):
    plain = " ".join(output.text for outputs in translate() for output in outputs)
    words = sorted(set(re.findall(r"\w+", plain)))[:3]
    assert words
    for outputs in translate(without=words, no_repeat_ngram=2, min_length=4):
        for output in outputs:
            assert output.num_tokens >= 4
            inner = output.text.rsplit(" ", 1)[0]  # an output may end with one at its limit
            assert not set(words) & set(re.findall(r"\w+", inner))


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"temperature": 0.5}, "temperature=0.5 requires samples"),
        ({"samples": 2, "temperature": -0.1}, "temperature: "),
        ({"samples": 2, "temperature": 1e-38}, "temperature: "),  # float32 may take it for 0
        ({"samples": 2, "temperature": math.nan}, "temperature: "),
        ({"samples": 2, "temperature": "0.5"}, "temperature: "),
        ({"samples": 2, "top_p": 1e-320}, "top_p: "),
        ({"samples": 2, "top_p": None}, "top_p: "),
        ({"samples": -1}, "samples: "),
        ({"samples": 2.0}, "samples: "),
        ({"without": [" "]}, "without: "),
        ({"without": "cat"}, "without: expected a list, found 'cat'"),
        ({"without": [5]}, "without.0: "),
        ({"n_best": True}, "n_best: "),
    ],
)
def test_options_out_of_range_or_of_other_types_are_refused(monkeypatch, options, name):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # as users run it
    assert refusal(request_of, options, "translate").startswith(name)


def test_an_ensemble_has_the_weighted_mean_of_its_models_probabilities(vocabulary, params):
    models = model_of(vocabulary), model_of(vocabulary, d_ff=32)
    both = [params, params_of(models[1], 2)]
    ensemble = Ensemble(models, (0.25, 0.75))
    ids = {"bos_id": vocabulary.bos_id}
    source, target = (
        np.array([[*vocabulary.encode(text), vocabulary.eos_id]]) for text in ("a cat", "die matte")
    )
    single = [
        np.exp(scored(model, own, source, target, **ids))
        for model, own in zip(models, both, strict=True)
    ]
    found = jax.jit(ensemble.log_probabilities, static_argnames="bos_id")(
        both, source, target, **ids
    )
    np.testing.assert_allclose(np.exp(found), 0.25 * single[0] + 0.75 * single[1], rtol=1e-5)
