"""Folders of CTranslate2 as our model, against what was written and what CTranslate2 computes."""

import importlib
import re
from pathlib import Path

import ctranslate2_folders as folders
import numpy as np
import pytest
from ctranslate2_folders import NAMES, SEARCHES, OurModel, differences

from jax_transformer.formats.ctranslate2 import read_ctranslate2

FURTHER = ["marian", "opennmt-tf"]  # the same arrays as in others, stored otherwise


@pytest.fixture(
    scope="module",
    params=[pytest.param(n, marks=pytest.mark.release if n in FURTHER else []) for n in NAMES],
)
def folder(request, converted) -> Path:
    return converted / request.param


@pytest.fixture(scope="module")
def ours(folder) -> OurModel:
    return OurModel(read_ctranslate2(folder))


def test_a_model_whose_target_begins_with_a_language_is_read_with_a_warning(converted, caplog):
    imported = read_ctranslate2(converted / "m2m100")
    assert "should begin with the target's language" in caplog.text
    assert imported.source.pieces(imported.source.encode(">>de<< a"))[0] == ">>de<<"


# ---- Results ------------------------------------------------------------------------------


def test_log_p_and_pieces_of_text_are_ctranslate2_s(folder, ours):
    expected = folders.recorded_results(folder)
    found = ours.log_probs(expected["source"], expected["target"])
    for ours_, theirs in zip(found, expected["log_probs"], strict=True):
        np.testing.assert_allclose(ours_, theirs, rtol=1e-4)
    tag = ">>en<< " if folder.name == "m2m100" else ""
    cut = ours.source.encode_batch([tag + text for text in expected["texts"]])
    for ids, row in zip(cut, ours.ids("source", expected["source"]), strict=True):
        assert [*ids, ours.source.eos_id] == row[: len(ids) + 1].tolist()
        assert set(row[len(ids) + 1 :]) <= {ours.source.pad_id}


def tagged(row: list[str]) -> list[str]:
    """The pieces of an output with languages as we write them: >>en<< for __en__."""
    return [re.sub("^__(..)__$", r">>\1<<", piece) for piece in row]


@pytest.mark.parametrize(("name", "search"), [("m2m100", "greedy"), ("opennmt", "beam")])
def test_outputs_are_ctranslate2_s(converted, name, search):
    folder = converted / name
    ours = OurModel(read_ctranslate2(folder))
    expected = folders.recorded_results(folder)
    found = ours.outputs(expected["source"], search)
    theirs = list(map(tagged, expected[search]))
    differ, count = differences(found, theirs, search)
    assert not differ
    assert count > 3


@pytest.mark.release
@pytest.mark.parametrize("search", SEARCHES)
def test_log_p_and_outputs_of_many_lines_are_ctranslate2_s(folder, ours, search):
    """Outputs that differ are few, and as likely as theirs up to rounding."""
    pytest.importorskip("ctranslate2", reason="runs it: pip install -e '.[export]'")
    results = importlib.import_module("tools.record.ctranslate2_parts").results(
        folder, 1000, seed=5
    )
    source, target = results["source"], results["target"]
    found = ours.log_probs(source[:300], target[:300])
    theirs = np.concatenate(results["log_probs"][:300])
    np.testing.assert_allclose(np.concatenate(found), theirs, rtol=1e-4, atol=1e-5)
    rows = list(map(tagged, results[search]))
    outputs = ours.outputs(source, search)
    differ, count = differences(outputs, rows, search)
    print(folder.name, search, len(differ), "of", count, "differ")
    assert len(differ) <= 0.01 * count
    for i in differ:
        both = [outputs[i], folders.without_end(rows[i])]
        scores = [p.sum() / len(p) for p in ours.log_probs([source[i]] * 2, both)]
        # Exact sinusoids, in place of those in float16, may lead to something likelier.
        assert scores[0] > scores[1] - 1e-4 * abs(scores[1]), (both, scores)


def test_exact_sinusoids_in_place_of_those_rounded_to_float16_change_little(converted):
    folder = converted / "marian-float16"
    expected = folders.recorded_results(folder)
    imported = read_ctranslate2(folder)
    assert imported.model.positions == "sinusoidal"
    found = OurModel(imported).log_probs(expected["source"], expected["target"])
    theirs = np.concatenate(expected["log_probs"])
    away = np.abs(np.concatenate(found) - theirs)
    assert 1e-4 < away.max() < 0.05


@pytest.mark.release
@pytest.mark.parametrize("name", [*NAMES, "marian-float16"])
def test_the_converters_still_write_the_recorded_folders(converted, name, tmp_path):
    for package in ("ctranslate2", "torch", "transformers"):
        pytest.importorskip(package, reason="runs converters: pip install -e '.[torch]'")
    tools = importlib.import_module("tools.record.ctranslate2_recipe")
    tools.FOLDERS[name](tmp_path / name)
    for path in (tmp_path / name).iterdir():
        assert path.read_bytes() == (converted / name / path.name).read_bytes(), path.name
