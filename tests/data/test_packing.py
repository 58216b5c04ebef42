"""Packed rows against counting pairs and tokens by hand, and on lengths of real text."""

import numpy as np
import pytest
from real_data import words_of
from stores import PAD, filtered_by_hand, make_store, random_pairs

from jax_transformer.data.batching import batch_arrays, mixture_members, padding_share
from jax_transformer.data.packing import learn_packing, pack_epoch


def random_lengths(seed):
    """Source and target lengths of pairs, alike in length as translations are."""
    random = np.random.default_rng(seed)
    count, longest = int(random.integers(1, 600)), int(random.integers(2, 200))
    source = random.geometric(min(1.0, 4 / longest), count).clip(2, longest)
    target = np.round(source * random.uniform(0.5, 2, count)).astype(int).clip(2, 2 * longest)
    return source, target


def random_settings(seed):
    random = np.random.default_rng(seed)
    return {
        "most": int(random.integers(1, 8)),
        "batch_tokens": int(random.integers(20, 4000)),
        "multiple": [1, 3, 8][seed % 3],
    }


def learned(seed):
    return learn_packing(*random_lengths(seed), **random_settings(seed))


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


SEEDS = range(9)


@pytest.mark.parametrize("seed", SEEDS)  # of which each third shares batches over 1, 3, 8 devices
def test_an_epoch_holds_every_pair_once_in_a_row_with_room_for_it(seed):
    source, target = random_lengths(seed)
    packing, settings = learned(seed), random_settings(seed)
    seen, not_full = [], 0
    for shape, rows in rows_of(pack_epoch(packing, shuffle=(seed, 3)), packing.shapes):
        not_full += len(rows) < shape.rows
        assert 1 <= len(rows) <= shape.rows
        for pairs in rows:
            assert source[pairs].sum() <= shape.source
            assert target[pairs].sum() <= shape.target
            seen += pairs
    assert sorted(seen) == list(range(len(source)))
    assert not_full <= len(packing.shapes) <= settings["most"]  # the last batch of each shape
    for shape in packing.shapes:
        assert shape.rows % settings["multiple"] == 0
        assert shape.rows >= settings["multiple"]
        if shape.rows > settings["multiple"]:
            assert shape.rows * max(shape.source, shape.target) <= settings["batch_tokens"]


def test_an_epoch_of_a_mixture_has_its_members_alone():
    source, target = random_lengths(2)
    count = len(source)
    own = count // 3
    sizes, wanted = [own, count - own], [None, own]
    of = [mixture_members(sizes, wanted, seed=1, epoch=epoch) for epoch in range(3)]
    settings = {"most": 3, "batch_tokens": 500, "multiple": 1}
    packing = learn_packing(source, target, of=of[0], **settings)
    for epoch in range(3):
        plan = pack_epoch(packing, shuffle=(1, epoch), of=of[epoch])
        assert sorted(plan.order) == sorted(of[epoch])
        for shape, rows in rows_of(plan, packing.shapes):
            assert len(rows) <= shape.rows
            assert all(source[row].sum() <= shape.source for row in rows)
            assert all(target[row].sum() <= shape.target for row in rows)


def test_arrays_of_a_batch_hold_its_pairs_their_numbers_and_padding_only(tmp_path):
    pairs = random_pairs(9, 150)
    store = make_store(tmp_path / "tokens", pairs)
    remaining = filtered_by_hand(pairs, 8)[0]
    lengths = store.lengths("source"), store.lengths("target")
    packing = learn_packing(*lengths, most=3, batch_tokens=80, multiple=2)
    plan = pack_epoch(packing, shuffle=(0, 0))
    batches, real, computed = rows_of(plan, packing.shapes), 0, 0
    assert len(batches) > 3
    for index, (shape, rows) in enumerate(batches):
        arrays = batch_arrays([store], plan, index, packing.shapes, (PAD, PAD))
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
            assert tokens.tolist() == [row + [PAD] * (length - len(row)) for row in expected]
            assert segments.tolist() == [row + [0] * (length - len(row)) for row in numbers]
            real, computed = real + sum(map(len, expected)), computed + tokens.size
    assert real == sum(len(source) + len(target) for _, source, target in remaining)
    assert padding_share(plan, packing.shapes, lengths) == pytest.approx(1 - real / computed)


def share_of_real(source, target, packing):
    plan = pack_epoch(packing, shuffle=(1, 0))
    computed = sum(packing.shapes[i].rows * sum(packing.shapes[i][:2]) for i in plan.shapes)
    return int(source.sum() + target.sum()) / computed


@pytest.mark.slow
@pytest.mark.parametrize(("mean", "multiple"), [(8, 1), (25, 8), (60, 1)])
def test_nearly_all_tokens_are_real_whatever_the_lengths(mean, multiple):
    random = np.random.default_rng(mean)
    source = random.lognormal(np.log(mean), 0.5, 20_000).round().clip(2, 256).astype(np.int32)
    target = (source * random.lognormal(0.1, 0.25, 20_000)).round().clip(2, 256).astype(np.int32)
    packing = learn_packing(source, target, most=23, batch_tokens=4096, multiple=multiple)
    assert share_of_real(source, target, packing) > 0.95
    assert len(packing.shapes) <= 6


@pytest.mark.parametrize("name", ["multi30k/tok", "tatoeba_deu_eng", "msdocs_ende"])
def test_nearly_all_tokens_of_real_epochs_are_real_in_a_few_shapes(name):
    """For 1 and 8 devices; whole epochs as planned, batches that are not full included."""
    source, target = words_of(name)
    long = np.maximum(source, target) > 256
    source, target = source[~long], target[~long]
    for multiple, batch_tokens in [(1, 1536), (1, 4096), (8, 4096), (8, 25_000)]:
        packing = learn_packing(
            source, target, most=23, batch_tokens=batch_tokens, multiple=multiple
        )
        share = share_of_real(source, target, packing)
        print(f"{name}, {multiple} x {batch_tokens}: {share:.1%} are real; {packing.shapes}")
        assert share > 0.95
        assert len(packing.shapes) <= 6
