"""Exported models of every kind, read by the programs that they are for, against our own model."""

import dataclasses
import functools
import importlib
import io
import json
import os
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import numpy as np
import pytest
import sentencepiece
from random_params import random_params
from readers import READERS, Marian, padded
from refusals import refusal

from jax_transformer.config import Config, ModelConfig, override
from jax_transformer.data.vocabularies import load_vocabulary
from jax_transformer.data.vocabularies.piece_table import PieceTable
from jax_transformer.data.vocabularies.sentencepiece import (
    SentencePieceVocabulary,
    train_vocabulary,
)
from jax_transformer.declared import annotations
from jax_transformer.decoding.generate import log_probabilities
from jax_transformer.errors import InputError
from jax_transformer.formats import check_exportable, export_model
from jax_transformer.formats.ctranslate2 import rounded_to_int8, write_ctranslate2
from jax_transformer.formats.layout import flat_arrays
from jax_transformer.formats.marian import write_marian
from jax_transformer.formats.safetensors import write_safetensors
from jax_transformer.runs.load import build_model
from jax_transformer.runs.model import TrainedModel
from jax_transformer.runs.run_dir import Run

EXPORT = "writes and reads exports: pip install -e '.[export]'"
pytest.importorskip("ctranslate2", reason=EXPORT)
pytest.importorskip("safetensors", reason=EXPORT)

WRITERS: dict[str, Any] = {
    "ctranslate2": write_ctranslate2,
    "marian": write_marian,
    "safetensors": write_safetensors,
}
MODEL = ModelConfig(num_layers=2, d_model=24, d_ff=40, num_heads=3, d_k=8, d_v=8)
KINDS: dict[str, list[str]] = {
    "the paper's": [],
    "all that every format expresses": [
        *("model.attention_bias=true", "model.tie_embeddings=false", "model.d_k=3", "model.d_v=5"),
        *("model.positions=learned", "model.max_positions=400"),
    ],
}
SOURCES = [[7, 3, 9, 12, 2], [5, 14, 2], [4, 4, 8, 13, 6, 11, 19, 2], [10, 2]]
TARGETS = [[8, 8, 10, 3, 2], [6, 2], [11, 5, 9, 17, 17, 4, 2], [21, 13, 5, 2]]


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("vocabulary") / "vocabulary.model"
    train_vocabulary(["a b c d e f g", "abc bcd cde def efg"] * 20, 26, path)
    return path


def random_run(vocabulary: Path, changes: list[str]) -> TrainedModel:
    config = functools.reduce(override, changes, Config(model=MODEL))
    run, ids = Run("random", 0, config), load_vocabulary(vocabulary)
    model = build_model(run, ids, ids)
    return TrainedModel(run, ids, ids, model, random_params(model), "last", [1])


def our_log_probabilities(trained: TrainedModel) -> list[np.ndarray]:
    found: Any = log_probabilities(
        trained.module, trained.params, padded(SOURCES), padded(TARGETS), bos_id=1
    )
    return [np.asarray(row)[: len(ids)] for row, ids in zip(found, TARGETS, strict=True)]


RELATIVES = {  # kinds that not every format can express
    "safetensors": ["model.attention_radius=1"],
    "marian": ["model.activation=swish", "model.decoder_layers=1", "model.output_bias=true"],
    "ctranslate2": ["model.activation=gelu", "model.norm_position=pre", "model.tie_source=false"],
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "changes"),
    [(target, changes) for target in READERS for changes in KINDS.values()] + [*RELATIVES.items()],
    ids=str,
)
def test_every_kind_of_model_gives_the_same_log_probabilities(
    target, changes, vocabulary, tmp_path
):
    trained = random_run(vocabulary, changes)
    before = {name: array.copy() for name, array in flat_arrays(trained.params).items()}
    check_exportable(trained.run.config, target)
    WRITERS[target](trained, tmp_path)
    reader = READERS[target](tmp_path)
    assert not any(getattr(reader, "loading", {}).values())  # every tensor it has and no other
    found = reader.log_probabilities(SOURCES, TARGETS)
    ours = our_log_probabilities(trained)
    assert np.ptp(np.concatenate(ours)) > 2  # so that agreement means something
    for row, expected in zip(found, ours, strict=True):
        np.testing.assert_allclose(row, expected, rtol=0, atol=1e-4)
    for name, array in flat_arrays(trained.params).items():
        np.testing.assert_array_equal(array, before[name])


def separate(vocabulary: Path, **special: int) -> TrainedModel:
    """A model whose target has a vocabulary of another program, with these special ids."""
    target, options = io.BytesIO(), dict[str, Any](special)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["w x y z v u", "uvw xyz vwx zyx"] * 20),
        model_writer=target,
        model_type="unigram",
        vocab_size=22,
        hard_vocab_limit=False,
        minloglevel=2,
        **options,
    )
    run, source = Run("random", 0, Config(model=MODEL)), load_vocabulary(vocabulary)
    ids = SentencePieceVocabulary(target.getvalue())
    module = build_model(run, source, ids)
    return TrainedModel(run, source, ids, module, random_params(module), "last", [1])


def test_safetensors_refuses_ids_that_the_code_in_its_readme_would_not_give(vocabulary, tmp_path):
    trained = random_run(vocabulary, [])
    own = trained.vocabulary
    ids = {name: own.size - 1 - getattr(own, name) for name in ("pad_id", "bos_id", "eos_id")}
    assert own.sentencepiece
    table = PieceTable.make(
        own.all_pieces[::-1], own.sentencepiece, **ids, unk_id=own.size - 1 - own.unk_id
    )
    other = dataclasses.replace(trained, vocabulary=table, target_vocabulary=table)
    assert "--format=ctranslate2" in refusal(WRITERS["safetensors"], other, tmp_path)
    assert not [*tmp_path.iterdir()]


