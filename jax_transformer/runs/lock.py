"""The locks of a run folder, on file systems that have locks."""

import contextlib
import fcntl
import logging
from collections.abc import Iterator
from pathlib import Path

from jax_transformer.errors import warn_once

logger = logging.getLogger(__name__)


@contextlib.contextmanager
def exclusive(path: Path, *, wait: bool = True) -> Iterator[None]:
    """Hold the lock of a file during the block; the file is made if it is missing.

    wait: False to raise BlockingIOError if another process has the lock.

    Some network file systems do not have locks: the block then runs without one, with a warning.
    """
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise
        except OSError as error:
            warn_once(
                logger,
                f"{path.parent}: this file system has no locks ({error.strerror}); do not let two "
                "commands write into this folder at once",
            )
        yield
