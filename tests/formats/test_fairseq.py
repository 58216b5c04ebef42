"""Models of fairseq and FSMT: read, and held against what these programs compute.

Against small recorded models everywhere, and against larger ones where the programs are installed.
"""

import importlib
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from recorded_models import recorded_folder, recorded_models
from references import Arrays, within
from refusals import refusal
from sacremoses import MosesDetokenizer, MosesTokenizer

from jax_transformer.config import DecodingConfig
from jax_transformer.decoding.generate import log_probabilities, translate
from jax_transformer.formats import fairseq, read_model
from jax_transformer.formats.imported import ImportedModel, parameters
from jax_transformer.formats.piece_tables import check_codes
from jax_transformer.runs.load import build_model
from jax_transformer.runs.run_dir import Run

PAD, EOS, EXTRA = 1, 2, 6
MODELS = [
    "fairseq_shared",
    "fairseq_pre",
    "fairseq_old",
    "fsmt_two",
    "fsmt_tied",
    "fsmt_apart",
]


@pytest.fixture(params=MODELS)
def theirs(request, tmp_path) -> Arrays:
    """What a recorded model computes; its files are in `folder`."""
    found = within(recorded_models(), f"{request.param}/")
    folder = recorded_folder(request.param, tmp_path)
    return {**found, "folder": folder, "name": request.param}


@pytest.fixture(scope="module", params=MODELS)
def live(request, tmp_path_factory) -> Arrays:
    """What a larger model computes that fairseq or transformers has just written."""
    for program in ("fairseq", "transformers"):
        pytest.importorskip(program)
    reference = importlib.import_module("tools.record.fairseq_recipe")
    folder = tmp_path_factory.mktemp(request.param)
    found = reference.computed(request.param, folder, 1000, reference.LARGER)
    return {**found, "folder": folder, "name": request.param}


def imported(theirs: Arrays) -> tuple[ImportedModel, Any, Any]:
    """The model, with its module and parameters."""
    model = read_model(theirs["name"].split("_")[0], theirs["folder"])
    run = Run("imported", 0, model.config())
    return model, build_model(run, model.source, model.target), parameters(model, run)


def log_probs(theirs: Arrays, target: np.ndarray) -> np.ndarray:
    """Ours, of every token of these targets."""
    _, module, params = imported(theirs)
    score = jax.jit(partial(log_probabilities, module, bos_id=EOS))
    return np.asarray(score(params, theirs["source"], target))


def outputs(theirs: Arrays, beam_size: int) -> np.ndarray:
    """Our best outputs, [B, T]; greedy ones for a beam of 1."""
    model, module, params = imported(theirs)
    limits = {"patience": 1.0, "max_extra_length": EXTRA}
    decoding = DecodingConfig(beam_size=beam_size, alpha=1.0, length_penalty="length", **limits)
    ids = {"bos_id": model.target.bos_id, "eos_id": model.target.eos_id}
    find = jax.jit(partial(translate, module, decoding=decoding, **ids))
    return np.asarray(find(params, source=theirs["source"]).tokens[:, 0])


def check_log_probs(theirs: Arrays) -> None:
    found, real = log_probs(theirs, theirs["target"]), theirs["target"] != PAD
    np.testing.assert_allclose(found[real], theirs["log_probs"][real], rtol=1e-4, atol=1e-5)


def test_log_p_is_theirs(theirs):
    check_log_probs(theirs)


@pytest.mark.slow
@pytest.mark.parametrize("theirs", ["fairseq_shared", "fsmt_two"], indirect=True)
@pytest.mark.parametrize(("search", "beam_size"), [("greedy", 1), ("beam", 4)])
def test_outputs_are_theirs(theirs, search, beam_size):
    np.testing.assert_array_equal(outputs(theirs, beam_size), theirs[search])


@pytest.mark.release
def test_log_p_and_outputs_of_larger_models_are_theirs(live):
    """At most 1% of the outputs may differ.

    Greedy ones where two tokens are equally likely but for rounding, and those of a beam where
    ours is as good by the score that both maximize: the others drop an output that ends among
    candidates 5 to 8 of its step.
    """
    check_log_probs(live)
    found, expected = outputs(live, 1), live["greedy"]
    rows = np.flatnonzero((found != expected).any(axis=1))
    assert len(rows) <= 0.01 * len(found)
    first = (found != expected).argmax(axis=1)[rows]
    ours, other = (log_probs(live, side)[rows, first] for side in (found, expected))
    np.testing.assert_allclose(ours, other, rtol=0, atol=1e-4)

    found, expected = outputs(live, 4), live["beam"]
    rows = np.flatnonzero((found != expected).any(axis=1))
    assert len(rows) <= 0.01 * len(found)
    ours, other = (
        log_probs(live, side)[rows].sum(axis=1) / (side[rows] != PAD).sum(axis=1)
        for side in (found, expected)
    )
    assert (ours >= other - 1e-4).all()


