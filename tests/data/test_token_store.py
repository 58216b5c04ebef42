"""Encoding against plain lists: any parts, and after any stop the same bytes."""

import os
import shutil

import numpy as np
import pytest
from stores import EOS, Words, contents, files_of, filtered_by_hand, make_store, random_pairs

from jax_transformer.data import token_store
from jax_transformer.data.token_store import (
    Encoders,
    Rules,
    open_store,
    read_manifest,
    write_store,
)
from jax_transformer.errors import InputError


@pytest.mark.parametrize(("seed", "part"), [(0, 20_000), (1, 1), (2, 7), (3, 200)])
@pytest.mark.parametrize("ratio", [0.0, 1.5])
def test_a_store_holds_what_plain_lists_hold(tmp_path, monkeypatch, seed, part, ratio):
    monkeypatch.setattr(token_store, "PART", part)
    pairs = random_pairs(seed, 200)
    store = make_store(tmp_path / "tokens", pairs, ratio=ratio)
    expected, counts = filtered_by_hand(pairs, 8, ratio)
    assert contents(store) == expected
    assert len(store) == len(expected)
    manifest = read_manifest(tmp_path / "tokens") or {}
    assert store.manifest == manifest
    assert {"split": "train", "max_length": 8, **counts}.items() <= manifest.items()
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
    assert store.manifest["read"] == store.manifest["dropped_blank"] == len(pairs)


@pytest.mark.parametrize(("size", "kind"), [(65_536, np.uint16), (65_537, np.int32)])
def test_ids_take_two_bytes_where_they_fit(tmp_path, size, kind):
    store = make_store(tmp_path / "tokens", [(1, f"{size - 1} 2", "3")], size=size)
    assert store.tokens["source"].dtype == kind
    assert contents(store) == [(1, [size - 1, 2, EOS], [3, EOS])]


class Stop(Exception):
    """Whatever comes in the way."""


def stopping(pairs, after):
    def given(start):
        yield from pairs[start:after]
        raise Stop

    return given


def test_a_stop_on_the_way_leaves_no_store_and_the_next_try_is_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(token_store, "PART", 10)
    pairs, folder = random_pairs(4, 50), tmp_path / "tokens"
    with pytest.raises(Stop):
        make_store(folder, stopping(pairs, 35))
    assert not folder.exists()
    assert read_manifest(folder) is None
    assert contents(make_store(folder, pairs)) == filtered_by_hand(pairs, 8)[0]
    with pytest.raises(Stop):  # and leaves a store that is there as it was
        make_store(folder, stopping(random_pairs(6, 30), 5))
    assert contents(open_store(folder)) == filtered_by_hand(pairs, 8)[0]
    make_store(folder, pairs)
    assert [path.name for path in tmp_path.iterdir()] == ["tokens"]
    assert set(files_of(folder)) == {*token_store.NAMES, "manifest.json"}


@pytest.mark.parametrize("stops", [[201, 470], [30, 60, 999, 999], [5]])
def test_after_interruptions_encoding_continues_after_the_last_part_to_the_same_bytes(
    tmp_path, monkeypatch, stops
):
    monkeypatch.setattr(token_store, "PART", 30)
    pairs = random_pairs(11, 1000)
    make_store(tmp_path / "plain", pairs)
    starts, folder = [], tmp_path / "tokens"
    for stop in [*stops, None]:

        def given(start, stop=stop):
            starts.append(start)
            return stopping(pairs, stop)(start) if stop else iter(pairs[start:])

        if stop:
            with pytest.raises(Stop):
                make_store(folder, given)
        else:
            make_store(folder, given)
    assert files_of(folder) == files_of(tmp_path / "plain")
    assert starts[0] == 0
    for start, stop in zip(starts[1:], stops, strict=True):
        assert start == stop // 30 * 30


def broken_building(folder, pairs):
    """What an interruption after pair 935 of `pairs` leaves, in parts of 30."""
    with pytest.raises(Stop):
        make_store(folder, stopping(pairs, 935))
    return folder.with_name("tokens.building")


def cut(path):
    os.truncate(path, path.stat().st_size // 2)


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


@pytest.mark.parametrize("name", ["source.tokens", "lines", "manifest.json"])
def test_a_building_folder_that_lost_something_is_made_anew(tmp_path, monkeypatch, name):
    monkeypatch.setattr(token_store, "PART", 30)
    pairs = random_pairs(12, 1000)
    make_store(tmp_path / "plain", pairs)
    cut(broken_building(tmp_path / "tokens", pairs) / name)
    make_store(tmp_path / "tokens", pairs)
    assert files_of(tmp_path / "tokens") == files_of(tmp_path / "plain")


def test_what_was_made_of_something_else_is_not_gone_on_with(tmp_path, monkeypatch):
    monkeypatch.setattr(token_store, "PART", 30)
    pairs, others = random_pairs(12, 1000), random_pairs(13, 200)
    for made_of, rules, size in [
        ({"split": "dev"}, Rules(8), 100),
        ({"split": "train"}, Rules(7), 100),
        ({"split": "train"}, Rules(8, 2.0), 100),
        ({"split": "train"}, Rules(8), 70_000),
    ]:
        broken_building(tmp_path / "tokens", pairs)
        after = iter(others)
        both = Encoders(Words(size), Words(size))
        write_store(tmp_path / "tokens", lambda start: after, both, rules, made_of)  # noqa: B023
        store = open_store(tmp_path / "tokens")
        assert store.manifest["read"] == 200
        ratio = rules.max_length_ratio
        assert contents(store) == filtered_by_hand(others, rules.max_length, ratio)[0]
        shutil.rmtree(tmp_path / "tokens")


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda content: content[:-5], "truncated"),
        (lambda content: content.replace(b'"read": 20', b'"read": 28'), "another checksum"),
        (lambda content: b"[5]", "Expected `object`"),
        (lambda content: b"null", "Expected `object`"),
        (lambda content: b"[" * 100_000, "Expected `object`"),
        (lambda content: content.replace(b"{", b'{"a":' * 100_000), "nested too deep"),
        (lambda content: b"\xff" + content, "malformed"),
    ],
)
def test_a_damaged_manifest_counts_as_no_store_and_the_reason_is_logged(
    tmp_path, caplog, damage, reason
):
    make_store(tmp_path / "tokens", random_pairs(7, 20))
    path = tmp_path / "tokens" / "manifest.json"
    path.write_bytes(damage(path.read_bytes()))
    assert read_manifest(tmp_path / "tokens") is None
    assert str(path) in caplog.messages[0]
    assert reason in caplog.messages[0]
    with pytest.raises(InputError, match="found none; prepare the text again"):
        open_store(tmp_path / "tokens")


@pytest.mark.parametrize("damage", [cut, flip])
@pytest.mark.parametrize("name", ["source.tokens", "target.offsets", "lines"])
def test_a_damaged_store_is_refused(tmp_path, name, damage):
    make_store(tmp_path / "tokens", random_pairs(7, 20))
    damage(tmp_path / "tokens" / name)
    with pytest.raises(InputError, match=f"{name} as it was written, found .*: damaged"):
        open_store(tmp_path / "tokens")
