"""jt.load of several runs: what it computes, and what it refuses."""

import copy
import math
from typing import Any

import jax
import numpy as np
import pytest
from refusals import refusal
from small_run import LINES, write_run

import jax_transformer as jt
from jax_transformer.runs.run_dir import RunFolder

LINE, TARGET = ["we know"], ["it rains"]


@pytest.fixture(scope="module")
def runs(small_run, tmp_path_factory):
    """Two runs of one vocabulary that differ in size."""
    return [small_run, write_run(tmp_path_factory.mktemp("runs") / "b", "model.d_ff=24")]


@pytest.fixture(scope="module")
def ensemble(runs):
    return jt.load(runs, weights=[3, 1])


def test_the_first_token_has_the_weighted_mean_of_the_probabilities(ensemble):
    vocabulary = ensemble.vocabulary
    source = np.array([vocabulary.encode(LINE[0], eos=True)])
    first, each = vocabulary.encode("it")[0], []
    for member in ensemble.members:
        begin = np.array([[vocabulary.bos_id]])
        logits = jax.jit(member.module.apply)({"params": member.params}, source, begin)
        each.append(float(jax.nn.softmax(logits[0, 0])[first]))
    options = {"beam_size": 1, "n_best": 1, "prefixes": ["it"], "token_scores": True}
    ((found,),) = ensemble.translate(LINE, **options)
    assert each[0] != pytest.approx(each[1], rel=1e-3)
    expected = 0.75 * each[0] + 0.25 * each[1]
    assert math.exp(found.token_log_probs[0]) == pytest.approx(expected, rel=1e-4)


def test_it_scores_as_its_members_do_by_their_weights_and_shows_them(runs, ensemble):
    each = [member.score(LINE, TARGET) for member in ensemble.members]
    assert each[0] != pytest.approx(each[1], abs=0.01)
    for expected, weights in zip(each, ([1, 1e-9], [1e-9, 1]), strict=True):
        assert jt.load(runs, weights=weights).score(LINE, TARGET) == pytest.approx(expected)
    assert "an ensemble of" in ensemble.description
    np.testing.assert_allclose(ensemble.weights, [0.75, 0.25])


def test_it_shows_all_members_and_has_nothing_that_belongs_to_one(ensemble):
    first, second = ensemble.members
    sizes = [sum(leaf.size for leaf in jax.tree.leaves(own.params)) for own in (first, second)]
    assert repr(ensemble) == (
        f"<TrainedEnsemble of 2 models: 0.75 x {first.description}; 0.25 x {second.description}; "
        f"en to de; {sum(sizes):,} parameters in all>"
    )
    for name in (
        *("params", "module", "checkpoint", "steps", "scores"),
        *("with_params", "save", "align", "attention_maps"),
    ):
        assert not hasattr(ensemble, name)
    assert "alignments cannot be combined with ensemble" in refusal(
        ensemble.translate, LINE, alignments=True
    )
    assert copy.copy(ensemble).score(LINE, TARGET) == ensemble.score(LINE, TARGET)
    assert ensemble.config.data == first.config.data


def test_it_is_evaluated_by_its_outputs_and_has_no_loss(ensemble):
    found = ensemble.evaluate(LINE, TARGET)
    assert found.texts == ensemble.translate(LINE)
    assert {score.metric for score in found.scores} >= {"bleu", "chrf"}
    assert not found.losses


def test_another_vocabulary_is_refused(runs, tmp_path):
    other = write_run(tmp_path / "other", lines=[*LINES, "quite another text"])
    error = refusal(jt.load, [RunFolder(runs[0]), other])
    assert f"expected the task and the vocabulary of {runs[0]}, found" in error


def test_weights_that_are_none_and_those_of_one_run_are_refused(runs):
    wrong: list[Any] = [[1], [1, 0], [1, -1], [1, math.inf], [1, math.nan]]
    for weights in [*wrong, ["2", "1"], [1, None], 2]:
        assert "weights: expected 2 numbers above 0" in refusal(jt.load, runs, weights=weights)
    assert "expected a list of runs" in refusal(jt.load, runs[0], weights=[1])


def test_a_member_whose_learned_positions_do_not_suffice_is_refused(runs, tmp_path):
    learned = "model.positions=learned", "model.max_positions=15", "data.max_length=11"
    ensemble = jt.load([runs[0], write_run(tmp_path / "short", *learned)])
    message = refusal(ensemble.translate, LINE)
    assert message.startswith("model.max_positions=15: expected at least 16")
