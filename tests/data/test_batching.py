"""Batches of a token store against counting and brute force."""

from functools import cache, partial
from itertools import islice

import numpy as np
import pytest
from stores import PAD, make_store, random_pairs

from jax_transformer.data.batching import (
    Shape,
    assign_shapes,
    batch_arrays,
    batches_from,
    learn_shapes,
    mixture_members,
    plan_epoch,
)
from jax_transformer.data.packing import learn_packing, pack_epoch


def random_lengths(seed):
    """Source and target lengths of pairs, alike in length as translations are."""
    random = np.random.default_rng(seed)
    count, longest = int(random.integers(1, 400)), int(random.integers(2, 300))
    source = random.geometric(min(1.0, 4 / longest), count).clip(2, longest)
    target = np.round(source * random.uniform(0.5, 2, count)).astype(int).clip(2, longest)
    return source, target


@cache
def random_shapes(seed):
    """(shapes, the settings they were learned with) for `random_lengths(seed)`."""
    random = np.random.default_rng(seed)
    settings = {
        "most": int(random.integers(1, 20)),
        "batch_tokens": int(random.integers(20, 4000)),
        "multiple": [1, 3, 8][seed % 3],
    }
    return learn_shapes(*random_lengths(seed), **settings), settings


SEEDS = range(9)


@pytest.mark.parametrize("seed", SEEDS)
def test_shapes_are_few_hold_every_pair_and_keep_to_the_size_of_a_batch(seed):
    source, target = random_lengths(seed)
    shapes, settings = random_shapes(seed)
    assert 1 <= len(shapes) <= settings["most"]
    assert len(set(shapes)) == len(shapes)
    for s, t in zip(source.tolist(), target.tolist(), strict=True):
        assert any(s <= shape.source and t <= shape.target for shape in shapes)
    for shape in shapes:
        longer = max(shape.source, shape.target)
        assert shape.rows % settings["multiple"] == 0
        assert shape.rows >= settings["multiple"]
        if shape.rows > settings["multiple"]:
            assert shape.rows * longer <= settings["batch_tokens"]
        # two and two more multiples of rows would be too much
        fewest = (shape.rows + settings["multiple"]) * 2 * longer
        assert fewest > settings["batch_tokens"]
        assert shape.source <= source.max()
        assert shape.target <= target.max()


@pytest.mark.parametrize("seed", SEEDS)
def test_each_pair_is_assigned_the_cheapest_shape_that_holds_it(seed):
    source, target = random_lengths(seed)
    shapes, _ = random_shapes(seed)
    for s, t, index in zip(source, target, assign_shapes(source, target, shapes), strict=True):
        fitting = [shape for shape in shapes if s <= shape.source and t <= shape.target]
        chosen = shapes[index]
        assert chosen in fitting
        assert sum(chosen[:2]) == min(shape.source + shape.target for shape in fitting)


def test_the_two_shapes_that_are_learned_for_two_kinds_of_pairs_are_theirs():
    """Ninety pairs of 8 + 4 tokens and ten of 20 + 24 need no padding at all."""
    source, target = np.repeat([8, 20], [90, 10]), np.repeat([4, 24], [90, 10])
    shapes = learn_shapes(source, target, most=2, batch_tokens=240, multiple=2)
    assert shapes == [Shape(8, 4, 30), Shape(20, 24, 10)]
    assert learn_shapes(source, target, most=1, batch_tokens=240, multiple=1) == [Shape(20, 24, 10)]


def planned(seed, shuffle):
    source, target = random_lengths(seed)
    shapes, settings = random_shapes(seed)
    assigned = assign_shapes(source, target, shapes)
    return plan_epoch(assigned, shapes, shuffle=shuffle), source, target, shapes, settings


@pytest.mark.parametrize("seed", SEEDS)  # of which each third shares batches over 1, 3, 8 devices
@pytest.mark.parametrize("shuffled", [True, False])
def test_an_epoch_holds_every_pair_once_in_a_batch_that_it_fits(seed, shuffled):
    plan, source, target, shapes, settings = planned(seed, (seed, 3) if shuffled else None)
    seen = []
    for index in range(len(plan)):
        shape, pairs = shapes[plan.shapes[index]], plan.pairs(index)
        assert 1 <= len(pairs) <= shape.rows
        assert shape.rows % settings["multiple"] == 0
        assert source[pairs].max() <= shape.source
        assert target[pairs].max() <= shape.target
        seen += pairs.tolist()
    assert sorted(seen) == list(range(len(source)))


def same(plan, other):
    return all(
        np.array_equal(getattr(plan, name), getattr(other, name))
        for name in ("order", "starts", "ends", "shapes")
    )


def bucketed():
    """A plan of one pair a row, as a function of (seed, epoch)."""
    source, target = random_lengths(2)
    shapes = learn_shapes(source, target, most=4, batch_tokens=200, multiple=3)
    assigned = assign_shapes(source, target, shapes)
    return lambda key: plan_epoch(assigned, shapes, shuffle=key)


def packed():
    """The same of several pairs a row."""
    packing = learn_packing(*random_lengths(2), most=4, batch_tokens=200, multiple=3)
    return lambda key: pack_epoch(packing, shuffle=key)


PLANNERS = pytest.mark.parametrize("plan_of", [bucketed(), packed()], ids=["bucketed", "packed"])


@PLANNERS
def test_an_epoch_is_a_function_of_seed_and_epoch_and_no_two_are_alike(plan_of):
    plans = {key: plan_of(key) for key in [(0, 0), (0, 1), (1, 0), (1, 1), (17, 0)]}
    for key, plan in plans.items():
        assert same(plan, plan_of(key))
        others = [other for name, other in plans.items() if name != key]
        assert not any(np.array_equal(plan.order, other.order) for other in others)
    assert not np.array_equal(plans[0, 0].shapes, np.sort(plans[0, 0].shapes))  # batches mixed


