"""Folders as people publish, save and copy them: in parts, as pointers, with added tokens."""

import json
import os
import re
import shutil
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from recorded_folders import READ, change
from recorded_models import recorded_folder
from references import Arrays
from refusals import refusal
from sacremoses import MosesPunctNormalizer

from jax_transformer.data.text import decode_lines, read_lines
from jax_transformer.data.vocabularies import read_vocabulary
from jax_transformer.files import check_regular, read_json
from jax_transformer.formats import read_model
from jax_transformer.formats.imported import ImportedModel, parameters
from jax_transformer.formats.marian import write_marian
from jax_transformer.formats.torch_files import read_torch
from jax_transformer.runs.load import build_model
from jax_transformer.runs.model import TrainedModel
from jax_transformer.runs.run_dir import Run

safetensors = pytest.importorskip(
    "safetensors.numpy", reason="reads and writes them: pip install -e '.[export]'"
)

POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 312087009\n"


def test_a_pointer_in_place_of_text_is_named(tmp_path):
    for name in ("train.en", "train.en.gz", "train.en.xz"):
        path = tmp_path / name
        path.write_text(POINTER.replace("\n", "\r\n"))
        assert f"{path}: expected the file itself" in refusal(list, read_lines(path))
        assert "git lfs pull" in refusal(check_regular, path)
    stream = decode_lines(POINTER.encode().splitlines(keepends=True), "standard input")
    assert "standard input: expected the file" in refusal(list, stream)
    other = tmp_path / "other"
    other.write_text("version https://git-lfs.github.com/spec/v1 is a line\n" + POINTER)
    assert len(list(read_lines(other))) == 4


def test_a_byte_order_mark_is_not_part_of_a_file(make, tmp_path):
    for form, names in {
        "marian": ["config.json", "vocab.json"],
        "marian-npz": ["decoder.yml", "joint.vocab.yml"],
        "ctranslate2": ["config.json", "shared_vocabulary.json"],
        "fairseq": ["dict.en.txt", "bpecodes"],
        "fsmt": ["config.json", "vocab-src.json", "merges.txt"],
    }.items():
        folder = make(form)
        before = read_model(form, folder).source.all_pieces
        for name in names:
            (folder / name).write_bytes(b"\xef\xbb\xbf" + (folder / name).read_bytes())
        assert read_model(form, folder).source.all_pieces == before, form
    (tmp_path / "a.json").write_bytes(b"\xef\xbb\xbf[1]")
    assert read_json(tmp_path / "a.json", list, "") == [1]


@pytest.mark.parametrize("form", READ)
def test_a_zip_of_a_folder_is_read_as_the_folder(make, form, tmp_path):
    folder = make(form)
    for file in folder.iterdir():
        os.utime(file)  # a zip has no time before 1980
    path = shutil.make_archive(str(tmp_path / "packed"), "zip", tmp_path, folder.name)
    expected, found = read_model(form, folder), read_model(form, Path(path))
    assert found.source.content == expected.source.content
    for name, array in expected.arrays.items():
        np.testing.assert_array_equal(found.arrays[name], array)
    assert str(tmp_path / "none") in refusal(read_model, form, tmp_path / "none")
    assert "not a zip" in refusal(
        read_model, form, folder / ("dict.en.txt" if form == "fairseq" else READ[form][0])
    )


# ---- Weights ------------------------------------------------------------------------------


@pytest.fixture
def marian(make) -> Path:
    return make("marian")


def split(folder: Path, parts: int = 3) -> Path:
    """Write the weights in parts with an index, and remove the whole file; return the index."""
    arrays = safetensors.load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names, files = sorted(arrays), {}
    for part in range(parts):
        file = f"model-{part + 1:05}-of-{parts:05}.safetensors"
        files |= dict.fromkeys(names[part::parts], file)
        safetensors.save_file({name: arrays[name] for name in names[part::parts]}, folder / file)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": files}))
    return index


def assert_same_arrays(found: Arrays, expected: Arrays) -> None:
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)


def test_weights_in_parts_are_those_of_one_file(marian):
    expected = read_model("marian", marian).arrays
    split(marian)
    assert_same_arrays(read_model("marian", marian).arrays, expected)
    (marian / "model.safetensors").write_bytes(b"of another model")
    assert_same_arrays(read_model("marian", marian).arrays, expected)


def test_an_output_matrix_that_was_never_trained_is_not_taken(marian, caplog):
    path = marian / "model.safetensors"
    expected, arrays = read_model("marian", marian).arrays, safetensors.load_file(path)
    change(marian / "config.json", tie_word_embeddings=True)
    arrays["lm_head.weight"] = np.full_like(arrays["model.shared.weight"], 0.1)
    safetensors.save_file(arrays, path)
    assert_same_arrays(read_model("marian", marian).arrays, expected)
    assert "lm_head.weight is not the embedding" in caplog.text


