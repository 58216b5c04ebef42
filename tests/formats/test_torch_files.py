"""Files of torch.save: what torch wrote, the same files damaged, and files that attack."""

import json
import os
import pickle
import struct
import sys
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
    called,
    named,
    older_form,
    storage,
    tensor,
    whole,
    written,
    zip_form,
    zipped,
)

from jax_transformer.errors import InputError
from jax_transformer.formats import torch_files
from jax_transformer.formats.torch_files import read_torch

FORMS = ["zip", "older"]
VALUES = ["tensors", "plain", "checkpoint"]


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Each part that is not a container, by its path; empty containers too."""
    if isinstance(value, dict | list | tuple) and value:
        assert type(value) in (dict, list, tuple)
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for key, part in pairs:
            yield from leaves(part, f"{path}/{key!r}")
    else:
        yield path, value


def check_plain(value: Any) -> None:
    """Fail for anything but plain values and arrays whose numbers can be read."""
    for _, part in leaves(value):
        if isinstance(part, np.ndarray):
            assert part.dtype.kind in "biuf"
            np.count_nonzero(part)
        else:
            assert type(part) in (dict, list, tuple, str, bytes, bool, int, float, type(None))


def outcome(path: Path) -> str:
    """The refusal of a file, or "read" if it gives plain values and arrays."""
    try:
        check_plain(read_torch(path))
    except InputError as error:
        return str(error)
    return "read"


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
def test_a_file_that_is_cut_or_has_wrong_bytes_is_refused_or_gives_plain_values(form, tmp_path):
    recorded, random = reference("torch_files", "recorded"), np.random.default_rng(7)
    content = recorded[f"tensors/{form}"]
    for length in {*range(0, 64, 7), *range(64, len(content), 997), len(content) - 1}:
        assert "model.pt: " in refusal(read_torch, written(tmp_path, content[:length]))
    outcomes = []
    for content in (recorded[f"{name}/{form}"] for name in VALUES for _ in range(50)):
        damaged = content.copy()
        places = random.integers(len(content), size=random.integers(1, 4))
        damaged[places] = random.integers(256, size=len(places), dtype=np.uint8)
        outcomes.append(outcome(written(tmp_path, damaged)))
    assert 0 < outcomes.count("read") < len(outcomes)
    assert not any("\n" in line for line in outcomes)


def test_random_views_are_those_of_torch(tmp_path):
    torch = pytest.importorskip("torch")
    random, tensors = np.random.default_rng(0), {}
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
    torch.save(tensors, path)
    for name, found in read_torch(path).items():
        np.testing.assert_array_equal(found, tensors[name].numpy(), strict=True)


@pytest.mark.parametrize("protocol", [3, 5])
def test_other_protocols_that_torch_can_save_with_are_read(protocol, tmp_path):
    pytest.importorskip("torch")
    pytest.importorskip("omegaconf")
    from tools.record import torch_files_recipe as tool

    value = tool.checkpoint()
    content = tool.saved(value, is_zip=True, pickle_protocol=protocol)
    found, expected = read_torch(written(tmp_path, content)), dict(tool.leaves(value))
    for path, part in leaves(found):
        np.testing.assert_array_equal(part, expected[path])


def test_memory_is_that_of_the_arrays_and_of_one_storage(tmp_path):
    count, keys = 1_000_000, list("abcd")
    stored = np.ones(count, "<f4").tobytes()
    tensors = [storage("FloatStorage", count, key=key) for key in keys]
    content = whole(b"(" + b"".join(tensors) + b"t")
    path = written(tmp_path, zip_form(content, dict.fromkeys(keys, stored)))
    tracemalloc.start()
    read_torch(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < (len(keys) + 1.2) * len(stored)


# ---- Damage ---------------------------------------------------------------------------------

NUMBERS = np.arange(6, dtype="<f4")
FLOATS = storage("FloatStorage", 6)
PICKLE = {"archive/data.pkl": whole(body(1))}
IMPOSSIBLE = [  # sizes, strides and an offset of a tensor
    ((2, 4), (3, 1), 0),
    ((), (), 6),
    ((2,), (6,), 0),
    ((-1,), (1,), 0),
    ((2,), (-1,), 3),
    ((10**8, 10**8), (0, 0), 0),  # petabytes of one number
    ((3, 3), (2**61, 2**61), 0),  # products that overflow
    ((2, 3), (1,), 0),
    ((1,) * 65, (1,) * 65, 0),
    ((0, 2**62, 2**62), (1, 1, 1), 0),
    ((2,), (1,), None),
]
WRONG = [
    *(tensor(FLOATS, *shape) for shape in IMPOSSIBLE),
    tensor(FLOATS, (6,), (1,), marks=body({"neg": True})),
    tensor(tensor(FLOATS, (3,), (2,)), (2,), (1,)),
    *(storage("FloatStorage", count) for count in (5, 7, -6, 2**200)),
    storage("DoubleStorage", 6),
    b"(" + FLOATS + storage("IntStorage", 6) + b"t",
    storage("FloatStorage", 6, key="../data.pkl"),
    storage("FloatStorage", 6, body(("1", 2, 3))),
    body("0") + b"Q",
]


def both_forms(content: bytes) -> list[bytes]:
    """Files with a pickle and the storage "0" of NUMBERS."""
    stored = NUMBERS.tobytes()
    return [zip_form(content, {"0": stored}), older_form(content, {"0": (6, stored)})]


def test_a_tensor_or_a_storage_that_is_not_in_the_file_is_refused(tmp_path):
    for content in WRONG:
        for file in both_forms(whole(content)):
            refusal(read_torch, written(tmp_path, file))


def test_an_expanded_tensor_takes_no_memory_and_other_bytes_than_0_and_1_are_true(tmp_path):
    for file in both_forms(whole(tensor(FLOATS, (1000, 6), (0, 1)))):
        found = read_torch(written(tmp_path, file))
        np.testing.assert_array_equal(found, np.broadcast_to(NUMBERS, (1000, 6)))
        assert found.strides == (0, 4)
    file = zip_form(whole(storage("BoolStorage", 3)), {"0": b"\0\2\xff"})
    assert read_torch(written(tmp_path, file)).view(np.uint8).tolist() == [0, 1, 1]


@pytest.mark.parametrize(
    ("count", "keys"), [(5, ["0"]), (-6, ["0"]), (6, ["1"]), (6, ["0", "0"]), (6, []), (6, "0")]
)
def test_damage_after_the_pickle_of_the_older_form_is_refused(count, keys, tmp_path):
    storages = {"0": (count, NUMBERS.tobytes())}
    file = older_form(whole(FLOATS), storages, keys=pickle.dumps(keys, protocol=2))
    refusal(read_torch, written(tmp_path, file))


ZIP = both_forms(whole(FLOATS))[0]
SIZES = ZIP.rindex(b"PK\1\2") + 20  # of the storage: stored, and unpacked
OTHER_KEYS = whole(b"(" + b"".join(storage("FloatStorage", 2500, key=k) for k in "0123") + b"t")
ENCRYPTED = bytearray(zipped(PICKLE))
ENCRYPTED[ENCRYPTED.index(b"PK\1\2") + 8] |= 1
OTHER_FILES = [
    (zipped({**PICKLE, "other/data.pkl": b""}), "other/data.pkl"),
    (zipped({"../archive/data.pkl": b""}), "../archive"),
    (zipped(PICKLE, zipfile.ZIP_DEFLATED), "compressed"),
    (bytes(ENCRYPTED), "encrypted"),
    (ZIP.replace(NUMBERS.tobytes(), NUMBERS[::-1].tobytes()), "CRC"),
    (ZIP[:SIZES] + struct.pack("<II", 2**31, 2**31) + ZIP[SIZES + 8 :], ""),
    (zip_form(whole(FLOATS), {"0": bytes(25)}), "24"),
    (zip_form(OTHER_KEYS, {"0": bytes(10_000)}), "fewer bytes"),
    (zip_form(whole(FLOATS), byteorder=b"big"), "little-endian"),
    (b"PK\3\4 and so on", "zip"),
    (b"", "b''"),
    (b"<!DOCTYPE html><title>404</title>", "DOCTYPE"),
    (pickle.dumps({"a": 1}), "x80"),
]


def test_a_damaged_zip_or_a_file_of_another_kind_is_refused(tmp_path):
    for content, word in OTHER_FILES:
        assert word in refusal(read_torch, written(tmp_path, content))


# ---- Files that try to run something, or to fill the memory ---------------------------------

PLACES = ["zip", "older", "magic", "system", "keys"]
COMMAND = "touch marker"
ARGUMENT = body(COMMAND)
RUN = called("os", "system", ARGUMENT)
NAMESPACE = named("argparse", "Namespace") + b")\x81"
NUMBER = called("numpy", "dtype", body("f8"), b"K\x00K\x01")
SCALAR = ("numpy.core.multiarray", "scalar")


class Executes:
    """An object whose pickle runs the command."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (COMMAND,)


