"""Damaged, hostile and inexpressible folders of CTranslate2: one line each, whatever is in them."""

import json
import shutil
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from refusals import refusal

from jax_transformer.errors import InputError
from jax_transformer.formats.ctranslate2 import read_ctranslate2
from jax_transformer.formats.ctranslate2_file import read_model_file
from jax_transformer.formats.layout import parameters
from jax_transformer.runs.run_dir import Run
from tools.record.ctranslate2_parts import write_model_file

MEBIBYTE = 1 << 20


@pytest.fixture
def copied(converted, tmp_path):
    """A function that copies a recorded folder."""

    def copy(name: str) -> Path:
        shutil.copytree(converted / name, tmp_path / name)
        return tmp_path / name

    return copy


def read(folder: Path) -> None:
    """Read the folder, and compare its arrays with the model that its settings describe."""
    imported = read_ctranslate2(folder)
    parameters(imported, Run("imported", 0, imported.config()))


def rewrite(folder: Path, change: dict[str, Any], name="TransformerSpec", revision=7) -> None:
    """Write model.bin again with variables added or replaced; None leaves one out."""
    variables = {**read_model_file(folder / "model.bin").variables, **change}
    kept = {name: array for name, array in variables.items() if array is not None}
    write_model_file(folder / "model.bin", 6, name, revision, kept, {})


def read_or_refuse(folder: Path) -> bool:
    """Whether the folder is refused, in one line; nothing else is raised."""
    try:
        read_ctranslate2(folder)
    except InputError as error:
        message = str(error)
    else:
        return False
    assert "\n" not in message
    return True


# ---- Damage -------------------------------------------------------------------------------


def test_a_file_that_is_cut_off_anywhere_is_refused(copied):
    path = copied("marian-int8") / "model.bin"
    content = path.read_bytes()
    for length in range(0, len(content), 97):
        path.write_bytes(content[:length])
        message = refusal(read_model_file, path)
        assert "model.bin" in message


@pytest.mark.parametrize("name", ["marian-int8", pytest.param("m2m100", marks=pytest.mark.slow)])
def test_a_flipped_byte_is_refused_or_changes_a_number(copied, name):
    folder = copied(name)
    content = (folder / "model.bin").read_bytes()
    random = np.random.default_rng(0)
    # Half of them among the first bytes of each variable, which say how to read the rest.
    starts = [i for i in range(len(content)) if content.startswith(b"coder/", i)]
    places = [*random.integers(len(content), size=75), *random.choice(starts, 75)]
    tracemalloc.start()
    refused = 0
    for place in places:
        flipped = bytearray(content)
        flipped[place + random.integers(-8, 40)] ^= random.integers(1, 256)
        (folder / "model.bin").write_bytes(flipped)
        refused += read_or_refuse(folder)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert refused > 20
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
        (START + ONE + entry(shape=(HUGE, HUGE)), "damaged"),
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


# ---- Options that our settings do not express ---------------------------------------------

TWO = np.ones(2, np.float32)
BOTH = ("encoder", "decoder")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"encoder/layer_0/self_attention/relative_position_keys": TWO}, "relative_position_keys"),
        ({"decoder/layer_0/self_attention/rotary_dim": np.int32(0)}, "rotary_dim"),
        ({"decoder/alibi": np.int8(1)}, "decoder/alibi=1"),
        ({"encoder/multi_query_attention": np.int8(1)}, "multi_query_attention=1"),
        ({"encoder/layernorm_embedding/gamma": TWO}, "layernorm_embedding"),
        ({"decoder/sliding_window": np.int32(4)}, "sliding_window=4: expected no such option"),
        ({"encoder/layer_0/attention/linear_0/weight": TWO}, "encoder/layer_0/attention"),
        ({"encoder/layer_norm/gamma": np.ones(16, np.float32)}, "encoder/layer_norm/gamma"),
        ({"encoder/layer_0/ffn/layer_norm/beta": None}, "ffn/layer_norm/beta, found none"),
        ({"encoder/layer_3/ffn/linear_1/weight": TWO}, "encoder/layer_2"),
        ({f"{stack}/activation": np.int8(1) for stack in BOTH}, "activation=1"),
        ({f"{stack}/num_heads": np.int16(3) for stack in BOTH}, "num_heads=3"),
        ({"decoder/num_heads": np.array([2, 2], np.int16)}, "decoder/num_heads"),
        ({"decoder/pre_norm": np.int8(1)}, "decoder/pre_norm=1: expected 0"),
        ({"decoder/position_encodings/encodings": np.ones((64, 16), np.float32)}, "encodings"),
        ({"decoder/embeddings/weight": np.ones((58, 8), np.float32)}, "target_embedding/matrix"),
        ({"decoder/embeddings/weight": np.ones((58, 16), np.int8)}, "decoder/embeddings/weight"),
        ({"encoder/layer_0/ffn/linear_0/bias": np.full(24, np.nan, np.float32)}, "finite"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_option_that_ours_do_not_express_is_named(copied, change, named):
    folder = copied("marian")
    rewrite(folder, change)
    assert named in refusal(read, folder)


def test_a_file_of_another_kind_of_model_is_named(copied):
    folder = copied("marian")
    for options, named in [
        ({"name": "WhisperSpec"}, "'WhisperSpec'"),
        ({"revision": 8}, "of revision 8"),
    ]:
        rewrite(folder, {}, **options)
        assert named in refusal(read_ctranslate2, folder)
    rewrite(folder, {})
    read_ctranslate2(folder)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"add_source_bos": True}, "add_source_bos=True"),
        ({"decoder_start_token": None}, "decoder_start_token"),
        ({"multi_query_attention": True}, "multi_query_attention"),
        ({"quantization_type": 1}, "quantization_type"),
        ({"layer_norm_epsilon": "1"}, "layer_norm_epsilon"),
        ({"layer_norm_epsilon": -1.0}, "norm_epsilon"),
        ({"eos_token": "</end>"}, "</end>"),
        ({"unk_token": "a\nb"}, "a\\nb"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_setting_that_ours_do_not_express_is_named(copied, change, named):
    folder = copied("marian")
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    assert named in refusal(read_ctranslate2, folder)


# ---- Files --------------------------------------------------------------------------------


def test_missing_and_damaged_files_are_named(copied, tmp_path):
    folder = copied("marian")
    kept = {path.name: path.read_bytes() for path in folder.iterdir()}
    for name, named in [
        ("model.bin", "model.bin"),
        ("config.json", "config.json"),
        ("shared_vocabulary.json", "shared_vocabulary.json"),
        ("source.spm", "source.spm"),
        ("target.spm", "target.spm"),
    ]:
        (folder / name).unlink()
        assert named in refusal(read_ctranslate2, folder)
        for content in (b"", b"\xff\xfe", b"[" * 100_000, b"{}"):
            (folder / name).write_bytes(content)
            refusal(read_ctranslate2, folder)
        (folder / name).write_bytes(kept[name])
    assert "model.bin" in refusal(read_ctranslate2, tmp_path / "missing")


def test_a_vocabulary_of_another_size_or_with_a_piece_twice_is_refused(copied):
    folder = copied("marian")
    path = folder / "shared_vocabulary.json"
    pieces = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(pieces[:-1]))
    assert "embedding/matrix: expected an array of shape (58, 16), found (59" in refusal(
        read, folder
    )
    path.write_text(json.dumps([*pieces[:-1], pieces[-2]]))
    assert "twice" in refusal(read_ctranslate2, folder)
