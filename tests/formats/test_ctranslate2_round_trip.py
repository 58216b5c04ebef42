"""Exports for CTranslate2 that are read back, and imports that are exported."""

import dataclasses
import json
import re
import shutil
from typing import Any

import jax
import numpy as np
import pytest
from random_params import random_params
from refusals import refusal

from jax_transformer.config import DecodingConfig, ModelConfig
from jax_transformer.data.vocabularies.piece_table import PieceTable
from jax_transformer.formats.ctranslate2 import read_ctranslate2, rounded_to_int8, write_ctranslate2
from jax_transformer.formats.imported import ImportedModel, parameters
from jax_transformer.formats.marian import write_marian
from jax_transformer.runs.load import build_model
from jax_transformer.runs.model import TrainedModel
from jax_transformer.runs.run_dir import Run

TABLE: dict[str, Any] = {"positions": "learned", "max_positions": 90, "output_bias": True}
RELATIVES: dict[str, dict[str, Any]] = {
    "the paper's": {},
    "untied, pre-norm": {
        "tie_embeddings": False,
        "attention_bias": True,
        "activation": "gelu",
        "norm_position": "pre",
        "decoder_layers": 1,
        "norm_epsilon": 3e-5,
    },
    "a table, source apart": {**TABLE, "tie_source": False, "activation": "swish"},
}


def trained_model(imported: ImportedModel, params: Any = None) -> TrainedModel:
    """A run of the imported model; params: others than its own."""
    run = Run("imported", 0, imported.config())
    module = build_model(run, imported.source, imported.target)
    params = parameters(imported, run) if params is None else params(module)
    return TrainedModel(run, imported.source, imported.target, module, params, "last", [1])


def assert_same_trees(found: Any, expected: Any) -> None:
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for ours_, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(ours_, theirs)


@pytest.mark.parametrize("changes", RELATIVES.values(), ids=RELATIVES)
def test_an_export_is_read_back_bit_for_bit(converted, changes, tmp_path):
    pytest.importorskip("ctranslate2", reason="writes the export: pip install -e '.[export]'")
    sizes = {"num_layers": 2, "d_model": 16, "d_ff": 24, "num_heads": 2}
    vocabulary = read_ctranslate2(converted / "ours").target
    decoding = DecodingConfig(max_extra_length=20)
    model = ModelConfig(**sizes, **changes)
    imported = ImportedModel(model, decoding, {}, vocabulary, vocabulary, 64)
    exported = trained_model(imported, random_params)
    write_ctranslate2(exported, tmp_path)
    found = read_ctranslate2(tmp_path)
    assert found.source is found.target
    assert found.target.content == vocabulary.content
    assert found.model == model
    assert_same_trees(parameters(found, Run("imported", 0, found.config())), exported.params)


def test_an_export_in_int8_is_read_back_as_it_was_rounded(converted, tmp_path):
    pytest.importorskip("ctranslate2", reason="writes the export: pip install -e '.[export]'")
    imported = read_ctranslate2(converted / "ours")
    write_ctranslate2(trained_model(imported), tmp_path, "int8")
    found = read_ctranslate2(tmp_path)
    for name, array in imported.arrays.items():
        expected = array
        if array.ndim == 2 and name != "position_table":
            integers, scale = rounded_to_int8(array)
            expected = integers.astype(np.float32) * (np.float32(1) / scale)[:, None]
        np.testing.assert_array_equal(found.arrays[name], expected, err_msg=name)


@pytest.mark.parametrize("name", ["m2m100", "opennmt"])
def test_an_import_is_exported_and_read_again_bit_for_bit(converted, name, tmp_path):
    pytest.importorskip("ctranslate2", reason="writes the export: pip install -e '.[export]'")
    imported = read_ctranslate2(converted / name)
    write_ctranslate2(trained_model(imported), tmp_path)
    found = read_ctranslate2(tmp_path)
    for side in ("source", "target"):
        assert getattr(found, side).content == getattr(imported, side).content
    assert found.model == imported.model
    assert found.arrays.keys() == imported.arrays.keys()
    for array_name, array in imported.arrays.items():
        np.testing.assert_array_equal(found.arrays[array_name], array, err_msg=array_name)


def test_a_table_may_have_a_piece_pad_that_is_not_the_decoders_start(converted, tmp_path):
    pytest.importorskip("ctranslate2", reason="writes the export: pip install -e '.[export]'")
    folder = shutil.copytree(converted / "marian", tmp_path / "marian")
    path = folder / "shared_vocabulary.json"
    pieces = json.loads(path.read_text(encoding="utf-8"))
    pieces[-1] = "<pad>"
    path.write_text(json.dumps(pieces), encoding="utf-8")
    imported = read_ctranslate2(folder)
    assert imported.target.all_pieces[:-1] == pieces
    assert imported.target.bos_id == imported.target.pad_id == len(pieces)
    (tmp_path / "again").mkdir()
    write_ctranslate2(trained_model(imported), tmp_path / "again")
    assert json.loads((tmp_path / "again" / path.name).read_text(encoding="utf-8")) == pieces
    assert read_ctranslate2(tmp_path / "again").target.content == imported.target.content


@pytest.mark.parametrize(("language", "whole"), [("", ["<br>"]), ("en", ["<br>"]), ("", [])])
def test_the_code_in_the_readme_cuts_text_as_the_import_does(
    converted, language, whole, tmp_path, monkeypatch
):
    pytest.importorskip("ctranslate2", reason="writes the export: pip install -e '.[export]'")
    imported = read_ctranslate2(converted / "m2m100")
    table: Any = imported.source
    pieces = [*table.all_pieces[:20], "<br>", "\u00df", *table.all_pieces[22:]]
    table = PieceTable.make(
        pieces if whole else [piece.strip("<>") for piece in pieces],  # without tags
        table.sentencepiece,  # which lacks \u00df
        **{name: getattr(table, name) for name in ("pad_id", "bos_id", "eos_id", "unk_id")},
        whole=whole,
    )
    table = table.normalizing(language) if language else table
    imported = dataclasses.replace(imported, source=table, target=table)
    write_ctranslate2(trained_model(imported), tmp_path)
    lines = [
        ">>en<< the dog",
        "  >>de<<the",
        "a<br>b >>de<<",
        "",
        "\u201ca\u201d, b<br>",
        "a\u00df",
    ]
    lines[:0] = ["\u00aba\u00a0\u00bb, b"] * bool(language)  # a no-break space, which rules drop
    (tmp_path / "source.txt").write_text("\n".join(lines), encoding="utf-8")
    code = re.findall(r"```python\n(.*?)results = ", (tmp_path / "README.md").read_text(), re.S)
    monkeypatch.chdir(tmp_path)
    found: dict[str, Any] = {}
    exec(code[0], found)  # noqa: S102
    ids = {piece: index for index, piece in enumerate(table.all_pieces)}
    rows = [[ids.get(piece, table.unk_id) for piece in row] for row in found["sources"]]
    assert rows == table.encode_batch(lines)
    assert pieces.index("\u00df") in rows[-1]


def test_a_model_without_end_marks_on_sources_is_not_written_for_marian(converted, tmp_path):
    pytest.importorskip("safetensors", reason="writes the export: pip install -e '.[export]'")
    exported = trained_model(read_ctranslate2(converted / "opennmt"))
    assert "--format=ctranslate2" in refusal(write_marian, exported, tmp_path)
