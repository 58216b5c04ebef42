"""What CTranslate2 computes with a folder."""

import random
from pathlib import Path
from typing import Any

import ctranslate2
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