def stacked(module: str, name: str) -> bytes:
    """The beginning of a pickle that names a function by two texts on the stack."""
    return b"\x80\x04" + body(module) + body(name) + b"\x93"


RUNNING = {  # Python's own reader runs the command of each of these
    "GLOBAL, REDUCE": whole(RUN),
    "STACK_GLOBAL": stacked("os", "system") + ARGUMENT + b"\x85R.",
    "dotted name": stacked("argparse", "_os.system") + ARGUMENT + b"\x85R.",
    "OBJ": whole(b"(" + named("os", "system") + ARGUMENT + b"o"),
    "INST": whole(b"(" + ARGUMENT + b"ios\nsystem\n"),
    "before a refused opcode": whole(RUN + b"\xff"),
    "without an end": b"\x80\x02" + RUN,
    "exec": whole(called("builtins", "exec", body(f"import os; os.system('{COMMAND}')"))),
    "nested": whole(called("pickle", "loads", body(whole(RUN)))),
    **{f"protocol {i}": pickle.dumps([Executes()], protocol=i) for i in (0, 5)},
}
STATES = [
    body({"__new__": 1, "_call": 1}),
    body((None, {"__setstate__": 1})),
    b"N}" + body("_call") + named("torch", "Size") + b"s\x86",
]
MISUSES = [
    # These try to reach a function through what may be named.
    stacked("collections", "OrderedDict.__init__") + b")R.",
    stacked("torch._utils", "_rebuild_tensor.__globals__") + b".",
    whole(body("os.system") + ARGUMENT + b"\x85R"),
    whole(tensor(FLOATS, (6,), (1,)) + b")R"),
    whole(named("torch", "FloatStorage") + b")\x81"),
    whole(NAMESPACE + b")R"),
    whole(named("torch._utils", "_rebuild_tensor")),
    whole(named("argparse", "Namespace")),
    whole(called("argparse", "Namespace", ARGUMENT)),
    whole(b"Pos\n"),
    b"\x80\x05\x97.",
    *(whole(code + ARGUMENT + b"\x85R") for code in (b"\x82\xf0", b"\x83\xf0\0")),
    whole(NAMESPACE + b"]b"),
    whole(tensor(FLOATS, (6,), (1,)) + body({"__array__": 1}) + b"b"),
    *(
        whole(named(*text.rsplit(".", 1)) + state + b"b")
        for text in ("argparse.Namespace", "numpy.dtype", "torch._utils._rebuild_tensor_v2")
        for state in STATES
    ),
    whole(NAMESPACE + b"q\x05}" + body("self") + b"h\x05sb"),
    whole(called("torch.storage", "_load_from_bytes", body(whole(RUN)))),
    whole(called("_codecs", "encode", ARGUMENT, body("rot13"))),
    whole(called(*SCALAR, NUMBER + body((3, ">")) + b"b", body(b"12345678"))),
    whole(called(*SCALAR, NUMBER.replace(body("f8"), body("O8")), body(pickle.dumps(Executes())))),
    whole(tensor(FLOATS, (6,), (1,), marks=FLOATS)),
    whole(b"}" + FLOATS + b"K\x01s"),
    # These are damaged.
    b"",
    whole(b"("),
    whole(b"h\x07"),
    whole(b"X\x01\0\0\0\xff"),
    b"\x80\x04\x8d" + b"\xff" * 8 + b"a.",
    whole(b"ctorch\n" + b"a" * 5000),
]
HUGE = [  # harmless where nothing looks at the value
    whole(b"X\x03\0\0\0\xed\xa0\x80"),  # half of a surrogate pair
    whole(b"Nr\xff\xff\xff\xff"),  # a memo of 4 billion
    whole(b"]" * 20_000 + b"a" * 19_999),  # nested lists
    whole(b"]q\x00]q\x01h\x00ah\x01a"),  # two lists in each other
    whole(b")" + b"q\x00h\x00\x86" * 60),  # doubled tuples
]


