"""Trained models in the formats of other programs, checked before anything is written."""

import contextlib
import logging
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from jax_transformer.config import Config, ModelConfig
from jax_transformer.data.moses import MOSES_LANGUAGES
from jax_transformer.errors import InputError, shown
from jax_transformer.files import check_regular

if TYPE_CHECKING:
    from jax_transformer.formats.imported import ImportedModel

Format = Literal["ctranslate2", "marian", "safetensors"]
FORMATS: tuple[Format, ...] = get_args(Format)
READ_FORMATS = ("ctranslate2", "fairseq", "fsmt", "marian", "marian-npz")

_MOST_PACKED = 100  # bytes that one byte of a zip may stand for

logger = logging.getLogger(__name__)

_LIBRARIES = {"ctranslate2": "ctranslate2", "marian": "safetensors", "safetensors": "safetensors"}


def read_model(form: str, folder: Path, *, normalize: bool = False) -> "ImportedModel":
    """Read a model in one of READ_FORMATS.

    folder: one with its files, or a zip of one.
    normalize: True for Moses' punctuation normalization of sources.

    Raises InputError if the folder has no such model, or one that our settings cannot express.
    """
    from jax_transformer.data.vocabularies.piece_table import PieceTable
    from jax_transformer.formats.ctranslate2_reader import read_ctranslate2
    from jax_transformer.formats.fairseq import read_fairseq
    from jax_transformer.formats.fsmt import read_fsmt
    from jax_transformer.formats.marian_npz import read_marian_npz
    from jax_transformer.formats.marian_reader import read_marian

    readers: dict[str, Callable[[Path], ImportedModel]] = {
        "ctranslate2": read_ctranslate2,
        "fairseq": read_fairseq,
        "fsmt": read_fsmt,
        "marian": read_marian,
        "marian-npz": read_marian_npz,
    }
    with _unpacked(folder) as unpacked:
        model = readers[form](unpacked)
    if not normalize:
        return model
    if not isinstance(model.source, PieceTable):
        raise InputError(
            "--normalize_punctuation: expected a vocabulary whose text is cut by sentencepiece, "
            "found another; leave it out"
        )
    language = model.languages[0]
    if language not in MOSES_LANGUAGES:
        logger.warning(
            f"--normalize_punctuation: Moses has no rules for the source's language, "
            f"{language or 'which is unknown'}; its {'general' if language else 'English'} ones "
            "are taken"
        )
    return replace(model, source=model.source.normalizing(language or "en"))


@contextlib.contextmanager
def _unpacked(path: Path) -> Iterator[Path]:
    """Yield the folder itself, or one with what a zip holds, which is removed in the end."""
    if path.is_dir():
        yield path
        return
    check_regular(path)
    if not zipfile.is_zipfile(path):
        found = "a file that is not a zip" if path.exists() else "nothing"
        raise InputError(
            f"{path}: expected a folder, found {found}; give that of the model, or a zip of it"
        )
    with tempfile.TemporaryDirectory() as temporary:
        try:
            with zipfile.ZipFile(path) as archive:
                size = sum(member.file_size for member in archive.infolist())
                if size > _MOST_PACKED * path.stat().st_size:
                    raise ValueError(f"{size:,} bytes that were packed into few")
                archive.extractall(temporary)
        except OSError as error:
            raise OSError(error.errno, error.strerror or str(error), str(path)) from None
        except Exception as error:  # zipfile raises many kinds
            raise InputError(
                f"{path}: expected a whole zip, found damage: {shown(str(error))}; fetch it again"
            ) from None
        folder = Path(temporary)
        while len(parts := [part for part in folder.iterdir() if part.name != "__MACOSX"]) == 1:
            if not parts[0].is_dir():
                break
            folder = parts[0]
        try:
            yield folder
        except InputError as error:
            raise InputError(str(error).replace(str(folder), str(path))) from None


def refusals(model: ModelConfig) -> dict[str, str]:
    """Return the formats that cannot express a model, each with a setting and its legal values."""
    from jax_transformer.formats import ctranslate2, marian, safetensors
    from jax_transformer.formats.arrays import inexpressible

    modules = {"ctranslate2": ctranslate2, "marian": marian, "safetensors": safetensors}
    reasons = {
        target: inexpressible(model, module.accepted_settings(model))
        for target, module in modules.items()
    }
    return {target: reason for target, reason in reasons.items() if reason}


def check_exportable(config: Config, target: Format) -> None:
    """Raise InputError that names a setting which `target` cannot express, or a missing library."""
    from jax_transformer.formats.imported import require

    if config.data.task == "parsing":
        raise InputError(
            "data.task=parsing: expected a model that translates, because no exported vocabulary "
            "can spell trees; parse with python -m experiments.translate"
        )
    refused = refusals(config.model)
    if target in refused:
        others = [f"--format={form}" for form in FORMATS if form not in refused]
        remedy = f"export with {' or '.join(others)}" if others else "no other format can either"
        raise InputError(f"--format={target}: {refused[target]}; {remedy}")
    require(_LIBRARIES[target], f"--format={target}")
