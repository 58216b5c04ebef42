"""Files of torch.save with tensors or zips that cannot be, and files of other kinds."""

import io
import pickle
import re
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
from refusals import refusal
from torch_pickles import body, older_form, storage, tensor, whole, written, zip_form

from jax_transformer.formats.torch_files import read_torch

NUMBERS = np.arange(6, dtype="<f4")
FLOATS = storage("FloatStorage", 6)


def both_forms(content: bytes) -> list[bytes]:
    """Files with a pickle and the storage "0" of NUMBERS."""
    stored = NUMBERS.tobytes()
    return [zip_form(content, {"0": stored}), older_form(content, {"0": (6, stored)})]


def check_refused(folder: Path, content: bytes) -> None:
    """Both forms are refused, for the same reason."""
    first, second = (refusal(read_torch, written(folder, file)) for file in both_forms(content))
    assert first == second


IMPOSSIBLE = {
    "a row too many": ((2, 4), (3, 1), 0),
    "an offset too far": ((6,), (1,), 1),
    "an offset outside": ((), (), 6),
    "a stride outside": ((2,), (6,), 0),
    "a negative size": ((-1,), (1,), 0),
    "a negative stride": ((2,), (-1,), 3),
    "a negative offset": ((2,), (1,), -1),
    "petabytes of one number": ((10**15,), (0,), 0),
    "petabytes in two axes": ((10**8, 10**8), (0, 0), 0),
    "an integer of many digits": ((2**250, 2), (0, 0), 0),
    "axes without strides": ((2, 3), (1,), 0),
    "65 axes": ((1,) * 65, (1,) * 65, 0),
    "a large empty shape": ((0, 2**62, 2**62), (1, 1, 1), 0),
    "a size of floats": ((2.0,), (1,), 0),
    "a nested size": (((2,),), (1,), 0),
    "no offset": ((2,), (1,), None),
}


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_a_tensor_that_is_not_in_its_storage_is_refused(case, tmp_path):
    size, stride, offset = IMPOSSIBLE[case]
    check_refused(tmp_path, whole(tensor(FLOATS, size, stride, offset)))


def test_strides_whose_products_overflow_are_refused(tmp_path):
    """NumPy's own check takes 4 times 2^62 bytes for 0."""
    check_refused(tmp_path, whole(tensor(FLOATS, (5,), (2**60,))))
    check_refused(tmp_path, whole(tensor(FLOATS, (1, 2), (2**62, 3))))
    check_refused(tmp_path, whole(tensor(FLOATS, (3, 3), (2**61, 2**61))))


def test_an_expanded_tensor_has_its_shape_without_its_memory(tmp_path):
    for file in both_forms(whole(tensor(FLOATS, (1000, 6), (0, 1)))):
        found = read_torch(written(tmp_path, file))
        np.testing.assert_array_equal(found, np.broadcast_to(NUMBERS, (1000, 6)))
        assert found.strides == (0, 4)


def test_a_negated_view_is_refused(tmp_path):
    check_refused(tmp_path, whole(tensor(FLOATS, (6,), (1,), marks=body({"neg": True}))))


def test_a_tensor_on_another_tensor_instead_of_a_storage_stays_inside_it(tmp_path):
    check_refused(tmp_path, whole(tensor(tensor(FLOATS, (3,), (2,)), (6,), (1,))))
    check_refused(tmp_path, whole(tensor(tensor(FLOATS, (3,), (2,)), (2,), (1,))))
    check_refused(tmp_path, whole(tensor(tensor(FLOATS, (3,), (1,)), (4,), (1,))))


WRONG_STORAGES = {
    "larger": storage("FloatStorage", 7),
    "smaller": storage("FloatStorage", 5),
    "of another type": storage("DoubleStorage", 6),
    "negative": storage("FloatStorage", -6),
    "huge": storage("FloatStorage", 2**200),
    "missing": storage("FloatStorage", 6, key="1"),
    "outside": storage("FloatStorage", 6, key="../data.pkl"),
    "unknown": b"(" + body("module") + body("a") * 4 + b"tQ",
    "a text": body("0") + b"Q",
    "a number as key": FLOATS.replace(body("0"), body(0)),
}


@pytest.mark.parametrize("case", WRONG_STORAGES)
def test_a_storage_that_is_not_in_the_file_is_refused(case, tmp_path):
    for file in both_forms(whole(WRONG_STORAGES[case])):
        refusal(read_torch, written(tmp_path, file))


def test_numbers_of_a_big_endian_machine_are_refused(tmp_path):
    for order, word in ((b"big", "little-endian"), (b"little", "'archive/data/0'")):
        file = zip_form(whole(FLOATS), byteorder=order)
        assert word in refusal(read_torch, written(tmp_path, file))


@pytest.mark.parametrize("length", [0, 1, 23, 25])
def test_a_member_of_another_size_than_its_storage_is_refused(length, tmp_path):
    file = zip_form(whole(FLOATS), {"0": bytes(length)})
    assert "24" in refusal(read_torch, written(tmp_path, file))


def test_the_order_of_a_zip_without_a_record_of_it_is_little(tmp_path):
    found = read_torch(written(tmp_path, both_forms(whole(FLOATS))[0]))
    np.testing.assert_array_equal(found, NUMBERS)


def test_other_bytes_than_0_and_1_are_true(tmp_path):
    content, stored = whole(storage("BoolStorage", 3)), b"\0\2\xff"
    for file in (zip_form(content, {"0": stored}), older_form(content, {"0": (3, stored)})):
        found = read_torch(written(tmp_path, file))
        assert found.view(np.uint8).tolist() == [0, 1, 1]


