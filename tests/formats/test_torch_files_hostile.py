"""Files of torch.save that try to run something when they are read, or to fill the memory."""

import contextlib
import copyreg
import pickle
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hostile_pickles import ARGUMENT, DAMAGED, HUGE, NAMESPACE, REACHING, RUNNING
from refusals import refusal
from torch_pickles import body, called, named, older_form, outcome, storage, tensor, whole, zip_form

from jax_transformer.formats.torch_files import NAMES, read_torch

CONTENT = body({"_content": [3]})
HARMLESS = whole(
    b"("
    + tensor(storage("FloatStorage", 6), (2, 3), (3, 1))
    + (NAMESPACE + body({"_call": 1}) + b"b")
    + (called("collections", "OrderedDict") + b"K\x01K\x02s" + body({"_metadata": 1}) + b"b")
    + (named("omegaconf.listconfig", "ListConfig") + b")\x81" + CONTENT + b"b")
    + called("torch", "Size", body((2, 3)))
    + called(
        "numpy.core.multiarray",
        "scalar",
        called("numpy", "dtype", body("f8"), b"K\x00K\x01")
        + (body((3, "<", None, None, None, -1, -1, 0)) + b"b"),
        called("_codecs", "encode", body("\0" * 6 + "\xf8?"), body("latin1")),
    )
    + b"t"
)
PLACES = ["zip", "older", "magic", "version", "system", "keys"]
MODEL = Path("model.pt")


def file_with(content: bytes, place: str) -> bytes:
    """A file with this pickle in one of the places that pickles have."""
    if place == "zip":
        return zip_form(content, {"0": bytes(24)})
    if place == "older":
        return older_form(content, {"0": (6, bytes(24))})
    return older_form(whole(storage("FloatStorage", 0)), {"0": (0, b"")}, **{place: content})


