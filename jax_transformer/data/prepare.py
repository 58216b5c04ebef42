"""§5.1 Preparation: from text to a vocabulary and token stores, reused while they are current."""

import io
import logging
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from jax_transformer.config import DataConfig
from jax_transformer.data.manifest import DataFolder, check_same, text_digests
from jax_transformer.data.sources import Corpus, training_splits
from jax_transformer.data.text import SIDES, decode_lines, unescape_html
from jax_transformer.data.token_store import (
    DESCRIPTION,
    FORMAT,
    Both,
    Rules,
    TokenStore,
    dropped,
    open_store,
    remove_store,
    write_store,
)
from jax_transformer.data.vocabularies import load_user_vocabulary, read_vocabulary
from jax_transformer.data.vocabularies.base import Vocabulary
from jax_transformer.data.vocabularies.sentencepiece import train_vocabulary
from jax_transformer.errors import InputError
from jax_transformer.files import parse_json, write_bytes

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Prepared:
    """The data that training reads."""

    vocabulary: Vocabulary
    target: Vocabulary  # the target's vocabulary, the same object if one serves both sides
    stores: dict[str, TokenStore]


def prepare(
    folder: DataFolder,
    corpus: Corpus,
    data: DataConfig,
    seed: int,
    *,
    given: Mapping[str, Sequence[str]] | None = None,
    trained_on: dict[str, Any] | None = None,
    shared: DataFolder | None = None,
) -> Prepared:
    """Learn vocabularies and encode every split; files that exist and are current are reused.

    After an interruption the same call goes on. given: the paths of vocabularies that are not
    learned: of "vocabulary", or of "source_vocabulary" and "target_vocabulary". trained_on: the
    copy of the manifest in a checkpoint of the folder, if any. shared: another folder, whose files
    are linked if they are of the same text and settings.

    Raises InputError if the text is unusable, or not what the folder's model was trained on.
    """
    manifest, before = folder.manifest, folder.manifest.made_of
    cached = before.get("splits", {})
    splits = {split: corpus.fingerprint(split, cached.get(split, {})) for split in corpus.splits()}
    manifest.made_of = {**before, "splits": splits}
    if trained_on:
        check_same(folder.path, manifest.copy(), trained_on)
        # A test text may have come, and been scored, after the last checkpoint.
        check_same(folder.path, *({"made_of": {"splits": each}} for each in (splits, cached)))
    if shared:
        shared.mend_manifest()
    work = _Preparation(folder, corpus, data, seed, given or {}, trained_on, shared, before)
    both = work.vocabularies()
    for split in splits:
        if split in ("dev", "test"):
            work.copy_text(split)
    for split in cached.keys() - splits:
        manifest.forget(f"text/{split}.", f"tokens/{split}/")
    manifest.write()  # before the long work
    stores = {split: work.store(split, both) for split in splits}
    for split, text in splits.items() if not trained_on else ():
        if text_digests(corpus.fingerprint(split, text)) != text_digests(text):
            remove_store(folder.tokens(split))
            raise InputError(f"{split}: the text has changed meanwhile; start again")
    return Prepared(*both, stores)


