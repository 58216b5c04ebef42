"""Argument checks of the pure functions, for mistakes that JAX would accept in silence.

Shapes, types and static values are checked while JAX traces, so they cost a compiled function
nothing. Each check raises an `InputError` that names the argument.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Float, PyTree

from jax_transformer.errors import InputError
from jax_transformer.types import AnyArray


def check_mask(mask: AnyArray) -> None:
    """Refuse a mask with other axes, and a mask to be added, whose numbers would count as True."""
    if mask.dtype != jnp.bool_ or mask.ndim != 4:
        raise _wrong("mask", "an array of bools, [B or 1, 1, Q or 1, K or 1]", mask)


def check_floats(**arguments: Any) -> None:
    """Refuse whole numbers, in whose type weights below 1 would be 0."""
    for name, array in arguments.items():
        if not jnp.issubdtype(array.dtype, jnp.floating):
            raise _wrong(name, "an array of floats", array)


def check_axes(d_model: int, **arguments: Any) -> None:
    """Refuse x without a batch axis, or of another width: its axes would be taken for others."""
    for name, array in arguments.items():
        if array.ndim != 3 or array.shape[-1] != d_model:
            raise _wrong(name, f"[B, positions, d_model = {d_model}]", array)


def check_parts(rows: int, accumulate: int) -> None:
    """Refuse rows that cannot be split equally: there would be another number of parts."""
    if accumulate < 1 or rows % accumulate:
        raise InputError(f"accumulate: expected a divisor of the {rows} rows, found {accumulate}")


def check_even(**arguments: int) -> None:
    """Refuse an odd width, because sine and cosine come in pairs."""
    for name, value in arguments.items():
        if value % 2:
            raise InputError(f"{name}: expected an even number, for sine and cosine, found {value}")


def check_ids(size: int, **arguments: int | np.integer) -> None:
    """Refuse a special token that a vocabulary of this size lacks: it would never occur."""
    for name, value in arguments.items():
        whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
        if not whole or not 0 <= value < size:
            raise InputError(f"{name}: expected an id from 0 to {size - 1:,}, found {value!r}")


def check_pair(source: AnyArray, target: AnyArray, *segments: AnyArray | None) -> None:
    """Refuse segments of one side only, and sides whose numbers of rows differ.

    More target rows than source rows would be taken for hypotheses of the sources.
    """
    if source.shape[0] != target.shape[0]:
        raise _wrong("target", f"{source.shape[0]:,} rows, as source has", target)
    if sum(ids is None for ids in segments) == 1:
        raise InputError(
            "target_segments: expected segments of both sides or of neither, found those of one"
        )


def check_loss(
    logits: AnyArray, targets: AnyArray, label_smoothing: float | Float[AnyArray, ""]
) -> None:
    """Refuse targets whose shape is not that of the logits, and a share outside [0, 1)."""
    if targets.shape != logits.shape[:-1]:
        raise _wrong("targets", f"token ids of shape {logits.shape[:-1]}, as logits have", targets)
    if not isinstance(label_smoothing, Tracer) and not 0 <= label_smoothing < 1:
        raise InputError(
            f"label_smoothing: expected at least 0 and below 1, found {label_smoothing!r}"
        )


def check_search(
    state: PyTree,
    max_lengths: AnyArray,
    beam_size: int,
    n_best: int,
    *,
    alpha: float,
    patience: float,
) -> None:
    """Refuse more outputs than hypotheses, an alpha that overflows, and a state of other rows."""
    if not 1 <= n_best <= beam_size:
        raise InputError(f"n_best: expected 1 to beam_size, {beam_size}, found {n_best}")
    for name, value, most in (("alpha", alpha, 10), ("patience", patience, 1000)):
        if not 0 <= value <= most:
            raise InputError(f"{name}: expected a number from 0 to {most}, found {value!r}")
    rows = max_lengths.shape[0] * beam_size
    for leaf in jax.tree.leaves(state):
        if jnp.shape(leaf)[:1] != (rows,):
            raise _wrong("state", f"leaves of {rows:,} rows, sentences x beam_size", leaf)


def _wrong(name: str, expected: str, found: Any) -> InputError:
    shown = f"{found.dtype} of shape {found.shape}" if hasattr(found, "dtype") else repr(found)
    return InputError(f"{name}: expected {expected}, found {shown}")
