"""Trained models in the formats of other programs, checked before anything is written."""

import contextlib
import errno
import fnmatch
import importlib
import logging
import os
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from jax_transformer.config import Config
from jax_transformer.data.moses import MOSES_LANGUAGES
from jax_transformer.data.urls import is_url
from jax_transformer.errors import InputError, damage_named, did_you_mean
from jax_transformer.files import (
    check_packed,
    check_regular,
    expanded,
    remove_partial,
    whole_folder,
)

if TYPE_CHECKING:
    from jax_transformer.formats.imported import ImportedModel
    from jax_transformer.runs.model import TrainedModel
    from jax_transformer.runs.run_dir import RunFolder

logger = logging.getLogger(__name__)


class Files(NamedTuple):
    """The files of a format, as patterns of their names; a `*` stands for no slash.

    marks: a folder of the format has a file for each. others: what else is read, if it is there.
    """

    marks: Sequence[str]
    others: Sequence[str] = ()

    def missing(self, names: Sequence[str]) -> list[str]:
        """Return the marks that no file has."""
        return [mark for mark in self.marks if not _matching(names, [mark])]

    def among(self, names: Sequence[str]) -> list[str]:
        """Return the names of the files that are read."""
        return _matching(names, [*self.marks, *self.others])


def _matching(names: Sequence[str], patterns: Sequence[str]) -> list[str]:
    pairs = [(name, pattern) for name in names for pattern in patterns]
    alike = [pair for pair in pairs if pair[0].count("/") == pair[1].count("/")]
    return sorted({name for name, pattern in alike if fnmatch.fnmatchcase(name, pattern)})


def _hugging_face(*marks: str, others: Sequence[str] = ()) -> list[Files]:
    """Return the files of a format of Hugging Face, by the weights that `read_weights` prefers."""
    both = ("model", "safetensors"), ("pytorch_model", "bin")
    weights = [
        own
        for name, kind in both
        for own in ((f"{name}.{kind}.index.json", f"{name}-*.{kind}"), (f"{name}.{kind}",))
    ]
    others = ("generation_config.json", "tokenizer_config.json", "added_tokens.json", *others)
    return [Files(("config.json", *marks, *own), others) for own in weights]


_TEXTS = ("config.json", "metadata.json", "*.spm", "*.model")  # of CTranslate2
# A format NAME has a module here with the functions read_NAME and write_NAME, or one of them. One
# with write_NAME has accepted_settings too. Modules are imported when they are needed.
READ_FORMATS = {  # with what may be its files; the first that are all there are read
    "ctranslate2": [
        Files(
            ("model/model.bin", "model/*_vocabulary.*"),
            (*_TEXTS, *(f"model/{name}" for name in _TEXTS)),
        ),
        Files(("model.bin", "*_vocabulary.*"), _TEXTS),
    ],
    "fairseq": [Files(("*.pt", "dict.*.txt", codes)) for codes in ("bpecodes", "code", "codes")],
    "fsmt": _hugging_face("vocab-src.json", "vocab-tgt.json", "merges.txt"),
    "marian": _hugging_face("vocab.json", "source.spm", "target.spm", others=["target_vocab.json"]),
    "marian-npz": [
        Files(("*decoder.yml", "*.npz"), ("*.spm", "*.yml", "*.yaml", "*.json", "*.vocab"))
    ],
}
WRITE_FORMATS = {  # with the package that writing needs
    "ctranslate2": "ctranslate2",
    "marian": "safetensors",
    "safetensors": "safetensors",
}
QUANTIZATIONS = ["int8"]  # of ctranslate2


def _module(form: str) -> Any:
    return importlib.import_module(f"{__name__}.{form.replace('-', '_')}")


