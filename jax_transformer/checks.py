"""Argument checks of the pure functions, for mistakes that JAX would accept in silence.

Shapes, types and static values are checked while JAX traces, so they cost a compiled function
nothing. Each check raises an `InputError` that names the argument.
"""

from collections.abc import Collection
from typing import Any, TypeGuard

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Float, PyTree

from jax_transformer.errors import InputError
from jax_transformer.types import AnyArray


def check_attention(queries: AnyArray, keys: AnyArray, *values: AnyArray) -> None:
    """Refuse arrays that are not Q, K and V of one attention; their leading axes may broadcast."""
    given = dict(zip(("queries", "keys", "values"), (queries, keys, *values), strict=False))
    shapes: list[tuple[int, ...]] = [
        array.shape
        if isinstance(array, AnyArray) and jnp.isdtype(array.dtype, ("integral", "real floating"))
        else ()  # complex numbers would lose a part
        for array in given.values()
    ]
    try:
        jnp.broadcast_shapes(*(shape[:-2] for shape in shapes))
        (_, d_k), (length, width), *others = (shape[-2:] for shape in shapes)
        fit = d_k == width and length and d_k and all(rows == length for rows, _ in others)
    except ValueError:  # an array has fewer than two axes, or they do not broadcast
        fit = False
    if not fit:
        axes = zip(given, ("Q, d_k", "K, d_k", "K, d_v"), strict=False)
        raise _wrong(
            ", ".join(given),
            "arrays " + ", ".join(f"{name} [..., {last}]" for name, last in axes),
            ", ".join(f"{name} {_shown(array)}" for name, array in given.items()),
        )


def fitted_mask(mask: AnyArray, shape: tuple[int, ...]) -> AnyArray:
    """Return the mask with an axis for each of the scores, [..., Q, K]: [Q, K] gets axes of 1.

    Refuse one with other axes, and a mask to be added, whose numbers would count as True.
    """
    bools = isinstance(mask, AnyArray) and mask.dtype == jnp.bool_
    found: tuple[int, ...] = mask.shape if bools else ()
    extra = max(0, len(found) - len(shape))  # a causal mask has four axes
    found = found[extra:] if set(found[:extra]) <= {1} else found
    if len(found) == 2:
        found = (1,) * (len(shape) - 2) + found
    pairs = list(zip(found, shape, strict=False))
    if len(found) != len(shape) or not all(size in (1, scores) for size, scores in pairs):
        expected = f"an array of bools, [Q, K] = {shape[-2:]}, or {shape} with 1 for any axis"
        raise _wrong("mask", expected, mask)
    return mask if found == mask.shape else mask.reshape(found)


def check_floats(**arguments: Any) -> None:
    """Refuse whole numbers, in whose type weights below 1 would be 0."""
    for name, array in arguments.items():
        if not isinstance(array, AnyArray) or not jnp.issubdtype(array.dtype, jnp.floating):
            raise _wrong(name, "an array of floats", array)


def check_axes(d_model: int, **arguments: Any) -> None:
    """Refuse x without a batch axis, or of another width: its axes would be taken for others."""
    for name, array in arguments.items():
        if not isinstance(array, AnyArray) or array.ndim != 3 or array.shape[-1] != d_model:
            raise _wrong(name, f"[B, positions, d_model = {d_model}]", array)


def check_tokens(size: int, axes: int = 0, **arguments: AnyArray) -> None:
    """Refuse what is not token ids, and ids outside a vocabulary of this size, which give NaN.

    Ids that JAX traces or that lie on other hosts are not known, so they are not refused.
    axes: the number of axes; 0 for any.
    """
    for name, ids in arguments.items():
        whole = isinstance(ids, AnyArray) and jnp.issubdtype(ids.dtype, jnp.integer)
        if not whole or axes not in (0, ids.ndim):
            raise _wrong(name, f"an array of token ids{', [B, positions]' if axes else ''}", ids)
        if isinstance(ids, Tracer) or not getattr(ids, "is_fully_addressable", True):
            continue
        known = np.asarray(ids)
        for unknown in known[(known < 0) | (known >= size)][:1]:
            raise _wrong(name, f"ids from 0 to {size - 1:,}, the rows of its table", f"{unknown:,}")


def check_parts(source: AnyArray, accumulate: int) -> None:
    """Refuse rows that cannot be split equally: there would be another number of parts."""
    if not isinstance(source, AnyArray) or not source.ndim:
        raise _wrong("batch.source", "an array of token ids, [B, positions]", source)
    rows = source.shape[0]
    if accumulate < 1 or rows % accumulate or accumulate > max(rows, 1):
        raise InputError(f"accumulate: expected a divisor of the {rows} rows, found {accumulate}")


def check_length(length: int, most: int) -> None:
    """Refuse more positions than a learned table has rows, which would give NaN."""
    if length > most:
        raise InputError(
            f"positions: expected at most {most:,}, the rows of the learned table "
            f"(model.max_positions), found {length:,}; give shorter sentences or, in a search, a "
            "smaller length or decoding.max_extra_length"
        )


