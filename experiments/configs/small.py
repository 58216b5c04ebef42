"""Table 3 in miniature: one row of each kind, at a scale that a CPU trains in minutes.

What a row changes is in proportion to what its counterpart in the paper changes.
"""

from typing import Any

from experiments.configs.experiment import TINY_MODEL, Experiment

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
