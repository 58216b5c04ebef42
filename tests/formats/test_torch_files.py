"""Files of torch.save: what torch wrote, recorded and live, and the same files damaged."""

import io
import json
import pickle
import struct
import tracemalloc
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from references import SOURCES, Arrays, reference, within
from refusals import refusal
from torch_pickles import (
    body,
    check_plain,
    older_form,
    outcome,
    storage,
    tensor,
    whole,
    written,
    zip_form,
)

from jax_transformer.formats.torch_files import read_torch

FORMS = ["zip", "older"]
VALUES = ["tensors", "plain", "checkpoint"]


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Each part that is not a container, by its path; empty containers too."""
    if isinstance(value, dict | list | tuple) and value:
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for key, part in pairs:
            yield from leaves(part, f"{path}/{key!r}")
    else:
        yield path, value


@pytest.fixture(scope="module", params=SOURCES)
def theirs(request) -> Arrays:
    """Files of torch, and what is in them."""
    return reference("torch_files", request.param)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", VALUES)
def test_a_file_gives_what_torch_saved(theirs, name, form, tmp_path):
    value = read_torch(written(tmp_path, theirs[f"{name}/{form}"]))
    check_plain(value)
    found = dict(leaves(value))
    tensors = within(theirs, f"{name}/tensor/")
    assert {path for path, part in found.items() if type(part) is np.ndarray} == tensors.keys()
    for path, expected in tensors.items():
        assert found[path].dtype == expected.dtype, path
        np.testing.assert_array_equal(found[path], expected, err_msg=path, strict=True)
        assert (np.signbit(found[path]) == np.signbit(expected)).all(), path  # -0.0 too
    others = {path: repr(part) for path, part in found.items() if path not in tensors}
    assert others == json.loads(str(theirs[f"{name}/others"]))


@pytest.mark.parametrize("form", FORMS)
def test_views_of_one_storage_share_memory(theirs, form, tmp_path):
    found = read_torch(written(tmp_path, theirs[f"tensors/{form}"]))
    views = ["transposed", "part", "row", "expanded", "overlapping", "one", "parameter"]
    for name in views:
        assert np.shares_memory(found["whole"], found[name]), name
    assert not np.shares_memory(found["whole"], found["float32"])


@pytest.mark.parametrize("form", FORMS)
def test_a_file_cut_anywhere_is_refused(theirs, form, tmp_path):
    content = theirs[f"tensors/{form}"]
    for length in {*range(64), *range(64, len(content), 97), len(content) - 1}:
        message = refusal(read_torch, written(tmp_path, content[:length]))
        assert "model.pt: " in message


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", VALUES)
def test_a_file_with_wrong_bytes_is_refused_or_gives_plain_values(theirs, name, form, tmp_path):
    content, random = theirs[f"{name}/{form}"], np.random.default_rng(7)
    outcomes = []
    for _ in range(100):
        damaged = content.copy()
        places = random.integers(len(content), size=random.integers(1, 4))
        damaged[places] = random.integers(256, size=len(places), dtype=np.uint8)
        outcomes.append(outcome(written(tmp_path, damaged)))
    assert 0 < outcomes.count("read") < len(outcomes)
    assert not any("\n" in line for line in outcomes)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("is_zip", [True, False])
def test_random_views_are_those_of_torch(seed, is_zip, tmp_path):
    torch = pytest.importorskip("torch")
    random, tensors = np.random.default_rng(seed), {}
    base = torch.tensor(random.normal(size=(5, 4, 3, 2)), dtype=torch.float32)
    for i in range(60):
        view = base.permute(*random.permutation(4).tolist())
        for axis in range(4):
            start = int(random.integers(view.shape[axis]))
            step = int(random.integers(1, 3))
            view = view[(slice(None),) * axis + (slice(start, None, step),)]
        if view.shape[0] == 1:
            view = view.expand(int(random.integers(0, 4)), -1, -1, -1)
        tensors[f"view_{i}"] = view if i % 3 else view.squeeze()
    path = tmp_path / "model.pt"
    torch.save(tensors, path, _use_new_zipfile_serialization=is_zip)
    for name, found in read_torch(path).items():
        np.testing.assert_array_equal(found, tensors[name].numpy(), strict=True)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_all_protocols_that_torch_can_save_with_are_read(protocol, tmp_path):
    pytest.importorskip("torch")
    pytest.importorskip("omegaconf")
    from tools.record import torch_files_recipe as tool

    value = tool.checkpoint()
    content = tool.saved(value, is_zip=True, pickle_protocol=protocol)
    found, expected = read_torch(written(tmp_path, content)), dict(tool.leaves(value))
    for path, part in leaves(found):
        np.testing.assert_array_equal(part, expected[path])


def memory_of_reading(path: Path) -> int:
    """The most bytes that reading a file has taken at any time."""
    tracemalloc.start()
    try:
        read_torch(path)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("is_zip", [True, False])
def test_memory_is_that_of_the_arrays_and_of_one_storage(is_zip, tmp_path):
    count, keys = 1_000_000, list("abcdefgh")
    stored = np.ones(count, "<f4").tobytes()
    tensors = [storage("FloatStorage", count, key=key) for key in keys]
    content = whole(b"(" + b"".join(tensors) + b"t")
    if is_zip:
        file = zip_form(content, dict.fromkeys(keys, stored))
    else:
        file = older_form(content, dict.fromkeys(keys, (count, stored)))
    path = written(tmp_path, file)
    read_torch(path)  # whatever the first reading takes
    assert memory_of_reading(path) < (len(keys) + 1.1) * len(stored)


# ---- Damage ---------------------------------------------------------------------------------

NUMBERS = np.arange(6, dtype="<f4")
FLOATS = storage("FloatStorage", 6)
PICKLE = ("archive/data.pkl", whole(body(1)))
IMPOSSIBLE = {  # sizes, strides and an offset of a tensor
    "a row too many": ((2, 4), (3, 1), 0),
    "an offset outside": ((), (), 6),
    "a stride outside": ((2,), (6,), 0),
    "a negative size": ((-1,), (1,), 0),
    "a negative stride": ((2,), (-1,), 3),
    "a negative offset": ((2,), (1,), -1),
    "petabytes of one number": ((10**15,), (0,), 0),
    "petabytes in two axes": ((10**8, 10**8), (0, 0), 0),
    "products that overflow": ((5,), (2**60,), 0),
    "products that overflow in two axes": ((3, 3), (2**61, 2**61), 0),
    "axes without strides": ((2, 3), (1,), 0),
    "65 axes": ((1,) * 65, (1,) * 65, 0),
    "a large empty shape": ((0, 2**62, 2**62), (1, 1, 1), 0),
    "a size of floats": ((2.0,), (1,), 0),
    "no offset": ((2,), (1,), None),
}
WRONG = {
    **{name: tensor(FLOATS, *shape) for name, shape in IMPOSSIBLE.items()},
    "a negated view": tensor(FLOATS, (6,), (1,), marks=body({"neg": True})),
    "a tensor outside a tensor": tensor(tensor(FLOATS, (3,), (2,)), (2,), (1,)),
    "a larger storage": storage("FloatStorage", 7),
    "a smaller storage": storage("FloatStorage", 5),
    "a storage of another type": storage("DoubleStorage", 6),
    "a storage with two types": b"(" + FLOATS + storage("IntStorage", 6) + b"t",
    "a negative storage": storage("FloatStorage", -6),
    "a huge storage": storage("FloatStorage", 2**200),
    "a missing storage": storage("FloatStorage", 6, key="1"),
    "a storage outside": storage("FloatStorage", 6, key="../data.pkl"),
    "a view of a storage": storage("FloatStorage", 6, body(("1", 2, 3))),
    "a text as storage": body("0") + b"Q",
}


def both_forms(content: bytes) -> list[bytes]:
    """Files with a pickle and the storage "0" of NUMBERS."""
    stored = NUMBERS.tobytes()
    return [zip_form(content, {"0": stored}), older_form(content, {"0": (6, stored)})]


def zipped(members: list[tuple[str, bytes]], compression: int = zipfile.ZIP_STORED) -> bytes:
    """A zip with these members."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return file.getvalue()