def check_positions(positions: Any, d_model: int | np.integer) -> None:
    """Refuse an odd width, because sine and cosine come in pairs, and a wrong number of positions.

    A float would be taken for one position, a count below 0 for none.
    """
    if not is_whole(d_model) or d_model < 2 or d_model % 2:
        raise _wrong("d_model", "an even number, for sine and cosine", d_model)
    array = isinstance(positions, AnyArray | list | tuple | range)
    if not array and not (is_whole(positions) and positions >= 0):
        raise _wrong("positions", "an array of them, or their number", positions)


def check_ids(size: int, **arguments: int | np.integer) -> None:
    """Refuse a special token that a vocabulary of this size lacks: it would never occur."""
    for name, value in arguments.items():
        if not is_whole(value) or not 0 <= value < size:
            raise InputError(f"{name}: expected an id from 0 to {size - 1:,}, found {value!r}")


def check_pair(source: AnyArray, target: AnyArray, *segments: AnyArray | None) -> None:
    """Refuse segments of one side only, and sides whose numbers of rows differ.

    More target rows than source rows would be taken for hypotheses of the sources.
    """
    if isinstance(target, AnyArray) and target.shape[:1] != source.shape[:1]:
        raise _wrong("target", f"{len(source):,} rows, as source has", target)
    if sum(ids is None for ids in segments) == 1:
        raise InputError(
            "target_segments: expected segments of both sides or of neither, found those of one"
        )


def check_loss(
    logits: AnyArray, targets: AnyArray, label_smoothing: float | Float[AnyArray, ""]
) -> None:
    """Refuse targets that are not ids of the logits' shape, and a share outside [0, 1)."""
    check_floats(logits=logits)
    check_tokens(logits.shape[-1], targets=targets)
    if targets.shape != logits.shape[:-1]:
        raise _wrong("targets", f"token ids of shape {logits.shape[:-1]}, as logits have", targets)
    if not isinstance(label_smoothing, Tracer) and not 0 <= label_smoothing < 1:
        raise InputError(
            f"label_smoothing: expected at least 0 and below 1, found {label_smoothing!r}"
        )


def check_range(least: int, most: int, **arguments: Any) -> None:
    """Refuse a number that is known and outside a range."""
    for name, value in arguments.items():
        if not isinstance(value, Tracer) and not least <= value <= most:
            raise InputError(f"{name}: expected a number from {least} to {most}, found {value!r}")


def check_seed(seed: int | np.integer | AnyArray) -> None:
    """Refuse what is not one whole number, or does not fit into 32 bits."""
    array = isinstance(seed, AnyArray) and jnp.issubdtype(seed.dtype, jnp.integer)
    if not is_whole(seed) and not (array and jnp.ndim(seed) == 0):
        raise _wrong("seed", "a whole number", _shown(seed))
    known = seed if isinstance(seed, Tracer) else int(seed)  # JAX's int32 has no 2**32 - 1
    check_range(0, 2**32 - 1, seed=known)


def check_known(known: Collection[str], **arguments: str) -> None:
    """Refuse a name that is not known."""
    for name, value in arguments.items():
        if value not in known:
            raise _wrong(name, f"one of {', '.join(known)}", repr(value))


def check_search(
    state: PyTree,
    max_lengths: AnyArray,
    beam_size: int,
    n_best: int,
    *,
    alpha: float,
    patience: float,
    narrowing: bool = False,
) -> None:
    """Refuse options that would have no effect or overflow, and a state of other rows."""
    if not 1 <= n_best <= beam_size:
        raise InputError(f"n_best: expected 1 to beam_size, {beam_size}, found {n_best}")
    check_range(0, 10, alpha=alpha)
    check_range(0, 1000, patience=patience)
    if narrowing and patience != 1:
        raise InputError(f"narrowing: expected patience 1 beside it, found {patience}")
    if max_lengths.ndim != 1:
        raise _wrong("max_lengths", "an array [B], one for each sentence", max_lengths)
    rows = max_lengths.shape[0] * beam_size
    for leaf in jax.tree.leaves(state):
        if jnp.shape(leaf)[:1] != (rows,):
            raise _wrong("state", f"leaves of {rows:,} rows, sentences x beam_size", leaf)


def is_whole(value: Any) -> TypeGuard[int]:
    """Return whether a value is a whole number, of Python or NumPy."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _shown(found: Any) -> str:
    if isinstance(found, list | tuple):
        return f"a {type(found).__name__}"
    return f"{found.dtype} of shape {found.shape}" if hasattr(found, "dtype") else repr(found)


def _wrong(name: str, expected: str, found: Any) -> InputError:
    found = found if isinstance(found, str) else _shown(found)
    return InputError(f"{name}: expected {expected}, found {found}")
