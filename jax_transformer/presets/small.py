"""Experiments outside of the paper: demo, Multi30k, treebanks, Table 3 in miniature."""

from typing import Any

from jax_transformer.presets.paper import BIG, PARSING, Experiment, heads, listed

# The smallest model with published scores (Wu et al. 2021), for a CPU: 4 + 4 layers of 128.
TINY_MODEL: dict[str, Any] = {
    # A batch is searched until its last sentence is complete. A CPU needs no large ones.
    "decoding.batch_tokens": 1024,
    "model.num_layers": 4,
    "model.d_model": 128,
    "model.d_ff": 256,
    "model.num_heads": 4,
}

# The paper has one pair in a row (§5.1). With several there are fewer shapes to compile, and on
# Multi30k the model was better after equally many steps (docs/measurements/2026-11-cpu-models.md).
PACKED = {"data.packing": True}

# The recipe of Wu et al. (2021): the rate peaks at 0.005, and the model is the mean of the last 530
# steps. It has converged by then (docs/measurements/2026-11-29-multi30k.md).
MULTI30K = {
    **TINY_MODEL,
    **PACKED,
    "model.dropout_rate": 0.3,
    "training.steps": 4240,
    "training.batch_tokens": 8192,
    "training.warmup_steps": 2000,
    "training.learning_rate_scale": 2.53,
    "training.checkpoint_steps": 53,
    "training.keep_checkpoints": 40,
    "training.average_last": 10,
    "training.evaluate_steps": 530,
    "decoding.alpha": 1.25,  # chosen on dev
    "data.vocabulary_size": 10_000,
    "data.vocabulary_up_to": True,
    "data.bleu_tokenize": "none",
    "data.bleu_lowercase": True,
}

# Between Multi30k's model and base, for hundreds of thousands of pairs.
SMALL_TRANSLATION = {
    **PACKED,
    "model.num_layers": 3,
    "model.d_model": 256,
    "model.d_ff": 1024,
    "model.num_heads": 4,
    "training.steps": 8000,
    "training.batch_tokens": 8192,
    "training.accumulate": 2,  # the logits of a whole batch need half a gigabyte
    "training.warmup_steps": 1000,
    "training.learning_rate_scale": 1.5,
    "training.checkpoint_steps": 200,
    "training.average_last": 10,
    "training.evaluate_steps": 1000,
    "data.vocabulary_size": 16_000,
    "data.vocabulary_up_to": True,
}

# For 25,000 trees and 2 cores. Positions that count words, and pre-norm: so the decoder soon learns
# which word it is at (docs/measurements/2026-11-29-parsing.md).
SMALL_PARSING = {
    **PARSING,
    "model.num_layers": 4,
    "model.decoder_layers": 2,
    "model.norm_position": "pre",
    "model.d_model": 256,
    "model.d_ff": 1024,
    "model.num_heads": 4,
    "model.dropout_rate": 0.2,
    "model.attention_dropout_rate": 0.0,
    "data.word_positions": True,
    "training.steps": 9000,
    "training.batch_tokens": 3072,
    "training.warmup_steps": 800,
    "training.learning_rate_scale": 1.5,
    "training.checkpoint_steps": 250,
    "training.keep_checkpoints": 40,
    "training.average_last": 10,
    "training.evaluate_steps": 3000,
    "data.vocabulary_size": 6000,
    "data.vocabulary_up_to": True,
    # On CRAFT 18% of the tokens are padding. With 23 shapes it is 13%, but they take two minutes
    # more to compile, as long as the padding takes.
    "data.buckets": 12,
}

# Table 3 in miniature: one row of each kind, for twenty minutes on a CPU core. Each changes a
# setting by about the factor by which the paper's row changes it. Thirteen passes over Multi30k:
# with fewer, the rows differ by how fast they learn, not by how well.
BASE: dict[str, Any] = {
    **TINY_MODEL,
    **PACKED,
    "training.steps": 6000,
    "training.batch_tokens": 1024,
    "training.warmup_steps": 800,
    "training.learning_rate_scale": 0.5,
    "training.checkpoint_steps": 200,
    "training.evaluate_steps": 2000,
    "training.keep_checkpoints": 2,
    "training.average_last": 1,
    "data.vocabulary_size": 8000,
    "data.vocabulary_up_to": True,
    "data.buckets": 4,  # each row compiles its shapes again
}


# Name -> the paper's row that it stands for, and its changes. The paper has no row of N / 2 = 3:
# 2 and 4 are both worse than base, and 4 is nearer in size.
_ROWS = {
    "miniature-base": ("table3-base", {}),
    "miniature-A-h1": ("table3-A-h1", heads(1, 128)),
    "miniature-A-h32": ("table3-A-h32", heads(32, 4)),
    "miniature-B-dk8": ("table3-B-dk16", {"model.d_k": 8}),
    "miniature-C-N2": ("table3-C-N4", {"model.num_layers": 2}),
    "miniature-C-dff512": ("table3-C-dff4096", {"model.d_ff": 512}),
    "miniature-D-dropout0.0": ("table3-D-dropout0.0", {"model.dropout_rate": 0.0}),
    "miniature-D-smoothing0.0": ("table3-D-smoothing0.0", {"training.label_smoothing": 0.0}),
    "miniature-E-learned": ("table3-E-learned", {"model.positions": "learned"}),
}
COUNTERPARTS = {name: paper_row for name, (paper_row, _) in _ROWS.items()}
MINIATURE = {
    name: Experiment(
        f"Table 3 in miniature: {listed(changes)}", {**BASE, **changes}, scored_on="dev"
    )
    for name, (_, changes) in _ROWS.items()
}

SMALL = {
    "demo": Experiment(
        "English-German sentences of a built-in grammar; minutes on a CPU, no download",
        {
            **TINY_MODEL,
            "model.num_layers": 2,
            # Each sentence is seen five or six times: too few to need dropout.
            "model.dropout_rate": 0.0,
            "training.steps": 3900,
            "training.average_last": 10,  # better on dev than 5
            "training.batch_tokens": 1024,
            "training.warmup_steps": 300,
            "training.learning_rate_scale": 0.7,
            "training.checkpoint_steps": 100,
            "training.evaluate_steps": 1000,
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
    "small": Experiment(
        "a model of 9.6 million parameters, for hundreds of thousands of pairs of your own",
        SMALL_TRANSLATION,
    ),
    "base": Experiment("the paper's base model (Table 3, row 1), on your own files", PACKED),
    "big": Experiment(
        "the paper's big model (Table 3, last row), on your own files", {**BIG, **PACKED}
    ),
    "multi30k-en-de": Experiment(
        "image captions, lower-cased and tokenized; scored as published work does", MULTI30K
    ),
    "multi30k-en-de-cased": Experiment(
        "image captions as they were written; scored by cased sacreBLEU",
        {
            **MULTI30K,
            "training.accumulate": 2,  # many train it on text of their own, with little memory
            "data.bleu_tokenize": "13a",
            "data.bleu_lowercase": False,
        },
    ),
    "treebank": Experiment(
        "parsing with Table 4's settings, on your own trees", PARSING, corpus="treebank"
    ),
    "treebank-small": Experiment(
        "parsing with a model that 2 cores can train, on your own trees",
        SMALL_PARSING,
        corpus="treebank",
    ),
    **MINIATURE,
}
