"""What the server answers is what the model answers in Python, and it is ready when it says so."""

import asyncio
from typing import Any

import pytest
from refusals import refusal
from small_run import write_run

import jax_transformer as jt
from jax_transformer.config import override_free
from jax_transformer.decoding.line_search import Line, Translation
from jax_transformer.decoding.minimum_bayes_risk import minimum_bayes_risk
from jax_transformer.errors import InputError
from jax_transformer.runs.metrics_writer import compilation_events

pytest.importorskip("fastapi", reason="serves: pip install -e '.[serve]'")

from jax_transformer.serving.schemas import (
    AttentionRequest,
    ParseRequest,
    ScoreRequest,
    TranslateRequest,
)
from jax_transformer.serving.service import Service

LINES = ["we know that it rains", "the door", "", "the pupil opens the door"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "demo"
    return jt.load(write_run(path, "decoding.batch_tokens=192", "decoding.beam_size=3"))


@pytest.fixture(scope="module")
def service(model):
    service = Service(model, model.config)
    yield service
    service.batcher.close()


def texts(outputs):
    return [[output.text for output in line] for line in outputs]


def asked(**body: Any) -> TranslateRequest:
    return TranslateRequest(**body)


def together(*requests):
    async def answers():
        return await asyncio.gather(*requests)

    return asyncio.run(answers())


def test_after_the_warm_up_no_ordinary_request_compiles(service):
    assert [*service.warm_up()] == [(16, 12)]  # slots and tokens
    before = len(compilation_events())
    requests = [TranslateRequest(lines=LINES[:count]) for count in (1, 2, 4, 3)]
    together(*map(service.outputs, requests))
    assert len(compilation_events()) == before


def test_an_error_has_the_number_that_the_line_has_in_its_request(model):
    service = Service(model, model.config)  # batches of eight lines

    def work(_: Any, lines: list[Line]) -> list[Any]:
        for line in lines:
            if line.text == "bad":
                raise InputError(f"{line.place}: cannot be done")
        return [[Translation(line.text, 0.0, 0.0, 1)] for line in lines]

    service.batcher._work, service.batcher._live = work, lambda kind: None
    lines = ["we"] * 20 + ["bad"]
    many = ["the door"] * 20
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("lines[20]: cannot", {"lines": lines}),
        ("lines[20]: expected at most 11 tokens", {"lines": [*many, "the door " * 9]}),
        (
            "prefix of lines[20]: expected at most",
            {"lines": lines, "prefixes": [*many, "we " * 20]},
        ),
    ]
    for wanted, options in wrong:
        message = refusal(together, service.outputs(asked(**options)))
        assert message.startswith(wanted)
    pytest.importorskip("sentencex", reason="splits: pip install -e '.[sentences]'")
    split = asked(lines=["We. It. So.", "", "He. " * 9 + "bad"], split_sentences=True)
    message = refusal(together, service.outputs(split))
    assert message.startswith("lines[2], sentence 10: cannot")
    service.batcher.close()


def test_a_batch_has_fewer_lines_if_each_is_more_work(model):
    service, batches = Service(model, model.config), list[int]()  # of eight short lines

    def work(_: Any, lines: list[Line]) -> list[Any]:
        batches.append(len(lines))
        return [[Translation(line.text, 0.0, 0.0, 1)] for line in lines]

    service.batcher._work, service.batcher._live = work, lambda kind: None
    together(service.outputs(asked(lines=["we"] * 9)))
    together(service.outputs(asked(lines=["we"] * 12, samples=3)))  # 4 are drawn, for a beam of 3
    together(service.outputs(asked(lines=["we" + " " * 398] * 3)))
    assert batches == [8, 1, 6, 6, 2, 1]
    service.batcher.close()


@pytest.mark.slow
def test_answers_are_those_of_the_model_though_requests_share_batches(model, service):
    plain, three, cooler, begun, chosen = together(
        service.outputs(asked(lines=LINES)),
        service.outputs(asked(lines=LINES, n_best=2)),
        service.outputs(asked(lines=LINES, samples=3, seed=5, temperature=0.6, top_k=4)),
        service.outputs(asked(lines=LINES[:2], prefixes=["we", ""])),
        service.outputs(asked(lines=LINES, mbr="chrf")),
    )
    assert [line[0] if line else "" for line in texts(plain)] == model.translate(LINES)
    for found, options in (
        (three, {"n_best": 2}),
        (cooler, {"samples": 3, "seed": 5, "temperature": 0.6, "top_k": 4}),
    ):
        expected = model.translate(LINES, **options)
        assert texts(found) == texts(expected)
        for line, other in zip(found, expected, strict=True):
            scores = [output.score for output in line]
            assert scores == pytest.approx([output.score for output in other], rel=1e-4)
    assert texts(begun) == texts(model.translate(LINES[:2], n_best=1, prefixes=["we", ""]))
    assert [line[0] if line else "" for line in texts(chosen)] == model.translate(LINES, mbr="chrf")


