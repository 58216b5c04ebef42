"""Weights that a name and a shape determine, so that a test knows what a recorded file holds."""

import zlib

import numpy as np


def drawn(name: str, *shape: int) -> np.ndarray:
    """Return float32 numbers from -1 to 1 in steps of 1/100.

    Scales of norms are from 0.5 to 1.5, and their biases from -0.1 to 0.1. Few numbers make small
    files when these are compressed, and most cannot be held in float16.
    """
    random = np.random.default_rng(zlib.crc32(name.encode()))
    array = random.integers(-100, 101, size=shape) / 100
    if "norm" in name:
        array = 1 + array / 2 if name.endswith(("weight", "gamma", "scale")) else array / 10
    return array.astype(np.float32)
