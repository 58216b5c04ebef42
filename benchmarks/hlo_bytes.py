"""The bytes and FLOPs of the kernels of a compiled XLA program, from its HLO text.

    for kernel in kernels(jax.jit(f).lower(x).compile().as_text()): ...

A kernel is a fusion or a product (dot, convolution, a library's call). It reads each operand and
writes its result once, at their logical sizes. It reads only the part of an operand that it slices
or gathers, and writes only the part of a buffer that it updates in place. A loop's body is
multiplied by the loop's trip count if the text gives it, else counted once. Copies, prefetches,
transfers between devices and all other operations are left out.
"""

import math
import re
from collections.abc import Iterator
from typing import NamedTuple


class Kernel(NamedTuple):
    """A fusion or product, and the sums over all its runs."""

    runs: int
    bytes: int
    flops: int  # of dots and of cuBLAS's products; convolutions and cuDNN's are not counted


class _Instruction(NamedTuple):
    name: str
    shape: str
    opcode: str
    operands: list[str]
    attributes: str
    is_root: bool


_Computation = dict[str, _Instruction]

_COMPUTATION = re.compile(r"^(ENTRY )?%([\w.\-]+) \(.*\{$")
_INSTRUCTION = re.compile(r"^\s+(ROOT )?%([\w.\-]+) = (.*)$")
_ARRAY = re.compile(r"\b([a-z]+\d*[a-z0-9]*)\[([\d,]*)\]")
_LIBRARY_CALL = re.compile(r'custom_call_target="[^"]*(cublas|cudnn|triton|tpu_custom_call)')
_CALLS = re.compile(r"\b(?:calls|to_apply)=%([\w.\-]+)")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"')
_ELEMENTWISE = ("convert", "add", "subtract", "multiply", "divide", "negate", "exponential")
# In a dot's attributes, and in the settings of cuBLAS's call.
_CONTRACTED = re.compile(r"lhs_contracting_dim(?:s=\{|ensions\":\[)([\d,\"]*)[\]}]")


def kernels(text: str) -> list[Kernel]:
    """Return the kernels of an optimized program, `compiled.as_text()`."""
    computations, entry = _parse(text)
    return list(_kernels_in(entry, computations, 1))


def reduced_bytes(text: str) -> int:
    """Return the bytes of the arrays that a device sums with the others, each counted once."""
    computations, _ = _parse(text)
    return sum(
        _size(instruction.shape)
        for computation in computations.values()
        for instruction in computation.values()
        if instruction.opcode in ("all-reduce", "all-reduce-done")  # at once, or in two parts
    )


def _kernels_in(name: str, computations: dict[str, _Computation], times: int) -> Iterator[Kernel]:
    """Yield the kernels of a computation that runs `times` times, and of the loops in it."""
    computation = computations[name]
    for instruction in computation.values():
        opcode, attributes = instruction.opcode, instruction.attributes
        if opcode == "while":
            trips = _TRIPS.search(attributes)
            often = times * int(trips[1]) if trips else times
            for part in re.findall(r"\b(?:body|condition)=%([\w.\-]+)", attributes):
                yield from _kernels_in(part, computations, often)
        elif opcode == "conditional":
            for part in re.findall(r"%([\w.\-]+)", attributes.split("metadata=")[0]):
                yield from _kernels_in(part, computations, times)
        elif opcode == "call":
            for part in _CALLS.findall(attributes):
                yield from _kernels_in(part, computations, times)
        elif opcode in ("fusion", "dot", "convolution") or (
            opcode == "custom-call" and _LIBRARY_CALL.search(attributes)
        ):
            yield Kernel(
                times,
                times * _bytes(instruction, computation, computations),
                times * _flops(instruction, computation, computations),
            )


def _bytes(
    instruction: _Instruction, computation: _Computation, computations: dict[str, _Computation]
) -> int:
    """Return the bytes of one kernel's operands and result."""
    sizes = [_size(computation[name].shape) for name in instruction.operands]
    if instruction.opcode != "fusion":
        arrays = _ARRAY.findall(instruction.shape)
        if "cublas" in instruction.attributes:  # the second result is cuBLAS's scratch space
            arrays = arrays[:1]
        return sum(sizes) + sum(_array_size(*array) for array in arrays)
    fused = computations[_CALLS.findall(instruction.attributes)[0]]
    parameters = {int(i.attributes): i for i in fused.values() if i.opcode == "parameter"}
    read = sum(min(size, _read(parameters[i], fused)) for i, size in enumerate(sizes))
    root = next(i for i in fused.values() if i.is_root)
    results = [fused[name] for name in root.operands] if root.opcode == "tuple" else [root]
    return read + sum(_written(result, fused) for result in results)