def import_model(
    input: str | os.PathLike[str],
    workdir: "str | Path | RunFolder",
    *,
    format: str | None = None,
    normalize_punctuation: bool = False,
) -> "TrainedModel":
    """Make a run folder of a model that another program trained, and return the model.

        model = jt.import_model("hf://Helsinki-NLP/opus-mt-en-de", "runs/opus-en-de")
        model.translate(["A frog sat under the old bridge."])

    input: a folder with the files of the model; a zip of one; or hf://OWNER/NAME, a model of the
      Hugging Face hub, also at a revision: hf://OWNER/NAME@REVISION.
    workdir: the run folder to make, new or empty, or an open RunFolder; afterwards `jt.load` opens
      it.
    format: one of the formats that docs/published-models.md lists; None finds it by the names of
      the files.
    normalize_punctuation: True for Moses' punctuation normalization of sources.

    For a model of the hub, only the files that are read are fetched, once, into the cache of the
    library huggingface_hub, which also finds a token if the model needs one. Nothing in the files
    is executed. Raises InputError for files that are not those of one format, a model that our
    settings cannot express, a model or a revision that the hub does not have or refuses to give, or
    a workdir that has a run; nothing is written then.
    """
    from jax_transformer.formats.hub import SCHEME, fetched
    from jax_transformer.formats.imported import write_run_folder
    from jax_transformer.runs.load import load
    from jax_transformer.runs.run_dir import RunFolder

    folder = workdir if isinstance(workdir, RunFolder) else RunFolder(workdir)
    given = expanded(input)
    folder.check_new()
    if format is not None and format not in READ_FORMATS:
        raise InputError(
            f"--format={format}: expected a format that can be read, found none of this name"
            + did_you_mean(format, READ_FORMATS)
        )
    logger.info("import      reading %s ...", given)
    if given.startswith(SCHEME):
        path, origin = fetched(given, format)
    else:
        path, origin = Path(given), given
    with _unpacked(path) as unpacked:
        form = format or recognized(given, file_names(unpacked))[0]
        imported = read_model(form, unpacked, normalize=normalize_punctuation)
    write_run_folder(imported, folder, folder.path.name, f"{form}:{origin}")
    return load(folder)


def recognized(place: str, names: Sequence[str], form: str | None = None) -> tuple[str, Files]:
    """Return the format of a folder with files of these names, and the files that are read.

    place: the folder, for messages. form: the format, if it is given.

    Raises InputError unless one format fits.
    """
    fitting, nearly = dict[str, Files](), list[str]()
    for name in [form] if form else READ_FORMATS:
        for files in READ_FORMATS[name]:
            missing = files.missing(names)
            if not missing:
                fitting.setdefault(name, files)
            elif len(missing) == 1:
                nearly.append(f"{name} without {missing[0]}")
    if len(fitting) == 1:
        return fitting.popitem()
    found = " and ".join(fitting) or " or ".join(nearly) or "those of none"
    raise InputError(
        f"{place}: expected the files of {form or 'one format'}, found {found}; give the whole "
        f"folder, or choose with --format, one of {', '.join(fitting or READ_FORMATS)}"
    )


def file_names(folder: Path) -> list[str]:
    """Return the names of the files of a folder, and of its folder `model`."""
    paths = [*folder.glob("*"), *folder.glob("model/*")]
    return sorted(path.relative_to(folder).as_posix() for path in paths)


def read_model(form: str, folder: Path, *, normalize: bool = False) -> "ImportedModel":
    """Read a model in one of READ_FORMATS.

    folder: one with its files, or a zip of one.
    normalize: True for Moses' punctuation normalization of sources.

    Raises InputError if the folder has no such model, or one that our settings cannot express.
    """
    from jax_transformer.data.vocabularies.piece_table import PieceTable

    with _unpacked(folder) as unpacked:
        model = getattr(_module(form), f"read_{form.replace('-', '_')}")(unpacked)
    if not normalize:
        return model
    if not isinstance(model.source, PieceTable):
        raise InputError(
            "--normalize_punctuation: expected an imported table of pieces, found another "
            "vocabulary; leave it out"
        )
    language = model.languages[0]
    if language not in MOSES_LANGUAGES:
        why = f"Moses has no rules for {language}" if language else "the language is unknown"
        logger.warning(
            f"--normalize_punctuation: {why}; using Moses' "
            f"{'general' if language else 'English'} rules"
        )
    return replace(model, source=model.source.normalizing(language or "en"))


