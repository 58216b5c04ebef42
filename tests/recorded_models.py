"""The folders of fairseq and FSMT that tools.record has recorded."""

import functools
import io
import lzma
from pathlib import Path

import numpy as np
from references import FOLDER, Arrays, within


@functools.cache
def recorded_models() -> Arrays:
    """Files and results of all models; a name begins with the model's."""
    content = lzma.decompress((FOLDER / "fairseq.npz.xz").read_bytes())
    with np.load(io.BytesIO(content)) as arrays:
        return dict(arrays)


def recorded_folder(name: str, folder: Path) -> Path:
    """Write the files of a model into the folder."""
    for file, content in within(recorded_models(), f"{name}/file/").items():
        (folder / file).write_bytes(content.tobytes())
    return folder
