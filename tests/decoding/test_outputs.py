"""Samples, prefixes and constraints through lines of text, and ensembles."""

import dataclasses
import itertools
import math
import re
from functools import cache, partial
from typing import Any

import jax
import jaxtyping
import numpy as np
import pytest
from refusals import refusal
from tiny_translator import model_of, params_of

from jax_transformer.config import DataConfig, DecodingConfig
from jax_transformer.data.vocabularies.bpe import BpeContent, BpeVocabulary
from jax_transformer.decoding import generate
from jax_transformer.decoding.ensemble import Ensemble
from jax_transformer.decoding.generate import log_probabilities
from jax_transformer.decoding.line_search import Line
from jax_transformer.decoding.outputs import outputs_now, split
from jax_transformer.decoding.request import Request, request_of
from jax_transformer.decoding.translator import Translator
from jax_transformer.errors import InputError
from jax_transformer.parallel import Devices

LINES = ["a cat", "", "the mat sat on the mat", "cat", "die matte", "the cat sat"]
DECODING = DecodingConfig(beam_size=2, alpha=0.6, max_extra_length=4, batch_tokens=64)

scored = jax.jit(log_probabilities, static_argnums=0, static_argnames="bos_id")


@pytest.fixture(scope="module")
def params(vocabulary):
    return params_of(model_of(vocabulary))


@pytest.fixture(scope="module")
def translator_of(vocabulary, params):
    """A function that gives a translator, one for the same arguments."""

    @cache
    def translator_of(devices=1, **changes):
        own = model_of(vocabulary), params, vocabulary, dataclasses.replace(DECODING, **changes)
        return Translator(*own, max_length=24, devices=Devices(devices))

    return translator_of


@pytest.fixture(scope="module")
def translate(translator_of):
    """A function of options and prefixes that gives the outputs of LINES."""

    def translate(prefixes=None, lines=LINES, first=1, translator=None, **options):
        given = options | ({} if prefixes is None else {"prefixes": prefixes})
        translator = translator or translator_of()
        return translator.translate_lines(lines, first, request_of(given, "translate"))

    return translate


def test_samples_are_the_same_in_any_batch_and_on_any_number_of_devices(translate, translator_of):
    options = {"samples": 3, "temperature": 1.2, "top_p": 0.9, "seed": 5}
    whole = translate(**options)
    assert [len(outputs) for outputs in whole] == [3, 0, 3, 3, 3, 3]
    assert len({output.text for outputs in whole for output in outputs}) > 6
    eight = translate(translator=translator_of(devices=8, batch_tokens=24), **options)
    windows = translate(lines=LINES[:3], **options) + translate(lines=LINES[3:], first=4, **options)
    for other in (eight, windows):
        assert [[o.text for o in outputs] for outputs in other] == [
            [o.text for o in outputs] for outputs in whole
        ]
    assert translate(**options | {"seed": 6}) != whole


def test_lines_with_other_values_of_options_share_a_batch_and_nothing_else(translator_of):
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
    for line, found in zip(lines, translator_of().search(lines), strict=True):
        (alone,) = translator_of().translate_lines([line.text], line.number, line.request)
        assert [output.tokens for output in found] == [output.tokens for output in alone]


def test_the_outputs_of_a_line_are_the_best_that_differ(vocabulary, params, translator_of):
    translator = translator_of(beam_size=100, max_extra_length=1, patience=0.5, alpha=1.0)
    model, ids = model_of(vocabulary), {"bos_id": vocabulary.bos_id, "eos_id": vocabulary.eos_id}
    source = np.array([[*vocabulary.encode("a"), vocabulary.eos_id]])
    settings = {"decoding": translator.decoding, "n_best": 100, **ids}
    found = jax.jit(partial(generate.translate, model, **settings))(params, source)
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
    with pytest.raises(InputError, match="one for each of 6 lines, found 0"):
        translate([])
    with pytest.raises(InputError, match=r"prefix of line 3: .* unknown letters"):
        translate(["", "", "☃", "", "", ""])


def test_words_that_their_last_piece_ends_cannot_be_continued():
    special: Any = {"bos_id": 2, "pad_id": 1, "eos_id": 2, "unk_id": 3}
    pieces = ["<s>", "<pad>", "</s>", "<unk>", "a", "a@@", "t"]
    content = BpeContent(pieces=pieces, merges=[], end_apart=False, **special)
    vocabulary = BpeVocabulary.make(content)
    translator = Translator(model_of(vocabulary), {}, vocabulary, DECODING, max_length=24)
    options = {"prefixes": ["a"], "inside_word": True}
    error = refusal(translator.translate_lines, ["at"], 1, request_of(options, "translate"))
    assert error.startswith("inside_word: ")