@pytest.mark.parametrize("theirs", ["fairseq_shared"], indirect=True)
def test_moses_escapes_come_back_as_in_sacremoses(theirs):
    """Of text that spells escapes and has other spaces, with a piece for each letter."""
    lines = ['[4] <b> &lt; AT&T | "q"', "a\u00a0b\u202fc", "&amp; it's 5-3 @-@ state-of-the-art"]
    tokenizer, detokenizer = MosesTokenizer("en"), MosesDetokenizer("de")
    folder, letters = theirs["folder"], sorted({*"".join(lines), *";#&@-0123456789aposquotltgm"})
    pieces = [piece for letter in letters for piece in (letter, f"{letter}@@") if letter.strip()]
    for language in ("en", "de", "fr"):
        rows = "".join(f"{piece} 1\n" for piece in pieces)
        (folder / f"dict.{language}.txt").write_text(rows, encoding="utf-8")
    (folder / "bpecodes").write_text("#version: 0.2\nl o\n")
    source = fairseq._vocabularies(folder, ("en", "de"), moses=True)[0]
    for line in lines:
        words = tokenizer.tokenize(line, aggressive_dash_splits=True, escape=True)
        ids = source.encode(line)
        assert source.unk_id not in ids
        assert source.decode(ids) == detokenizer.detokenize(words)
    sides = fairseq._vocabularies(folder, ("en", "fr"), moses=True)  # with the same dictionary
    for side, language in zip(sides, ("en", "fr"), strict=True):
        words = MosesTokenizer(language).tokenize("l'eau", aggressive_dash_splits=True)
        assert side.as_in_pieces("l'eau").split() == words


# ---- Arrays and codes -----------------------------------------------------------------------


@pytest.fixture
def state(make, monkeypatch) -> dict[str, Any]:
    """What the file of fairseq's folder gives, to be changed; the folder is in `folder`."""
    folder = make("fairseq")
    found = fairseq.read_torch(folder / "model.pt")
    monkeypatch.setattr(fairseq, "read_torch", lambda path: found)
    return {**found, "folder": folder}


def test_tied_arrays_may_lack_and_marks_of_the_layout_are_left_out(state):
    expected = fairseq.read_fairseq(state["folder"]).arrays
    del state["model"]["encoder.embed_tokens.weight"]
    state["model"]["encoder.version"] = np.ones(1, np.float32)
    found = fairseq.read_fairseq(state["folder"]).arrays
    assert found.keys() == expected.keys()
    np.testing.assert_array_equal(found["embedding/matrix"], expected["embedding/matrix"])


def test_learned_positions_of_both_sides_must_be_the_same(state):
    """And rows begin after PAD's."""
    state["args"] |= {"encoder_learned_pos": True, "decoder_learned_pos": True}
    table = np.random.default_rng(0).normal(size=(258, 16)).astype(np.float32)
    for side in ("encoder", "decoder"):
        state["model"][f"{side}.embed_positions.weight"] = table
    model = fairseq.read_fairseq(state["folder"])
    np.testing.assert_array_equal(model.arrays["position_table"], table[2:])
    assert model.max_length == 256 - model.decoding.max_extra_length
    state["model"]["decoder.embed_positions.weight"] = table + 1
    assert "position encodings" in refusal(fairseq.read_fairseq, state["folder"])
    state["args"] |= {"decoder_learned_pos": False, "encoder_learned_pos": False}
    state["args"]["max_source_positions"] = 10**15
    assert fairseq.read_fairseq(state["folder"]).max_length == fairseq.LONGEST


@pytest.mark.parametrize(("continuation", "end"), [("@@", ""), ("", "</w>")])
def test_codes_that_lost_their_end_are_refused(continuation, end, caplog):
    """Each piece of several letters is made by a merge, in fairseq's marks and in FSMT's."""
    merges = [(a, b) for a in "abcdefgh" for b in "abcdefgh"]
    pieces = ["<unk>", "a", *(f"{a}{b}{continuation or end}" for a, b in merges)]
    check = partial(check_codes, Path("codes"), pieces=pieces, continuation=continuation, end=end)
    check(merges)
    assert "none for 2" in refusal(check, merges[:62])
    assert not caplog.text
    check([("x", "y")])
    assert "none for 64" in caplog.text