@contextlib.contextmanager
def _unpacked(path: Path) -> Iterator[Path]:
    """Yield the folder itself, or one with the content of a zip, which is removed in the end."""
    if path.is_dir():
        yield path
        return
    check_regular(path)
    if not zipfile.is_zipfile(path):
        found = "a file that is not a zip" if path.exists() else "nothing"
        raise InputError(
            f"{path}: expected a folder, found {found}; give that of the model, a zip of it, or "
            "hf://OWNER/NAME"
        )
    with tempfile.TemporaryDirectory() as temporary:
        try:
            with damage_named(path, "a whole zip"), zipfile.ZipFile(path) as archive:
                check_packed(archive, path.stat().st_size)
                archive.extractall(temporary)
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)  # what it is unpacked into
            place = temporary if full else str(path)
            raise OSError(error.errno, error.strerror or str(error), place) from None
        folder = Path(temporary)
        while len(parts := [part for part in folder.iterdir() if part.name != "__MACOSX"]) == 1:
            if not parts[0].is_dir():
                break
            folder = parts[0]
        try:
            yield folder
        except InputError as error:
            raise InputError(str(error).replace(str(folder), str(path))) from None


def export_model(
    trained: "TrainedModel", form: str, output: str | os.PathLike[str], quantization: str | None
) -> Path:
    """Write a model into a folder, whole or not at all, and return its path.

    Raises what `check_export` and `check_exportable` do, and InputError for vocabularies that the
    format cannot hold.
    """
    folder = check_export(form, output, quantization)
    check_exportable(trained.config, form)
    options = {"quantization": quantization} if quantization else {}
    with whole_folder(folder) as building:
        getattr(_module(form), f"write_{form}")(trained, building, **options)
    return folder


def check_export(form: str, output: str | os.PathLike[str], quantization: str | None) -> Path:
    """Return the folder to write as an absolute path.

    Raises InputError unless it is new or empty, for a format that is not one of WRITE_FORMATS, or
    for a quantization that it does not have.
    """
    if form not in WRITE_FORMATS:
        raise InputError(
            f"--format={form}: expected a format to write, found no such one"
            + did_you_mean(form, WRITE_FORMATS)
        )
    if quantization not in (None, *QUANTIZATIONS):
        raise InputError(
            f"--quantization={quantization}: expected {' or '.join(QUANTIZATIONS)}, found another; "
            "leave it out for float32"
        )
    if quantization and form != "ctranslate2":
        raise InputError(
            f"--quantization={quantization} cannot be combined with --format={form}; remove it, or "
            "choose --format=ctranslate2"
        )
    folder, found = Path(expanded(output)).absolute(), None
    if is_url(output):
        found = "an address"
    elif folder.is_dir():
        remove_partial([folder.resolve()])  # what a killed export left
        found = "a folder with something in it" if any(folder.iterdir()) else None
    elif folder.exists() or folder.is_symlink():
        found = "something else"
    if found:
        raise InputError(
            f"--output={os.fspath(output)}: expected a new or empty folder, found {found}; name "
            "another"
        )
    return folder


def check_exportable(config: Config, form: str) -> None:
    """Raise InputError that names a setting which a format cannot express, or a missing library."""
    from jax_transformer.formats.exported import inexpressible
    from jax_transformer.formats.imported import require

    if config.data.task == "parsing":
        raise InputError(
            "data.task=parsing: expected a model that translates, because no exported vocabulary "
            "can spell trees; parse with python -m experiments.translate"
        )
    model = config.model
    refused = {
        name: inexpressible(model, _module(name).accepted_settings(model)) for name in WRITE_FORMATS
    }
    if refused[form]:
        others = [f"--format={other}" for other in WRITE_FORMATS if not refused[other]]
        remedy = f"export with {' or '.join(others)}" if others else "no other format can either"
        raise InputError(f"--format={form}: {refused[form]}; {remedy}")
    require(WRITE_FORMATS[form], f"--format={form}")
