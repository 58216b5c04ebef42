"""Exported folders as the programs read them that they are for: log P."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flax import traverse_util

from jax_transformer.config import ModelConfig
from jax_transformer.decoding.generate import log_probabilities
from jax_transformer.models.transformer import Transformer

PAD, BOS, EOS = 0, 1, 2
Ids = list[int]


class CTranslate2:
    """Through its own C++ library; the end of the source is put in there."""

    def __init__(self, folder: Path) -> None:
        ctranslate2 = pytest.importorskip(
            "ctranslate2", reason="reads the export: pip install -e '.[export]'"
        )
        sentencepiece = pytest.importorskip("sentencepiece")
        self.pieces = sentencepiece.SentencePieceProcessor()
        self.pieces.Load(str(folder / "vocabulary.model"))
        self.translator = ctranslate2.Translator(str(folder), device="cpu", intra_threads=1)

    def log_probabilities(self, sources: list[Ids], targets: list[Ids]) -> list[np.ndarray]:
        given = [[self._texts(ids[:-1]) for ids in side] for side in (sources, targets)]
        return [np.array(score.log_probs) for score in self.translator.score_batch(*given)]

    def _texts(self, ids: Ids) -> list[str]:
        return [self.pieces.IdToPiece(i) for i in ids]


class Marian:
    """Through Hugging Face's MarianMTModel, with the epsilon that the export's README sets."""

    def __init__(self, folder: Path) -> None:
        why = "reads the export: pip install -e '.[torch]'"
        self.torch = pytest.importorskip("torch", reason=why)
        self.transformers: Any = pytest.importorskip("transformers", reason=why)
        self.model, self.loading = self.transformers.MarianMTModel.from_pretrained(
            folder, output_loading_info=True
        )
        for module in self.model.modules():
            if isinstance(module, self.torch.nn.LayerNorm):
                module.eps = 1e-6

    def log_probabilities(self, sources: list[Ids], targets: list[Ids]) -> list[np.ndarray]:
        inputs = self.torch.tensor(padded([[BOS, *target[:-1]] for target in targets]))
        with self.torch.no_grad():
            logits = self.model(**self._batch(sources), decoder_input_ids=inputs).logits
        logs = logits.log_softmax(-1).numpy()
        return [logs[i, np.arange(len(ids)), ids] for i, ids in enumerate(targets)]

    def _batch(self, sources: list[Ids]) -> dict[str, Any]:
        tokens = self.torch.tensor(padded(sources))
        return {"input_ids": tokens, "attention_mask": (tokens != PAD).long()}


class Safetensors:
    """Our own model, built from the settings and arrays in the folder alone."""

    def __init__(self, folder: Path) -> None:
        why = "reads the export: pip install -e '.[export]'"
        load_file = pytest.importorskip("safetensors.numpy", reason=why).load_file
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        model = ModelConfig(**config["model"])
        self.model = Transformer(model, config["vocabulary_size"], config["pad_id"])
        self.bos_id = config["bos_id"]
        self.params = traverse_util.unflatten_dict(load_file(folder / "model.safetensors"), sep="/")

    def log_probabilities(self, sources: list[Ids], targets: list[Ids]) -> list[np.ndarray]:
        sides = padded(sources), padded(targets)
        found = log_probabilities(self.model, self.params, *sides, bos_id=self.bos_id)
        return [np.asarray(row)[: len(ids)] for row, ids in zip(found, targets, strict=True)]


READERS = {"ctranslate2": CTranslate2, "marian": Marian, "safetensors": Safetensors}


def padded(rows: list[Ids]) -> Any:
    """The rows as an array, padded with PAD at the end."""
    result = np.full((len(rows), max(map(len, rows))), PAD)
    for row, ids in zip(result, rows, strict=True):
        row[: len(ids)] = ids
    return result
