"""Experiments that are no rows of the paper: demo, Multi30k, treebanks, Table 3 in miniature."""

from typing import Any

from experiments.configs.paper import BIG, PARSING, Experiment

# The smallest model with published scores (Wu et al. 2021): 4 + 4 layers of 128.
TINY_MODEL: dict[str, Any] = {
    "model.num_layers": 4,
    "model.d_model": 128,
    "model.d_ff": 256,
    "model.num_heads": 4,
    "model.d_k": 32,
    "model.d_v": 32,
}

# The paper has one pair in a row (§5.1). Several in a row leave fewer shapes to compile, and on
# Multi30k they made a better model in as many steps (docs/measurements/2026-11-v0.1.md).
OWN_TEXT = {"data.packing": True}

MULTI30K = {
    **TINY_MODEL,
    **OWN_TEXT,
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

# What 2 cores can train on 25,000 trees. Two layers and a high rate, and positions that count
# words, so that the decoder soon knows which word it is at: see docs/measurements.
SMALL_PARSING = {
    **PARSING,
    "model.num_layers": 2,
    "model.d_model": 256,
    "model.d_ff": 1024,
    "model.num_heads": 4,
    "model.d_k": 64,
    "model.d_v": 64,
    "model.dropout_rate": 0.1,
    "model.attention_dropout_rate": 0.0,
    "model.positions": "words",
    "training.steps": 9000,
    "training.batch_tokens": 3072,
    "training.warmup_steps": 800,
    "training.learning_rate_scale": 1.5,
    "training.checkpoint_steps": 250,
    "training.keep_checkpoints": 40,
    "training.average_last": 10,
    "training.evaluate_steps": 3000,
    "data.vocabulary_size": 16_000,
    "data.vocabulary_up_to": True,
}

# Table 3 in miniature: one row of each kind, at a scale that a CPU trains in minutes. What a row
# changes is in proportion to what its counterpart in the paper changes.
BASE: dict[str, Any] = {
    **TINY_MODEL,
    "training.steps": 1200,
    "training.batch_tokens": 2048,
    "training.warmup_steps": 400,
    "training.learning_rate_scale": 0.5,
    "training.checkpoint_steps": 200,
    "training.evaluate_steps": 400,
    "training.keep_checkpoints": 2,
    "training.average_last": 1,
    "data.vocabulary_size": 8000,
    "data.vocabulary_up_to": True,
    "data.buckets": 6,
}


def _row(what: str, changes: dict[str, Any]) -> Experiment:
    return Experiment(f"Table 3 in miniature {what}", {**BASE, **changes}, scored_on="dev")


def _heads(count: int) -> dict[str, Any]:
    """As many heads over the same d_model."""
    width = BASE["model.d_model"] // count
    return {"model.num_heads": count, "model.d_k": width, "model.d_v": width}


MINIATURE = {
    "miniature-base": _row("base", {}),
    "miniature-A-h1": _row("(A): 1 head", _heads(1)),
    "miniature-A-h32": _row("(A): 32 heads", _heads(32)),
    "miniature-B-dk8": _row("(B): keys of a quarter", {"model.d_k": 8}),
    "miniature-C-N2": _row("(C): half the layers", {"model.num_layers": 2}),
    "miniature-C-dff512": _row("(C): twice d_ff", {"model.d_ff": 512}),
    "miniature-D-dropout0.0": _row("(D): no dropout", {"model.dropout_rate": 0.0}),
    "miniature-D-smoothing0.0": _row("(D): no label smoothing", {"training.label_smoothing": 0.0}),
    "miniature-E-learned": _row("(E): learned positions", {"model.positions": "learned"}),
}

# The row of the paper that each stands for. The paper has no row of N / 2 = 3: 2 and 4 are
# both worse than base, and 4 is the nearer in size.
COUNTERPARTS = {
    "miniature-base": "table3-base",
    "miniature-A-h1": "table3-A-h1",
    "miniature-A-h32": "table3-A-h32",
    "miniature-B-dk8": "table3-B-dk16",
    "miniature-C-N2": "table3-C-N4",
    "miniature-C-dff512": "table3-C-dff4096",
    "miniature-D-dropout0.0": "table3-D-dropout0.0",
    "miniature-D-smoothing0.0": "table3-D-smoothing0.0",
    "miniature-E-learned": "table3-E-learned",
}

SMALL = {
    "demo": Experiment(
        "English-German sentences of a built-in grammar; minutes on a CPU, no download",
        {
            **TINY_MODEL,
            "model.num_layers": 2,
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
            "data.packing": True,
        },
        corpus="demo",
    ),
    "demo-parsing": Experiment(
        "trees of a built-in grammar; minutes on a CPU, no download",
        {
            **PARSING,
            **TINY_MODEL,
            "model.num_layers": 2,
            "model.dropout_rate": 0.0,
            "model.attention_dropout_rate": 0.0,
            "training.steps": 1800,
            "training.batch_tokens": 2048,
            "training.warmup_steps": 300,
            "training.learning_rate_scale": 0.7,
            "training.checkpoint_steps": 100,
            "training.evaluate_steps": 600,
            "decoding.beam_size": 4,
            "decoding.max_extra_length": 100,
            "data.vocabulary_size": 1000,
            "data.vocabulary_up_to": True,
            "data.max_length": 128,
            "data.buckets": 6,
        },
        corpus="demo-trees",
    ),
    "base": Experiment("the paper's base model (Table 3, row 1), on your own files", OWN_TEXT),
    "big": Experiment(
        "the paper's big model (Table 3, last row), on your own files", {**BIG, **OWN_TEXT}
    ),
    "multi30k-en-de": Experiment(
        "image captions, lower-cased and tokenised; scored as published work does", MULTI30K
    ),
    "multi30k-en-de-cased": Experiment(
        "image captions as they were written; scored by cased sacreBLEU",
        {**MULTI30K, "data.bleu_tokenize": "13a", "data.bleu_lowercase": False},
    ),
    "treebank": Experiment(
        "parsing with Table 4's settings, on your own trees", PARSING, corpus="treebank"
    ),
    "treebank-small": Experiment(
        "parsing with a model that 2 cores can train, on your own trees",
        SMALL_PARSING,
        corpus="treebank",
        scored_on="dev",
    ),
    **MINIATURE,
}
