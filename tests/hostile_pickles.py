"""Pickles that run a command, try to reach one, are damaged, or fill memory and time."""

import os
import pickle
from collections.abc import Callable
from typing import Any

from torch_pickles import body, called, named, storage, tensor, whole

COMMAND = "touch marker"
ARGUMENT = body(COMMAND)
NAMESPACE = named("argparse", "Namespace") + b")\x81"
SYSTEM = named("os", "system")


def stacked(module: str, name: str) -> bytes:
    """The beginning of a pickle that names a function by two texts on the stack."""
    return b"\x80\x04" + body(module) + body(name) + b"\x93"


class Executes:
    """An object whose pickle calls a function."""

    def __init__(self, function: Callable[..., Any], *arguments: Any, state: Any = None) -> None:
        self.call = (function, arguments, state)

    def __reduce__(self) -> tuple[Any, ...]:
        return self.call


# Python's own reader runs the command of each of these.
RUNNING = {
    "GLOBAL, REDUCE": whole(SYSTEM + b"(" + ARGUMENT + b"tR"),
    "STACK_GLOBAL": stacked("os", "system") + ARGUMENT + b"\x85R.",
    "dotted name": stacked("argparse", "_os.system") + ARGUMENT + b"\x85R.",
    "OBJ": whole(b"(" + SYSTEM + ARGUMENT + b"o"),
    "INST": whole(b"(" + ARGUMENT + b"ios\nsystem\n"),
    "inside a list": whole(b"](K\x01" + called("os", "system", ARGUMENT) + b"e"),
    "as a key": whole(b"}" + called("os", "system", ARGUMENT) + b"K\x01s"),
    "as an argument": whole(called("collections", "OrderedDict", called("os", "system", ARGUMENT))),
    "before a refused opcode": whole(called("os", "system", ARGUMENT) + b"\xff"),
    "without an end": b"\x80\x02" + called("os", "system", ARGUMENT),
    "popped": whole(called("os", "system", ARGUMENT) + b"0K\x01"),
    "eval": whole(called("builtins", "eval", body(f"__import__('os').system('{COMMAND}')"))),
    "exec": whole(called("builtins", "exec", body(f"import os; os.system('{COMMAND}')"))),
    "getattr": whole(
        called("builtins", "getattr", called("importlib", "import_module", body("os")))[:-2]
        + body("system")
        + b"tR"
        + ARGUMENT
        + b"\x85R"
    ),
    "operator": whole(
        called("operator", "methodcaller", body("system"), ARGUMENT)
        + b"("
        + called("builtins", "__import__", body("os"))
        + b"tR"
    ),
    "partial": whole(called("functools", "partial", SYSTEM, ARGUMENT) + b")R"),
    "map": whole(called("builtins", "list", called("builtins", "map", SYSTEM, body([COMMAND])))),
    "nested": whole(called("pickle", "loads", body(whole(called("os", "system", ARGUMENT))))),
    "popen": whole(called("subprocess", "Popen", body(["touch", "marker"]))),
    "runpy": whole(
        called("runpy", "_run_code", body(f"__import__('os').system('{COMMAND}')"), b"}")
    ),
    "codecs": whole(
        called("_codecs", "encode", ARGUMENT, body("latin1"))
        + b"0"
        + called("posix", "system", ARGUMENT)
    ),
    "protocol 0": pickle.dumps(Executes(os.system, COMMAND), protocol=0),
    "protocol 1": pickle.dumps(Executes(os.system, COMMAND), protocol=1),
    "protocol 2": pickle.dumps(Executes(os.system, COMMAND), protocol=2),
    "protocol 4": pickle.dumps([Executes(os.system, COMMAND)], protocol=4),
    "protocol 5": pickle.dumps({"a": Executes(os.system, COMMAND)}, protocol=5),
}
# These try to reach a function through what may be named. Python's reader cannot run most of them.
REACHING = {
    "a dotted name of an allowed module": stacked("collections", "OrderedDict.__init__") + b")R.",
    "globals of a function": stacked("torch._utils", "_rebuild_tensor.__globals__") + b".",
    "numbers as a name": b"\x80\x04K\x01K\x02\x93.",
    "a list as a name": b"\x80\x04]]\x93.",
    "a text that is called": whole(body("os.system") + ARGUMENT + b"\x85R"),
    "a tensor that is called": whole(tensor(storage("FloatStorage", 6), (6,), (1,)) + b")R"),
    "a type that is called": whole(called("builtins", "int", body("1"))),
    "a type that is made": whole(named("torch", "FloatStorage") + b")\x81"),
    "a name from a tuple that is called": whole(
        named("argparse", "Namespace") + b"\x85" + ARGUMENT + b"R"
    ),
    "arguments that are a list": whole(named("argparse", "Namespace") + b"]R"),
    "OBJ": whole(b"(" + named("argparse", "Namespace") + b"o"),
    "INST": whole(b"(iargparse\nNamespace\n"),
    "a storage that is called": whole(storage("FloatStorage", 6) + b")R"),
    "a storage that is made": whole(storage("FloatStorage", 6) + b")\x81"),
    "an object that is called": whole(NAMESPACE + b")R"),
    "a function that is made": whole(named("torch._utils", "_rebuild_tensor") + b")\x81"),
    "a function as a value": whole(named("torch._utils", "_rebuild_tensor")),
    "a class as a value": whole(named("argparse", "Namespace")),
    "a dotted module of an allowed name": stacked("argparse._os", "path.join") + b")R.",
    "a namespace with arguments": whole(called("argparse", "Namespace", ARGUMENT)),
    "keyword arguments": whole(named("argparse", "Namespace") + b")}\x92"),
    "a persistent name": whole(b"Pos\n"),
    "out-of-band buffers": b"\x80\x05\x97.",
    "read-only buffers": b"\x80\x05]\x98.",
    "a byte array": b"\x80\x05\x96\x01" + bytes(7) + b"a.",
    "a constructor": whole(
        called("copyreg", "_reconstructor", named("argparse", "Namespace"),
               named("builtins", "object"), b"N")
    ),
    "state of slots": whole(NAMESPACE + body((None, {"__setstate__": "os"})) + b"b"),
    "state that is a list": whole(NAMESPACE + b"]b"),
    "state of a list": whole(b"]" + body({"append": 1}) + b"b"),
    "state of a text": whole(named("builtins", "dict") + body({"__new__": 1}) + b"b"),
    **{
        f"{kind} of {text}": whole(named(*text.rsplit(".", 1)) + state + b"b")
        for text in ("argparse.Namespace", "collections.OrderedDict", "numpy.dtype",
                     "omegaconf.listconfig.ListConfig", "torch._utils._rebuild_tensor_v2")
        for kind, state in {
            "attributes": body({"__new__": 1, "_call": 1}),
            "slots": body((None, {"__setstate__": 1})),
            "a function": b"N}" + body("_call") + named("torch", "Size") + b"s\x86",
        }.items()
    },
    "state of a tensor": whole(
        tensor(storage("FloatStorage", 6), (6,), (1,)) + body({"__array__": 1}) + b"b"
    ),
    "a namespace in itself": whole(NAMESPACE + b"q\x05}" + body("self") + b"h\x05sb"),
    "a function of a tensor": whole(
        called("torch._tensor", "_rebuild_from_type_v2", SYSTEM, named("torch", "Tensor"),
               ARGUMENT + b"\x85", b"}")
    ),
    "a text as function of a tensor": whole(
        called("torch._tensor", "_rebuild_from_type_v2", body("os.system"),
               named("torch", "Tensor"), ARGUMENT + b"\x85", b"}")
    ),
    "a function of a tensor that calls itself": whole(
        called("torch._tensor", "_rebuild_from_type_v2",
               named("torch._tensor", "_rebuild_from_type_v2"), named("torch", "Tensor"),
               b")", b"}")
    ),
    "bytes of a storage": whole(
        called("torch.storage", "_load_from_bytes", body(whole(called("os", "system", ARGUMENT))))
    ),
    "text that is not Latin-1": whole(called("_codecs", "encode", body("\u0100"), body("latin1"))),
    "a configuration without attributes": whole(
        named("omegaconf.dictconfig", "DictConfig") + b")\x81"
    ),
    "another codec": whole(called("_codecs", "encode", ARGUMENT, body("rot13"))),
    "another encoding": whole(called("_codecs", "encode", ARGUMENT, body("utf_7"))),
    "a number of two parts": whole(
        called("numpy.core.multiarray", "scalar",
               called("numpy", "dtype", body("i4,i4"), b"K\x00K\x01"), body(b"12345678"))
    ),
    "a number of another order": whole(
        called("numpy.core.multiarray", "scalar",
               called("numpy", "dtype", body("f8"), b"K\x00K\x01") + body((3, ">")) + b"b",
               body(b"12345678"))
    ),
    "an array of objects": whole(
        called("numpy.core.multiarray", "scalar",
               called("numpy", "dtype", body("O8"), b"K\x00K\x01"),
               body(pickle.dumps(Executes(os.system, COMMAND))))
    ),
    "an array of another class": whole(
        called("numpy.core.multiarray", "_reconstruct", SYSTEM, body((0,)), body(b"b"))
    ),
    "a factory": whole(called("collections", "defaultdict", SYSTEM) + b"K\x01K\x02s"),
    "a subclass": whole(called("collections", "Counter")),
    "a class of one's own": whole(named("test_torch_files_hostile", "Executes") + b")\x81}b"),
    "an array compared with texts": whole(
        called("numpy.core.multiarray", "_reconstruct", storage("FloatStorage", 6), body((0,)),
               storage("FloatStorage", 6))
    ),
    "arrays as marks": whole(
        tensor(storage("FloatStorage", 6), (6,), (1,), marks=storage("FloatStorage", 6))
    ),
    "an array as text": whole(called("_codecs", "encode", body("a"), storage("FloatStorage", 6))),
    "an array as key": whole(b"}" + storage("FloatStorage", 6) + b"K\x01s"),
    "an array in a set": whole(b"\x8f(" + storage("FloatStorage", 6) + b"\x90"),
}  # fmt: skip
DAMAGED = {
    "nothing": b"",
    "no value": whole(b""),
    "a mark alone": whole(b"("),
    "an end of a list alone": whole(b"e"),
    "a missing memo": whole(b"h\x07"),
    "half of a pair": whole(b"}(K\x01u"),
    "pairs in a list": whole(b"](K\x01K\x02u"),
    "items of a number": whole(b"K\x01(K\x01e"),
    "members of a list": whole(b"](K\x01\x90"),
    "text that is not UTF-8": whole(b"X\x01\0\0\0\xff"),
    "a negative length": whole(b"T\xff\xff\xff\xff"),
    "a length beyond the end": b"\x80\x04\x8d" + b"\xff" * 8 + b"a.",
    "bytes beyond the end": b"\x80\x04\x8e\0\0\0\0\1\0\0\0a.",
    "a negative integer's length": whole(b"\x8b\xff\xff\xff\xff"),
    "an integer of a megabyte": whole(b"\x8b\0\0\x10\0" + bytes(1 << 20)),
    "a name without an end": whole(b"ctorch\n" + b"a" * 5000),
    "a name with lines": b"\x80\x04\x8c\x02a\n\x8c\x02\x1b[\x93.",
}
HUGE = {
    "a memo of 4 billion": whole(b"Nr\xff\xff\xff\xff"),
    "a memo of a million": whole(b"Nr\0\0\x10\0"),
    "a memo of many digits": whole(b"Np999999999999999\n"),
    "nested lists": whole(b"]" * 20_000 + b"a" * 19_999),
    "nested tuples": whole(b")" + b"\x85" * 20_000),
    "nested dictionaries": whole(b"}" + b"K\x01}" * 9_999 + b"s" * 9_999),
    "nested lists with short cuts": whole(b"]q\x00" + b"]q\x01h\x00ah\x01q\x00" * 20_000),
    "a list in itself": whole(b"]q\x00h\x00a"),
    "two lists in each other": whole(b"]q\x00]q\x01h\x00ah\x01a"),
    "a dictionary in itself": whole(b"}q\x00K\x01h\x00s"),
    "doubled lists": whole(b"]" + b"q\x00]h\x00ah\x00a" * 60),
    "doubled tuples": whole(b")" + b"q\x00h\x00\x86" * 60),
}  # fmt: skip
