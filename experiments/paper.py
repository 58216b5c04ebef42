"""Every experiment by name, as data: what each changes from the paper's base model."""

from dataclasses import dataclass, field
from typing import Any

from jax_transformer.config import Config, did_you_mean, override
from jax_transformer.errors import InputError


@dataclass(frozen=True)
class Experiment:
    """A name's meaning: settings that differ from base, and whether it brings its own text."""

    purpose: str
    changes: dict[str, Any] = field(default_factory=dict)
    corpus: str = "files"  # or "demo": the built-in grammar, where no files are given

    def config(self) -> Config:
        """The resolved settings."""
        config = Config()
        for name, value in self.changes.items():
            config = override(config, f"{name}={value}")
        return config


BIG = {
    "model.d_model": 1024,
    "model.d_ff": 4096,
    "model.num_heads": 16,
    "model.dropout_rate": 0.3,
    "training.steps": 300_000,
    "training.checkpoint_steps": 600,
    "training.average_last": 20,
}

MULTI30K = {
    "model.num_layers": 4,
    "model.d_model": 128,
    "model.d_ff": 256,
    "model.num_heads": 4,
    "model.d_k": 32,
    "model.d_v": 32,
    "model.dropout_rate": 0.3,
    "training.steps": 8000,
    "training.batch_tokens": 4096,
    "training.warmup_steps": 1000,
    "training.checkpoint_steps": 250,
    "training.keep_checkpoints": 40,
    "training.average_last": 10,
    "decoding.alpha": 1.25,  # chosen on dev
    "data.vocabulary_size": 8000,
    "data.vocabulary_up_to": True,
    "data.bleu_tokenize": "none",
    "data.bleu_lowercase": True,
}

EXPERIMENTS = {
    "demo": Experiment(
        "English-German sentences of a built-in grammar; minutes on a CPU, no download",
        {
            "model.num_layers": 2,
            "model.d_model": 128,
            "model.d_ff": 256,
            "model.num_heads": 4,
            "model.d_k": 32,
            "model.d_v": 32,
            # Each sentence is seen a dozen times: too few to need dropout.
            "model.dropout_rate": 0.0,
            "training.steps": 2500,
            "training.batch_tokens": 1536,
            "training.warmup_steps": 300,
            "training.learning_rate_scale": 0.7,
            "training.checkpoint_steps": 100,
            "training.evaluate_steps": 500,
            "data.vocabulary_size": 2500,
            "data.buckets": 6,
        },
        corpus="demo",
    ),
    "base": Experiment("the paper's base model (Table 3, row 1), on your own files"),
    "big": Experiment("the paper's big model (Table 3, last row), on your own files", BIG),
    "multi30k-en-de": Experiment(
        "image captions, lower-cased and tokenised; scored as published work does", MULTI30K
    ),
    "multi30k-en-de-cased": Experiment(
        "image captions as they were written; scored by cased sacreBLEU",
        {**MULTI30K, "data.bleu_tokenize": "13a", "data.bleu_lowercase": False},
    ),
}


def find_experiment(name: str) -> Experiment:
    """The experiment of this name. InputError with the nearest name for an unknown one."""
    if name not in EXPERIMENTS:
        raise InputError(
            f"--experiment={name}: no experiment is called so{did_you_mean(name, EXPERIMENTS)}"
        )
    return EXPERIMENTS[name]
