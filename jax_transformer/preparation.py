"""From text to token stores: what a run folder needs before training (§5.1).

Everything is made once and reused while nothing that it was made of has changed.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from jax_transformer import demo_corpus
from jax_transformer.batching import TokenStore, open_store, read_manifest, write_store
from jax_transformer.config import DataConfig
from jax_transformer.corpus import ParallelFiles, fingerprint, read_lines, sample_lines
from jax_transformer.errors import InputError
from jax_transformer.run_folder import RunFolder, write_text
from jax_transformer.vocabulary import Vocabulary, train_vocabulary

Pairs = Iterator[tuple[int, str, str]]
Report = Callable[[str], None]


class Corpus(Protocol):
    """Where the text of an experiment comes from."""

    def splits(self) -> list[str]:
        """train, dev, and test where there is one."""
        ...

    def pairs(self, split: str) -> Pairs:
        """(line from 1, source, target)."""
        ...

    def identity(self, split: str, known: dict[str, Any]) -> dict[str, Any]:
        """Equal if and only if the split's text is; `known` is the last one, to save reading."""
        ...

    def sample(self, limit: int, seed: int) -> list[str]:
        """Lines of both sides of train, to learn a vocabulary from."""
        ...


class FileCorpus:
    """Parallel text files, plain, .gz or .xz."""

    def __init__(self, files: dict[str, str]) -> None:
        """files: "train_source" -> path, and so on."""
        self.files = {
            split: ParallelFiles(files[f"{split}_source"], files[f"{split}_target"])
            for split in ("train", "dev", "test")
            if f"{split}_source" in files
        }

    def splits(self) -> list[str]:
        """Those that were given."""
        return list(self.files)

    def pairs(self, split: str) -> Pairs:
        """Streamed from the two files."""
        return self.files[split].pairs()

    def identity(self, split: str, known: dict[str, Any]) -> dict[str, Any]:
        """Digests of the two files; a file of known size and time is not read again.

        Raises InputError where new files do not fit together.
        """
        files = self.files[split]
        identity = {
            side: _file_identity(path, known.get(side, {}))
            for side, path in (("source", files.source), ("target", files.target))
        }
        if identity != known:
            files.check()
        return identity

    def sample(self, limit: int, seed: int) -> list[str]:
        """A seeded uniform sample over both files."""
        return sample_lines([self.files["train"].source, self.files["train"].target], limit, seed)


class DemoCorpus:
    """The built-in English-German grammar. Its text does not depend on the run's seed."""

    def __init__(self) -> None:
        """Nothing is generated before it is asked for."""
        self._splits: demo_corpus.Splits | None = None

    def splits(self) -> list[str]:
        """All three."""
        return ["train", "dev", "test"]

    def pairs(self, split: str) -> Pairs:
        """Generated from the grammar."""
        self._splits = self._splits or demo_corpus.splits()
        for number, example in enumerate(getattr(self._splits, split), start=1):
            yield number, example.english, example.german

    def identity(self, split: str, known: dict[str, Any]) -> dict[str, Any]:
        """A digest of the generated text."""
        digest = hashlib.blake2b(digest_size=16)
        for _, source, target in self.pairs(split):
            digest.update(f"{source}\n{target}\n".encode())
        return {"demo": digest.hexdigest()}

    def sample(self, limit: int, seed: int) -> list[str]:
        """The first `limit` lines."""
        return [line for _, *sides in self.pairs("train") for line in sides][:limit]


@dataclass(frozen=True)
class Prepared:
    """What training reads."""

    vocabulary: Vocabulary
    stores: dict[str, TokenStore]


