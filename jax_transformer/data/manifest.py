"""The manifest of a run folder: what its files were made from, and the SHA-256 of each.

Files that stay as they were written are listed: config.json, the vocabularies, the development and
test text, and the description of each token store. `sha256sum -c manifest.sha256` reads the file as
it is; docs/run-folder.md describes it.
"""

import hashlib
import logging
from functools import cached_property
from pathlib import Path
from typing import Any

from jax_transformer.config import differing_settings
from jax_transformer.data.sources import training_splits
from jax_transformer.data.urls import absolute
from jax_transformer.errors import InputError, warn_once
from jax_transformer.files import encode_json, parse_json, read_bytes, write_bytes

logger = logging.getLogger(__name__)

NAME = "manifest.sha256"
FORMAT = 1
VOCABULARIES = ("vocabulary.model", "target_vocabulary.model")
_FIRST = f"# Check this folder with: sha256sum -c {NAME}\n# "
_LAST = "# SHA-256 of the lines above: "


class Manifest:
    """The sums of a folder's files, and what they were made from.

    made_of: a JSON object: "settings", "vocabulary" and "splits", each if there is one.
    sums: the SHA-256 of each file, by its path in the folder.
    """

    def __init__(self, folder: Path, made_of: dict[str, Any], sums: dict[str, str]) -> None:
        """Write nothing yet."""
        self.path, self.made_of, self.sums = folder / NAME, made_of, sums
        self._written = b""  # the content of the manifest on disk, if it is known

    @classmethod
    def read(cls, folder: Path) -> "Manifest":
        """Read a folder's manifest; it is empty if missing. Raises InputError if it is damaged."""
        path = folder / NAME
        try:
            content = read_bytes(path)
        except FileNotFoundError:
            return cls(folder, {}, {})
        above, _, sum_of_above = content.rpartition(_LAST.encode())
        if sum_of_above != f"{digest_of(above)}\n".encode():
            raise InputError(
                f"{path}: expected its own SHA-256 in the last line, found another: damaged or cut "
                "short; put back a copy, or let experiments.train write it again"
            )
        _, about_line, *lines, _ = above.split(b"\n")
        about = parse_json(about_line.removeprefix(b"# "), dict[str, Any])
        if (found := about.pop("format", None)) != FORMAT:
            raise InputError(
                f"{path}: expected format {FORMAT}, found {found}; use the version of this program "
                "that wrote it, or train again"
            )
        sums = (line.decode().split("  ", 1) for line in lines)
        manifest = cls(folder, about, {name: value for value, name in sums})
        manifest._written = content
        return manifest

    def write(self) -> None:
        """Write the manifest, whole or not at all, unless it is there as it is."""
        about = {"format": FORMAT, **self.made_of}
        lines = [f"{value}  {name}\n" for name, value in sorted(self.sums.items())]
        above = _FIRST.encode() + encode_json(about) + b"\n" + "".join(lines).encode()
        content = above + f"{_LAST}{digest_of(above)}\n".encode()
        if content != self._written:
            write_bytes(self.path, content)
            self._written = content

    def add(self, path: Path, content: bytes) -> None:
        """Note the sum of a file that has been written; `write` saves it."""
        self.sums[self._name(path)] = digest_of(content)

    def replace(self, path: Path, content: bytes) -> None:
        """Write a file and note its sum; a kill before `write` leaves no sum of it."""
        if self.sums.pop(self._name(path), None):
            self.write()
        write_bytes(path, content)
        self.add(path, content)

    def content(self, path: Path, remedy: str) -> bytes:
        """Return the content of a file, verified.

        Raises InputError, which ends with the remedy, if it is not what was written.
        """
        name = self._name(path)
        if name not in self.sums:
            found = "none" if self._written else "no such file"
            raise InputError(
                f"{self.path}: expected the SHA-256 of {name} in it, found {found}; {remedy}"
            )
        try:
            content = read_bytes(path)
        except FileNotFoundError:
            raise InputError(f"{path}: expected a file, found none; {remedy}") from None
        if (found := digest_of(content)) != self.sums[name]:
            raise InputError(
                f"{path}: expected the SHA-256 {self.sums[name][:12]}... of {NAME}, found "
                f"{found[:12]}...: damaged, or changed since it was written; {remedy}"
            )
        return content

    def current(self, path: Path) -> bytes | None:
        """Return the content of a file; None if it must be made again, with a warning of damage."""
        if self._name(path) not in self.sums or not path.exists():
            return None
        try:
            return self.content(path, "it is made again")
        except InputError as error:
            logger.warning("%s", error)
            return None

    def forget(self, *begins: str) -> None:
        """Leave out the files whose paths begin like this."""
        self.sums = {n: value for n, value in self.sums.items() if not n.startswith(begins)}

    def restore(self, copy: dict[str, Any]) -> None:
        """Restore a missing or damaged manifest from a checkpoint's copy, with a warning."""
        if not self._written:
            logger.warning("%s: missing or damaged; restored from the newest checkpoint", self.path)
            self.made_of, self.sums = dict(copy["made_of"]), {**copy["sums"], **self.sums}

    def copy(self) -> dict[str, Any]:
        """Return all of it as JSON, for a checkpoint."""
        return {"made_of": dict(self.made_of), "sums": dict(self.sums)}

    def _name(self, path: Path) -> str:
        return path.relative_to(self.path.parent).as_posix()


