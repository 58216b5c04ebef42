"""Encoding against plain lists: any parts, and no byte that is read is another unnoticed."""

import os
import random

import numpy as np
import pytest
from refusals import refusal
from stores import EOS, contents, files_of, filtered_by_hand, make_store, random_pairs

from jax_transformer.data import token_store
from jax_transformer.data.token_store import DESCRIPTION, open_store, remove_store, token_rows
from jax_transformer.files import parse_json


@pytest.mark.parametrize(("seed", "part", "ratio"), [(0, 20_000, 0.0), (1, 1, 0.0), (2, 7, 1.5)])
def test_a_store_holds_what_plain_lists_hold(tmp_path, monkeypatch, seed, part, ratio):
    monkeypatch.setattr(token_store, "PART", part)
    pairs = random_pairs(seed, 200)
    store = make_store(tmp_path / "tokens", pairs, ratio=ratio)
    expected, counts = filtered_by_hand(pairs, 8, ratio)
    assert contents(store) == expected
    assert len(store) == len(expected)
    content = (tmp_path / "tokens" / DESCRIPTION).read_bytes()
    assert store.description == parse_json(content, dict)
    assert {"split": "train", "max_length": 8, **counts}.items() <= store.description.items()
    # No word is unknown here, and without a ratio none is too long for the other.
    never = {"dropped_unknown"} | (set() if ratio else {"dropped_ratio"})
    assert {kind for kind, count in counts.items() if count == 0} == never
    assert store.lengths("source").tolist() == [len(source) for _, source, _ in expected]
    assert store.lengths("target").tolist() == [len(target) for _, _, target in expected]


@pytest.mark.parametrize("pairs", [[], [(1, "", "3"), (2, "4", "")]])
def test_a_store_may_be_empty(tmp_path, pairs):
    store = make_store(tmp_path / "tokens", pairs)
    assert len(store) == 0
    assert contents(store) == []
    assert store.lengths("source").tolist() == store.lengths("target").tolist() == []
    assert store.description["read"] == store.description["dropped_blank"] == len(pairs)


@pytest.mark.parametrize(("size", "kind"), [(65_536, np.uint16), (65_537, np.int32)])
def test_ids_take_two_bytes_where_they_fit(tmp_path, size, kind):
    store = make_store(tmp_path / "tokens", [(1, f"{size - 1} 2", "3")], size=size)
    assert store.tokens["source"].dtype == kind
    assert contents(store) == [(1, [size - 1, 2, EOS], [3, EOS])]


class Stop(Exception):
    """Whatever comes in the way."""


def stopping(pairs, after):
    yield from pairs[:after]
    raise Stop


def test_a_stop_on_the_way_leaves_no_store_and_the_next_try_is_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(token_store, "PART", 10)
    pairs, folder = random_pairs(4, 50), tmp_path / "tokens"
    with pytest.raises(Stop):
        make_store(folder, stopping(pairs, 35))
    assert not [*tmp_path.iterdir()]
    store = make_store(folder, pairs)
    assert contents(store) == filtered_by_hand(pairs, 8)[0]
    with pytest.raises(Stop):  # and leaves a store that is there as it was
        make_store(folder, stopping(random_pairs(6, 30), 5))
    content = (folder / DESCRIPTION).read_bytes()
    assert contents(open_store(folder, content)) == filtered_by_hand(pairs, 8)[0]
    make_store(folder, pairs)
    assert [path.name for path in tmp_path.iterdir()] == ["tokens"]
    assert set(files_of(folder)) == {*token_store.NAMES, DESCRIPTION}


def flip(path, byte):
    content = bytearray(path.read_bytes())
    content[byte] ^= 4
    path.write_bytes(content)


def test_a_flipped_bit_is_refused_when_its_block_is_read_and_not_before(tmp_path, monkeypatch):
    monkeypatch.setattr(token_store, "BLOCK", 64)
    pairs = random_pairs(7, 300)
    make_store(tmp_path / "sound", pairs)
    content = (tmp_path / "sound" / DESCRIPTION).read_bytes()
    choose = random.Random(1)
    for _ in range(15):
        path = tmp_path / "sound" / choose.choice(["source.tokens", "target.tokens"])
        side, byte = path.name.split(".")[0], choose.randrange(path.stat().st_size)
        flip(path, byte)
        array = open_store(tmp_path / "sound", content).tokens[side]
        per_block = 64 // array.dtype.itemsize
        block = byte // 64
        others = [i for i in range(len(array)) if i // per_block != block]
        array[np.array(others)]
        for _ in range(2):  # it does not pass the second time
            place = min(block * per_block + choose.randrange(per_block), len(array) - 1)
            error = refusal(array.__getitem__, np.array([0, place]))
            assert error.startswith(f"{path}: expected bytes {block * 64:,} to ")
        flip(path, byte)
    store = open_store(tmp_path / "sound", content)
    assert contents(store) == filtered_by_hand(pairs, 8)[0]


def test_the_rows_of_two_stores_are_those_of_one_with_the_pairs_of_both(tmp_path):
    pairs = random_pairs(8, 300)
    whole = make_store(tmp_path / "whole", pairs)
    both = [make_store(tmp_path / "a", pairs[:100]), make_store(tmp_path / "b", pairs[100:])]
    chosen = np.random.default_rng(1).permutation(len(whole))[:50]
    segment_ids = np.tile([1, 2], 25).astype(np.int32)  # two in each row
    for side in ("source", "target"):
        expected = token_rows([whole], side, chosen, segment_ids, 30, 20, 0)
        found = token_rows(both, side, chosen, segment_ids, 30, 20, 0)
        for ours, theirs in zip(found, expected, strict=True):
            np.testing.assert_array_equal(ours, theirs)
        store = contents(whole)
        ids = [store[pair][1 if side == "source" else 2] for pair in chosen[:2]]
        assert expected[0][0].tolist() == [*ids[0], *ids[1]] + [0] * (20 - len(ids[0] + ids[1]))
        eos = ids[0][-1]  # a PAD in place of EOS has no segment, as in an unpacked row
        tokens, segments = token_rows(both, side, chosen, segment_ids, 30, 20, eos)
        np.testing.assert_array_equal(segments == 0, tokens == eos)


@pytest.mark.parametrize("name", ["source.tokens", "target.offsets", "lines"])
def test_a_file_that_is_cut_or_missing_is_refused_and_flipped_offsets_at_once(tmp_path, name):
    make_store(tmp_path / "tokens", random_pairs(7, 20))
    path = tmp_path / "tokens" / name
    content, size = (tmp_path / "tokens" / DESCRIPTION).read_bytes(), path.stat().st_size
    if name.endswith("offsets"):
        flip(path, 17)
        assert f"{path}: expected bytes 0 to" in refusal(open_store, tmp_path / "tokens", content)
    for cut in (size - 1, 0):
        os.truncate(path, cut)
        error = refusal(open_store, tmp_path / "tokens", content)
        assert error.startswith(f"{path}: expected {size} bytes, as were written, found {cut}")
    path.unlink()
    assert "found 0" in refusal(open_store, tmp_path / "tokens", content)


def test_a_folder_of_something_else_is_not_removed(tmp_path):
    """A link in a run folder from somebody else may lead to it."""
    (tmp_path / "data" / "train").mkdir(parents=True)
    (tmp_path / "data" / "train" / "mine").touch()
    (tmp_path / "tokens").symlink_to(tmp_path / "data")
    assert "found mine; move it away" in refusal(remove_store, tmp_path / "tokens" / "train")
    assert (tmp_path / "data" / "train" / "mine").exists()
