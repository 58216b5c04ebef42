"""Batch shapes, epochs and prefetching against counting and brute force, and on real lengths."""

import itertools
import threading
from functools import partial

import numpy as np
import pytest
from real_data import words_of
from stores import PAD, make_store, random_pairs

from jax_transformer.data.batching import (
    Shape,
    assign_shapes,
    batch_arrays,
    batches_from,
    learn_shapes,
    mixture_members,
    plan_epoch,
    prefetch,
)
from jax_transformer.data.packing import learn_packing, pack_epoch


def random_lengths(seed):
    """Source and target lengths of pairs, alike in length as translations are."""
    random = np.random.default_rng(seed)
    count, longest = int(random.integers(1, 400)), int(random.integers(2, 300))
    source = random.geometric(min(1.0, 4 / longest), count).clip(2, longest)
    target = np.round(source * random.uniform(0.5, 2, count)).astype(int).clip(2, longest)
    return source, target


# ---- Shapes -----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))  # a third each for 1, 3 and 8 devices
def test_each_pair_is_once_in_an_epoch_in_the_cheapest_shape_and_batches_keep_their_size(seed):
    source, target = random_lengths(seed)
    random, multiple = np.random.default_rng(seed), [1, 3, 8][seed % 3]
    most, batch_tokens = int(random.integers(1, 20)), int(random.integers(20, 4000))
    shapes = learn_shapes(source, target, most=most, batch_tokens=batch_tokens, multiple=multiple)
    assert 1 <= len(shapes) == len(set(shapes)) <= most
    for shape in shapes:
        longer = max(shape.source, shape.target)
        assert shape.rows % multiple == 0
        assert shape.rows >= multiple
        assert shape.rows == multiple or shape.rows * longer <= batch_tokens
        # two and two more multiples of rows would be too much
        assert (shape.rows + multiple) * 2 * longer > batch_tokens
        assert shape.source <= source.max()
        assert shape.target <= target.max()
    assigned = assign_shapes(source, target, shapes)
    for s, t, index in zip(source, target, assigned, strict=True):
        fitting = [sum(shape[:2]) for shape in shapes if s <= shape.source and t <= shape.target]
        assert s <= shapes[index].source
        assert t <= shapes[index].target
        assert sum(shapes[index][:2]) == min(fitting)
    for shuffle in ((seed, 3), None):
        plan, seen = plan_epoch(assigned, shapes, shuffle=shuffle), []
        for index in range(len(plan)):
            shape, pairs = shapes[plan.shapes[index]], plan.pairs(index)
            assert 1 <= len(pairs) <= shape.rows
            assert source[pairs].max() <= shape.source
            assert target[pairs].max() <= shape.target
            seen += pairs.tolist()
        assert sorted(seen) == list(range(len(source)))


@pytest.mark.parametrize("seed", range(3))
def test_each_further_shape_saves_as_much_padding_as_any_other_could(seed):
    """With up to six lengths a side all choices can be tried."""
    random = np.random.default_rng(seed)
    source = random.integers(2, 8, 60)
    target = (source + random.integers(-2, 3, 60)).clip(2, 7)

    def corners(most):
        shapes = learn_shapes(source, target, most=most, batch_tokens=40, multiple=1)
        return [shape[:2] for shape in shapes]

    def padded(corners):
        """Tokens of all pairs in the cheapest of these corners; inf if none holds one."""
        return sum(
            min((a + b for a, b in corners if s <= a and t <= b), default=float("inf"))
            for s, t in zip(source.tolist(), target.tolist(), strict=True)
        )

    others = [*itertools.product(range(2, source.max() + 1), range(2, target.max() + 1))]
    for most in range(1, 6):
        before, after = corners(most), corners(most + 1)
        assert set(before) < set(after)
        assert padded(after) == min(padded([*before, corner]) for corner in others)


def test_rows_are_those_that_the_pairs_fill():
    lengths = np.full(1000, 10)
    # 256 would fit, and leave 24 rows of the fourth batch empty; 248 would leave 8 for a fifth.
    for multiple, rows in ((1, 250), (8, 256)):
        shapes = learn_shapes(lengths, lengths, most=9, batch_tokens=2560, multiple=multiple)
        assert shapes == [Shape(10, 10, rows)]
        plan = plan_epoch(assign_shapes(lengths, lengths, shapes), shapes, shuffle=(0, 0))
        assert len(plan) == 4


def test_pairs_that_are_only_announced_have_a_shape_too():
    source = target = np.arange(2, 8)
    for longest in ((9, 3), (90, 131), (1, 1)):
        shapes = learn_shapes(source, target, most=3, batch_tokens=60, multiple=1, longest=longest)
        assert shapes[-1][:2] == (max(longest[0], source.max()), max(longest[1], target.max()))
        assert len(shapes) == 3


