"""CTranslate2's side of a comparison as files: its model, and the sources both decode from."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.decode import never_ending
from benchmarks.measuring import BOS_ID, EOS_ID, PAD_ID, Shape, random_sentences
from benchmarks.training_work import random_params
from jax_transformer.export.arrays import flat_arrays
from jax_transformer.export.ctranslate2 import write_ctranslate2, write_ctranslate2_model
from jax_transformer.runs.loading import restore
from jax_transformer.runs.run_dir import RunFolder

SPECIAL = ["<pad>", "<s>", "</s>", "<unk>"]  # in the order of their ids


def random_pieces(size: int) -> list[str]:
    """Names for `size` words that nobody reads."""
    return [*SPECIAL, *(f"w{index}" for index in range(len(SPECIAL), size))]


def write_random(shape: Shape, rows: int, length: int, positions: int, folder: Path) -> None:
    """Random parameters and sources, for both sides, in `folder`.

    work.npz: parameters and "source" [rows, length], EOS included; model: CTranslate2's, of
    sentences of at most `positions` tokens; sources.json: the sources in pieces, without EOS.
    """
    assert tuple(map(SPECIAL.index, ("<pad>", "<s>", "</s>"))) == (PAD_ID, BOS_ID, EOS_ID)
    params = never_ending(random_params(shape))
    random = np.random.default_rng(1)
    source = random_sentences(random, np.full(rows, length), length, shape.vocabulary_size)
    arrays: Any = flat_arrays(params)
    np.savez(folder / "work.npz", source=source, **arrays)
    pieces, model = random_pieces(shape.vocabulary_size), folder / "model"
    model.mkdir()
    write_ctranslate2_model(params, shape.model, positions, pieces, model)
    texts = [[pieces[token] for token in row[:-1]] for row in source.tolist()]
    (folder / "sources.json").write_text(json.dumps(texts), encoding="utf-8")


def write_trained(workdir: str, checkpoint: str | None, folder: Path) -> None:
    """What experiments.export writes of a run for CTranslate2, in `folder`, which it makes."""
    run = RunFolder(workdir)
    trained = restore(run, checkpoint)
    folder.mkdir()
    write_ctranslate2(trained, run.vocabulary, folder, None)
