"""What the functions of the library expect of their arguments; what does not fit is an InputError.

Shapes and types are checked while JAX traces, so they cost a compiled function nothing. Token ids
are compared with the vocabulary only outside of `jax.jit`, where their values are known.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jax_transformer.config import DecodingConfig, ModelConfig
from jax_transformer.errors import InputError, expect_a


def check_transformer(model: Any) -> None:
    """The attributes of a `Transformer`."""
    expect_a(ModelConfig, config=model.config)
    target_size = model.target_vocabulary_size or model.vocabulary_size
    check_counts(vocabulary_size=model.vocabulary_size, target_vocabulary_size=target_size)
    check_id(min(model.vocabulary_size, target_size), pad_id=model.pad_id)


def check_pair(model: Any, source: Any, target: Any, *layouts: Any) -> None:
    """The arguments of a `Transformer`: token ids, row by row, and their layouts."""
    target_size = model.target_vocabulary_size or model.vocabulary_size
    check_tokens(model.vocabulary_size, source=source)
    check_tokens(target_size, target=target)
    if source.shape[0] != target.shape[0]:
        raise _wrong("target", f"as many rows as source, {source.shape[0]:,}", target)
    sides = {"source": source, "target": target}
    for (side, tokens), layout in zip(sides.items(), layouts, strict=True):
        for part, given in layout._asdict().items():
            if given is not None and jnp.shape(given) != tokens.shape:
                raise _wrong(f"{side}_layout.{part}", f"the shape of {side}, {tokens.shape}", given)
        _check_length(model.config, layout.positions, **{side: tokens.shape[1]})


def check_translation(
    model: Any, source: Any, decoding: Any, length: int | None, **ids: int
) -> None:
    """The arguments of `translate`."""
    check_model(model)
    expect_a(DecodingConfig, decoding=decoding)
    check_tokens(model.vocabulary_size, source=source)
    check_id(model.target_vocabulary_size or model.vocabulary_size, **ids)
    if length is not None:
        check_counts(length=length)
    most = length or source.shape[1] + decoding.max_extra_length
    _check_length(model.config, None, source=source.shape[1], length=most)


def check_model(model: Any) -> None:
    """A `Transformer`, which this file cannot import."""
    if not hasattr(model, "target_vocabulary_size"):
        give = "; give its module" if hasattr(model, "module") else ""
        raise InputError(f"model: expected a Transformer, found a {type(model).__name__}{give}")


def check_step(model: Any, bos_id: Any, label_smoothing: Any) -> None:
    """The arguments of `make_loss`."""
    check_model(model)
    check_id(model.target_vocabulary_size or model.vocabulary_size, bos_id=bos_id)
    check_share(label_smoothing=label_smoothing)


def check_loss(logits: Any, targets: Any, label_smoothing: Any) -> None:
    """The arguments of `label_smoothed_cross_entropy`."""
    if not _is(logits, jnp.floating) or logits.ndim < 2:
        raise _wrong("logits", "an array of numbers, [B, T, V]", logits)
    if not _is(targets, jnp.integer) or targets.shape != logits.shape[:-1]:
        raise _wrong("targets", f"token ids of shape {logits.shape[:-1]}, as logits have", targets)
    _check_ids(logits.shape[-1], "targets", targets)
    check_share(label_smoothing=label_smoothing)


def check_search(state: Any, max_lengths: Any, *, alpha: Any, patience: Any, **counts: Any) -> None:
    """The arguments of `beam_search`; counts are beam_size, length and n_best."""
    check_counts(**counts)
    beam_size, n_best = counts["beam_size"], counts["n_best"]
    if n_best > beam_size:
        raise InputError(f"n_best: expected at most beam_size, {beam_size}, found {n_best}")
    for name, value in (("alpha", alpha), ("patience", patience)):
        if isinstance(value, bool | str) or not value >= 0:
            raise InputError(f"{name}: expected a number of at least 0, found {value!r}")
    if not _is(max_lengths, jnp.integer) or max_lengths.ndim != 1:
        raise _wrong("max_lengths", "an array of whole numbers, one for each sentence", max_lengths)
    rows = max_lengths.shape[0] * beam_size
    for leaf in jax.tree.leaves(state):
        if jnp.shape(leaf)[:1] != (rows,):
            raise _wrong("state", f"leaves of {rows:,} rows, sentences x beam_size", leaf)


def check_mask(mask: Any, queries: Any, keys: Any) -> None:
    """The mask of an attention."""
    whole = (queries.shape[0], 1, queries.shape[2], keys.shape[2])
    fits = _is(mask, jnp.bool_) and mask.ndim == 4
    if not fits or any(n not in (1, most) for n, most in zip(mask.shape, whole, strict=True)):
        raise _wrong("mask", f"bools that broadcast to {whole}", mask)


def check_positions(positions: Any, d_model: int) -> None:
    """The arguments of `positional_encoding`."""
    if not _is(positions, jnp.integer):
        raise _wrong("positions", "an array of whole numbers, such as jnp.arange(10)", positions)
    if d_model % 2:
        raise InputError(f"d_model: expected an even number, for sine and cosine, found {d_model}")


def check_tokens(size: int, **arguments: Any) -> None:
    """Token ids of a vocabulary, [rows, tokens]."""
    for name, tokens in arguments.items():
        if not _is(tokens, jnp.integer) or tokens.ndim != 2:
            raise _wrong(name, "an array of token ids, [rows, tokens]", tokens)
        _check_ids(size, name, tokens)


def check_counts(**arguments: Any) -> None:
    """Whole numbers from 1 on."""
    for name, value in arguments.items():
        if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 1:
            raise InputError(f"{name}: expected a whole number of at least 1, found {value!r}")


def check_id(size: int, **arguments: Any) -> None:
    """One token id of a vocabulary."""
    for name, value in arguments.items():
        whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
        if not whole or not 0 <= value < size:
            raise InputError(f"{name}: expected an id from 0 to {size - 1:,}, found {value!r}")


def check_share(**arguments: Any) -> None:
    """A part of the whole, below all of it."""
    for name, value in arguments.items():
        if isinstance(value, Tracer):
            continue
        if isinstance(value, bool | str) or not 0 <= value < 1:
            raise InputError(f"{name}: expected at least 0 and below 1, found {value!r}")


def _check_ids(size: int, name: str, tokens: Any) -> None:
    if isinstance(tokens, Tracer) or not tokens.size:
        return
    if not getattr(tokens, "is_fully_addressable", True):  # some are on other hosts
        return
    values = np.asarray(tokens)
    low, high = int(values.min()), int(values.max())
    if low < 0 or high >= size:
        wrong = low if low < 0 else high
        raise InputError(f"{name}: expected token ids from 0 to {size - 1:,}, found {wrong:,}")


def _check_length(config: ModelConfig, positions: Any, **lengths: int) -> None:
    """A table of positions would silently repeat its last row."""
    for name, length in lengths.items():
        if config.positions == "learned" and positions is None and length > config.max_positions:
            raise InputError(
                f"{name}: expected at most max_positions, {config.max_positions:,} tokens, found "
                f"{length:,}"
            )


def _is(array: Any, kind: Any) -> bool:
    return hasattr(array, "dtype") and jnp.issubdtype(array.dtype, kind)


def _wrong(name: str, expected: str, found: Any) -> InputError:
    if hasattr(found, "dtype"):
        shown = f"{found.dtype} of shape {found.shape}"
    else:
        shown = repr(found)
        shown = shown if len(shown) <= 40 else f"a {type(found).__name__}"
    return InputError(f"{name}: expected {expected}, found {shown}")