def test_a_view_of_a_storage_in_the_older_form_is_refused(tmp_path):
    whole_storage, view = (storage("FloatStorage", 6, body(part)) for part in (None, ("1", 2, 3)))
    found = read_torch(written(tmp_path, both_forms(whole(whole_storage))[1]))
    np.testing.assert_array_equal(found, NUMBERS)
    assert "storage" in refusal(read_torch, written(tmp_path, both_forms(whole(view))[1]))


def test_damage_after_the_pickle_of_the_older_form_is_refused(tmp_path):
    content, stored = whole(FLOATS), NUMBERS.tobytes()
    for storages, keys in [
        ({"0": (5, stored)}, ["0"]),
        ({"0": (-6, stored)}, ["0"]),
        ({"0": (6, stored)}, ["1"]),
        ({"0": (6, stored)}, ["0", "0"]),
        ({"0": (6, stored)}, []),
        ({"0": (6, stored)}, [["0"]]),
        ({"0": (6, stored)}, "0"),
    ]:
        file = older_form(content, storages, keys=pickle.dumps(keys, protocol=2))
        refusal(read_torch, written(tmp_path, file))
    mixed = whole(b"(" + FLOATS + storage("IntStorage", 6) + b"t")
    refusal(read_torch, written(tmp_path, both_forms(mixed)[1]))


@pytest.mark.parametrize("part", ["magic", "version"])
def test_another_beginning_of_the_older_form_is_refused(part, tmp_path):
    other = {part: pickle.dumps(1002, protocol=2)}
    file = older_form(whole(body(1)), **other)  # pyright: ignore[reportArgumentType]
    refusal(read_torch, written(tmp_path, file))


def zipped(members: list[tuple[str, bytes]], compression: int = zipfile.ZIP_STORED) -> bytes:
    """A zip with these members."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return file.getvalue()


PICKLE = ("archive/data.pkl", whole(body(1)))


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(
    ("members", "word"),
    [
        ([PICKLE, PICKLE], "data.pkl"),
        ([PICKLE, ("other/data.pkl", b"")], "other/data.pkl"),
        ([("../archive/data.pkl", b"")], "../archive"),
        ([("a.npy", b"")], "a.npy"),
        ([("word/document.xml", b"")], "word/document.xml"),
    ],
)
def test_a_zip_with_other_members_is_refused(members, word, tmp_path):
    assert word in refusal(read_torch, written(tmp_path, zipped(members)))


def test_nothing_is_written_for_members_outside_of_the_folder(tmp_path):
    (folder := tmp_path / "folder").mkdir()
    members = [PICKLE, ("../outside", b"1"), ("archive/../../outside", b"1")]
    assert read_torch(path := written(folder, zipped(members))) == 1
    assert [*tmp_path.rglob("*")] == [folder, path]


def test_compressed_and_encrypted_members_are_refused(tmp_path):
    content = zipped([PICKLE, ("archive/data/0", bytes(10**6))], zipfile.ZIP_DEFLATED)
    assert "compressed" in refusal(read_torch, written(tmp_path, content))
    content = bytearray(zipped([PICKLE]))
    content[content.index(b"PK\1\2") + 8] |= 1
    assert "encrypted" in refusal(read_torch, written(tmp_path, content))


def test_sizes_that_exceed_the_zip_are_refused(tmp_path):
    content = both_forms(whole(FLOATS))[0]
    place = content.rindex(b"PK\1\2") + 20  # of the storage's two sizes
    for sizes in [(2**31, 2**31), (25, 25), (23, 23), (24, 23)]:  # stored, and unpacked
        damaged = content[:place] + struct.pack("<II", *sizes) + content[place + 8 :]
        refusal(read_torch, written(tmp_path, damaged))


def test_a_number_that_has_changed_is_noticed_in_a_zip(tmp_path):
    content = both_forms(whole(FLOATS))[0].replace(NUMBERS.tobytes(), NUMBERS[::-1].tobytes())
    assert "CRC" in refusal(read_torch, written(tmp_path, content))


def test_storages_that_share_a_place_cannot_exceed_the_file(tmp_path):
    keys = [str(i) for i in range(9)]
    stored = [storage("FloatStorage", 2500, key=key) for key in keys]
    file = zip_form(whole(b"(" + b"".join(stored) + b"t"), {"0": bytes(10_000)})
    assert "fewer bytes" in refusal(read_torch, written(tmp_path, file))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        struct.pack("<Q", 60) + b'{"embedding":{"dtype":"F32"}}',
        b"<!DOCTYPE html><title>404</title>",
        b'{"error": "not found"}',
        b"\x1f\x8b\x08\x00",
        pickle.dumps({"a": 1}),
        b"\x93NUMPY\x01\x00",
    ],
)
def test_of_a_file_of_another_kind_the_beginning_is_shown(content, tmp_path):
    assert repr(content[:8])[:-1] in refusal(read_torch, written(tmp_path, content))


def test_a_zip_without_its_end_is_refused(tmp_path):
    assert "zip" in refusal(read_torch, written(tmp_path, b"PK\3\4 and so on"))


def test_a_missing_file_and_a_folder_are_named(tmp_path):
    with pytest.raises(OSError, match=r"missing\.pt"):
        read_torch(tmp_path / "missing.pt")
    with pytest.raises(OSError, match=re.escape(tmp_path.name)):
        read_torch(str(tmp_path))