def test_merges_of_fsmt_that_the_conversion_has_cut_are_left_out(make, caplog):
    folder = make("fsmt")
    expected, path = read_model("fsmt", folder).source, folder / "merges.txt"
    path.write_text(path.read_text(encoding="utf-8") + "2\n19\n\n", encoding="utf-8")
    assert read_model("fsmt", folder).source.content == expected.content
    assert "2 merges lack a side" in caplog.text


def test_weights_of_torch_in_parts_are_read(make):
    folder = recorded_folder("fsmt_apart", make("fsmt"))
    (folder / "model.safetensors").unlink()
    expected = read_model("fsmt", folder).arrays
    part = folder / "pytorch_model-00001-of-00001.bin"
    names = ["model.encoder.layers.0.fc1.weight"]
    index = {"weight_map": dict.fromkeys(names, part.name)}
    (folder / "pytorch_model.bin").rename(part)
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    assert "embed_tokens" in refusal(read_model, "fsmt", folder)  # is not in the index
    index["weight_map"] = dict.fromkeys(read_torch(part), part.name)
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    assert_same_arrays(read_model("fsmt", folder).arrays, expected)


def test_a_part_that_is_missing_is_named(marian):
    index = split(marian)
    part = marian / "model-00002-of-00003.safetensors"
    kept = part.read_bytes()
    part.unlink()
    assert str(part) in refusal(read_model, "marian", marian)
    part.write_text(POINTER)
    assert f"{part}: expected the file itself" in refusal(read_model, "marian", marian)
    part.write_bytes((marian / "model-00001-of-00003.safetensors").read_bytes())
    assert str(part) in refusal(read_model, "marian", marian)
    part.write_bytes(kept)
    index.unlink()
    message = refusal(read_model, "marian", marian)
    assert "index.json" in message
    assert "model-00001-of-00003.safetensors" in message


def test_an_index_that_is_none_is_refused(marian):
    index = split(marian)
    names = ("../model.safetensors", "/etc/passwd", "", "b" * 5000)
    for files in ({}, "x", {"a": 5}, *({"a": name} for name in names)):
        index.write_text(json.dumps({"weight_map": files}))
        message = refusal(read_model, "marian", marian)
        assert message.startswith(str(index))
        assert "weight_map" in message


def test_an_array_that_numpy_cannot_have_is_named(marian):
    path = marian / "model.safetensors"
    for kind, shape, size in (
        ("F32", [0, 1 << 62, 1 << 62], 0),
        ("F32", [1] * 72, 4),
        ("I64", [], 8),
    ):
        header = {"odd": {"dtype": kind, "shape": shape, "data_offsets": [0, size]}}
        text = json.dumps(header).encode()
        path.write_bytes(struct.pack("<Q", len(text)) + text + b"\0" * size)
        assert str(path) in refusal(read_model, "marian", marian)


# ---- Settings -----------------------------------------------------------------------------


def test_a_list_of_one_id_is_that_id(marian):
    expected = read_model("marian", marian).target.content
    found = json.loads((marian / "config.json").read_text())
    names = ("eos_token_id", "pad_token_id", "decoder_start_token_id", "forced_eos_token_id")
    for file in ("config.json", "generation_config.json"):
        change(marian / file, **{name: [found[name]] for name in names if name in found})
        assert read_model("marian", marian).target.content == expected
    change(marian / file, eos_token_id=[found["eos_token_id"], 5])
    assert "eos_token_id" in refusal(read_model, "marian", marian)


@pytest.mark.parametrize(
    ("form", "name", "limit"), [("marian", "max_length", 20), ("fsmt", "max_new_tokens", 7)]
)
def test_a_limit_of_outputs_that_is_not_used_is_told(make, caplog, form, name, limit):
    folder = make(form)
    change(folder / "generation_config.json", **{name: limit})
    read_model(form, folder)
    assert f"after {limit} tokens" in caplog.text
    assert "max_extra_length" in caplog.text


def test_outputs_may_be_longer_than_sources_also_if_both_have_the_same_limit(marian):
    for limit, extra in ((64, 31), (33, 256), (32, 256)):  # `generate` counts the start
        change(marian / "generation_config.json", max_length=limit)
        imported = read_model("marian", marian)
        assert (imported.max_length, imported.decoding.max_extra_length) == (32, extra)


# ---- Added tokens -------------------------------------------------------------------------


def add(folder: Path, added: dict[str, int], old: bool) -> None:
    """Add tokens as transformers saves them, and rows for them."""
    if old:
        (folder / "added_tokens.json").write_text(json.dumps(added))
    else:
        entries = {str(i): {"content": piece, "special": i % 2 == 0} for piece, i in added.items()}
        change(folder / "tokenizer_config.json", added_tokens_decoder=entries)
    arrays = safetensors.load_file(folder / "model.safetensors")
    rows = max(added.values()) + 1
    for name, array in arrays.items():
        if array.ndim == 2 and name.endswith(
            ("shared.weight", "embed_tokens.weight", "head.weight")
        ):
            arrays[name] = np.pad(array, [(0, rows - len(array)), (0, 0)])
        elif name == "final_logits_bias":
            arrays[name] = np.pad(array, [(0, 0), (0, rows - array.shape[1])])
    safetensors.save_file(arrays, folder / "model.safetensors")
    change(folder / "config.json", vocab_size=rows, decoder_vocab_size=rows)