@pytest.mark.parametrize(("name", "least"), [("multi30k/tok", 0.935), ("tatoeba_deu_eng", 0.94)])
def test_nearly_all_tokens_of_real_epochs_are_real_in_23_shapes(name, least):
    """For 1 and 8 devices; whole epochs as planned, batches that are not full included."""
    source, target = words_of(name)
    for multiple, batch_tokens in [(1, 1536), (8, 4096)]:
        shapes = learn_shapes(source, target, most=23, batch_tokens=batch_tokens, multiple=multiple)
        plan = plan_epoch(assign_shapes(source, target, shapes), shapes, shuffle=(1, 0))
        computed = sum(shapes[i].rows * sum(shapes[i][:2]) for i in plan.shapes.tolist())
        sizes = [shapes[i].rows * max(shapes[i][:2]) for i in plan.shapes.tolist()]
        assert len(shapes) <= 23
        assert int(source.sum() + target.sum()) / computed > least
        assert 0.8 * batch_tokens < np.mean(sizes) <= batch_tokens


# ---- Epochs -----------------------------------------------------------------------------------


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


@pytest.mark.parametrize("planner", [bucketed, packed])
def test_an_epoch_is_a_function_of_seed_and_epoch_and_goes_on_from_any_position(planner):
    plan_of = planner()
    keys = [(0, 0), (0, 1), (1, 0), (5, 0), (5, 1), (5, 2)]
    plans = {key: plan_of(key) for key in keys}
    again = plan_of((0, 1))
    for name in ("order", "starts", "ends", "shapes"):
        assert np.array_equal(getattr(plans[0, 1], name), getattr(again, name))
    for one, other in itertools.combinations(plans.values(), 2):
        assert not np.array_equal(one.order, other.order)
    assert not np.array_equal(plans[0, 0].shapes, np.sort(plans[0, 0].shapes))  # batches mixed

    def first(position, count):
        planned = batches_from(position, lambda epoch: plans[5, epoch])
        some = itertools.islice(planned, count)
        return [(place, plan.pairs(place[1]).tolist()) for place, plan in some]

    lengths = [len(plans[5, epoch]) for epoch in range(3)]
    whole = first((0, 0), sum(lengths))
    assert [place for place, _ in whole] == [(e, i) for e in range(3) for i in range(lengths[e])]
    for done, (place, _) in enumerate(whole[:-3]):
        assert first(place, 3) == whole[done : done + 3]
    # A checkpoint at the end of an epoch has the position after its last batch: the next epoch.
    assert first((0, lengths[0]), 3) == whole[lengths[0] : lengths[0] + 3]


def test_without_shuffling_pairs_come_in_the_order_of_the_text():
    shapes = [Shape(4, 4, 2), Shape(8, 8, 2)]
    plan = plan_epoch(np.array([1, 0, 0, 1, 1, 0, 0]), shapes, shuffle=None)
    batches = [plan.pairs(i).tolist() for i in range(len(plan))]
    assert batches == [[1, 2], [5, 6], [0, 3], [4]]
    assert len(plan_epoch(np.zeros(0, np.int8), shapes, shuffle=(0, 0))) == 0


def test_leftovers_move_only_where_a_batch_of_their_own_would_cost_more():
    shapes = [Shape(4, 4, 8), Shape(8, 8, 4)]

    def batches(small, large):
        plan = plan_epoch(np.repeat([0, 1], [small, large]), shapes, shuffle=None)
        return [(int(shape), len(plan.pairs(i))) for i, shape in enumerate(plan.shapes)]

    assert batches(9, 3) == [(0, 8), (1, 4)]  # 1 x 16 tokens rather than 8 x 8
    assert batches(13, 3) == [(0, 8), (0, 5), (1, 3)]  # 5 x 16 would be more than 8 x 8
    assert batches(0, 3) == [(1, 3)]
    assert batches(3, 0) == [(1, 3)]


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


# ---- Mixtures ---------------------------------------------------------------------------------


def test_others_come_again_in_another_order_when_they_are_used_up():
    members = partial(mixture_members, [10, 12], [None, 30])
    drawn = [members(seed=1, epoch=epoch) for epoch in (0, 1, 1)]
    assert all(each[:10].tolist() == [*range(10)] for each in drawn)  # all own pairs, once
    first, second, again = (each[10:] for each in drawn)
    both = np.concatenate([first, second]).reshape(5, 12)  # 60 draws are five passes
    assert (np.sort(both, axis=1) == np.arange(10, 22)).all()
    assert len({tuple(each) for each in both.tolist()}) == 5
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


# ---- The thread that makes items ahead of time -------------------------------------------------


def test_items_come_in_order_from_one_thread_that_closing_ends_and_so_many_are_made_ahead():
    made = threading.Semaphore(0)

    def endless():
        for i in itertools.count():
            made.release()
            yield i, threading.get_ident()

    items = prefetch(endless(), ahead=3)
    assert next(items)[0] == 0
    for _ in range(1 + 3):
        assert made.acquire(timeout=10)
    assert not made.acquire(timeout=0.1)
    rest = list(itertools.islice(items, 50))
    assert [i for i, _ in rest] == list(range(1, 51))
    assert len({maker for _, maker in rest} - {threading.get_ident()}) == 1
    assert any(thread.name.startswith("prefetch") for thread in threading.enumerate())
    items.close()
    assert not any(thread.name.startswith("prefetch") for thread in threading.enumerate())


def test_an_error_comes_where_its_item_would_have():
    def endless():
        yield from range(5)
        raise OSError("the tokens are gone")

    items = prefetch(endless(), ahead=3)
    assert list(itertools.islice(items, 5)) == list(range(5))
    with pytest.raises(OSError, match="the tokens are gone"):
        next(items)
