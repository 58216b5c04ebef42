"""Models of the Hugging Face hub, in the cache of its own library, huggingface_hub."""

import contextlib
import glob
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jax_transformer.errors import InputError, reason_of
from jax_transformer.formats import file_names, recognized
from jax_transformer.formats.imported import require
from jax_transformer.progress import shows_bars

logger = logging.getLogger(__name__)

SCHEME = "hf://"
_ADDRESS = re.compile(r"hf://([\w.-]+/[\w.-]+)(?:@(\S+))?")


def fetched(address: str, form: str | None) -> tuple[Path, str]:
    """Return a folder of the cache with a model's files, and its address with the commit.

    address: hf://OWNER/NAME or hf://OWNER/NAME@REVISION. form: the format, None to find it.

    Only the files that are read are fetched, and only those that the cache lacks. If the hub cannot
    be reached, what the cache has is taken, with a logged warning. Raises InputError if the hub
    does not have the model or the revision, or does not give it, or if its files are those of no
    format.
    """
    found = _ADDRESS.fullmatch(address)
    if not found:
        raise InputError(
            f"{address}: expected hf://OWNER/NAME or hf://OWNER/NAME@REVISION, found another form; "
            "give the name that the page of the model has"
        )
    require("huggingface_hub", address, "hub")
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import RepositoryNotFoundError, RevisionNotFoundError
    from huggingface_hub.utils import tqdm

    class Bar(tqdm):
        """The library's progress bar, where ours is a bar too."""

        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **{**options, "disable": not shows_bars()})

    name, revision = found.groups()
    unreached = None
    with _one_line(address):
        try:
            files = HfApi().model_info(name, revision=revision).siblings or []
            names = [file.rfilename for file in files]
        except (RepositoryNotFoundError, RevisionNotFoundError):
            raise
        except Exception as error:
            try:
                names = _cached(name, revision)
                recognized(address, names, form)
            except Exception:
                raise error from None
            unreached = reason_of(error)
        needed = [glob.escape(each) for each in recognized(address, names, form)[1].among(names)]
        own: Any = {"revision": revision, "allow_patterns": needed, "tqdm_class": Bar}
        folder = Path(snapshot_download(name, **own))
    if unreached:
        logger.warning(
            f"{address}: the hub cannot be reached ({unreached}); using the copy in {folder}"
        )
    return folder, f"{SCHEME}{name}@{folder.name}"


def _cached(name: str, revision: str | None) -> list[str]:
    """Return the names of a model's files by what the cache has; exceptions are the library's."""
    from huggingface_hub import get_cached_repo_tree, snapshot_download

    try:
        return [file.path for file in get_cached_repo_tree(name, revision=revision)]
    except Exception:  # files that came one by one, or by an older version, are in no list
        return file_names(Path(snapshot_download(name, revision=revision, local_files_only=True)))


@contextlib.contextmanager
def _one_line(address: str) -> Iterator[None]:
    """Turn all errors of the library, except for those of this machine's disk, into InputError."""
    from huggingface_hub.errors import (
        GatedRepoError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    log_in = "set HF_TOKEN, or log in with hf auth login"
    try:
        yield
    except InputError:
        raise
    except GatedRepoError:
        line = (
            "expected a model that you may fetch, found a gated one; accept its conditions on its "
            f"page, then {log_in}"
        )
    except RepositoryNotFoundError:
        line = (
            "expected a model of the hub, found none of this name that you may see; check the "
            f"name; for a private model {log_in}"
        )
    except RevisionNotFoundError:
        line = (
            "expected a branch, a tag or a commit after @, found none of this name; leave it out "
            "for the newest"
        )
    except Exception as error:
        if isinstance(error, OSError) and error.errno and not isinstance(error, ConnectionError):
            raise
        line = (
            f"expected the files of a model, found {reason_of(error)}; check the name and the "
            "network, and try again: files that have arrived are not fetched again"
        )
    else:
        return
    raise InputError(f"{address}: {line}")
