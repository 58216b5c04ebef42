"""What contenders have to agree on, so that it is the same work that is timed."""

from collections.abc import Sequence
from typing import Any

from benchmarks.contest import Result
from jax_transformer.errors import InputError

TOLERANCE = 1e-4  # relative, of log P in float32; int8 rounds and is shown, not judged


def check_losses(facts: dict[str, dict[str, Any]], tolerance: float) -> None:
    """All losses of the same parameters are one. InputError where they are not."""
    losses = {name: fact["loss"] for name, fact in facts.items() if "loss" in fact}
    first = next(iter(losses.values()), 0.0)
    # Each for itself, because min and max may pass over what is not a number.
    if not all(abs(loss - first) <= tolerance * abs(first) for loss in losses.values()):
        found = ", ".join(f"{name} {loss:.6f}" for name, loss in losses.items())
        raise InputError(
            f"expected one loss of the same parameters and batch, found {found}; what is compared "
            "is not the same model: report it"
        )


def check_scores(facts: dict[str, dict[str, Any]]) -> None:
    """Log P of the same sentences is the same in float32. InputError where it is not."""
    if not {"jax", "ctranslate2"} <= set(facts):
        return
    ours, theirs = facts["jax"]["scores"], facts["ctranslate2"]["scores"]
    if not all(scores_apart([a], [b]) <= TOLERANCE for a, b in zip(ours, theirs, strict=True)):
        raise InputError(
            f"expected the same log P of the same sentences, found jax {ours} and ctranslate2 "
            f"{theirs}; what is compared is not the same model: report it"
        )


def scores_apart(ours: list[float], theirs: list[float]) -> float:
    """The largest difference, relative to ours."""
    return max(abs((a - b) / a) for a, b in zip(ours, theirs, strict=True))


def check_lengths(found: dict[str, Result], steps: int) -> None:
    """Every output had the asked length. InputError where one had not."""
    for name, result in found.items():
        lengths = {length for turn in result.results for length in turn}
        if lengths != {steps}:
            raise InputError(
                f"{name}: expected outputs of {steps} tokens, found {sorted(lengths)}; the work "
                "is not the same: report it"
            )


def same_share(ours: Sequence[str], theirs: Sequence[str]) -> float:
    """The share of lines that are the same."""
    assert len(ours) == len(theirs)
    return sum(a == b for a, b in zip(ours, theirs, strict=True)) / len(ours)
