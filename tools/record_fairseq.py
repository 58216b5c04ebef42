"""Record what fairseq, Hugging Face's FSMT and subword-nmt compute, for tests without them.

python -m tools.record_fairseq

Writes tests/recorded/bpe.json.xz and fairseq.npz.xz. It needs fairseq (`pip install
fairseq-fixed`), fastBPE, subword-nmt, torch and transformers.
"""

import datetime
import io
import json
import lzma
from importlib.metadata import version

import numpy as np

from tools import bpe_reference, fairseq_reference
from tools.record_references import FOLDER

PACKAGES = ["fairseq-fixed", "fastBPE", "subword-nmt", "sacremoses", "torch", "transformers"]


def made_with() -> dict[str, str]:
    """Return the date and the versions of the packages."""
    return {"date": datetime.date.today().isoformat(), **{name: version(name) for name in PACKAGES}}


def main() -> None:
    """Write every file, and print its size."""
    text = {**bpe_reference.record(), "made_with": made_with()}
    path = FOLDER / "bpe.json.xz"
    path.write_bytes(lzma.compress(json.dumps(text, ensure_ascii=False).encode("utf-8")))
    print(f"{path}: {path.stat().st_size:,} bytes")
    models = {f"made_with/{name}": np.array(value) for name, value in made_with().items()}
    uncompressed, path = io.BytesIO(), FOLDER / "fairseq.npz.xz"
    np.savez(uncompressed, **fairseq_reference.record(), **models)  # pyright: ignore[reportArgumentType]
    path.write_bytes(lzma.compress(uncompressed.getvalue(), preset=9))
    print(f"{path}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
