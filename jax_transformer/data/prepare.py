"""§5.1 Preparation: from text to a vocabulary and token stores, reused while they are current."""

import logging
import os
import shutil
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from jax_transformer.config import DataConfig
from jax_transformer.data.datasets import Corpus
from jax_transformer.data.text import read_lines, unescape_html
from jax_transformer.data.token_store import (
    Encoders,
    Rules,
    TokenStore,
    dropped,
    open_store,
    read_manifest,
    write_store,
)
from jax_transformer.data.vocabulary import Encoder, Vocabulary, train_vocabulary
from jax_transformer.errors import InputError
from jax_transformer.files import read_bytes, read_sealed, write_bytes, write_sealed, write_text

logger = logging.getLogger(__name__)

Fingerprints = dict[str, dict[str, Any]]  # the fingerprint of each split


class DataFolder:
    """The paths of the files that preparation writes into a run folder."""

    def __init__(self, path: str | Path) -> None:
        """Name the paths in a folder, which need not exist yet."""
        self.path = Path(path).absolute()
        self.vocabulary = self.path / "vocabulary.model"
        self.labels = self.path / "symbols.json"  # the target's vocabulary if it has its own
        self.data = self.path / "data.json"  # the record of what all of this was made of

    def tokens(self, split: str) -> Path:
        """Return the path of a split's token store."""
        return self.path / "tokens" / split

    def text(self, split: str, side: str) -> Path:
        """Return the path of the dev or test text as it is scored, one sentence a line."""
        return self.path / "text" / f"{split}.{side}"


@dataclass(frozen=True)
class Prepared:
    """The data that training reads."""

    vocabulary: Vocabulary
    stores: dict[str, TokenStore]
    trained_on: dict[str, Any]  # as JSON: digests of the text and of the vocabularies


def prepare(
    folder: DataFolder,
    corpus: Corpus,
    data: DataConfig,
    seed: int,
    *,
    trained_on: dict[str, Any] | None = None,
    shared: DataFolder | None = None,
) -> Prepared:
    """Learn the vocabulary and encode every split; files that exist and are current are reused.

    After an interruption the same call continues. trained_on: the `Prepared.trained_on` of the
    model that was trained in this folder, if any: other text or another vocabulary is an error.
    shared: another folder; if it was prepared from the same text with the same settings, its files
    are linked instead of made anew.

    Raises InputError if the text is unusable, or is not the text that the folder's model was
    trained on.
    """
    record = _read_record(folder)
    cached = record.get("splits", {})
    fingerprints = {
        split: corpus.fingerprint(split, cached.get(split, {})) for split in corpus.splits()
    }
    digests = {split: _digests(fingerprint) for split, fingerprint in fingerprints.items()}
    before = trained_on["text"] if trained_on else {}
    if changed := [
        split for split in digests if digests[split] != before.get(split, digests[split])
    ]:
        raise InputError(
            f"{folder.path}: the text of {' and '.join(changed)} has changed since this model "
            "began to train on it; restore it, or choose another --workdir"
        )
    work = _Preparation(folder, corpus, data, seed, trained_on is not None, shared, record)
    made_of = {"splits": fingerprints, "vocabulary": work.vocabulary_request(fingerprints)}
    if not made_of.items() <= record.items() and not trained_on:
        folder.data.unlink(missing_ok=True)  # from here on it is out of date
    vocabulary, encoders = work.vocabularies(made_of["vocabulary"])
    ours = {"text": digests, **vocabulary_digests(*encoders)}
    check_vocabularies(folder, ours, trained_on or ours)
    checksums = {}
    for split in fingerprints:
        if split != "train":
            checksums |= work.copy_text(split, fingerprints[split])
    # Write it before the long work, so that nothing above is done again after an interruption.
    new_record = {**made_of, "checksums": checksums}
    if record != new_record or not folder.data.exists():
        write_sealed(folder.data, new_record)
    stores = {split: work.store(split, encoders, fingerprints[split]) for split in fingerprints}
    return Prepared(vocabulary, stores, ours)


