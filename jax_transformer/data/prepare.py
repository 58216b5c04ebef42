"""§5.1 Preparation: from text to a vocabulary and token stores, reused while they are current."""

import io
import logging
import os
import shutil
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from jax_transformer.config import DataConfig
from jax_transformer.data.datasets import Corpus
from jax_transformer.data.manifest import Manifest, check_same, text_digests
from jax_transformer.data.text import decode_lines, unescape_html
from jax_transformer.data.token_store import (
    DESCRIPTION,
    FORMAT,
    Encoders,
    Rules,
    TokenStore,
    dropped,
    open_store,
    write_store,
)
from jax_transformer.data.vocabulary import (
    Encoder,
    Vocabulary,
    train_vocabulary,
)
from jax_transformer.data.vocabulary_files import read_vocabulary
from jax_transformer.errors import InputError
from jax_transformer.files import parse_json, write_bytes

logger = logging.getLogger(__name__)

Fingerprints = dict[str, dict[str, Any]]  # the fingerprint of each split


class DataFolder:
    """The paths of the files that preparation writes into a run folder."""

    def __init__(self, path: str | Path) -> None:
        """Name the paths in a folder, which need not exist yet."""
        self.path = Path(path).absolute()
        self.vocabulary = self.path / "vocabulary.model"
        # The target's vocabulary if it has its own: another one, or the labels of trees.
        self.target_vocabulary = self.path / "target_vocabulary.model"
        self.labels = self.path / "symbols.json"

    @cached_property
    def manifest(self) -> Manifest:
        """The manifest, read once; it lists no files if there is none.

        Raises InputError if it is damaged.
        """
        return Manifest.read(self.path)

    def mend_manifest(self) -> None:
        """Take a damaged manifest for none, with a warning: preparation writes it again."""
        try:
            _ = self.manifest
        except InputError as error:
            logger.warning("%s", error)
            self.manifest = Manifest(self.path, {}, {})

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
    target: Encoder  # the target's vocabulary, the same object if one serves both sides
    stores: dict[str, TokenStore]


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

    The folder's manifest lists each file when it is finished: after an interruption the same call
    goes on. trained_on: the copy of the manifest in a checkpoint of the folder, if any: other text
    or another vocabulary is an error. shared: another folder; if it was prepared from the same text
    with the same settings, its files are linked instead of made anew.

    Raises InputError if the text is unusable, or is not the text that the folder's model was
    trained on.
    """
    manifest, before = folder.manifest, folder.manifest.made_of
    cached = before.get("splits", {})
    splits = {split: corpus.fingerprint(split, cached.get(split, {})) for split in corpus.splits()}
    manifest.made_of = {**before, "splits": splits}
    if trained_on:
        check_same(folder.path, manifest.copy(), trained_on)
    if shared:
        shared.mend_manifest()
    work = _Preparation(folder, corpus, data, seed, trained_on is not None, shared, before)
    encoders = work.vocabularies()
    if trained_on:
        check_same(folder.path, manifest.copy(), trained_on)
    for split in splits:
        if split in ("dev", "test"):
            work.copy_text(split)
    for split in cached.keys() - splits:
        manifest.forget(f"text/{split}.", f"tokens/{split}/")
    manifest.write()  # before the long work
    stores = {split: work.store(split, encoders) for split in splits}
    source, target = encoders
    assert isinstance(source, Vocabulary)
    return Prepared(source, target, stores)


def text_lines(folder: DataFolder, split: str) -> tuple[list[str], list[str]]:
    """Return (sources, references) of dev or test in a prepared folder.

    Raises InputError if the folder has no such text, or if it or the manifest is damaged.
    """
    paths = [folder.text(split, side) for side in ("source", "target")]
    if not all(path.exists() for path in paths):
        raise InputError(
            f"{folder.path}: expected the text of {split}, found none; give --source and "
            "--reference, or train with that split"
        )
    remedy = "put back a copy, or let experiments.train write it again"
    contents = [io.BytesIO(folder.manifest.content(path, remedy)) for path in paths]
    sources, references = map(list, map(decode_lines, contents, map(str, paths)))
    return sources, references


@dataclass(frozen=True)
class _Preparation:
    """The steps of `prepare`."""

    folder: DataFolder
    corpus: Corpus
    data: DataConfig
    seed: int
    trained: bool
    shared: DataFolder | None
    before: dict[str, Any]  # what the last preparation was made of

    def vocabularies(self) -> Encoders:
        """Return the vocabularies of both sides, and list them in the manifest."""
        manifest, folder = self.folder.manifest, self.folder
        request = {
            "size": self.data.vocabulary_size,
            "up_to": self.data.vocabulary_up_to,
            "sample": self.data.vocabulary_sample,
            "unescape_html": self.data.unescape_html,
            "seed": self.seed,
            "text": {
                split: text_digests(fingerprint)
                for split, fingerprint in manifest.made_of["splits"].items()
                if split in ("train", "extra")
            },
        }
        known = self.trained or self.before.get("vocabulary") == request

        def current(path: Path) -> bytes | None:
            if self.trained and path.exists():
                return manifest.content(path, "put back a copy, or choose another --workdir")
            return manifest.current(path) if known else None

        content = current(folder.vocabulary)
        source = read_vocabulary(content) if content else self._make_vocabulary(request)
        content = current(folder.labels)
        own = self.corpus.target_vocabulary(content)
        if own and content is None:
            write_bytes(folder.labels, own[1])
        manifest.made_of["vocabulary"] = request
        manifest.add(folder.vocabulary, source.content)
        if own:
            manifest.add(folder.labels, own[1])
        return Encoders(source, own[0] if own else source)

    def _make_vocabulary(self, request: dict[str, Any]) -> Vocabulary:
        path, size = self.folder.vocabulary, self.data.vocabulary_size
        shared = self.shared
        if shared and shared.manifest.made_of.get("vocabulary") == request:
            content = shared.manifest.current(shared.vocabulary)
            if content:
                logger.info("vocabulary  that of %s", shared.path)
                write_bytes(path, content)
                return read_vocabulary(content)
        text = "the words" if self.data.task == "parsing" else "both languages"
        logger.info("vocabulary  learning %s BPE pieces of %s ...", f"{size:,}", text)
        sample = self.corpus.sample(self.data.vocabulary_sample, self.seed)
        lines = map(unescape_html, sample) if self.data.unescape_html else sample
        return train_vocabulary(lines, size, path, up_to=self.data.vocabulary_up_to)

    def copy_text(self, split: str) -> None:
        """Write the dev or test text into the folder, unless it is there."""
        manifest, unescape = self.folder.manifest, self.data.unescape_html
        paths = [self.folder.text(split, side) for side in ("source", "target")]
        fingerprints = self.before.get("splits", {}), manifest.made_of["splits"]
        before, now = (text_digests(splits.get(split, {})) for splits in fingerprints)
        same = before == now and self.before["vocabulary"]["unescape_html"] == unescape
        if same and all(manifest.current(path) is not None for path in paths):
            return
        sides = list(zip(*self.corpus.scored(split), strict=True)) or [(), ()]
        for path, side in zip(paths, sides, strict=True):
            lines = [unescape_html(line) if unescape else line for line in side]
            content = "".join(line.replace("\n", " ") + "\n" for line in lines).encode()
            write_bytes(path, content)
            manifest.add(path, content)

    def store(self, split: str, encoders: Encoders) -> TokenStore:
        """Return the token store of a split: the folder's, the shared one, or a new one."""
        data, folder = self.data, self.folder.tokens(split)
        manifest = self.folder.manifest
        fingerprint = manifest.made_of["splits"][split]
        rules = Rules(data.max_length, data.max_length_ratio, data.unescape_html)
        made_of = {"text": text_digests(fingerprint), "vocabulary": encoders.source.fingerprint}
        if encoders.target is not encoders.source:
            made_of["symbols"] = encoders.target.fingerprint
        expected = {"format": FORMAT, **made_of, **asdict(rules)}
        content = _current_store(self.folder, split, expected)
        if content is None and self.shared:
            content = _current_store(self.shared, split, expected)
            if content:
                logger.info("tokens      of %s, those of %s", split, self.shared.tokens(split))
                _link(self.shared.tokens(split), folder)
        if content is None:
            logger.info("tokens      encoding %s ...", split)
            count = fingerprint.get("pairs") or None
            pairs = self.corpus.pairs(split)
            content = write_store(folder, pairs, encoders, rules, made_of, count)
        manifest.add(folder / DESCRIPTION, content)
        manifest.write()
        store = open_store(folder, content)
        if split in ("train", "dev") and not len(store):
            raise InputError(
                f"{split}: expected pairs to {'train' if split == 'train' else 'evaluate'} on, "
                f"found none after dropping {dropped(store.description)}; give other text, or "
                "raise data.max_length"
            )
        return store


def _current_store(folder: DataFolder, split: str, expected: dict[str, Any]) -> bytes | None:
    """Return the description of a store if it is made of what is expected."""
    content = folder.manifest.current(folder.tokens(split) / DESCRIPTION)
    if content and expected.items() <= parse_json(content, dict[str, Any]).items():
        return content
    return None


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
