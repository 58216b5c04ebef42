"""Folders and names that are another program's model: the command that brings one in."""

import re
import shlex
from pathlib import Path

from jax_transformer.files import parse_json, read_bytes

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")  # Helsinki-NLP/opus-mt-en-de
_FSMT_OWNERS = ("facebook", "allenai")
_TYPES = ("marian", "fsmt")  # of model_type in config.json, and of --format


def import_hint(path: Path, given: str) -> str:
    """Return `; bring it in with COMMAND` for another program's model, else an empty text.

    given: the path as the user gave it, which may be a name on Hugging Face instead.
    """
    if form := _format(path):
        folder = path if path.is_dir() else path.parent
        return f"; bring it in with {_command(form, str(folder), folder.name)}"
    owner, _, name = given.partition("/")
    if path.exists() or Path(owner).exists() or owner == "runs" or not _NAME.fullmatch(given):
        return ""
    form = "fsmt" if owner in _FSMT_OWNERS else "marian"
    return (
        f"; if it is a model on Hugging Face, bring it in with hf download {given} "
        f"--local-dir={name} && {_command(form, name, name)}"
    )


def _command(form: str, folder: str, name: str) -> str:
    return (
        f"python -m experiments.import_model --format={form} --input={shlex.quote(folder)} "
        f"--workdir={shlex.quote(f'runs/{name}')}"
    )


def _format(path: Path) -> str | None:
    """Return the format of a model's folder, or of one of its files; None if it is not known."""
    if not path.exists():
        return None
    try:
        names = [file.name for file in path.iterdir()] if path.is_dir() else [path.name]
    except OSError:
        return None
    if "model.bin" in names:
        return "ctranslate2"
    if any(name.endswith(".npz") for name in names):
        return "marian-npz"
    if any(name.endswith(".pt") for name in names):
        return "fairseq"
    if "config.json" not in names:
        return None
    try:
        content = parse_json(read_bytes(path / "config.json" if path.is_dir() else path), dict)
    except (OSError, ValueError):
        return None
    found = content.get("model_type")
    return found if found in _TYPES else None