def vocabulary_digests(source: Encoder, target: Encoder | None) -> dict[str, str | None]:
    """Return the digests of the vocabulary and of a parser's labels for `Prepared.trained_on`."""
    labels = target.fingerprint if target and target is not source else None
    return {"vocabulary": source.fingerprint, "labels": labels}


def check_vocabularies(
    folder: DataFolder, found: dict[str, Any], trained_on: dict[str, Any]
) -> None:
    """Raise InputError if a model was trained with another vocabulary than its folder has."""
    for name, path in (("vocabulary", folder.vocabulary), ("labels", folder.labels)):
        if found[name] != trained_on[name]:
            raise InputError(
                f"{path}: expected the vocabulary that the model in this folder was trained with, "
                "found another; restore it, or choose another --workdir"
            )


def text_lines(folder: DataFolder, split: str) -> tuple[list[str], list[str]]:
    """Return (sources, references) of dev or test in a prepared folder.

    Raises InputError if the folder has no such text, or if it or data.json is damaged.
    """
    source, target = folder.text(split, "source"), folder.text(split, "target")
    if not (source.exists() and target.exists()):
        raise InputError(
            f"{folder.path}: expected the text of {split}, found none; give --source and "
            "--reference, or train with that split"
        )
    remedy = "restore it, or let experiments.train write it again"
    record = read_sealed(folder.data, remedy)
    if record is None:
        raise InputError(f"{folder.data}: expected the text's checksums, found no file; {remedy}")
    for path in (source, target):
        if _checksum(path) != record.get("checksums", {}).get(path.name):
            raise InputError(
                f"{path}: expected the text as {folder.data.name} describes it, found another "
                f"checksum: damaged; {remedy}"
            )
    return list(read_lines(source)), list(read_lines(target))


