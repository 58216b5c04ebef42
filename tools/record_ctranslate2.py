"""Record small CTranslate2 folders and CTranslate2's results for tests without it.

python -m tools.record_ctranslate2

Writes tests/recorded/ctranslate2.tar.xz: each folder with a results.json, and versions.json.
"""

import datetime
import io
import json
import tarfile
import tempfile
from importlib.metadata import version
from pathlib import Path

from tools import ctranslate2_reference, ctranslate2_results

RECORDED = Path(__file__).parents[1] / "tests" / "recorded" / "ctranslate2.tar.xz"
PACKAGES = ["ctranslate2", "numpy", "sentencepiece", "torch", "transformers"]
PAIRS = 16


def main() -> None:
    """Write the file, and print its size."""
    made_with = {package: version(package) for package in PACKAGES}
    made_with["date"] = datetime.date.today().isoformat()
    files = {"versions.json": json.dumps(made_with).encode()}
    with tempfile.TemporaryDirectory() as temporary:
        for name, write in ctranslate2_reference.FOLDERS.items():
            folder = Path(temporary) / name
            write(folder)
            for path in sorted(folder.iterdir()):
                files[f"{name}/{path.name}"] = path.read_bytes()
            results = ctranslate2_results.results(folder, PAIRS)
            files[f"{name}/results.json"] = json.dumps(results).encode()
    with tarfile.open(RECORDED, "w:xz", preset=9) as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    print(f"{RECORDED}: {RECORDED.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