def test_without_shuffling_pairs_come_in_the_order_of_the_text():
    shapes = [Shape(4, 4, 2), Shape(8, 8, 2)]
    plan = plan_epoch(np.array([1, 0, 0, 1, 1, 0, 0]), shapes, shuffle=None)
    batches = [plan.pairs(i).tolist() for i in range(len(plan))]
    assert batches == [[1, 2], [5, 6], [0, 3], [4]]


def test_leftovers_move_only_where_a_batch_of_their_own_would_cost_more():
    shapes = [Shape(4, 4, 8), Shape(8, 8, 4)]

    def batches(small, large):
        plan = plan_epoch(np.repeat([0, 1], [small, large]), shapes, shuffle=None)
        return [
            (int(s), e - b) for s, b, e in zip(plan.shapes, plan.starts, plan.ends, strict=True)
        ]

    assert batches(9, 3) == [(0, 8), (1, 4)]  # 1 x 16 tokens rather than 8 x 8
    assert batches(13, 3) == [(0, 8), (0, 5), (1, 3)]  # 5 x 16 would be more than 8 x 8
    assert batches(0, 3) == [(1, 3)]
    assert batches(3, 0) == [(1, 3)]


@PLANNERS
def test_batches_go_on_exactly_from_any_position(plan_of):
    def first(position, count):
        planned = batches_from(position, lambda epoch: plan_of((5, epoch)))
        return [
            (place, plan.shapes[place[1]], plan.pairs(place[1]).tolist())
            for place, plan in islice(planned, count)
        ]

    lengths = [len(plan_of((5, epoch))) for epoch in range(3)]
    whole = first((0, 0), sum(lengths))
    assert [place for place, *_ in whole] == [(e, i) for e in range(3) for i in range(lengths[e])]
    for done, (place, *_) in enumerate(whole[:-3]):
        if done % 5 == 0 or place[1] in (0, 1, lengths[place[0]] - 1):
            assert first(place, 3) == whole[done : done + 3]
    # A checkpoint at the end of an epoch has the position after its last batch: the next epoch.
    assert first((0, lengths[0]), 3) == whole[lengths[0] : lengths[0] + 3]


def test_an_epoch_may_have_no_pairs():
    assigned = assign_shapes(np.zeros(0, int), np.zeros(0, int), [Shape(4, 4, 8)])
    assert len(plan_epoch(assigned, [Shape(4, 4, 8)], shuffle=(0, 0))) == 0


@pytest.mark.parametrize("packs", [False, True])
def test_parts_of_a_batch_one_after_another_are_the_batch(packs, tmp_path):
    store = make_store(tmp_path / "tokens", random_pairs(9, 120))
    lengths = store.lengths("source"), store.lengths("target")
    if packs:
        packing = learn_packing(*lengths, most=3, batch_tokens=80, multiple=6)
        shapes, plan = packing.shapes, pack_epoch(packing, shuffle=(0, 0))
    else:
        shapes = learn_shapes(*lengths, most=3, batch_tokens=80, multiple=6)
        plan = plan_epoch(assign_shapes(*lengths, shapes), shapes, shuffle=(0, 0))
    for index in range(len(plan)):
        whole = batch_arrays([store], plan, index, shapes, (PAD, PAD))
        parts = [batch_arrays([store], plan, index, shapes, (PAD, PAD), (i, 3)) for i in range(3)]
        for array, *of_parts in zip(whole, *parts, strict=True):
            assert len({part.shape for part in of_parts}) == 1
            np.testing.assert_array_equal(np.concatenate(of_parts), array)


def test_an_epoch_of_a_mixture_has_all_own_pairs_and_its_share_of_the_others():
    seen = np.zeros(1000, int)
    for epoch in range(47):  # 20 others in each: all 940 of them once
        members = mixture_members([60, 940], [None, 20], seed=3, epoch=epoch)
        assert members[:60].tolist() == list(range(60))
        assert len(members) == 80
        assert members[60:].min() >= 60
        np.add.at(seen, members, 1)
    assert (seen[:60] == 47).all()
    assert (seen[60:] == 1).all()


def test_others_come_again_in_another_order_when_they_are_used_up():
    members = partial(mixture_members, [10, 12], [None, 30])
    first, second = (members(seed=1, epoch=epoch)[10:] for epoch in (0, 1))
    both = np.concatenate([first, second]).reshape(5, 12)  # 60 draws are five passes
    assert (np.sort(both, axis=1) == np.arange(10, 22)).all()
    assert len({tuple(each) for each in both.tolist()}) == 5
    again = members(seed=1, epoch=1)[10:]
    assert (again == second).all()
    assert (members(seed=2, epoch=1)[10:] != second).any()


def test_corpora_of_a_mixture_are_each_drawn_evenly_and_in_orders_of_their_own():
    sizes, wanted = [40, 40, 7], [20, 60, 1]
    seen = np.zeros(87, int)
    for epoch in range(14):
        members = mixture_members(sizes, wanted, seed=3, epoch=epoch)
        first, second, _ = np.split(members, [20, 80])
        assert (np.bincount(np.searchsorted([40, 80], members, side="right")) == wanted).all()
        assert (first[:20] != second[:20] - 40).any()
        np.add.at(seen, members, 1)
    assert [set(part.tolist()) for part in np.split(seen, [40, 80])] == [{7}, {21}, {2}]