@dataclass(frozen=True)
class _Preparation:
    """The steps of `prepare`."""

    folder: DataFolder
    corpus: Corpus
    data: DataConfig
    seed: int
    trained: bool
    shared: DataFolder | None
    record: dict[str, Any]  # the record of the last preparation

    def vocabulary_request(self, fingerprints: Fingerprints) -> dict[str, Any]:
        """Return everything that the vocabulary depends on."""
        return {
            "size": self.data.vocabulary_size,
            "up_to": self.data.vocabulary_up_to,
            "sample": self.data.vocabulary_sample,
            "unescape_html": self.data.unescape_html,
            "seed": self.seed,
            "train": _digests(fingerprints["train"]),
        }

    def vocabularies(self, request: dict[str, Any]) -> tuple[Vocabulary, Encoders]:
        """Return the vocabulary of the source, and the vocabularies of both sides."""
        current = self.trained or self.record.get("vocabulary") == request
        path = self.folder.vocabulary
        if not (current and path.exists()):
            self._make_vocabulary(request)
        vocabulary = Vocabulary.load(path)
        learn = not (current and self.folder.labels.exists())
        target = self.corpus.target_vocabulary(self.folder.labels, learn=learn)
        return vocabulary, Encoders(vocabulary, target or vocabulary)

    def _make_vocabulary(self, request: dict[str, Any]) -> None:
        path, size = self.folder.vocabulary, self.data.vocabulary_size
        path.parent.mkdir(parents=True, exist_ok=True)
        if self.shared and _read_record(self.shared).get("vocabulary") == request:
            logger.info("vocabulary  that of %s", self.shared.path)
            write_bytes(path, read_bytes(self.shared.vocabulary))
            return
        text = "the words" if self.data.task == "parsing" else "both languages"
        logger.info("vocabulary  learning %s BPE pieces of %s ...", f"{size:,}", text)
        sample = self.corpus.sample(self.data.vocabulary_sample, self.seed)
        lines = map(unescape_html, sample) if self.data.unescape_html else sample
        train_vocabulary(lines, size, path, up_to=self.data.vocabulary_up_to)

    def copy_text(self, split: str, fingerprint: dict[str, Any]) -> dict[str, int]:
        """Write the dev or test text into the folder, unless it is there; return its checksums."""
        paths = [self.folder.text(split, side) for side in ("source", "target")]
        before = self.record.get("splits", {}).get(split)
        unescape = self.data.unescape_html
        if (
            before
            and _digests(before) == _digests(fingerprint)
            and self.record["vocabulary"]["unescape_html"] == unescape
            and all(path.exists() for path in paths)
        ):
            there = {path.name: _checksum(path) for path in paths}
            if there.items() <= self.record["checksums"].items():
                return there
            logger.warning(
                "%s: the text of %s is damaged and written again", paths[0].parent, split
            )
        sides = list(zip(*self.corpus.scored(split), strict=True)) or [(), ()]
        for path, side in zip(paths, sides, strict=True):
            lines = [unescape_html(line) if unescape else line for line in side]
            write_text(path, "".join(line.replace("\n", " ") + "\n" for line in lines))
        return {path.name: _checksum(path) for path in paths}

    def store(self, split: str, encoders: Encoders, fingerprint: dict[str, Any]) -> TokenStore:
        """Return the token store of a split: the folder's, the shared one, or a new one."""
        data, folder = self.data, self.folder.tokens(split)
        rules = Rules(data.max_length, data.max_length_ratio, data.unescape_html)
        made_of = {"text": _digests(fingerprint), "vocabulary": encoders.source.fingerprint}
        if encoders.target is not encoders.source:
            made_of["symbols"] = encoders.target.fingerprint
        expected = {**made_of, **asdict(rules)}
        if not _is_made_of(folder, expected):
            there = self.shared.tokens(split) if self.shared else None
            if there and _is_made_of(there, expected):
                logger.info("tokens      of %s, those of %s", split, there)
                _link(there, folder)
            else:
                logger.info("tokens      encoding %s ...", split)
                write_store(
                    folder,
                    lambda start: self.corpus.pairs(split, start),
                    encoders,
                    rules,
                    made_of,
                    count=fingerprint.get("pairs") or None,
                )
        store = open_store(folder)
        # The line numbers of extra trees are negative.
        if split != "test" and not (store.lines > 0).any():
            raise InputError(
                f"{split}: expected pairs to {'train' if split == 'train' else 'evaluate'} on, "
                f"found none after dropping "
                f"{dropped(store.manifest)}; give other text, or raise data.max_length"
            )
        return store


def _is_made_of(folder: Path, expected: dict[str, Any]) -> bool:
    manifest = read_manifest(folder)
    return manifest is not None and expected.items() <= manifest.items()


def _link(there: Path, here: Path) -> None:
    """Copy a folder, by hard links if the disk allows them."""

    def link(source: str, target: str) -> None:
        try:
            os.link(source, target)
        except OSError:
            shutil.copyfile(source, target)

    partial = here.with_name(here.name + ".linking")
    shutil.rmtree(partial, ignore_errors=True)
    shutil.copytree(there, partial, copy_function=link)
    shutil.rmtree(here, ignore_errors=True)
    partial.replace(here)


def _digests(fingerprint: dict[str, Any]) -> dict[str, str]:
    """Return the part of a fingerprint that identifies the text, without its place and length."""
    return {
        key: value["digest"] if isinstance(value, dict) else value
        for key, value in fingerprint.items()
        if key != "pairs"
    }


def _checksum(path: Path) -> int:
    return zlib.crc32(read_bytes(path))


def _read_record(folder: DataFolder) -> dict[str, Any]:
    """Return data.json; empty if there is none, or, with a warning, if it is damaged."""
    try:
        return read_sealed(folder.data, "the text is read again") or {}
    except InputError as error:
        logger.warning("%s", error)
        return {}
