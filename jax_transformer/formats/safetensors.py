"""A trained model as safetensors: its arrays by their own names, settings, and the vocabulary."""

import dataclasses
from pathlib import Path

from jax_transformer.config import ModelConfig
from jax_transformer.data.vocabularies.sentencepiece import SentencePieceVocabulary
from jax_transformer.errors import InputError
from jax_transformer.files import write_json
from jax_transformer.formats.exported import COMMON_SETTINGS, text_vocabularies, write_readme
from jax_transformer.formats.imported import Accepted
from jax_transformer.formats.layout import flat_arrays
from jax_transformer.runs.model import TrainedModel


def accepted_settings(_: ModelConfig) -> Accepted:
    """Return the settings whose meaning the README.md of an exported folder explains."""
    return {
        **COMMON_SETTINGS,
        **dict.fromkeys(("num_heads", "d_k", "d_v", "attention_radius")),
    }


def write_safetensors(trained: TrainedModel, out: Path) -> None:
    """Write arrays, settings, vocabulary and README.md into the folder `out`."""
    from safetensors.numpy import save

    config, (ids, target) = trained.config, text_vocabularies(trained)
    if ids is not target:
        raise InputError(
            "expected one vocabulary for both sides, found separate ones, which the folder cannot "
            "hold; export with --format=ctranslate2"
        )
    if not isinstance(ids, SentencePieceVocabulary):
        raise InputError(
            "expected a vocabulary whose ids are those of sentencepiece, found an imported table "
            "of pieces, which the folder cannot hold; export with --format=ctranslate2"
        )
    # save_file would make a file that its owner alone can read.
    (out / "model.safetensors").write_bytes(save(flat_arrays(trained.params)))
    settings = {
        "experiment": trained.run.experiment,
        "steps": trained.steps,
        "vocabulary_size": ids.size,
        "pad_id": ids.pad_id,
        "bos_id": ids.bos_id,
        "eos_id": ids.eos_id,
        "unk_id": ids.unk_id,
        "max_length": config.data.max_length,
        "max_extra_length": config.decoding.max_extra_length,
        "model": dataclasses.asdict(config.model),
    }
    write_json(out / "config.json", settings)
    (out / "vocabulary.model").write_bytes(ids.sentencepiece or b"")
    write_readme(trained, out, "safetensors.md")
