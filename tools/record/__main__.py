"""Record the results of other programs for tests on machines without these programs.

python -m tools.record [NAME ...]

Writes tests/recorded/NAME.*, each with the date and the versions of the packages that its recipe,
tools/record/NAME_recipe.py, needs. Without names all recipes are followed.
"""

import argparse
import datetime
import importlib
import io
import json
import lzma
import tarfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parents[2] / "tests" / "recorded"
# Each file, and the packages that its recipe needs. Install fairseq as fairseq-fixed.
FILES = {
    "torch.npz": ["numpy", "torch"],
    "torch_files.npz": ["numpy", "omegaconf", "torch"],
    "marian.npz": ["numpy", "torch", "transformers"],
    "marian_folders.npz": ["numpy", "sentencepiece", "torch", "transformers"],
    "marian_npz.npz": ["pymarian", "sentencepiece"],
    "ctranslate2.tar.xz": ["ctranslate2", "numpy", "sentencepiece", "torch", "transformers"],
    "bpe.json.xz": ["fairseq-fixed", "fastBPE", "subword-nmt", "sacremoses", "transformers"],
    "fairseq.npz.xz": ["fairseq-fixed", "torch", "transformers"],
}


def record(name: str) -> dict[str, Any]:
    """Return what a recipe records now: arrays, text and files by name."""
    return importlib.import_module(f"tools.record.{name}_recipe").record()


def arrays(recorded: dict[str, Any]) -> dict[str, np.ndarray]:
    """Return arrays of what is recorded; the bytes of a file are uint8."""
    return {
        name: np.frombuffer(value, np.uint8) if isinstance(value, bytes) else np.array(value)
        for name, value in recorded.items()
    }


def packed(kind: str, recorded: dict[str, Any], made_with: dict[str, str]) -> bytes:
    """Return the content of a file of this kind, such as "npz"."""
    file = io.BytesIO()
    if kind == "json.xz":
        text = json.dumps({**recorded, "made_with": made_with}, ensure_ascii=False)
        return lzma.compress(text.encode("utf-8"))
    if kind == "tar.xz":
        with tarfile.open(fileobj=file, mode="w:xz", preset=9) as archive:
            versions = json.dumps(made_with).encode()
            for name, content in {"versions.json": versions, **recorded}.items():
                entry = tarfile.TarInfo(name)
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
        return file.getvalue()
    versions = {f"made_with/{name}": value for name, value in made_with.items()}
    save: Any = np.savez_compressed if kind == "npz" else np.savez
    save(file, **arrays({**recorded, **versions}))
    return file.getvalue() if kind == "npz" else lzma.compress(file.getvalue(), preset=9)


def main() -> None:
    """Write the files, and print their sizes."""
    names = {file.partition(".")[0]: file for file in FILES}
    parser = argparse.ArgumentParser(description="Record the results of other programs.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(names))
    chosen = parser.parse_args().names or list(names)
    if unknown := set(chosen) - set(names):
        parser.error(f"no recipe {sorted(unknown)}; there are {', '.join(names)}")
    for name in chosen:
        path = FOLDER / names[name]
        made_with = {package: version(package) for package in FILES[path.name]}
        made_with["date"] = datetime.date.today().isoformat()
        path.write_bytes(packed(path.name.partition(".")[2], record(name), made_with))
        print(f"{path}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