def test_marian_refuses_separate_vocabularies_with_other_special_ids(vocabulary, tmp_path):
    trained = separate(vocabulary, unk_id=0, bos_id=1, eos_id=2, pad_id=-1)
    assert (last := trained.target_vocabulary.pad_id) == trained.target_vocabulary.size - 1
    message = refusal(WRITERS["marian"], trained, tmp_path)
    assert all(part in message for part in ("(0, 2, 3)", f"({last}, 2, 0)", "--format=ctranslate2"))
    assert not [*tmp_path.iterdir()]


def test_separate_vocabularies_are_two_tables_for_marian(vocabulary, tmp_path):
    trained = separate(vocabulary, unk_id=3, bos_id=1, eos_id=2, pad_id=0)
    assert "--format=ctranslate2" in refusal(WRITERS["safetensors"], trained, tmp_path)
    WRITERS["marian"](trained, tmp_path)
    source, target = trained.vocabulary, trained.target_vocabulary
    for name, vocabulary in (("vocab.json", source), ("target_vocab.json", target)):
        table = json.loads((tmp_path / name).read_text(encoding="utf-8"))
        assert [*table] == vocabulary.all_pieces
        assert [*table.values()] == [*range(vocabulary.size)]
    reader = Marian(tmp_path)
    assert not any(reader.loading.values())
    targets = [[7, 3, 9, 2], [6, 2], [11, 5, 9, 10, 4, 2], [13, 5, 2]]
    found = reader.log_probabilities(SOURCES, targets)
    ours: Any = log_probabilities(
        trained.module, trained.params, padded(SOURCES), padded(targets), bos_id=1
    )
    for row, expected, ids in zip(found, ours, targets, strict=True):
        np.testing.assert_allclose(row, expected[: len(ids)], rtol=0, atol=1e-4)


def test_two_products_of_int8_matrices_fit_into_16_bits():
    random = np.random.default_rng(3)
    matrix = random.normal(size=(6, 50)) * np.logspace(-4, 4, 6)[:, None]
    matrix = np.vstack([matrix, np.zeros(50), np.full(50, 1e-38)]).astype(np.float32)
    rounded, scale = rounded_to_int8(matrix)
    assert rounded.dtype == np.int8
    assert scale.dtype == np.float32
    largest = np.abs(rounded.astype(int)).max(axis=1)
    assert largest.tolist() == [64] * 6 + [0, 0]
    assert 2 * 255 * largest.max() < 2**15
    away = np.abs(rounded / scale[:, None] - matrix).max(axis=1)
    assert (away <= np.abs(matrix).max(axis=1) / 128 * (1 + 1e-6) + 1e-37).all()


REFUSED = {
    "attention_radius": ["model.attention_radius=2"],
    "num_heads": ["model.num_heads=5", "model.d_k=4", "model.d_v=4"],
    "d_k": ["model.d_k=9"],
}


def test_a_setting_that_a_format_cannot_express_is_refused_by_its_name():
    for name, changes in REFUSED.items():
        config = override(Config(model=MODEL), *changes)
        for target in ("ctranslate2", "marian"):
            found = message(config, target)
            assert found.startswith(f"--format={target}: model.{name}=")
            assert "--format=safetensors" in found
        check_exportable(config, "safetensors")


CHOICES = [
    name
    for name, hint in annotations(ModelConfig).items()
    if get_origin(get_args(hint)[0]) is Literal
]


def message(config: Config, target: Any) -> str:
    """What the command says that refuses to export, or an empty line."""
    try:
        check_exportable(config, target)
    except InputError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("target", WRITERS)
def test_a_new_setting_or_choice_is_refused_until_somebody_lists_it(target, vocabulary, tmp_path):
    trained = random_run(vocabulary, ["model.dropout_rate=0.3"])  # not MODEL itself
    for name in CHOICES:
        config = override(trained.config, "model.dropout_rate=0.2")
        object.__setattr__(config.model, name, "new")  # as if it were in the Literal
        assert message(config, target).startswith(f"--format={target}: model.{name}=new: ")
    object.__setattr__(trained.config.model, CHOICES[0], "new")
    with pytest.raises(InputError, match=f"model.{CHOICES[0]}=new"):
        export_model(trained, target, tmp_path, None)
    assert not list(tmp_path.iterdir())

    kind = Literal["softmax", "sparsemax"]
    fields = [("weights", kind, "softmax")]
    wider = dataclasses.make_dataclass("ModelConfig", fields, bases=(ModelConfig,), frozen=True)
    assert message(Config(model=wider()), target) == ""
    refused = message(Config(model=wider(weights="sparsemax")), target)
    assert refused.startswith(f"--format={target}: model.weights=sparsemax: expected softmax; ")
    module = importlib.import_module(f"jax_transformer.formats.{target}")
    names = {part.name for part in dataclasses.fields(ModelConfig)}
    assert names >= module.accepted_settings(MODEL).keys()


def test_exported_files_are_as_readable_as_the_umask_says(vocabulary, tmp_path):
    trained, before = random_run(vocabulary, []), os.umask(0o022)
    try:
        for target, write in WRITERS.items():
            (tmp_path / target).mkdir()
            write(trained, tmp_path / target)
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in tmp_path.glob("*/*")} == {0o644}
