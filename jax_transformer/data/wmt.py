"""§5.1 WMT 2014, as tensorflow-datasets prepared it in ArrayRecord; read without TensorFlow.

TensorFlow is needed once, to download and prepare: see `download`.
"""

import contextlib
import importlib.util
import os
import re
import shlex
import sys
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from jax_transformer.data.scripts import is_blank
from jax_transformer.data.sources import Corpus, Pairs
from jax_transformer.data.text import SIDES, file_fingerprint
from jax_transformer.errors import InputError, damage_named, install_command
from jax_transformer.files import expanded, read_json

DATASETS = {"wmt14-en-de": "wmt14_translate/de-en", "wmt14-en-fr": "wmt14_translate/fr-en"}
SPLITS = {"train": "train", "dev": "validation", "test": "test"}  # newstest2013 and 2014
FEATURES = [
    f"tensorflow_datasets.core.features.{name}"
    for name in ("translation_feature.Translation", "text_feature.Text")
]
_CLASS_NAMES = "pythonClassName", "python_class_name"
_ROWS = 1_000  # rows read together
_PREPARED = "data that tensorflow-datasets has prepared"
_VERSION = re.compile(r"\d+\.\d+\.\d+")


def default_data_dir() -> str:
    """Return the data folder of tensorflow-datasets."""
    return expanded(os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets")


class TfdsCorpus(Corpus):
    """English to another language, from a prepared translation data set."""

    def __init__(self, name: str, data_dir: str | Path) -> None:
        """Read nothing yet. name: such as wmt14_translate/de-en, with the other language first."""
        self.name, self.data_dir = name, Path(data_dir)
        self.language = name.partition("/")[2].partition("-")[0]

    def splits(self) -> list[str]:
        """List all three: train, newstest2013 and newstest2014."""
        return list(SPLITS)

    def pairs(self, split: str) -> Pairs:
        """Return an iterator over (row from 1, English, the other language)."""
        source = self._source(split)
        return self._texts(split, source, range(len(source)))

    def fingerprint(self, split: str, cached: dict[str, Any]) -> dict[str, Any]:
        """Return digests of the files; a file whose size and time are cached is not read again."""
        if cached and not self.folder():
            return cached  # the data was moved or deleted: its tokens are enough
        pairs = len(self._source(split))
        files = [Path(path) for path in self._builder.info.splits[SPLITS[split]].filepaths]
        digests = {
            path.name: file_fingerprint(str(path), cached.get(path.name, {})) for path in files
        }
        return {**digests, "pairs": pairs}

    def sample(self, limit: int, seed: int, sides: Sequence[str] = SIDES) -> list[str]:
        """Return sides of pairs drawn uniformly without replacement; blanks are left out."""
        import numpy as np  # see sample_lines in text.py

        source = self._source("train")
        count = min(-(-limit // len(sides)), len(source))
        chosen = np.random.default_rng(seed).choice(len(source), count, replace=False)
        chosen.sort()
        pairs = self._texts("train", source, chosen.tolist())
        lines = (pair[SIDES.index(side)] for _, *pair in pairs for side in sides)
        return [line for line in lines if not is_blank(line)][:limit]

    def folder(self) -> Path | None:
        """Return the folder of the newest prepared version; None if there is none."""
        place = self.data_dir / self.name
        found = [path.parent for path in place.glob("*/dataset_info.json")]
        versions = [path for path in found if _VERSION.fullmatch(path.name)]
        return max(versions, key=lambda path: [*map(int, path.name.split("."))], default=None)

    @cached_property
    def _builder(self) -> Any:
        folder = self.folder()
        if folder is None:
            dataset = next((ours for ours, name in DATASETS.items() if name == self.name), "")
            raise InputError(
                f"expected {self.name} prepared in {self.data_dir}, found no "
                f"{self.name}/*/dataset_info.json there; give its --data_dir, or prepare it: "
                f"python -m experiments.prepare --experiment={dataset}-base "
                f"--data_dir={shlex.quote(str(self.data_dir))}"
            )
        _check_features(folder / "features.json")
        with damage_named(folder, _PREPARED, "prepare it again"):
            builder = _tensorflow_datasets().builder_from_directory(folder)
        form = builder.info.file_format
        if form is None or form.value != "array_record":
            raise InputError(
                f"expected {self.name} prepared as array_record, found "
                f"{form and form.value} in {folder}, which only TensorFlow reads; prepare "
                "it again in another --data_dir with experiments.prepare"
            )
        return builder

    def _source(self, split: str) -> Any:
        """Return the records of a split: a data source of tensorflow-datasets."""
        builder = self._builder
        if SPLITS[split] not in builder.info.splits:
            raise InputError(
                f"expected a split {SPLITS[split]} in {builder.data_path}, found "
                f"{', '.join(builder.info.splits) or 'none'}; prepare it again"
            )
        return builder.as_data_source(SPLITS[split])

    def _texts(self, split: str, source: Any, rows: Sequence[int]) -> Pairs:
        for some in (rows[first : first + _ROWS] for first in range(0, len(rows), _ROWS)):
            with damage_named(self.folder() or self.data_dir, _PREPARED, "prepare it again"):
                records = source.__getitems__(some)
            for row, record in zip(some, records, strict=True):
                try:
                    english, other = (record[key].decode("utf-8") for key in ("en", self.language))
                except UnicodeDecodeError as error:
                    raise InputError(
                        f"{self.name}, {split}, row {row + 1}: expected UTF-8, found {error}; "
                        "prepare the data again"
                    ) from None
                yield row + 1, english, other


def _check_features(path: Path) -> None:
    """Raise InputError unless the file names tensorflow-datasets' own classes of text alone.

    tensorflow-datasets imports the module of each class that is named there, whatever it is.
    """
    remedy = "prepare the data again"
    parts: list[Any] = [read_json(path, dict[str, Any], remedy) or {}]
    for part in parts:  # it grows
        if isinstance(part, dict):
            named = [part[key] for key in ("type", *_CLASS_NAMES) if key in part]
            if wrong := [name for name in named if name not in FEATURES]:
                raise InputError(f"{path}: expected classes of text, found {wrong[0]!r}; {remedy}")
            parts += part.values()
        elif isinstance(part, list):
            parts += part


def _tensorflow_datasets() -> Any:
    """Import tensorflow-datasets. Raises InputError if it or array-record is not installed."""
    for package in ("tensorflow_datasets", "array_record"):
        if importlib.util.find_spec(package) is None:
            raise InputError(
                f"expected the package {package}, which reads WMT, found none; run "
                f"python -m pip install {package} (array_record has no wheel for "
                "Windows: use WSL there), or give text files with --train_source and so on"
            )
    import tensorflow_datasets

    return tensorflow_datasets


def check_can_download(name: str) -> None:
    """Raise InputError unless all is installed, TensorFlow too, which unpacks the archives."""
    _tensorflow_datasets()
    if importlib.util.find_spec("tensorflow") is None:
        raise InputError(
            f"expected TensorFlow, which tensorflow-datasets needs once to prepare {name}, found "
            f"none; install it with {install_command('prepare')} (for Python 3.14 TensorFlow 2.21 "
            "has no wheel: take 3.13), and run the same command again (training does not need "
            "it), or give text files with --train_source and so on"
        )


def download(name: str, data_dir: str | Path) -> None:
    """Download and prepare a data set in ArrayRecord; existing files are kept.

    Raises InputError if `check_can_download` does, or if the download fails.
    """
    check_can_download(name)
    tfds = _tensorflow_datasets()
    importlib.import_module("tensorflow_datasets.translate.wmt14")  # registers it

    try:
        builder = tfds.builder(name, data_dir=str(data_dir), file_format="array_record")
        with contextlib.redirect_stdout(sys.stderr):  # its progress is not a result
            builder.download_and_prepare()
    except Exception as error:  # from the network, the archives or the disk, in many classes
        reason = " ".join(str(error).split())[:300]
        raise InputError(
            f"expected to download and prepare {name} in {data_dir}, found '{reason}'; run the "
            "same command again (what was downloaded is kept), or put copies of the archives into "
            f"{Path(data_dir) / 'downloads' / 'manual'}"
        ) from None