def test_minimum_bayes_risk_chooses_among_the_samples_each_of_which_counts_once(model):
    first = 0
    for seed in range(3):
        (drawn,) = model.translate(LINES[:1], samples=8, seed=seed)
        expected = minimum_bayes_risk([output.text for output in drawn])
        ((found,),) = model.translate(LINES[:1], samples=8, seed=seed, mbr="chrf")
        assert found == drawn[expected]
        first += not expected
    assert first < 3  # so the choice is seen


@pytest.mark.slow
def test_alignments_tokens_and_scores_are_those_of_the_model(model, service):
    everything: Any = {"alignments": True, "token_scores": True}
    outputs, scores = together(
        service.outputs(asked(lines=LINES, **everything)),
        service.score(ScoreRequest(sources=LINES, targets=["it rains", "", "a", "the door"])),
    )
    found = [(line, output[0]) for line, output in zip(LINES, outputs, strict=True) if output]
    aligned = model.align([line for line, _ in found], [output.text for _, output in found])
    assert [output.alignment for _, output in found] == aligned
    expected = model.translate([line for line, _ in found], n_best=1, token_scores=True)
    for (_, output), (own,) in zip(found, expected, strict=True):
        log_probs = [token.log_prob for token in output.tokens]
        assert log_probs == pytest.approx(own.token_log_probs, rel=1e-4)
        assert sum(log_probs) == pytest.approx(output.log_prob, rel=1e-4)
        pieces = model.target_vocabulary.pieces([*own.tokens])
        assert [token.piece for token in output.tokens] == pieces
    assert scores[1].log_prob is scores[2].log_prob is None
    expected = model.score(LINES[::3], ["it rains", "the door"])
    assert [scores[0].log_prob, scores[3].log_prob] == pytest.approx(expected, rel=1e-5)


@pytest.mark.release
def test_a_parser_answers_with_trees_and_compiles_no_more(tmp_path):
    settings = "data.task=parsing", "decoding.batch_tokens=24", "decoding.beam_size=2"
    parser = jt.load(write_run(tmp_path / "parsing", *settings))
    service = Service(parser, parser.config)
    assert [*service.warm_up()]
    before = len(compilation_events())
    (outputs,) = together(service.outputs(ParseRequest(lines=["the door opens .", ""])))
    assert len(compilation_events()) == before
    expected = parser.parse(["the door opens ."])
    assert texts(outputs) == [expected, []]
    service.batcher.close()


def test_a_translation_that_has_no_page_is_not_blamed_on_a_field_of_the_client(
    model, service, monkeypatch
):
    async def nothing(lines: Any, request: Any) -> list[list[Translation]]:
        return [[] for _ in lines]

    monkeypatch.setattr(service, "_outputs", nothing)
    with pytest.raises(InputError, match=r"^source: its translation cannot be shown: target: "):
        together(service.attention(AttentionRequest(source="the door")))
    with pytest.raises(InputError, match=r"^target: expected a sentence"):
        together(service.attention(AttentionRequest(source="the door", target="")))


def test_changed_languages_are_those_by_which_lines_are_split(model):
    pytest.importorskip("sentencex", reason="splits: pip install -e '.[sentences]'")
    lines = ["we know? it rains. so"]
    for language, sentences in (("en", 3), ("hy", 2)):  # Armenian has another full stop
        found = list[int]()
        service = Service(model, override_free(model.config, f"data.source_language={language}"))
        service.batcher.on_batch = lambda new, _, found=found: found.append(new)
        together(service.outputs(asked(lines=lines, split_sentences=True)))
        service.batcher.close()
        assert service.describe().source_language == language
        assert sum(found) == sentences


def test_an_ensemble_has_no_attention_page(model, small_run):
    for served, has in ((model, True), (jt.load([small_run] * 2), False)):
        service = Service(served, served.config)
        service.batcher.close()
        assert service.describe().attention == has


def test_what_would_take_the_server_seconds_is_refused(service, monkeypatch):
    page = service.attention(AttentionRequest(source="the door", target="it rains"))
    monkeypatch.setattr("jax_transformer.serving.service.MOST_WEIGHTS", 10)
    with pytest.raises(InputError, match=r"^source: .* at most 10 attention weights, found \d+"):
        together(page)
    with pytest.raises(InputError, match=r"^without: .* 100 characters together, found 120"):
        together(service.outputs(asked(lines=["a"], without=["b" * 40] * 3)))


def test_line_breaks_that_the_model_writes_are_spaces_on_the_attention_page(service, monkeypatch):
    async def broken(lines: Any, request: Any) -> list[list[Translation]]:
        return [[Translation("it\u2028rains\x85\x0b", 0.0, 0.0, 1)] for _ in lines]

    monkeypatch.setattr(service, "_outputs", broken)
    page = together(service.attention(AttentionRequest(source="the door")))[0]
    assert '"target":"it rains"' in page
    with pytest.raises(InputError, match=r"^target: expected one line"):
        together(service.attention(AttentionRequest(source="the door", target="it\u2028rains")))