def file_with(content: bytes, place: str) -> bytes:
    """A file with this pickle in one of the places that pickles have."""
    if place == "zip":
        return zip_form(content, {"0": bytes(24)})
    if place == "older":
        return older_form(content, {"0": (6, bytes(24))})
    return older_form(whole(storage("FloatStorage", 0)), {"0": (0, b"")}, **{place: content})


@pytest.fixture
def path(tmp_path, monkeypatch) -> Iterator[Path]:
    """A file in the working folder, in which no command may leave its marker."""
    monkeypatch.chdir(tmp_path)
    yield Path("model.pt")
    assert not Path("marker").exists()


@pytest.mark.parametrize("case", RUNNING)
def test_a_pickle_that_runs_a_command_is_refused_before_anything_is_called(case, path):
    written(Path(), zip_form(whole(body(1))))
    read_torch(path)  # imports the encoding of names in a zip
    for place in PLACES:
        written(Path(), file_with(RUNNING[case], place))
        modules, called = {*sys.modules}, set[str]()

        def profile(frame: Any, event: str, argument: Any, called: set[str] = called) -> None:
            if event == "c_call":
                called.add(f"{argument.__module__}.{argument.__qualname__}")

        sys.setprofile(profile)
        try:
            message = refusal(read_torch, path)
        finally:
            sys.setprofile(None)
        assert {*sys.modules} == modules
        outside = {name for name in called if name.partition(".")[0] in ("posix", "nt")}
        assert outside <= {"posix.stat", "posix.fstat", "posix.fspath"}
        assert called.isdisjoint(f"builtins.{name}" for name in ("exec", "eval", "__import__"))
        assert message.startswith("model.pt: ")
        if case == "GLOBAL, REDUCE" and place in ("zip", "older"):
            assert "os.system" in message


def test_a_pickle_that_misuses_what_may_be_named_is_refused_and_changes_nothing(path, monkeypatch):
    recorded = reference("torch_files", "recorded")
    before = read_torch(written(Path(), recorded["checkpoint/zip"]))
    monkeypatch.setattr(torch_files, "_LARGEST", 10_000)
    for content in (*MISUSES, *HUGE):
        for place in ("zip", "older") if content in HUGE else ("zip", "older", "system", "keys"):
            written(Path(), file_with(content, place))
            assert len(refusal(read_torch, path)) < 400
    after = read_torch(written(Path(), recorded["checkpoint/zip"]))
    assert repr(after) == repr(before)
