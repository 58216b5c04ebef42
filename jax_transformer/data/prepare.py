"""From text to token stores: what a run folder needs before training (§5.1).

Everything is made once and reused while nothing that it was made of has changed.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from jax_transformer.config import DataConfig
from jax_transformer.data.datasets import Corpus
from jax_transformer.data.encoding import Encoders, Rules, write_store
from jax_transformer.data.text import read_lines, unescaped
from jax_transformer.data.token_store import TokenStore, dropped, open_store, read_manifest
from jax_transformer.data.vocabulary import Vocabulary, train_vocabulary
from jax_transformer.errors import InputError
from jax_transformer.parsing.labels import LabelVocabulary
from jax_transformer.parsing.treebank import TreebankCorpus, load_labels, save_labels
from jax_transformer.runs.run_dir import RunFolder, write_text

Report = Callable[[str], None]


class Meter(Protocol):
    """Shows how far something has come."""

    def update(self, count: int) -> None:
        """So many more are done."""
        ...

    def close(self) -> None:
        """Take it off the screen."""
        ...


@dataclass(frozen=True)
class Prepared:
    """What training reads."""

    vocabulary: Vocabulary
    stores: dict[str, TokenStore]
    symbols: LabelVocabulary | None = None  # the target's vocabulary where it is not the source's

    @property
    def encoders(self) -> Encoders:
        """Of both sides."""
        return Encoders(self.vocabulary, self.symbols or self.vocabulary)


def prepare(
    folder: RunFolder,
    corpus: Corpus,
    data: DataConfig,
    seed: int,
    report: Report,
    *,
    shared: RunFolder | None = None,
    meter: Callable[[str, int], Meter] | None = None,
) -> Prepared:
    """Learn the vocabulary and encode every split, each only if it is missing or stale.

    What `shared` holds that was made of the same is linked from there. After a stop the
    same call goes on near where it was. meter(what, pairs): shows progress.

    Raises InputError for unusable text, and where the text has changed under a model that
    is already trained on it.
    """
    known = _read_json(folder.data)
    identities = {
        split: corpus.identity(split, known.get("splits", {}).get(split, {}))
        for split in corpus.splits()
    }
    changed = [
        split
        for split, identity in identities.items()
        if split in known.get("splits", {})
        and _content(identity) != _content(known["splits"][split])
    ]
    if changed and folder.has_checkpoints():
        raise InputError(
            f"{folder.path}: the text of {' and '.join(changed)} has changed since this model "
            "began to train on it; restore it, or choose another --workdir"
        )
    work = _Preparation(folder, corpus, data, seed, report, shared, meter)
    request = work.vocabulary_request(identities["train"])
    made = {"splits": identities, "vocabulary": request}
    if known != made and not folder.has_checkpoints():
        folder.data.unlink(missing_ok=True)  # what it says ends to hold here
    vocabulary = work.vocabulary(request, known)
    symbols = work.symbols(request, known) if data.task == "parsing" else None
    for split, identity in identities.items():
        if split != "train":
            work.keep_text(split, identity, known)
    # Before the long work: after a stop none of the above has to be done again.
    write_text(folder.data, json.dumps(made, indent=1) + "\n")
    stores = {
        split: work.store(split, identity, vocabulary, symbols)
        for split, identity in identities.items()
    }
    return Prepared(vocabulary, stores, symbols)


@dataclass(frozen=True)
class _Preparation:
    """What the steps of `prepare` share."""

    folder: RunFolder
    corpus: Corpus
    data: DataConfig
    seed: int
    report: Report
    shared: RunFolder | None
    meter: Callable[[str, int], Meter] | None

    def vocabulary_request(self, train: dict[str, Any]) -> dict[str, Any]:
        return {
            "size": self.data.vocabulary_size,
            "up_to": self.data.vocabulary_up_to,
            "sample": self.data.vocabulary_sample,
            "unescape_html": self.data.unescape_html,
            "seed": self.seed,
            "train": _content(train),
        }

    def vocabulary(self, request: dict[str, Any], known: dict[str, Any]) -> Vocabulary:
        path = self.folder.vocabulary
        if path.exists() and (self.folder.has_checkpoints() or known.get("vocabulary") == request):
            return Vocabulary.load(path)
        self.folder.path.mkdir(parents=True, exist_ok=True)
        if self.shared and _read_json(self.shared.data).get("vocabulary") == request:
            self.report(f"vocabulary  that of {self.shared.path}")
            _link(self.shared.vocabulary, path)
            return Vocabulary.load(path)
        size = self.data.vocabulary_size
        what = "the words" if self.data.task == "parsing" else "both languages"
        self.report(f"vocabulary  learning {size:,} BPE pieces of {what} ...")
        sample = self.corpus.sample(self.data.vocabulary_sample, self.seed)
        return train_vocabulary(
            _emptied(sample, self.data.unescape_html), size, path, up_to=self.data.vocabulary_up_to
        )

    def symbols(self, request: dict[str, Any], known: dict[str, Any]) -> LabelVocabulary:
        path = self.folder.symbols
        if path.exists() and (self.folder.has_checkpoints() or known.get("vocabulary") == request):
            return load_labels(path)
        assert isinstance(self.corpus, TreebankCorpus), "parsing needs trees"
        symbols = self.corpus.symbols()
        save_labels(path, symbols)
        return symbols

    def store(
        self,
        split: str,
        identity: dict[str, Any],
        vocabulary: Vocabulary,
        symbols: LabelVocabulary | None,
    ) -> TokenStore:
        data = self.data
        rules = Rules(data.max_length, data.max_length_ratio, data.unescape_html)
        made_of = {"text": _content(identity), "vocabulary": vocabulary.fingerprint}
        if symbols:
            made_of["symbols"] = symbols.fingerprint
        folder = self.folder.tokens(split)
        if not _made_of(folder, {**made_of, **asdict(rules)}):
            there = self.shared and self.shared.tokens(split)
            if there and _made_of(there, {**made_of, **asdict(rules)}):
                self.report(f"tokens      of {split}, those of {there}")
                _link(there, folder)
            else:
                encoders = Encoders(vocabulary, symbols or vocabulary)
                self._encode(split, identity.get("pairs", 0), encoders, rules, made_of)
        store = open_store(folder)
        if split != "test" and len(store) == 0:
            raise InputError(
                f"{split}: expected pairs to {'train' if split == 'train' else 'evaluate'} on, "
                f"found none after dropping "
                f"{dropped(store.manifest)}; give other text, or raise data.max_length"
            )
        return store

    def _encode(
        self, split: str, total: int, encoders: Encoders, rules: Rules, made_of: dict[str, Any]
    ) -> None:
        self.report(f"tokens      encoding {split} ...")
        folder = self.folder.tokens(split)
        meter = self.meter(f"tokens      {split}", total) if self.meter else None
        try:
            write_store(
                folder,
                lambda start: self.corpus.pairs(split, start),
                encoders,
                rules,
                made_of,
                advance=meter.update if meter else lambda count: None,
            )
        finally:
            if meter:
                meter.close()

    def keep_text(self, split: str, identity: dict[str, Any], known: dict[str, Any]) -> None:
        paths = [self.folder.text(split, side) for side in ("source", "target")]
        before = known.get("splits", {}).get(split)
        same = known.get("vocabulary", {}).get("unescape_html") == self.data.unescape_html
        if (
            before
            and same
            and _content(before) == _content(identity)
            and all(path.exists() for path in paths)
        ):
            return
        plain = unescaped if self.data.unescape_html else str
        pairs = list(self.corpus.scored(split))
        for path, column in zip(paths, (0, 1), strict=True):
            lines = [plain(pair[column]).replace("\n", " ") for pair in pairs]
            write_text(path, "".join(f"{line}\n" for line in lines))


def _emptied(lines: list[str], unescape_html: bool) -> Iterator[str]:
    """The lines, each given up as it is read: the reader holds them all a second time."""
    lines.reverse()
    while lines:
        line = lines.pop()
        yield unescaped(line) if unescape_html else line


def _made_of(folder: Path, expected: dict[str, Any]) -> bool:
    there = read_manifest(folder)
    return there is not None and all(there.get(key) == value for key, value in expected.items())


def _link(there: Path, here: Path) -> None:
    """The same file or folder at another place, without another copy where the disk allows it."""

    def link(source: str, target: str) -> None:
        try:
            os.link(source, target)
        except OSError:  # another disk, or one that knows no links
            shutil.copyfile(source, target)

    building = here.with_name(here.name + ".linking")
    _remove(building)
    building.parent.mkdir(parents=True, exist_ok=True)
    try:
        if there.is_dir():
            shutil.copytree(there, building, copy_function=link)
        else:
            link(str(there), str(building))
        if here.is_dir():
            _remove(here)
        building.replace(here)
    finally:
        _remove(building)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _content(identity: dict[str, Any]) -> Any:
    """The part of an identity that says what the text is, not where it lies or how long it is."""
    return {
        key: value["digest"] if isinstance(value, dict) else value
        for key, value in identity.items()
        if key != "pairs"
    }


def _read_json(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}


def text_lines(folder: RunFolder, split: str, side: str) -> list[str]:
    """The dev or test text that the folder keeps."""
    path = folder.text(split, side)
    if not path.exists():
        raise InputError(
            f"{folder.path}: expected the text of {split}, found none; give --source and "
            "--reference, or train with that split"
        )
    return list(read_lines(path))
