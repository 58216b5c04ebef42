"""Record small folders of MarianMTModel, and what transformers makes of them.

python -m tools.record_marian_folders

Writes tests/recorded/marian_folders.npz: the files of each folder, the ids, log P and outputs of
some lines, the date, and the versions of the packages.
"""

import datetime
import json
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from jax_transformer.demo import sentence_pairs
from tools.marian_folders import Kind, Trained, make_folder
from tools.marian_original import Original

PATH = Path(__file__).parents[1] / "tests" / "recorded" / "marian_folders.npz"
TRAINED = Trained(d_model=16, d_ff=16, pieces=90, normalization="identity")
KINDS = {
    "swish": Kind(TRAINED, file="zip", rounded=True),
    "relu": Kind(
        TRAINED, activation="relu", vocabularies=2, matrices=2, file="older", rounded=True
    ),
    "gelu": Kind(
        TRAINED,
        activation="gelu",
        matrices=3,
        rows=16,
        own_positions=True,
        dtype="float16",
        file="zip",
    ),
}
LONGEST = 24  # tokens of a source or target
LINES = 40
ODD = [
    (">>fra<< The dog sleeps.", "Der Hund schl\u00e4ft."),
    (">>deu<<a \u6f22 b", "\u00c4 \u6f22\u5b57"),
    ("a\tb\u00a0c", "caf\u00e9"),
]


def main() -> None:
    """Write the file, and print its size."""
    recorded: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as temporary:
        for name, kind in KINDS.items():
            folder = Path(temporary, name)
            make_folder(kind, folder)
            for path in folder.iterdir():
                recorded[f"{name}/{path.name}"] = np.frombuffer(path.read_bytes(), np.uint8)
            recorded[f"results/{name}"] = np.array(json.dumps(results(Original(folder))))
    for package in ("numpy", "sentencepiece", "torch", "transformers"):
        recorded[f"made_with/{package}"] = np.array(version(package))
    recorded["made_with/date"] = np.array(datetime.date.today().isoformat())
    np.savez_compressed(PATH, **recorded)
    print(f"{PATH}: {PATH.stat().st_size:,} bytes")


def results(original: Original) -> dict[str, Any]:
    """Return lines, their ids, log P of each pair, and the best outputs of two searches."""
    tokenizer, pairs = original.tokenizer, []
    for source, target in [*ODD, *sentence_pairs("dev")]:
        ids = tokenizer(source).input_ids, tokenizer(text_target=target).input_ids
        if max(map(len, ids)) <= LONGEST:
            pairs.append((source, target, *ids))
    sources, targets, source_ids, target_ids = map(list, zip(*pairs[:LINES], strict=True))
    outputs = {
        "greedy": original.search(source_ids, num_beams=1),
        "beam": original.search(source_ids, num_beams=4, early_stopping="never"),
        "beam, first four": original.search(source_ids, num_beams=4, early_stopping=True),
    }
    return {
        "sources": sources,
        "targets": targets,
        "source_ids": source_ids,
        "target_ids": target_ids,
        "log_probs": original.log_probs(source_ids, target_ids).tolist(),
        "outputs": outputs,
        "texts": tokenizer.batch_decode(outputs["greedy"], skip_special_tokens=True),
    }


if __name__ == "__main__":
    main()
