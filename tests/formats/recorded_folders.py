"""A recorded folder of each format that can be read, and changes to the files of a folder."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from recorded_models import recorded_folder
from references import FOLDER, Arrays, within

from jax_transformer.formats import fairseq
from jax_transformer.formats.ctranslate2_file import read_model_file
from jax_transformer.formats.marian_npz import OPTIONS
from jax_transformer.formats.torch_files import read_torch
from tools.record.ctranslate2_parts import write_model_file

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


def set_variables(folder: Path, changed: dict[str, Any], name="TransformerSpec", revision=7):
    """Write model.bin again with variables added or replaced; None leaves one out."""
    variables = {**read_model_file(folder / "model.bin").variables, **changed}
    kept = {name: array for name, array in variables.items() if array is not None}
    write_model_file(folder / "model.bin", 6, name, revision, kept, {})


# ---- Edits for tables: functions of a folder -----------------------------------------------

Edit = Callable[[Path, pytest.MonkeyPatch], object]


def edit(function: Callable[..., object], *arguments: Any, **options: Any) -> Edit:
    """Call a function above with the folder."""
    return lambda folder, _: function(folder, *arguments, **options)


def in_json(file: str, **values: Any) -> Edit:
    return lambda folder, _: change(folder / file, **values)


def text(file: str, content: str) -> Edit:
    return lambda folder, _: (folder / file).write_text(content, encoding="utf-8")


def line(file: str, number: int, content: str) -> Edit:
    """Replace a line of a file, counted from 1."""

    def replace(folder: Path, _: pytest.MonkeyPatch) -> None:
        lines = (folder / file).read_text(encoding="utf-8").split("\n")
        lines[number - 1] = content
        (folder / file).write_text("\n".join(lines), encoding="utf-8")

    return replace


def checkpoint(change: Callable[[dict[str, Any]], object]) -> Edit:
    """Change what fairseq's model.pt gives."""

    def replace(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        state = read_torch(folder / "model.pt")
        change(state)
        monkeypatch.setattr(fairseq, "read_torch", lambda path: state)

    return replace


def args(**values: Any) -> Edit:
    """Change settings of fairseq."""
    return checkpoint(lambda state: state["args"].update(values))


def pipe(folder: Path, name: str) -> None:
    (folder / name).unlink()
    os.mkfifo(folder / name)
