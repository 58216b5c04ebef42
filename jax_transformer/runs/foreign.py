"""A hint for a path that is another program's model and not a run folder."""

import re
from pathlib import Path

_FILES = re.compile(r"model\.bin|merges\.txt|vocab\.json|.*\.(npz|pt)")
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")  # Helsinki-NLP/opus-mt-en-de
_IMPORT = "python -m experiments.import_model; see its --help"


def import_hint(path: Path, given: str) -> str:
    """Return `; ...` with the command that imports another program's model, else an empty text.

    given: the path as the user gave it, which may be a name on Hugging Face instead.
    """
    if any(map(_FILES.fullmatch, [path.name, *(file.name for file in path.glob("*"))])):
        return f"; this looks like another program's model: import it with {_IMPORT}"
    owner = given.partition("/")[0]
    if path.exists() or Path(owner).exists() or owner == "runs" or not _NAME.fullmatch(given):
        return ""
    return f"; if it is a model on Hugging Face, get it with hf download {given}, then {_IMPORT}"