def _read(value: _Instruction, fused: _Computation, updated: bool = False) -> int:
    """Count the bytes of a value in a fusion that its users read; updates in place read none."""
    total = 0
    for user in fused.values():
        if value.name not in user.operands:
            continue
        if user.opcode in ("slice", "dynamic-slice", "gather") and user.operands[0] == value.name:
            total += _size(user.shape)
        elif user.opcode == "bitcast":
            total += _read(user, fused, updated)
        elif user.opcode in _ELEMENTWISE and not user.is_root:  # computed where it is needed
            total += _read(user, fused)
        elif user.opcode == "dynamic-update-slice" and value.name not in user.operands[1:]:
            total += _read(user, fused, True)
        elif not (updated and user.opcode == "tuple"):  # a tuple returns the updated buffer
            return _size(value.shape)
    return total


def _written(value: _Instruction, fused: _Computation) -> int:
    """Count the bytes of a fusion's result that the fusion writes."""
    source = value
    while source.opcode == "bitcast":
        source = fused[source.operands[0]]
    if source.opcode == "dynamic-update-slice":
        return _size(fused[source.operands[1]].shape)
    return _size(value.shape)


def _flops(
    instruction: _Instruction, computation: _Computation, computations: dict[str, _Computation]
) -> int:
    """Count two operations for each multiply-add of the dots in a kernel."""
    if instruction.opcode == "fusion":
        fused = computations[_CALLS.findall(instruction.attributes)[0]]
        return sum(_flops(i, fused, computations) for i in fused.values())
    contracted = _CONTRACTED.search(instruction.attributes)
    by_cublas = instruction.opcode == "custom-call" and "cublas" in instruction.attributes
    if contracted is None or not (instruction.opcode == "dot" or by_cublas):
        return 0
    left, result = (
        [int(n) for n in _ARRAY.findall(shape)[0][1].split(",") if n]
        for shape in (computation[instruction.operands[0]].shape, instruction.shape)
    )
    axes = [int(n) for n in re.findall(r"\d+", contracted[1])]
    return 2 * math.prod(result) * math.prod(left[axis] for axis in axes)


def _size(shape: str) -> int:
    """Return the bytes of an array, or of all arrays of a tuple."""
    return sum(_array_size(*array) for array in _ARRAY.findall(shape))


def _array_size(dtype: str, dimensions: str) -> int:
    bits = re.search(r"\d+", dtype)  # f8e4m3fn has 8; pred has a byte, a token none
    width = int(bits[0]) if bits else 8 * (dtype == "pred")
    return math.prod(int(n) for n in dimensions.split(",") if n) * width // 8


def _parse(text: str) -> tuple[dict[str, _Computation], str]:
    """Return every computation by name, and the name of the first that runs."""
    computations: dict[str, _Computation] = {}
    current, entry = {}, ""
    for line in text.splitlines():
        if start := _COMPUTATION.match(line):
            current = computations[start[2]] = {}
            entry = start[2] if start[1] else entry
        elif found := _INSTRUCTION.match(line):
            current[found[2]] = _instruction(found[2], found[3], bool(found[1]))
    return computations, entry


def _instruction(name: str, text: str, is_root: bool) -> _Instruction:
    """Parse `shape opcode(operands), attributes`; a parameter's attributes are its number."""
    end = _closing(text, 0) if text.startswith("(") else text.index(" ")
    shape, rest = text[:end], text[end:].lstrip()
    opening = rest.index("(")
    closing = _closing(rest, opening)
    opcode, inside = rest[:opening], rest[opening + 1 : closing - 1]
    attributes = inside if opcode == "parameter" else rest[closing:]
    return _Instruction(
        name, shape, opcode, re.findall(r"%([\w.\-]+)", inside), attributes, is_root
    )


def _closing(text: str, opening: int) -> int:
    """Return the end of the parenthesis that opens at `opening`."""
    depth = 0
    for place in range(opening, len(text)):
        depth += {"(": 1, ")": -1}.get(text[place], 0)
        if depth == 0:
            return place + 1
    raise ValueError(f"expected balanced parentheses, found {text!r}")
