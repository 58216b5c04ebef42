"""A recorded folder of each format that can be read, and changes to the files of a folder."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from recorded_models import recorded_folder
from references import FOLDER, Arrays, within

from jax_transformer.formats.marian_npz import OPTIONS
from jax_transformer.formats.torch_files import read_torch

READ = {
    "marian": ["config.json", "vocab.json", "source.spm", "target.spm", "model.safetensors"],
    "marian-npz": ["decoder.yml", "model.npz", "joint.vocab.yml", "source.spm", "target.spm"],
    "ctranslate2": ["config.json", "model.bin", "shared_vocabulary.json", "source.spm"],
    "fairseq": ["model.pt", "dict.en.txt", "dict.de.txt", "bpecodes"],
    "fsmt": ["config.json", "vocab-src.json", "vocab-tgt.json", "merges.txt", "model.safetensors"],
}


def write_recorded(form: str, folder: Path, marian_files: Arrays, converted: Path) -> Path:
    """Write the recorded folder of a format."""
    if form == "ctranslate2":
        shutil.copytree(converted / "marian", folder)
        return folder
    folder.mkdir()
    if form == "marian":
        from safetensors.numpy import save_file

        with np.load(FOLDER / "marian_folders.npz") as recorded:
            for name in (name for name in recorded if name.startswith("swish/")):
                (folder / name.removeprefix("swish/")).write_bytes(recorded[name].tobytes())
        path = folder / "pytorch_model.bin"
        save_file(read_torch(path), folder / "model.safetensors")
        path.unlink()
    elif form == "marian-npz":
        for name, content in within(marian_files, "tables/").items():
            (folder / name).write_bytes(content.tobytes())
    else:
        recorded_folder({"fairseq": "fairseq_shared", "fsmt": "fsmt_two"}[form], folder)
    return folder


def change(path: Path, **values: Any) -> None:
    """Change values of a JSON file."""
    found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    path.write_text(json.dumps(found | values), encoding="utf-8")


def change_arrays(folder: Path, change: Callable[[Arrays], Any]) -> None:
    """Change the arrays of model.npz."""
    with np.load(folder / "model.npz") as arrays:
        changed = dict(arrays)
    change(changed)
    np.savez(folder / "model.npz", **changed)


def set_option(folder: Path, **options: Any) -> None:
    """Change options in model.npz; `_` stands for `-` in a name."""

    def change(arrays: Arrays) -> None:
        found = yaml.safe_load(arrays[OPTIONS].tobytes().rstrip(b"\0"))
        found |= {name.replace("_", "-"): value for name, value in options.items()}
        arrays[OPTIONS] = np.frombuffer(yaml.safe_dump(found).encode() + b"\0", np.int8)

    change_arrays(folder, change)


def set_search(folder: Path, **options: Any) -> None:
    """Change options in decoder.yml."""
    path = folder / "decoder.yml"
    found = yaml.safe_load(path.read_text())
    found |= {key.replace("_", "-"): value for key, value in options.items()}
    path.write_text(yaml.safe_dump(found))
