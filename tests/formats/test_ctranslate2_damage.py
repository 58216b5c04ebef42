"""Damaged, hostile and inexpressible folders of CTranslate2: one line each, whatever is in them."""

import shutil
import struct
import tracemalloc
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from refusals import refusal

from jax_transformer.errors import InputError
from jax_transformer.formats.ctranslate2 import read_ctranslate2
from jax_transformer.formats.ctranslate2_file import read_model_file
from tools.record.ctranslate2_parts import write_model_file

MEBIBYTE = 1 << 20


@pytest.fixture
def copied(converted, tmp_path):
    """A function that copies a recorded folder."""

    def copy(name: str) -> Path:
        shutil.copytree(converted / name, tmp_path / name)
        return tmp_path / name

    return copy


# ---- Damage -------------------------------------------------------------------------------


def test_a_file_that_is_cut_off_anywhere_is_refused(copied):
    path = copied("marian-int8") / "model.bin"
    content = path.read_bytes()
    for length in range(0, len(content), 197):
        path.write_bytes(content[:length])
        assert "model.bin" in refusal(read_model_file, path)


def test_a_flipped_byte_is_refused_in_one_line_or_read(copied):
    folder = copied("marian-int8")
    content = (folder / "model.bin").read_bytes()
    random = np.random.default_rng(0)
    # Half of them among the first bytes of each variable, which say how to read the rest.
    starts = [i for i in range(len(content)) if content.startswith(b"coder/", i)]
    places = [*random.integers(len(content), size=75), *random.choice(starts, 75)]
    tracemalloc.start()
    refused = []
    for place in places:
        flipped = bytearray(content)
        flipped[place + random.integers(-8, 40)] ^= random.integers(1, 256)
        (folder / "model.bin").write_bytes(flipped)
        try:
            read_ctranslate2(folder)
        except InputError as error:
            refused.append(str(error))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(refused) > 20
    assert not any("\n" in message for message in refused)
    assert peak < 20 * MEBIBYTE


def entry(name: bytes = b"x", shape: tuple[int, ...] = (), kind: int = 0, size: int = 4) -> bytes:
    """The bytes of a variable, without its data."""
    named = struct.pack("<H", len(name) + 1) + name + b"\0"
    return named + struct.pack(f"<B{len(shape)}IBI", len(shape), *shape, kind, size)


START = struct.pack("<I", 6) + struct.pack("<H", 2) + b"T\0" + struct.pack("<I", 7)
ONE = struct.pack("<I", 1)
ZERO = b"\0" * 4
HUGE = (1 << 32) - 1
BYTES = b"\1" * 9 + entry(kind=1, size=1) + b"\1" + ZERO


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"", "damaged"),
        (b"PK\3\4", "version 6, found 67324752"),
        (struct.pack("<I", 4), "convert the model again"),
        (START + struct.pack("<I", HUGE), "damaged"),
        (START + ONE + entry(shape=(1 << 16,) * 4, size=0), "65536"),
        (START + ONE + entry(shape=(HUGE,), kind=1, size=HUGE), "4,294,967,295 bytes"),
        (START + ONE + entry(kind=6), "damaged"),
        (START + ONE + entry(name=b"\xff"), "damaged"),
        (START + ONE + entry() + ZERO + ONE + b"\2\0y\0" + b"\2\0z\0", "'z'"),
        (START + struct.pack("<I", 2) + entry(b"x_scale", (9,), 1, 9) + BYTES, "9 scales for x"),
    ],
)
def test_a_hostile_file_is_one_line_and_little_memory(tmp_path, content, found):
    path = tmp_path / "model.bin"
    path.write_bytes(content)
    tracemalloc.start()
    message = refusal(read_model_file, path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found in message
    assert peak < MEBIBYTE


# ---- Numbers ------------------------------------------------------------------------------


def test_every_type_of_number_becomes_float32_as_ctranslate2_makes_it(tmp_path):
    random = np.random.default_rng(1)
    exact = random.normal(size=(3, 4)).astype(np.float32)
    integers = random.integers(-127, 128, size=(3, 4))
    scale = np.array([3.7, 127, 1e-3], np.float32)
    stored = {
        "float32": exact,
        "float16": exact.astype(np.float16),
        "bfloat16": np.asarray(jnp.asarray(exact, jnp.bfloat16)),
        "int8": integers.astype(np.int8),
        "int8_scale": scale,
        "int16": integers.astype(np.int16),
        "int16_scale": scale[0],
        "flag": np.int8(5),
    }
    write_model_file(tmp_path / "model.bin", 6, "T", 1, stored, {"alias": "int8"})
    found = read_model_file(tmp_path / "model.bin")
    assert (found.name, found.revision) == ("T", 1)
    expected = {
        "float32": exact,
        "float16": exact.astype(np.float16).astype(np.float32),
        "bfloat16": np.asarray(jnp.asarray(exact, jnp.bfloat16).astype(np.float32)),
        "int8": integers.astype(np.float32) * (np.float32(1) / scale)[:, None],
        "int16": integers.astype(np.float32) * (np.float32(1) / scale[0]),
        "flag": np.int8(5),
    }
    assert found.variables.pop("alias") is found.variables["int8"]
    assert found.variables.keys() == expected.keys()
    for name, array in expected.items():
        assert found.variables[name].dtype == array.dtype
        np.testing.assert_array_equal(found.variables[name], array)
