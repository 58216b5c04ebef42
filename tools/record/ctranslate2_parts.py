"""Random weights, a writer of model.bin, and what CTranslate2 computes with a folder."""

import random
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from sentencepiece import SentencePieceProcessor

LETTERS = "abcdefgh"
LONGEST = 24  # tokens of an output
# CTranslate2 counts the end mark in |y| if it returns it.
SEARCHES: dict[str, dict[str, Any]] = {
    "greedy": {"beam_size": 1},
    "beam": {"beam_size": 4, "length_penalty": 1.0, "patience": 1.0, "return_end_token": True},
}
# What stands before and after the pieces of a source, which the user of CTranslate2 adds.
AROUND = {"marian": ([], ["</s>"]), "m2m100": (["__en__"], ["</s>"])}


def lines(seed: int, count: int = 24) -> list[str]:
    """Return lines of made-up words."""
    draw = random.Random(seed)
    words = ["".join(draw.choices(LETTERS, k=draw.randint(1, 5))) for _ in range(40)]
    return [" ".join(draw.choices(words, k=draw.randint(1, 6))) for _ in range(count)]


def results(folder: Path, count: int, seed: int = 11) -> dict[str, Any]:
    """Return texts and targets, their pieces, and what CTranslate2 computes in float32."""
    import ctranslate2

    kind = folder.name.partition("-")[0]
    before, after = AROUND.get(kind, ([], []))
    models = sorted(path.name for path in folder.glob("*.spm")) or [
        path.name for path in folder.glob("*.model")
    ]
    cutters = [SentencePieceProcessor(str(folder / name)) for name in (models * 2)[:2]]
    texts = {"source": lines(seed, count), "target": lines(seed + 1, count)}
    source, target = (
        [cutter.encode(line, out_type=str) for line in side]
        for cutter, side in zip(cutters, texts.values(), strict=True)
    )
    given = [[*before, *pieces, *after] for pieces in source]
    translator = ctranslate2.Translator(
        str(folder), device="cpu", compute_type="float32", intra_threads=1
    )
    scores = translator.score_batch(given, target)
    found: dict[str, Any] = {
        "texts": texts["source"],
        "source": source,
        "target": target,
        "log_probs": [score.log_probs for score in scores],
    }
    for name, search in SEARCHES.items():
        outputs = translator.translate_batch(
            given, max_decoding_length=LONGEST, min_decoding_length=0, **search
        )
        found[name] = [output.hypotheses[0] for output in outputs]
    return found


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


def write_model_file(
    path: Path,
    version: int,
    name: str,
    revision: int,
    variables: dict[str, Any],
    aliases: dict[str, str],
) -> None:
    """Write a model.bin from NumPy arrays.

    Before version 4 numbers of 4 bytes are float32, of 2 int16, and of 1 int8. Before version 3
    there are no aliases.
    """
    kinds = ["float32", "int8", "int16", "int32", "float16", "bfloat16"]

    def string(text: str) -> bytes:
        encoded = text.encode()
        return struct.pack("<H", len(encoded) + 1) + encoded + b"\0"

    parts = [struct.pack("<I", version), string(name), struct.pack("<II", revision, len(variables))]
    for variable, array in sorted(variables.items()):
        array = np.asarray(array)
        parts += [string(variable), struct.pack(f"<B{array.ndim}I", array.ndim, *array.shape)]
        kind, size = kinds.index(array.dtype.name), array.nbytes
        if version < 4:
            kind, size = array.itemsize, array.size
        parts += [struct.pack("<BI", kind, size), array.tobytes()]
    if version >= 3:
        parts.append(struct.pack("<I", len(aliases)))
        parts += [string(alias) + string(variable) for alias, variable in aliases.items()]
    path.write_bytes(b"".join(parts))