@pytest.fixture(autouse=True)
def _folder_of_the_marker(tmp_path, monkeypatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    yield
    assert not Path("marker").exists()


def functions_called(call: Callable[[], object]) -> tuple[set[str], set[str]]:
    """The built-in functions, and the files of other functions, that a call has called."""
    built_in: set[str] = set()
    files: set[str] = set()

    def profile(frame: Any, event: str, argument: Any) -> None:
        if event == "c_call":
            built_in.add(f"{argument.__module__}.{argument.__qualname__}")
        elif event == "call":
            files.add(frame.f_code.co_filename)

    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(None)
    return built_in - {"sys.setprofile"}, files


@pytest.mark.parametrize("case", RUNNING)
def test_pythons_own_reader_runs_the_commands_that_are_refused_here(case):
    with contextlib.suppress(Exception):
        pickle.loads(RUNNING[case])
    end = time.monotonic() + 10  # not every case waits for its command
    while not Path("marker").exists():
        assert time.monotonic() < end
    Path("marker").unlink()


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("case", RUNNING)
def test_a_pickle_that_runs_a_command_is_refused_before_anything_is_called(case, place):
    MODEL.write_bytes(zip_form(whole(body(1))))
    read_torch(MODEL)  # imports the encoding of names in a zip
    MODEL.write_bytes(file_with(RUNNING[case], place))
    modules, messages = {*sys.modules}, []
    built_in, files = functions_called(lambda: messages.append(refusal(read_torch, MODEL)))
    assert {*sys.modules} == modules
    assert not any("importlib" in file or "subprocess" in file for file in files)
    outside = {name for name in built_in if name.partition(".")[0] in ("posix", "nt", "importlib")}
    assert outside <= {"posix.stat", "posix.fstat", "posix.fspath"}
    assert built_in.isdisjoint(f"builtins.{name}" for name in ("exec", "eval", "__import__"))
    assert messages[0].startswith("model.pt: ")


def test_a_refused_name_is_in_the_message_on_one_line_and_not_in_full_if_long(tmp_path):
    MODEL.write_bytes(zip_form(RUNNING["GLOBAL, REDUCE"]))
    assert "os.system" in refusal(read_torch, MODEL)
    MODEL.write_bytes(zip_form(DAMAGED["a name with lines"]))
    message = refusal(read_torch, MODEL)
    assert "\x1b" not in message
    assert "a\\n.\\x1b[" in message
    MODEL.write_bytes(zip_form(whole(b"ctorch\n" + b"a" * 900 + b"\n")))
    assert len(refusal(read_torch, MODEL)) < 400


@pytest.mark.parametrize("place", ["zip", "older"])
@pytest.mark.parametrize("case", [*REACHING, *DAMAGED, *HUGE])
def test_a_pickle_that_misuses_what_may_be_named_is_refused_and_changes_nothing(case, place):
    MODEL.write_bytes(file_with({**REACHING, **DAMAGED, **HUGE}[case], place))
    refusal(read_torch, MODEL)
    MODEL.write_bytes(file_with(HARMLESS, place))
    tensor, *others = read_torch(MODEL)
    np.testing.assert_array_equal(tensor, [[0, 0, 0], [0, 0, 0]])
    assert others == [{"_call": 1}, {1: 2}, [3], (2, 3), 1.5]


@pytest.mark.parametrize("place", ["system", "keys"])
@pytest.mark.parametrize("case", [*REACHING, *DAMAGED])
def test_the_small_pickles_of_the_older_form_name_nothing(case, place):
    MODEL.write_bytes(file_with({**REACHING, **DAMAGED}[case], place))
    refusal(read_torch, MODEL)


def test_codes_of_registered_functions_are_refused():
    copyreg.add_extension("posix", "system", 240)  # Python's reader would call it
    try:
        pickle.loads(content := whole(b"\x82\xf0" + ARGUMENT + b"\x85R"))
        Path("marker").unlink()
        for opcode in (b"\x82\xf0", b"\x83\xf0\0", b"\x84\xf0\0\0\0"):
            for place in PLACES:
                hostile = content.replace(b"\x82\xf0", opcode)
                MODEL.write_bytes(file_with(hostile, place))
                refusal(read_torch, MODEL)
    finally:
        copyreg.remove_extension("posix", "system", 240)


def test_attributes_with_names_of_methods_are_items_of_a_plain_dictionary():
    state = {"__class__": "os", "__setstate__": "system", "__dict__": 1, "__reduce__": [1]}
    for place in ("zip", "older"):
        content = whole(b"(" + NAMESPACE + body(state) + b"b" + storage("FloatStorage", 6) + b"t")
        MODEL.write_bytes(file_with(content, place))
        found = read_torch(MODEL)[0]
        assert type(found) is dict
        assert found == state


def test_names_that_are_not_called_become_texts():
    MODEL.write_bytes(zip_form(whole(b"(" + named("builtins", "dict") * 2 + b"t")))
    assert read_torch(MODEL) == ("builtins.dict", "builtins.dict")


def test_a_text_that_cannot_be_printed_is_refused():
    for content in (b"X\x03\0\0\0\xed\xa0\x80", b"}X\x03\0\0\0\xed\xa0\x80Ns"):
        MODEL.write_bytes(zip_form(whole(content)))
        refusal(read_torch, MODEL)


def test_objects_of_fairseq_become_dictionaries():
    content = named("fairseq.meters", "AverageMeter") + b")\x81" + body({"sum": 1.5}) + b"b"
    MODEL.write_bytes(zip_form(whole(content)))
    assert read_torch(MODEL) == {"sum": 1.5}


def parts_of_programs() -> list[bytes]:
    """Opcodes, and values that fit the arguments of some functions."""
    single = b"(N\x88\x89)]}\x8f0122tlde\x91\x90asuR\x81bQ\x94\x85\x86\x87"
    values = [0, 1, -1, 2, 2**70, 0.5, "a", "latin1", b"b", (0,), "<f4", "0", (6,), (1,), [1]]
    values += ["_parent", "_content", {"_content": 1}]
    numpy_state = body((3, "<", None, None, None, -1, -1, 0))
    return [
        *(bytes([opcode]) for opcode in single),
        *map(body, values),
        *(opcode + bytes([i]) for opcode in (b"q", b"h") for i in range(4)),
        *(b")R", b")\x81", b"}b", storage("FloatStorage", 6), storage("BoolStorage", 24)),
        body("f4") + b"K\x00K\x01\x87R" + numpy_state + b"b",
    ]


def test_random_programs_give_plain_values_or_one_line():
    random, outcomes = np.random.default_rng(3), []
    parts, names = parts_of_programs(), [named(*name.rsplit(".", 1)) for name in NAMES]
    for _ in range(500):
        pools = [parts if random.random() < 0.75 else names for _ in range(random.integers(1, 30))]
        program = b"".join(pool[random.integers(len(pool))] for pool in pools)
        MODEL.write_bytes(zip_form(whole(b"K\x01" * 3 + program), {"0": bytes(24)}))
        outcomes.append(outcome(MODEL))
    assert outcomes.count("read") > 25
    assert not any("\n" in line for line in outcomes)
