"""The position encodings of a CTranslate2 folder: the paper's, Marian's, or a table."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jax_transformer.errors import InputError
from jax_transformer.formats.arrays import (
    Arrays,
    alternating,
    sines_then_cosines,
    tensor2tensor_positions,
)

MADE_ROWS = 1024  # of the table that CTranslate2 makes itself, as long as it needs it
_FEWEST_ROWS = 8

# Tables in float32 and float64 differ by 1e-4 at position 1,000, and float16 and bfloat16 round
# numbers below one by 2e-4 and 2e-3. Another formula differs by more within eight rows.
_TOLERANCE = 3e-3


class Positions(NamedTuple):
    """How our model gets the same positions."""

    settings: dict[str, Any]  # of ModelConfig
    table: Arrays  # "position_table", or none for the paper's sinusoids
    order: np.ndarray | None  # of d_model's dimensions, if theirs are not in the paper's order


def read_positions(
    path: Path, encoder: np.ndarray | None, decoder: np.ndarray | None, *, d_model: int
) -> Positions:
    """Return our settings for the tables of the two stacks; None for one that is not stored.

    Raises InputError, which names the path, for tables that differ.
    """
    made = tensor2tensor_positions(MADE_ROWS, d_model, first=1)
    table, other = (made if table is None else table for table in (encoder, decoder))
    if not np.array_equal(table, other):
        raise InputError(
            f"{path}: expected the same position_encodings/encodings in encoder and decoder, found "
            f"others, of shapes {list(table.shape)} and {list(other.shape)}; our stacks share them"
        )
    if table.shape[1] != d_model or len(table) < _FEWEST_ROWS:
        raise InputError(
            f"{path}: expected {_FEWEST_ROWS} or more position_encodings/encodings of width "
            f"{d_model}, found shape {list(table.shape)}; convert the model again"
        )
    if d_model % 2 == 0:
        sines_first, order = sines_then_cosines(*table.shape), alternating(d_model)
        if np.abs(table - sines_first[:, order]).max() < _TOLERANCE:
            return Positions({}, {}, None)
        if np.abs(table - sines_first).max() < _TOLERANCE:
            return Positions({}, {}, order)
    settings = {"positions": "learned", "max_positions": len(table)}
    return Positions(settings, {"position_table": table}, None)