def test_a_phrase_is_read_as_the_rules_of_moses_cut_it():
    special: Any = {"bos_id": 2, "pad_id": 1, "eos_id": 2, "unk_id": 3}
    pieces = ["<s>", "<pad>", "</s>", "<unk>", "E", "@-@", "Mail", "K\u00fcche", ",", "&amp;"]
    content = BpeContent(pieces=pieces, merges=[], end_apart=False, moses=True, **special)
    vocabulary = BpeVocabulary.make(content)
    own = model_of(vocabulary), {}, vocabulary, DECODING
    translator = Translator(*own, max_length=24, devices=Devices(1))
    for phrase, tokens in (("E-Mail", [4, 5, 6]), ("K\u00fcche,", [7, 8]), ("E & Mail", [4, 9, 6])):
        found, state = translator.phrases_for((phrase,)), 0
        for token in tokens[:-1]:
            assert not found.forbidden[state, token]
            state = int(found.next_state[state, token])
        last = int(found.next_state[state, tokens[-1]])
        assert found.forbidden[state, tokens[-1]] | found.forbidden[last, vocabulary.eos_id]


def test_the_sentences_of_a_line_have_its_tag():
    pytest.importorskip("sentencex", reason="splits: pip install -e '.[sentences]'")
    text = ">>fra<< A frog sat. It slept."
    for given, tags in ((text, (">>deu<<", ">>fra<<")), (text.removeprefix(">>fra<< "), ("x",))):
        (found,) = split("en", tags, [Line(given, "lines[0]")])
        tag = ">>fra<< " * given.startswith(">")
        assert [each.text for each in found] == [f"{tag}A frog sat.", f"{tag}It slept."]


def test_a_prefix_in_a_file_ends_at_its_line_alone(translator_of):
    request, data = Request(prefixes=("the\u2028cat",)), DataConfig()
    ((found,),) = outputs_now(translator_of(), ["a cat"], request, data=data, first=1)
    assert found.text.startswith("the cat")
    assert refusal(outputs_now, translator_of(), ["a cat"], request, data=data)


def test_no_output_has_a_forbidden_phrase_or_a_repetition(translate):
    plain = " ".join(output.text for outputs in translate() for output in outputs)
    words = sorted(set(re.findall(r"\w+", plain)))[:3]
    assert words
    for outputs in translate(without=words, no_repeat_ngram=2, min_length=4):
        for output in outputs:
            assert output.num_tokens >= 4
            pairs = [*itertools.pairwise(output.tokens)]
            assert len({*pairs}) == len(pairs)
            inner = output.text.rsplit(" ", 1)[0]  # an output may end with one at its limit
            assert not set(words) & set(re.findall(r"\w+", inner))


def test_options_that_together_leave_no_token_are_named(translate, translator_of):
    long = translator_of(max_extra_length=80)  # more tokens than there are pieces
    options = {"no_repeat_ngram": 1, "min_length": 70}
    with pytest.raises(InputError, match=r"^line 1: .*min_length and no_repeat_ngram may forbid"):
        translate(translator=long, **options)


def test_options_out_of_range_or_of_other_types_are_refused(monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # as users run it
    for options, start in (
        ({"temperature": 0.5}, "temperature=0.5 requires samples"),
        ({"samples": 2, "temperature": 1e-38}, "temperature: "),  # float32 may take it for 0
        ({"samples": 2, "temperature": math.nan}, "temperature: "),
        ({"samples": 2, "top_p": 1e-320}, "top_p: "),
        ({"samples": 2.0}, "samples: "),
        ({"without": [" "]}, "without: "),
        ({"without": "cat"}, "without: expected a list, found 'cat'"),
        ({"n_best": True}, "n_best: "),
    ):
        assert refusal(request_of, options, "translate").startswith(start)


def test_half_a_character_in_a_paragraph_is_refused(translator_of):
    request, data = Request(split_sentences=True), DataConfig()
    message = refusal(outputs_now, translator_of(), ["", "A cat.\nA \ud800."], request, data=data)
    assert message.startswith("lines[1]: ")
    assert "U+D800" in message


def test_an_ensemble_has_the_weighted_mean_of_its_models_probabilities(vocabulary, params):
    model = model_of(vocabulary)
    both = [params, params_of(model, 2)]
    ensemble = Ensemble((model, model), (0.25, 0.75))
    ids = {"bos_id": vocabulary.bos_id}
    source, target = (
        np.array([[*vocabulary.encode(text), vocabulary.eos_id]]) for text in ("a cat", "die matte")
    )
    single = [np.exp(scored(model, own, source, target, **ids)) for own in both]
    found = jax.jit(ensemble.log_probabilities, static_argnames="bos_id")(
        both, source, target, **ids
    )
    np.testing.assert_allclose(np.exp(found), 0.25 * single[0] + 0.75 * single[1], rtol=1e-5)
