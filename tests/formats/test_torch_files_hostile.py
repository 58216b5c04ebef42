"""Files of torch.save that try to run something when they are read, or to fill the memory."""

import contextlib
import copyreg
import os
import pickle
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusals import refusal
from torch_pickles import body, called, named, older_form, outcome, storage, tensor, whole, zip_form

from jax_transformer.formats.torch_files import NAMES, read_torch

MODEL = Path("model.pt")
PLACES = ["zip", "older", "magic", "version", "system", "keys"]
COMMAND = "touch marker"
ARGUMENT = body(COMMAND)
RUN = called("os", "system", ARGUMENT)
NAMESPACE = named("argparse", "Namespace") + b")\x81"
FLOATS = storage("FloatStorage", 6)
NUMBERS = called("numpy", "dtype", body("f8"), b"K\x00K\x01")
SCALAR = ("numpy.core.multiarray", "scalar")


class Executes:
    """An object whose pickle runs the command."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (COMMAND,)


def stacked(module: str, name: str) -> bytes:
    """The beginning of a pickle that names a function by two texts on the stack."""
    return b"\x80\x04" + body(module) + body(name) + b"\x93"


# Python's own reader runs the command of each of these.
RUNNING = {
    "GLOBAL, REDUCE": whole(RUN),
    "STACK_GLOBAL": stacked("os", "system") + ARGUMENT + b"\x85R.",
    "dotted name": stacked("argparse", "_os.system") + ARGUMENT + b"\x85R.",
    "OBJ": whole(b"(" + named("os", "system") + ARGUMENT + b"o"),
    "INST": whole(b"(" + ARGUMENT + b"ios\nsystem\n"),
    "as a key": whole(b"}" + RUN + b"K\x01s"),
    "as an argument": whole(called("collections", "OrderedDict", RUN)),
    "before a refused opcode": whole(RUN + b"\xff"),
    "without an end": b"\x80\x02" + RUN,
    "exec": whole(called("builtins", "exec", body(f"import os; os.system('{COMMAND}')"))),
    "nested": whole(called("pickle", "loads", body(whole(RUN)))),
    "codecs": whole(called("_codecs", "encode", ARGUMENT, body("latin1")) + b"0" + RUN),
    **{f"protocol {i}": pickle.dumps([Executes()], protocol=i) for i in (0, 2, 4, 5)},
}
# These try to reach a function through what may be named. Python's reader cannot run most of them.
STATES = {
    "attributes": body({"__new__": 1, "_call": 1}),
    "slots": body((None, {"__setstate__": 1})),
    "a function": b"N}" + body("_call") + named("torch", "Size") + b"s\x86",
}
REACHING = {
    "a dotted name of an allowed module": stacked("collections", "OrderedDict.__init__") + b")R.",
    "globals of a function": stacked("torch._utils", "_rebuild_tensor.__globals__") + b".",
    "numbers as a name": b"\x80\x04K\x01K\x02\x93.",
    "a text that is called": whole(body("os.system") + ARGUMENT + b"\x85R"),
    "a tensor that is called": whole(tensor(FLOATS, (6,), (1,)) + b")R"),
    "a type that is made": whole(named("torch", "FloatStorage") + b")\x81"),
    "a storage that is called": whole(FLOATS + b")R"),
    "an object that is called": whole(NAMESPACE + b")R"),
    "a function as a value": whole(named("torch._utils", "_rebuild_tensor")),
    "a class as a value": whole(named("argparse", "Namespace")),
    "a namespace with arguments": whole(called("argparse", "Namespace", ARGUMENT)),
    "a persistent name": whole(b"Pos\n"),
    "out-of-band buffers": b"\x80\x05\x97.",
    "a constructor": whole(
        called(
            "copyreg",
            "_reconstructor",
            named("argparse", "Namespace"),
            named("builtins", "object"),
            b"N",
        )
    ),
    "state that is a list": whole(NAMESPACE + b"]b"),
    "state of a tensor": whole(tensor(FLOATS, (6,), (1,)) + body({"__array__": 1}) + b"b"),
    **{
        f"{kind} of {text}": whole(named(*text.rsplit(".", 1)) + state + b"b")
        for text in ("argparse.Namespace", "numpy.dtype", "torch._utils._rebuild_tensor_v2")
        for kind, state in STATES.items()
    },
    "a namespace in itself": whole(NAMESPACE + b"q\x05}" + body("self") + b"h\x05sb"),
    "bytes of a storage": whole(called("torch.storage", "_load_from_bytes", body(whole(RUN)))),
    "another codec": whole(called("_codecs", "encode", ARGUMENT, body("rot13"))),
    "a configuration without attributes": whole(
        named("omegaconf.dictconfig", "DictConfig") + b")\x81"
    ),
    "a number of another order": whole(
        called(*SCALAR, NUMBERS + body((3, ">")) + b"b", body(b"12345678"))
    ),
    "an array of objects": whole(
        called(*SCALAR, NUMBERS.replace(body("f8"), body("O8")), body(pickle.dumps(Executes())))
    ),
    "arrays as marks": whole(tensor(FLOATS, (6,), (1,), marks=FLOATS)),
    "an array as key": whole(b"}" + FLOATS + b"K\x01s"),
}
DAMAGED = {
    "nothing": b"",
    "a mark alone": whole(b"("),
    "a missing memo": whole(b"h\x07"),
    "pairs in a list": whole(b"](K\x01K\x02u"),
    "text that is not UTF-8": whole(b"X\x01\0\0\0\xff"),
    "a negative length": whole(b"T\xff\xff\xff\xff"),
    "a length beyond the end": b"\x80\x04\x8d" + b"\xff" * 8 + b"a.",
    "a name without an end": whole(b"ctorch\n" + b"a" * 5000),
}
# These are harmless where nothing looks at the value.
HUGE = {
    "half of a surrogate pair": whole(b"X\x03\0\0\0\xed\xa0\x80"),
    "a memo of 4 billion": whole(b"Nr\xff\xff\xff\xff"),
    "nested lists": whole(b"]" * 20_000 + b"a" * 19_999),
    "two lists in each other": whole(b"]q\x00]q\x01h\x00ah\x01a"),
    "doubled lists": whole(b"]" + b"q\x00]h\x00ah\x00a" * 60),
    "doubled tuples": whole(b")" + b"q\x00h\x00\x86" * 60),
}
HARMLESS = whole(
    b"("
    + tensor(FLOATS, (2, 3), (3, 1))
    + (NAMESPACE + body({"_call": 1, "__class__": "os"}) + b"b")
    + (called("collections", "OrderedDict") + b"K\x01K\x02s" + body({"_metadata": 1}) + b"b")
    + (named("omegaconf.listconfig", "ListConfig") + b")\x81" + body({"_content": [3]}) + b"b")
    + (named("fairseq.meters", "AverageMeter") + b")\x81" + body({"sum": 1.5}) + b"b")
    + called("torch", "Size", body((2, 3)))
    + called(
        *SCALAR,
        NUMBERS + (body((3, "<", None, None, None, -1, -1, 0)) + b"b"),
        called("_codecs", "encode", body("\0" * 6 + "\xf8?"), body("latin1")),
    )
    + named("builtins", "dict")
    + b"t"
)


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


def test_a_refused_name_is_in_the_message_on_one_line_and_not_in_full_if_long():
    MODEL.write_bytes(zip_form(RUNNING["GLOBAL, REDUCE"]))
    assert "os.system" in refusal(read_torch, MODEL)
    MODEL.write_bytes(zip_form(stacked("a\n", "\x1b[" + "a" * 900) + b"."))
    message = refusal(read_torch, MODEL)
    assert "a\\n.\\x1b[" in message
    assert len(message) < 400


@pytest.mark.parametrize("case", [*REACHING, *DAMAGED, *HUGE])
def test_a_pickle_that_misuses_what_may_be_named_is_refused_and_changes_nothing(case):
    for place in ("zip", "older") if case in HUGE else ("zip", "older", "system", "keys"):
        MODEL.write_bytes(file_with({**REACHING, **DAMAGED, **HUGE}[case], place))
        refusal(read_torch, MODEL)
    for place in ("zip", "older"):
        MODEL.write_bytes(file_with(HARMLESS, place))
        tensor, namespace, *others = read_torch(MODEL)
        np.testing.assert_array_equal(tensor, [[0, 0, 0], [0, 0, 0]])
        assert type(namespace) is dict
        assert namespace == {"_call": 1, "__class__": "os"}
        assert others == [{1: 2}, [3], {"sum": 1.5}, (2, 3), 1.5, "builtins.dict"]


def test_codes_of_registered_functions_are_refused():
    copyreg.add_extension("posix", "system", 240)  # Python's reader would call it
    try:
        pickle.loads(content := whole(b"\x82\xf0" + ARGUMENT + b"\x85R"))
        Path("marker").unlink()
        for opcode in (b"\x82\xf0", b"\x83\xf0\0", b"\x84\xf0\0\0\0"):
            for place in PLACES:
                MODEL.write_bytes(file_with(content.replace(b"\x82\xf0", opcode), place))
                refusal(read_torch, MODEL)
    finally:
        copyreg.remove_extension("posix", "system", 240)


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
