"""JAX's persistent compilation cache, so that a second start compiles nothing again."""

import logging
import os
from pathlib import Path
from typing import Any

from jax_transformer.errors import InputError, warn_once
from jax_transformer.files import cache_folder

logger = logging.getLogger(__name__)


def enable_compilation_cache() -> Path | None:
    """Point JAX's compilation cache to `~/.cache/jax_transformer`, or below $XDG_CACHE_HOME.

    JAX runs the code that it reads there, so the folder is made for its user alone (mode 0700),
    and is not used if somebody else owns it or may write to it. Returns the folder, or None
    if nothing was changed: JAX has a folder already ($JAX_COMPILATION_CACHE_DIR), the cache is
    off ($JAX_ENABLE_COMPILATION_CACHE=false), or the folder cannot be used.
    """
    import jax

    settings: Any = jax.config  # its type does not list its options
    if settings.jax_compilation_cache_dir or not settings.jax_enable_compilation_cache:
        return None
    try:
        folder = cache_folder()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except (OSError, InputError) as error:
        warn_once(logger, f"compiled functions are not cached: {error}")
        return None
    if status.st_uid != os.getuid() or status.st_mode & 0o022 or not os.access(folder, os.W_OK):
        warn_once(
            logger,
            "compiled functions are not cached: expected a folder that you own and that nobody "
            f"else may write to, found {folder}; run chmod 700 on it, or set "
            "JAX_COMPILATION_CACHE_DIR",
        )
        return None
    settings.update("jax_compilation_cache_dir", str(folder))
    settings.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    return folder
