"""The paths of prepared data in a run folder, and its manifest."""

import logging
from functools import cached_property
from pathlib import Path

from jax_transformer.data.manifest import Manifest
from jax_transformer.errors import InputError

logger = logging.getLogger(__name__)


class DataFolder:
    """The paths of the files that preparation writes into a run folder."""

    def __init__(self, path: str | Path) -> None:
        """Name the paths in a folder, which need not exist yet."""
        self.path = Path(path).absolute()
        self.vocabulary = self.path / "vocabulary.model"
        # The target's vocabulary if it has its own: another one, or the labels of trees.
        self.target_vocabulary = self.path / "target_vocabulary.model"

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
