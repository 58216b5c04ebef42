"""Small files, written whole or not at all."""

import json
import os
from pathlib import Path
from typing import Any


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file and the folders above it; a reader sees the old content or the new."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)  # still there only after an interruption or a full disk


def write_text(path: Path, text: str) -> None:
    """`write_bytes` of text in UTF-8; its line ends stay as they are."""
    write_bytes(path, text.encode("utf-8"))


def write_json(path: Path, content: Any) -> None:
    """`write_bytes` of JSON, a value a line."""
    write_text(path, json.dumps(content, indent=1) + "\n")