def digest_of(content: bytes) -> str:
    """Return the SHA-256 of some bytes in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def text_digests(fingerprint: dict[str, Any]) -> dict[str, str]:
    """Return the part of a split's fingerprint that identifies its text."""
    return {
        key: value["digest"] if isinstance(value, dict) else value
        for key, value in fingerprint.items()
        if key != "pairs"
    }


def differences(ours: dict[str, Any], theirs: dict[str, Any]) -> list[str]:
    """Compare two copies of a manifest in the settings, texts and vocabularies that both have.

    Of the corpora to train on both must have the same, unless one has none at all.
    """
    both = [{"sums": copy.get("sums", {}), **copy.get("made_of", {})} for copy in (ours, theirs)]
    found = differing_settings(*(copy.get("settings", {}) for copy in both))
    mine, other = (copy.get("splits", {}) for copy in both)
    found += [
        f"another text of {split}"
        for split in mine
        if split in other and text_digests(mine[split]) != text_digests(other[split])
    ]
    before, now = (training_splits(splits) for splits in (other, mine))
    if before and now:
        found += [f"no text of {split}" for split in before if split not in now]
        found += [f"text of {split} instead of none" for split in now if split not in before]
    mine, other = ([copy["sums"].get(name, "none") for name in VOCABULARIES] for copy in both)
    if "none" not in (mine[0], other[0]):
        found += [
            f"another {name}, of SHA-256 {our[:12]}... instead of {their[:12]}..."
            for name, our, their in zip(VOCABULARIES, mine, other, strict=True)
            if our != their
        ]
    return found


def check_same(folder: Path, ours: dict[str, Any], trained_on: dict[str, Any]) -> None:
    """Raise InputError that names every difference from the manifest in a checkpoint."""
    if found := differences(ours, trained_on):
        raise InputError(
            f"{folder}: expected what its checkpoints were trained with, found "
            f"{'; '.join(found)}; restore that, or choose another --workdir; to go on with the "
            "run's own settings, give --workdir alone; to go on with the tokens that were made of "
            "text before it changed, move the changed text away"
        )


class DataFolder:
    """The paths of the files that preparation writes into a run folder, and their manifest."""

    def __init__(self, path: str | Path) -> None:
        """Name the paths in a folder, which need not exist yet."""
        self.path = Path(absolute(path))
        # The target's vocabulary if it has its own: another one, or the labels of trees.
        self.vocabulary, self.target_vocabulary = (self.path / name for name in VOCABULARIES)

    @cached_property
    def manifest(self) -> Manifest:
        """The manifest, read once. Raises InputError if it is damaged."""
        return Manifest.read(self.path)

    def mend_manifest(self) -> None:
        """Treat a damaged manifest as missing, with a warning; preparation writes it again."""
        try:
            _ = self.manifest
        except InputError as error:
            warn_once(logger, str(error))
            self.manifest = Manifest(self.path, {}, {})

    def tokens(self, split: str) -> Path:
        """Return the path of a split's token store."""
        return self.path / "tokens" / split

    def text(self, split: str, side: str) -> Path:
        """Return the path of the dev or test text as it is scored, one sentence a line."""
        return self.path / "text" / f"{split}.{side}"