def prepare(
    folder: RunFolder, corpus: Corpus, data: DataConfig, seed: int, report: Report
) -> Prepared:
    """Learn the vocabulary and encode every split, each only if it is missing or stale.

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
    vocabulary = _vocabulary(folder, corpus, data, seed, identities["train"], known, report)
    stores = {}
    for split, identity in identities.items():
        stores[split] = _store(folder, corpus, split, identity, vocabulary, data, report)
        if split != "train":
            _keep_text(folder, corpus, split, identity, known)
    made = {
        "splits": identities,
        "vocabulary": _vocabulary_request(data, seed, identities["train"]),
    }
    write_text(folder.data, json.dumps(made, indent=1) + "\n")
    return Prepared(vocabulary, stores)


def _vocabulary_request(data: DataConfig, seed: int, train: dict[str, Any]) -> dict[str, Any]:
    return {
        "size": data.vocabulary_size,
        "up_to": data.vocabulary_up_to,
        "sample": data.vocabulary_sample,
        "seed": seed,
        "train": _content(train),
    }


def _vocabulary(
    folder: RunFolder,
    corpus: Corpus,
    data: DataConfig,
    seed: int,
    train: dict[str, Any],
    known: dict[str, Any],
    report: Report,
) -> Vocabulary:
    request = _vocabulary_request(data, seed, train)
    if folder.vocabulary.exists() and (
        folder.has_checkpoints() or known.get("vocabulary") == request
    ):
        return Vocabulary.load(folder.vocabulary)
    report(f"vocabulary  learning {data.vocabulary_size:,} BPE pieces of both languages ...")
    folder.path.mkdir(parents=True, exist_ok=True)
    return train_vocabulary(
        corpus.sample(data.vocabulary_sample, seed),
        data.vocabulary_size,
        folder.vocabulary,
        up_to=data.vocabulary_up_to,
    )


def _store(
    folder: RunFolder,
    corpus: Corpus,
    split: str,
    identity: dict[str, Any],
    vocabulary: Vocabulary,
    data: DataConfig,
    report: Report,
) -> TokenStore:
    made_of = {
        "text": _content(identity),
        "vocabulary": vocabulary.fingerprint,
        "max_length": data.max_length,
    }
    there = read_manifest(folder.tokens(split))
    if there is None or any(there.get(key) != value for key, value in made_of.items()):
        report(f"tokens      encoding {split} ...")
        write_store(
            folder.tokens(split),
            corpus.pairs(split),
            vocabulary,
            data.max_length,
            made_of,
        )
    store = open_store(folder.tokens(split))
    if split != "test" and len(store) == 0:
        raise InputError(
            f"{split}: expected pairs to train on, found none after dropping "
            f"{store.manifest['dropped_blank']:,} with a blank side and "
            f"{store.manifest['dropped_too_long']:,} over data.max_length={data.max_length} "
            "tokens; give other text, or raise that setting"
        )
    return store


def _keep_text(
    folder: RunFolder, corpus: Corpus, split: str, identity: dict[str, Any], known: dict[str, Any]
) -> None:
    paths = [folder.text(split, side) for side in ("source", "target")]
    before = known.get("splits", {}).get(split)
    if before and _content(before) == _content(identity) and all(p.exists() for p in paths):
        return
    pairs = list(corpus.pairs(split))
    for path, column in zip(paths, (1, 2), strict=True):
        write_text(path, "".join(f"{pair[column]}\n" for pair in pairs))


def _file_identity(path: str, known: dict[str, Any]) -> dict[str, Any]:
    full = os.path.abspath(path)
    if known.get("path") == full and not os.path.exists(full):
        return known  # the folder was moved, or its text put away: the tokens are here
    try:
        status = os.stat(full)
        stamp = {"path": full, "bytes": status.st_size, "modified": status.st_mtime_ns}
    except OSError:
        stamp = {}
    if stamp and stamp.items() <= known.items():
        return known
    return {**stamp, "digest": fingerprint(path)}


def _content(identity: dict[str, Any]) -> Any:
    """The part of an identity that says what the text is, not where it lies."""
    return {key: v["digest"] if isinstance(v, dict) else v for key, v in identity.items()}


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