@pytest.mark.parametrize("case", WRONG)
def test_a_tensor_or_a_storage_that_is_not_in_the_file_is_refused(case, tmp_path):
    for file in both_forms(whole(WRONG[case])):
        refusal(read_torch, written(tmp_path, file))


def test_an_expanded_tensor_has_its_shape_without_its_memory(tmp_path):
    for file in both_forms(whole(tensor(FLOATS, (1000, 6), (0, 1)))):
        found = read_torch(written(tmp_path, file))
        np.testing.assert_array_equal(found, np.broadcast_to(NUMBERS, (1000, 6)))
        assert found.strides == (0, 4)


def test_other_bytes_than_0_and_1_are_true(tmp_path):
    content, stored = whole(storage("BoolStorage", 3)), b"\0\2\xff"
    for file in (zip_form(content, {"0": stored}), older_form(content, {"0": (3, stored)})):
        found = read_torch(written(tmp_path, file))
        assert found.view(np.uint8).tolist() == [0, 1, 1]


@pytest.mark.parametrize(
    ("storages", "keys"),
    [
        *[({"0": (count, NUMBERS.tobytes())}, ["0"]) for count in (5, -6)],
        *[({"0": (6, NUMBERS.tobytes())}, keys) for keys in (["1"], ["0", "0"], [], [["0"]], "0")],
    ],
)
def test_damage_after_the_pickle_of_the_older_form_is_refused(storages, keys, tmp_path):
    file = older_form(whole(FLOATS), storages, keys=pickle.dumps(keys, protocol=2))
    refusal(read_torch, written(tmp_path, file))


