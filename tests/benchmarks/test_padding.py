"""The benchmarks of padding and packing: shares against counting, the limit against all choices."""

from itertools import combinations

import numpy as np
import pytest
from stores import make_store, random_pairs

from benchmarks import packing
from benchmarks.measuring import SHAPES
from benchmarks.padding import limit, measured


def small_corpus(seed):
    """Pairs with up to six lengths a side."""
    random = np.random.default_rng(seed)
    source = random.integers(2, 8, 80)
    return source, (source + random.integers(-2, 3, 80)).clip(2, 7)


def best_share(source, target, most):
    """Of all choices of `most` shapes, as real tokens over those padded to the cheapest."""
    pairs = np.stack([source, target], axis=1)
    corners = np.array([(s, t) for s in range(2, 8) for t in range(2, 8)])
    fits = (pairs[:, None, :] <= corners).all(-1)
    cost = np.where(fits, corners.sum(1), 99)
    fewest = min(
        cost[:, list(chosen)].min(1).sum() for chosen in combinations(range(len(corners)), most)
    )
    return pairs.sum() / fewest


@pytest.mark.parametrize("most", [1, 2, 3])
@pytest.mark.parametrize("seed", range(3))
def test_no_choice_of_shapes_passes_the_limit_and_it_is_near_the_best(seed, most):
    source, target = small_corpus(seed)
    best, most_there_can_be = best_share(source, target, most), limit(source, target, most, 300)
    assert best <= most_there_can_be < 1.03 * best


def test_without_a_step_the_limit_is_that_there_is_no_padding():
    assert limit(*small_corpus(0), 2, 0) == 1


@pytest.mark.parametrize("packed", [False, True])
def test_the_share_of_the_table_is_that_of_the_planned_batches(tmp_path, packed):
    pairs = random_pairs(3, 150)
    store = make_store(tmp_path / "tokens", pairs)
    row = measured(store, 4, 64, 2, packed)
    real = sum(int(store.lengths(side).sum()) for side in ("source", "target"))
    assert row[:2] == ["64", "2"]
    assert float(row[2]) > 2 if packed else row[2] == "1"
    assert 1 <= int(row[3]) <= 4
    # Two sides of about `tokens a batch` each, so about this many tokens in all.
    computed = real / float(row[6].rstrip("%")) * 100
    assert real < computed <= 2 * 1.01 * int(row[4]) * int(row[5])


def test_steps_on_both_ways_are_compared_by_their_real_target_tokens(tmp_path):
    store = make_store(tmp_path / "tokens", random_pairs(3, 150))
    drawn = [packing.drawn(store, packed, 64, count=1000)[0] for packed in (False, True)]
    for batches in drawn:  # the whole epoch
        assert sum(int((batch.target != 0).sum()) for batch in batches) == int(
            store.lengths("target").sum()
        )
    unpacked, packed = (batches[0].target_segments for batches in drawn)
    assert unpacked is None
    assert packed is not None
    assert packed.max() > 1
    one, several = packing.measured(tmp_path / "tokens", SHAPES["smoke"], 64, 1, 3)
    assert one[-1] == "1.000 (1.000 - 1.000)"
    assert [row[0] for row in (one, several)] == list(packing.WAYS)
    assert float(several[-1].split()[0]) > 0
