"""Recorded CTranslate2 folders, and our model's results."""

import json
import tarfile
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from references import FOLDER

from jax_transformer.config import DecodingConfig
from jax_transformer.decoding.generate import log_probabilities, translate
from jax_transformer.formats.imported import ImportedModel, parameters
from jax_transformer.runs.load import build_model
from jax_transformer.runs.run_dir import Run

NAMES = ["marian", "marian-int8", "m2m100", "opennmt", "opennmt-tf", "ours"]
SEARCHES: dict[str, dict[str, Any]] = {
    "greedy": {"beam_size": 1, "alpha": 0.0},
    "beam": {"beam_size": 4, "alpha": 1.0, "length_penalty": "length", "patience": 1.0},
}
LONGEST = 24  # tokens of CTranslate2's outputs
NEVER = np.finfo(np.float32).min
Arrays = dict[str, np.ndarray]


def extract(folder: Path) -> None:
    """Write the recorded folders."""
    with tarfile.open(FOLDER / "ctranslate2.tar.xz") as archive:
        archive.extractall(folder, filter="data")


def recorded_results(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "results.json").read_text(encoding="utf-8"))


# ---- Our results --------------------------------------------------------------------------


class OurModel:
    """An imported model that takes and gives pieces."""

    def __init__(self, imported: ImportedModel) -> None:
        run = Run("imported", 0, imported.config())
        self.source, self.target = imported.source, imported.target
        self.module = build_model(run, self.source, self.target)
        self.params = parameters(imported, run)

    def ids(self, side: str, rows: list[list[str]]) -> np.ndarray:
        """The rows as ids with the end mark, padded."""
        vocabulary = self.source if side == "source" else self.target
        table = {piece: index for index, piece in enumerate(vocabulary.all_pieces)}
        tag = [table[">>en<<"]] if side == "source" and ">>en<<" in table else []
        found = [
            [*tag, *(table.get(piece, vocabulary.unk_id) for piece in row), vocabulary.eos_id]
            for row in rows
        ]
        result = np.full((len(rows), max(map(len, found))), vocabulary.pad_id, np.int32)
        for row, ids in zip(result, found, strict=True):
            row[: len(ids)] = ids
        return result

    def log_probs(self, source: list[list[str]], target: list[list[str]]) -> list[np.ndarray]:
        score = jax.jit(partial(log_probabilities, self.module, bos_id=self.target.bos_id))
        found = score(self.params, self.ids("source", source), self.ids("target", target))
        rows = zip(np.asarray(found), target, strict=True)
        return [row[: len(pieces) + 1] for row, pieces in rows]

    def outputs(self, source: list[list[str]], search: str) -> list[list[str]]:
        """The pieces of each output, without the end mark."""
        decoding = DecodingConfig(**SEARCHES[search], max_extra_length=LONGEST)
        ids: Any = {"bos_id": self.target.bos_id, "eos_id": self.target.eos_id}
        find = jax.jit(
            lambda params, rows: translate(self.module, params, rows, decoding, **ids).tokens
        )
        rows = np.asarray(find(self.params, self.ids("source", source)))[:, 0].tolist()
        pieces, end = self.target.all_pieces, self.target.eos_id
        return [[pieces[index] for index in row[: row.index(end)]] for row in rows]


def without_end(row: list[str]) -> list[str]:
    return row[:-1] if row[-1:] == ["</s>"] else row


def differences(
    found: list[list[str]], expected: list[list[str]], search: str
) -> tuple[list[int], int]:
    """The rows that differ among those that are compared, and how many of those there are.

    CTranslate2 cuts outputs at LONGEST tokens. A greedy one is compared up to there.
    """
    expected = list(map(without_end, expected))
    if search == "greedy":
        return [i for i, row in enumerate(expected) if found[i][:LONGEST] != row], len(expected)
    ended = [i for i, row in enumerate(expected) if len(row) < LONGEST - 1]
    return [i for i in ended if found[i] != expected[i]], len(ended)
