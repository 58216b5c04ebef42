"""Prefixes, constraints and samples beside CTranslate2's options of the same meaning."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from letters import letters
from scipy.stats import chi2

from jax_transformer.config import DecodingConfig
from jax_transformer.decoding.request import request_of
from jax_transformer.formats.ctranslate2 import write_ctranslate2
from jax_transformer.runs.load import load

ctranslate2 = pytest.importorskip(
    "ctranslate2", reason="searches the export: pip install -e '.[export]'"
)

pytestmark = pytest.mark.slow

LINES, CAPITALS = letters(30, seed=31)
EXTRA = 20  # tokens that an output may have beyond its source
SAMPLES = 2000


@pytest.fixture(scope="module")
def model(trained):
    """A model that is sure of nothing yet."""
    return load(trained)


@pytest.fixture(scope="module")
def theirs(model, tmp_path_factory):
    """CTranslate2 with the export of the model."""
    folder = tmp_path_factory.mktemp("export")
    write_ctranslate2(model, folder)
    return ctranslate2.Translator(str(folder), device="cpu", intra_threads=1)


def pieces(model, lines) -> list[list[str]]:
    table = model.vocabulary.all_pieces
    return [[table[index] for index in ids] for ids in model.vocabulary.encode_batch(lines)]


def our_outputs(model, lines, beam_size, prefixes=None, **options: Any) -> list[list[list[str]]]:
    """The pieces of all outputs of each line, without end marks."""
    decoding = DecodingConfig(beam_size=beam_size, alpha=0.0, patience=1.0, max_extra_length=EXTRA)
    given = options | ({} if prefixes is None else {"prefixes": prefixes})
    found = model.translator(decoding).translate_lines(lines, 1, request_of(given, ""))
    table = model.vocabulary.all_pieces
    return [[[table[i] for i in output.tokens[:-1]] for output in outputs] for outputs in found]


SEARCHES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "none": ({}, {}),
    "prefix": ({"inside_word": True}, {}),
    "all": (
        {"inside_word": True, "min_length": 9, "no_repeat_ngram": 2},
        {"min_decoding_length": 8, "no_repeat_ngram_size": 2},  # without the end mark
    ),
}


@pytest.mark.parametrize(
    ("case", "beam_size"), [("all", 1), pytest.param("none", 4, marks=pytest.mark.release)]
)
def test_outputs_are_those_of_ctranslate2(model, theirs, case, beam_size):
    pairs = pairs_of_outputs(model, theirs, case, beam_size)
    assert [row for row, _ in pairs] == [row for _, row in pairs]


@pytest.mark.release
def test_a_beam_s_outputs_after_a_prefix_are_no_less_likely_than_those_of_ctranslate2(
    model, theirs
):
    """In a beam CTranslate2 ranks otherwise, because it renormalizes what is allowed."""
    pairs = pairs_of_outputs(model, theirs, "prefix", beam_size=4)
    log_probs = [model.score(LINES, list(map(text, side))) for side in zip(*pairs, strict=True)]
    usable = np.isfinite(log_probs).all(axis=0)  # pairs of [] have none
    gains = np.subtract(*np.array(log_probs)[:, usable])
    assert gains.mean() > -1e-4
    assert (gains > -1e-4).mean() > 0.75


def test_after_a_prefix_scores_count_the_log_p_that_ctranslate2_counts(model, theirs):
    """It divides by the length of all tokens, we and Hugging Face by that of those chosen."""
    decoding = DecodingConfig(
        beam_size=4, alpha=0.6, length_penalty="length", patience=1.0, max_extra_length=EXTRA
    )
    prefixes = [line[:3] for line in CAPITALS]
    request = request_of({"prefixes": prefixes, "inside_word": True}, "")
    found = model.translator(decoding).translate_lines(LINES, 1, request)
    given = pieces(model, prefixes)
    results = theirs.translate_batch(
        pieces(model, LINES), target_prefix=given, beam_size=4, length_penalty=0.6,
        max_decoding_length=60, min_decoding_length=0, return_scores=True,
    )  # fmt: skip
    table, compared = model.vocabulary.all_pieces, 0
    for (ours, *_), result, prefix in zip(found, results, given, strict=True):
        if [table[i] for i in ours.tokens[:-1]] == result.hypotheses[0]:
            compared += 1
            count = ours.num_tokens
            chosen = ours.score * (count - len(prefix)) ** 0.6
            assert chosen == pytest.approx(result.scores[0] * count**0.6, rel=1e-3, abs=1e-3)
    assert compared > 10


def text(row: list[str]) -> str:
    return "".join(row).replace("▁", " ").strip()


def pairs_of_outputs(model, theirs, case, beam_size) -> list[tuple[list[str], list[str]]]:
    """Our best output and CTranslate2's of each line; [] and [] where ours ends by its limit."""
    ours, options = SEARCHES[case]
    prefixes = [line[:3] for line in CAPITALS] if "inside_word" in ours else None
    found = [outputs[0] for outputs in our_outputs(model, LINES, beam_size, prefixes, **ours)]
    sources = pieces(model, LINES)
    results = theirs.translate_batch(
        sources,
        target_prefix=prefixes and pieces(model, prefixes),
        beam_size=beam_size,
        length_penalty=0.0,
        max_decoding_length=60,
        **{"min_decoding_length": 0, **options},
    )
    pairs = [
        (row, result.hypotheses[0]) if len(row) < len(source) + EXTRA else ([], [])
        for row, result, source in zip(found, results, sources, strict=True)
    ]
    assert sum(pair != ([], []) for pair in pairs) > 10
    return pairs


SAMPLED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "temperature": ({"temperature": 1.3}, {"sampling_temperature": 1.3, "sampling_topk": 0}),
    "top_k": ({"top_k": 3}, {"sampling_topk": 3}),
    "top_p": ({"top_p": 0.8}, {"sampling_topp": 0.8, "sampling_topk": 0}),
    "all": (
        {"temperature": 0.7, "top_k": 5, "top_p": 0.9},
        {"sampling_temperature": 0.7, "sampling_topk": 5, "sampling_topp": 0.9},
    ),
}


@pytest.mark.parametrize("case", SAMPLED)
@pytest.mark.release
def test_samples_have_the_distribution_of_ctranslate2_s(model, theirs, case):
    ours, options = SAMPLED[case]
    found = our_outputs(model, LINES[:1], 1, samples=SAMPLES, seed=3, **ours)[0]
    ctranslate2.set_random_seed(7)
    (result,) = theirs.translate_batch(
        pieces(model, LINES[:1]), num_hypotheses=SAMPLES, beam_size=1, max_decoding_length=60,
        min_decoding_length=0, **options,
    )  # fmt: skip
    for beginning in (1, 2):  # pieces
        counts = [
            Counter(tuple([*row, "</s>"][:beginning]) for row in rows)
            for rows in (found, result.hypotheses)
        ]
        statistic, freedom = two_sample_chi_square(*counts)
        assert chi2.sf(statistic, freedom) > 1e-4


def two_sample_chi_square(first: Counter, second: Counter) -> tuple[float, int]:
    """Of counts of equally many draws; also the degrees of freedom. Rare ones are one class."""
    classes: Counter = Counter()
    differences: Counter = Counter()
    for outcome in first | second:
        both = first[outcome] + second[outcome]
        name = outcome if both >= 20 else "rare"
        classes[name] += both
        differences[name] += first[outcome] - second[outcome]
    assert len(classes) > 2
    return sum(differences[name] ** 2 / classes[name] for name in classes), len(classes) - 1
