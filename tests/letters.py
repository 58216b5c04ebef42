"""A language pair to be learned in seconds: letters, and the same in capitals."""

import random
from pathlib import Path

LETTERS = "abcdefghijklmnopqrst"


def letters(count: int, seed: int) -> tuple[list[str], list[str]]:
    """Sentences of 3 to 6 letters, and the same in capitals: a language pair to be learned."""
    choose = random.Random(seed)
    lines = [" ".join(choose.choices(LETTERS, k=choose.randint(3, 6))) for _ in range(count)]
    return lines, [line.upper() for line in lines]


def write_letters(folder: Path, train: int = 120) -> None:
    """train, dev and test as .en and .de."""
    folder.mkdir(parents=True, exist_ok=True)
    for seed, (split, count) in enumerate({"train": train, "dev": 6, "test": 6}.items()):
        for side, lines in zip(("en", "de"), letters(count, seed), strict=True):
            (folder / f"{split}.{side}").write_text("\n".join(lines) + "\n", encoding="utf-8")