def text_lines(folder: DataFolder, split: str) -> tuple[list[str], list[str]]:
    """Return (sources, references) of dev or test in a prepared folder.

    Raises InputError if the folder has no such text, or if it or the manifest is damaged.
    """
    paths = [folder.text(split, side) for side in SIDES]
    left_out = split not in folder.manifest.made_of.get("splits", [split])  # the last time
    if left_out or not all(path.exists() for path in paths):
        other = ", --split=dev" if split == "test" and folder.text("dev", "source").exists() else ""
        raise InputError(
            f"{folder.path}: expected the text of {split}, found none; give --reference, "
            f"and --source for a translation{other}, or train with that split"
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
    given: Mapping[str, Sequence[str]]
    trained_on: dict[str, Any] | None
    shared: DataFolder | None
    before: dict[str, Any]  # what the last preparation was made of

    def vocabularies(self) -> Both:
        """Return the vocabularies of both sides, written and listed in the manifest."""
        manifest, folder = self.folder.manifest, self.folder
        separate = "vocabulary" not in self.given and (
            "target_vocabulary" in self.given
            or self.data.vocabularies == "separate"
            or self.corpus.has_labels
        )
        paths = {"vocabulary": folder.vocabulary}
        if separate:
            both = folder.vocabulary, folder.target_vocabulary
            paths = dict(zip(("source_vocabulary", "target_vocabulary"), both, strict=True))
        else:
            manifest.forget(folder.target_vocabulary.name)
        request = self._request(separate)
        made = {path: self._vocabulary(name, path, request) for name, path in paths.items()}
        if self.data.subword_dropout and not all(each.can_sample for each in made.values()):
            raise InputError(
                f"data.subword_dropout={self.data.subword_dropout:g}: expected vocabularies of "
                "sentencepiece or subword-nmt, found another, whose ids do not give back the text "
                "that they were made of; set it to 0"
            )
        manifest.made_of["vocabulary"] = request
        for path, vocabulary in made.items():
            manifest.add(path, vocabulary.content)
        if self.trained_on:
            check_same(folder.path, manifest.copy(), self.trained_on)
        if not separate:
            folder.target_vocabulary.unlink(missing_ok=True)
        for path, vocabulary in made.items():
            if not path.exists() or path.read_bytes() != vocabulary.content:
                write_bytes(path, vocabulary.content)
        return made[folder.vocabulary], [*made.values()][-1]

    def _request(self, separate: bool) -> dict[str, Any]:
        """Return everything that learned vocabularies depend on, or which were given."""
        data, splits = self.data, self.folder.manifest.made_of["splits"]
        if self.given:
            return {"given": dict(self.given), "unescape_html": data.unescape_html}
        changes = {"separate": separate, "lowercase": data.lowercase, "nfkc": data.nfkc}
        return {
            **{name: value for name, value in changes.items() if value},
            "size": data.vocabulary_size,
            "up_to": data.vocabulary_up_to,
            "sample": data.vocabulary_sample,
            "unescape_html": data.unescape_html,
            "seed": self.seed,
            "text": {split: text_digests(splits[split]) for split in training_splits(splits)},
        }

    def _current(self, path: Path, request: dict[str, Any]) -> bytes | None:
        """Return the content of a file that an earlier preparation made of the same request."""
        manifest = self.folder.manifest
        if self.trained_on and path.exists():
            return manifest.content(path, "put back a copy, or choose another --workdir")
        if self.trained_on or self.before.get("vocabulary") == request:
            return manifest.current(path)
        return None

    def _vocabulary(self, name: str, path: Path, request: dict[str, Any]) -> Vocabulary:
        """Return a vocabulary: given, at its path in the folder, the shared one, or learned."""
        files = self.given.get(name)
        if files and all(map(os.path.exists, files)):
            vocabulary, names = load_user_vocabulary(files), ", ".join(files)
            logger.info(f"vocabulary  {vocabulary.size:,} pieces of {names}; none is learned")
            return vocabulary
        if content := self._current(path, request):
            return read_vocabulary(content)
        if files:
            return load_user_vocabulary(files)  # raises InputError: a file is missing
        if self.shared and self.shared.manifest.made_of.get("vocabulary") == request:
            content = self.shared.manifest.current(self.shared.path / path.name)
            if content:
                logger.info("vocabulary  that of %s", self.shared.path)
                return read_vocabulary(content)
        return self._learn(name, path)

    def _learn(self, name: str, path: Path) -> Vocabulary:
        if name == "target_vocabulary" and (labels := self.corpus.labels()):
            return labels
        data, size = self.data, self.data.vocabulary_size
        sides = {"source_vocabulary": SIDES[:1], "target_vocabulary": SIDES[1:]}.get(name, SIDES)
        text = "both languages" if len(sides) > 1 else f"the {sides[0]}"
        text = "the words" if self.corpus.has_labels else text
        logger.info(f"vocabulary  learning {size:,} BPE pieces of {text} ...")
        sample = self.corpus.sample(data.vocabulary_sample, self.seed, sides)
        lines = map(unescape_html, sample) if data.unescape_html else sample
        changes = {"lowercase": data.lowercase, "nfkc": data.nfkc}
        return train_vocabulary(lines, size, path, up_to=data.vocabulary_up_to, **changes)

    def copy_text(self, split: str) -> None:
        """Write the dev or test text into the folder, unless it is there."""
        manifest, unescape = self.folder.manifest, self.data.unescape_html
        paths = [self.folder.text(split, side) for side in SIDES]
        fingerprints = self.before.get("splits", {}), manifest.made_of["splits"]
        before, now = (text_digests(splits.get(split, {})) for splits in fingerprints)
        vocabulary = self.before.get("vocabulary", {})  # none after a kill
        same = before == now and vocabulary.get("unescape_html") == unescape
        if same and all(manifest.current(path) is not None for path in paths):
            return
        sides = list(zip(*self.corpus.scored(split), strict=True)) or [(), ()]
        for path, side in zip(paths, sides, strict=True):
            lines = [unescape_html(line) if unescape else line for line in side]
            content = "".join(line.replace("\n", " ") + "\n" for line in lines).encode()
            write_bytes(path, content)
            manifest.add(path, content)

    def store(self, split: str, both: Both) -> TokenStore:
        """Return the token store of a split: the folder's, the shared one, or a new one."""
        data, folder, manifest = self.data, self.folder.tokens(split), self.folder.manifest
        fingerprint = manifest.made_of["splits"][split]
        ratio = 0.0 if split in ("dev", "test") else data.max_length_ratio
        rules = Rules(data.max_length, ratio, data.unescape_html)
        made_of = {"text": text_digests(fingerprint), "vocabulary": both[0].fingerprint}
        if both[1] is not both[0]:
            made_of["symbols"] = both[1].fingerprint
        expected = {"format": FORMAT, **made_of, **asdict(rules)}
        content = _current_store(self.folder, split, expected)
        if not content and self.trained_on and not ratio:  # 1.0 once had the ratio here, too
            before = {**expected, "max_length_ratio": data.max_length_ratio}
            content = _current_store(self.folder, split, before)
        if (
            not content
            and self.shared
            and (content := _current_store(self.shared, split, expected))
        ):
            logger.info("tokens      of %s, those of %s", split, self.shared.tokens(split))
            _link(self.shared.tokens(split), folder)
        if not content:
            logger.info("tokens      encoding %s ...", split)
            pairs, count = self.corpus.pairs(split), fingerprint.get("pairs") or None
            content = write_store(folder, pairs, both, rules, made_of, count)
        manifest.add(folder / DESCRIPTION, content)
        manifest.write()
        store = open_store(folder, content)
        if split not in ("test", "extra") and not len(store):
            remove_store(folder)
            raise InputError(
                f"{split}: expected pairs to {'evaluate' if split == 'dev' else 'train'} on, "
                f"found none after dropping {dropped(store.description)}; give other text, or "
                "raise data.max_length"
            )
        return store


def _current_store(folder: DataFolder, split: str, expected: dict[str, Any]) -> bytes | None:
    """Return the description of a store if it is made of what is expected."""
    content = folder.manifest.current(folder.tokens(split) / DESCRIPTION)
    found = parse_json(content, dict[str, Any]) if content else {}
    same = expected.items() <= found.items() and expected.get("symbols") == found.get("symbols")
    return content if found and same else None


def _link(there: Path, here: Path) -> None:
    """Copy a folder, by hard links if the disk allows them."""
    partial = here.with_name(here.name + ".linking")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        try:
            shutil.copytree(there, partial, copy_function=os.link)
        except OSError:
            shutil.rmtree(partial, ignore_errors=True)  # a link is refused as a copy of itself
            shutil.copytree(there, partial)
        remove_store(here)
        partial.replace(here)
    finally:  # of a full disk, too
        shutil.rmtree(partial, ignore_errors=True)
