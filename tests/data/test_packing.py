"""Packed rows against counting pairs and tokens by hand, and on lengths of real text."""

import numpy as np
import pytest
from real_data import words_of
from stores import PAD, filtered_by_hand, make_store, random_pairs

from jax_transformer.data.batching import batch_arrays, mixture_members, padding_share
from jax_transformer.data.packing import learn_packing, pack_epoch

TARGET_PAD = 1000


def random_lengths(seed):
    """Source and target lengths of pairs, alike in length as translations are."""
    random = np.random.default_rng(seed)
    count, longest = int(random.integers(1, 600)), int(random.integers(2, 200))
    source = random.geometric(min(1.0, 4 / longest), count).clip(2, longest)
    target = np.round(source * random.uniform(0.5, 2, count)).astype(int).clip(2, 2 * longest)
    return source, target


def rows_of(plan, shapes):
    """[(shape, [pairs of each row])] of each batch, by reading on until a number is 1."""
    batches = []
    for index in range(len(plan)):
        rows = []
        for place in range(plan.starts[index], plan.ends[index]):
            if plan.segment_ids[place] == 1:
                rows.append([])
            rows[-1].append(int(plan.order[place]))
            assert plan.segment_ids[place] == len(rows[-1])
        batches.append((shapes[plan.shapes[index]], rows))
    return batches


@pytest.mark.parametrize("seed", range(3))  # which share batches over 1, 3 and 8 devices
def test_an_epoch_holds_every_pair_once_in_a_row_with_room_for_it(seed):
    source, target = random_lengths(seed)
    random, multiple = np.random.default_rng(seed), [1, 3, 8][seed % 3]
    most, batch_tokens = int(random.integers(1, 8)), int(random.integers(20, 4000))
    every, settings = np.arange(len(source)), {"multiple": multiple, "batch_tokens": batch_tokens}
    own = len(source) // 3
    some = mixture_members([own, len(source) - own], [None, own], seed=1, epoch=0)
    for of in (None, some):  # all pairs, and those of a mixture alone
        packing = learn_packing(source, target, most=most, of=of, **settings)
        seen, not_full = [], 0
        plan = pack_epoch(packing, shuffle=(seed, 3), of=of)
        for shape, rows in rows_of(plan, packing.shapes):
            not_full += len(rows) < shape.rows
            assert 1 <= len(rows) <= shape.rows
            for pairs in rows:
                assert source[pairs].sum() <= shape.source
                assert target[pairs].sum() <= shape.target
                seen += pairs
        assert sorted(seen) == sorted(every if of is None else of)
        assert not_full <= len(packing.shapes) <= most  # the last batch of each shape
        for shape in packing.shapes:
            assert shape.rows % multiple == 0
            assert shape.rows >= multiple
            longer = max(shape.source, shape.target)
            assert shape.rows == multiple or shape.rows * longer <= batch_tokens


def test_arrays_of_a_batch_hold_its_pairs_their_numbers_and_padding_only(tmp_path):
    pairs = random_pairs(9, 150)
    store = make_store(tmp_path / "tokens", pairs)
    remaining = filtered_by_hand(pairs, 8)[0]
    lengths = store.lengths("source"), store.lengths("target")
    packing = learn_packing(*lengths, most=3, batch_tokens=80, multiple=2)
    plan = pack_epoch(packing, shuffle=(0, 0))
    batches, real, computed = rows_of(plan, packing.shapes), 0, 0
    assert len(batches) > 3
    others = rows_of(pack_epoch(packing, shuffle=(0, 1)), packing.shapes)
    together = [{frozenset(row) for _, rows in each for row in rows} for each in (batches, others)]
    assert together[0] != together[1]  # other pairs share a row in another epoch
    for index, (shape, rows) in enumerate(batches):
        arrays = batch_arrays([store], plan, index, packing.shapes, (PAD, TARGET_PAD))
        rows += [[]] * (shape.rows - len(rows))
        for side, length in enumerate(shape[:2]):
            tokens, segments = arrays[side], arrays[2 + side]
            assert tokens.dtype == segments.dtype == np.int32
            expected = [
                [token for pair in row for token in remaining[pair][1 + side]] for row in rows
            ]
            numbers = [
                [number + 1 for number, pair in enumerate(row) for _ in remaining[pair][1 + side]]
                for row in rows
            ]
            pad = (PAD, TARGET_PAD)[side]
            assert tokens.tolist() == [row + [pad] * (length - len(row)) for row in expected]
            assert segments.tolist() == [row + [0] * (length - len(row)) for row in numbers]
            real, computed = real + sum(map(len, expected)), computed + tokens.size
    assert real == sum(len(source) + len(target) for _, source, target in remaining)
    assert padding_share(plan, packing.shapes, lengths) == pytest.approx(1 - real / computed)


@pytest.mark.parametrize(
    "name",
    ["multi30k/tok", "tatoeba_deu_eng", pytest.param("msdocs_ende", marks=pytest.mark.release)],
)
def test_nearly_all_tokens_of_real_epochs_are_real_in_a_few_shapes(name):
    """For 1 and 8 devices; whole epochs as planned, batches that are not full included."""
    source, target = words_of(name)
    long = np.maximum(source, target) > 256
    source, target = source[~long], target[~long]
    for multiple, batch_tokens in [(1, 1536), (8, 25_000)]:
        packing = learn_packing(
            source, target, most=23, batch_tokens=batch_tokens, multiple=multiple
        )
        plan = pack_epoch(packing, shuffle=(1, 0))
        computed = sum(packing.shapes[i].rows * sum(packing.shapes[i][:2]) for i in plan.shapes)
        assert int(source.sum() + target.sum()) / computed > 0.95
        assert len(packing.shapes) <= 4