ZIP = both_forms(whole(FLOATS))[0]
SIZES = ZIP.rindex(b"PK\1\2") + 20  # of the storage: stored, and unpacked
OTHER_KEYS = whole(b"(" + b"".join(storage("FloatStorage", 2500, key=k) for k in "0123") + b"t")
ENCRYPTED = bytearray(zipped([PICKLE]))
ENCRYPTED[ENCRYPTED.index(b"PK\1\2") + 8] |= 1


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (zipped([PICKLE, ("other/data.pkl", b"")]), "other/data.pkl"),
        (zipped([("../archive/data.pkl", b"")]), "../archive"),
        (zipped([("word/document.xml", b"")]), "word/document.xml"),
        (zipped([PICKLE], zipfile.ZIP_DEFLATED), "compressed"),
        (bytes(ENCRYPTED), "encrypted"),
        (ZIP.replace(NUMBERS.tobytes(), NUMBERS[::-1].tobytes()), "CRC"),
        *[
            (ZIP[:SIZES] + struct.pack("<II", *sizes) + ZIP[SIZES + 8 :], "")
            for sizes in [(2**31, 2**31), (25, 25), (24, 23)]
        ],
        *[(zip_form(whole(FLOATS), {"0": bytes(count)}), "24") for count in (0, 23, 25)],
        (zip_form(OTHER_KEYS, {"0": bytes(10_000)}), "fewer bytes"),
        (zip_form(whole(FLOATS), byteorder=b"big"), "little-endian"),
        (b"PK\3\4 and so on", "zip"),
        (b"", "b''"),
        (b"<!DOCTYPE html><title>404</title>", "DOCTYPE"),
        (pickle.dumps({"a": 1}), "x80"),
        (older_form(whole(body(1)), magic=pickle.dumps(1002, protocol=2)), "x80"),
    ],
)
def test_a_damaged_zip_or_a_file_of_another_kind_is_refused(content, word, tmp_path):
    assert word in refusal(read_torch, written(tmp_path, content))


def test_nothing_is_written_for_members_outside_of_the_folder(tmp_path):
    (folder := tmp_path / "folder").mkdir()
    members = [PICKLE, ("../outside", b"1"), ("archive/../../outside", b"1")]
    assert read_torch(path := written(folder, zipped(members))) == 1
    assert [*tmp_path.rglob("*")] == [folder, path]
