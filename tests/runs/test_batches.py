"""Batches for a loop of one's own."""

import jax
import numpy as np
import pytest
from refusals import refusal
from small_run import write_run

import jax_transformer as jt
from jax_transformer.errors import InputError
from jax_transformer.runs.batches import batches


@pytest.fixture(scope="module")
def model(small_run):
    return jt.load(small_run)


def pairs_of(model, batch):
    """The texts of a batch's rows."""
    rows = zip(np.asarray(batch.source), np.asarray(batch.target), strict=True)
    sides = [[row[row != model.vocabulary.pad_id].tolist() for row in pair] for pair in rows]
    assert all(side[-1] == model.vocabulary.eos_id for pair in sides for side in pair if side)
    return [tuple(model.vocabulary.decode(side[:-1]) for side in pair) for pair in sides if pair[0]]


def test_every_pair_comes_once_an_epoch_in_an_order_of_its_own(model):
    words = ["the", "the pupil", "it rains", "we know", "opens the old door", "the teacher gets up"]
    sources, targets = words * 6, [target for target in words for _ in words]
    found = list(batches(model, sources, targets, batch_tokens=64, epochs=2))
    texts = [pair for batch in found for pair in pairs_of(model, batch)]
    expected = sorted(zip(sources, targets, strict=True))
    half = len(texts) // 2
    assert sorted(texts[:half]) == sorted(texts[half:]) == expected
    assert texts[:half] != texts[half:]
    assert len({tuple(side.shape for side in batch[:2]) for batch in found}) <= 4
    assert all(side.size <= 64 for batch in found for side in batch[:2])


def test_the_loss_of_the_batches_is_minus_the_score_of_the_pairs(model):
    loss = jax.jit(jt.make_loss(model.module, model.vocabulary.bos_id))
    pairs = ["the door", "we know that", "the"], ["it rains", "the pupil", "we"]
    found = sum(float(loss(model.params, batch).nll) for batch in batches(model, *pairs))
    assert found == pytest.approx(-sum(model.score(*pairs)), rel=1e-5)


def test_lists_and_numbers_that_do_not_fit_are_refused_at_the_call(model):
    with pytest.raises(InputError, match="2 sources and 1 targets"):
        batches(model, ["a", "b"], ["c"])
    with pytest.raises(InputError, match="none among 1"):
        batches(model, [""], ["c"])
    with pytest.raises(InputError, match="none among 0"):
        batches(model, [], [])
    wrong = {"batch_tokens": [-1, 0, 1.5, True], "epochs": [0, -1, 1.0], "seed": [-1, "1"]}
    for name, values in wrong.items():
        for value in values:
            with pytest.raises(InputError, match=f"{name}.*{value!r}"):
                batches(model, ["the door"], ["it rains"], **{name: value})
    with pytest.raises(InputError, match="batch_tokens of at least 5"):
        batches(model, ["the door opens"], ["a"], batch_tokens=2)


def test_blank_trees_are_left_out_and_what_is_none_is_named(tmp_path):
    parser = jt.load(write_run(tmp_path / "run", "data.task=parsing", "data.word_positions=true"))
    tree = "(TOP (S (NP (DT the) (NN door)) (VP (VBZ opens)) (. .)))"
    (batch,) = batches(parser, ["the door", "the door opens ."], ["", tree])
    assert (np.asarray(batch.target)[:, 0] != parser.target_vocabulary.pad_id).sum() == 1
    (typed,) = batches(parser, ["( opens ."], [tree])
    (forms,) = batches(parser, ["-LRB- opens ."], [tree])
    np.testing.assert_array_equal(typed.source, forms.source)
    assert refusal(batches, parser, ["a", "the"], [tree, "(NP"]).startswith("targets[1]: ")