@pytest.mark.parametrize("old", [True, False])
def test_added_tokens_are_kept_whole_in_text(marian, old):
    before = read_model("marian", marian).source
    end = before.size
    add(marian, {"<br>": end, "<br/>": end + 1, "a b.c": end + 2}, old)
    imported = read_model("marian", marian)
    for vocabulary in (imported.source, imported.target):
        again = read_vocabulary(vocabulary.content)
        the, dog = again.encode("The"), again.encode("dog")
        assert again.encode("The<br>dog") == [*the, end, *dog]
        assert again.encode("<br><br/> <br>") == [end, end + 1, end]
        assert again.encode("a b.c") == [end + 2]
        assert end + 2 not in again.encode("a bxc")
        assert "<br>" in again.decode([*dog, end])
    assert imported.source.encode("The dog") == before.encode("The dog")


def exported(imported: ImportedModel, folder: Path) -> Path:
    """The folder with the model in the format that it came from."""
    run = Run("imported", 0, imported.config())
    own = imported.source, imported.target
    params = parameters(imported, run)
    folder.mkdir()
    write_marian(TrainedModel(run, *own, build_model(run, *own), params, "last", [1]), folder)
    return folder


def test_added_tokens_are_exported_again(marian, tmp_path):
    add(marian, {"<br>": read_model("marian", marian).source.size}, old=True)
    imported = read_model("marian", marian)
    again = read_model("marian", exported(imported, tmp_path / "again"))
    assert again.source.content == imported.source.content
    assert again.target.content == imported.target.content


def test_the_decoders_start_is_an_ordinary_piece_of_a_source_with_its_own_table(marian):
    table = json.loads((marian / "vocab.json").read_text(encoding="utf-8"))
    change(marian / "target_vocab.json", **table)
    start = read_model("marian", marian).target.bos_id
    assert table["<pad>"] == start
    change(marian / "vocab.json", **{"\u2581the": start, "<pad>": table["\u2581the"]})
    assert read_model("marian", marian).source.encode("the") == [start]


def test_the_readme_of_an_export_normalizes_punctuation_as_the_import_does(marian, tmp_path):
    change(marian / "tokenizer_config.json", source_lang="")  # whose rules are then those of en
    plain = read_model("marian", marian)
    imported = read_model("marian", marian, normalize=True)
    readme = (exported(imported, tmp_path / "again") / "README.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"file\]\n(.*?)batch = ", readme, flags=re.DOTALL)
    lines = ['The dog said "yes", then it left.', "\u201ca\u201d", ""]
    # A tokenizer of transformers with the exported source_lang.
    tokenizer = SimpleNamespace(normalize=MosesPunctNormalizer("").normalize)
    found: dict[str, Any] = {"lines": lines, "tokenizer": tokenizer}
    exec(code, found)  # noqa: S102
    assert found["lines"][0] == 'The dog said "yes," then it left.'
    assert plain.source.encode_batch(found["lines"]) == imported.source.encode_batch(lines)


@pytest.mark.slow
def test_transformers_keeps_exported_added_tokens_whole(marian, tmp_path):
    pytest.importorskip("torch", reason="transformers needs it: pip install -e '.[torch]'")
    transformers = pytest.importorskip("transformers", reason="pip install -e '.[torch]'")
    add(marian, {"<br>": read_model("marian", marian).source.size}, old=True)
    imported = read_model("marian", marian)
    folder = exported(imported, tmp_path / "again")
    found = transformers.MarianTokenizer.from_pretrained(folder)("The<br>dog").input_ids
    assert found == imported.source.encode("The<br>dog", eos=True)


def test_special_tokens_among_the_added_ones_are_text_as_before(marian):
    before = read_model("marian", marian).source
    table = {piece: index for index, piece in enumerate(before.all_pieces)}
    names = {piece: table[piece] for piece in ("</s>", "<unk>", "<pad>")}
    entries = {str(index): {"content": piece, "special": True} for piece, index in names.items()}
    change(marian / "tokenizer_config.json", added_tokens_decoder=entries)
    found = read_model("marian", marian).source
    for text in ("a </s> b", "<unk> <pad>"):
        assert found.encode(text) == before.encode(text)


def test_added_tokens_of_fsmt_may_be_its_own(make):
    folder = make("fsmt")
    change(folder / "added_tokens.json", **{"</s>": 2, "<unk>": 3})
    read_model("fsmt", folder)
    table = (folder / "vocab-src.json").read_text(encoding="utf-8")
    (folder / "vocab-src.json").write_text(table.replace("</s>", "</z>"), encoding="utf-8")
    assert "'</s>'" in refusal(read_model, "fsmt", folder)
