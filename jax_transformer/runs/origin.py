"""The origin of a model, sealed in each checkpoint: its run, its text, its vocabularies."""

import logging
from typing import Any

from jax_transformer.config import END_SETTINGS, FREE_SETTINGS, Config, settings
from jax_transformer.errors import InputError
from jax_transformer.runs.run_dir import Run, RunFolder

logger = logging.getLogger(__name__)

# These do not change the parameters. The text has digests, so its paths do not matter.
_HARMLESS = (*FREE_SETTINGS, "files", "scored_on")


def origin_of(run: Run, trained_on: dict[str, Any]) -> dict[str, Any]:
    """Return the origin as JSON, without the settings that may change.

    trained_on: the digests of text and vocabularies, `Prepared.trained_on`.
    """
    return {"run": _described(run), "trained_on": trained_on}


def check_origin(folder: RunFolder, run: Run, origin: dict[str, Any]) -> None:
    """Compare the run of config.json with the origin of a checkpoint.

    A difference that does not change the parameters is logged as a warning. Raises InputError
    naming every other difference.
    """
    newer = _described(Run("", 0, Config()))  # a setting that the checkpoint lacks has its default
    ours, theirs = _described(run), newer | origin["run"]
    differing = [name for name in ours if ours[name] != theirs[name]]
    fixed = [name for name in differing if not name.startswith(_HARMLESS)]
    if fixed:
        found = "; ".join(f"{name}={ours[name]!r} instead of {theirs[name]!r}" for name in fixed)
        raise InputError(
            f"{folder.config}: expected what the checkpoints there were trained with, found "
            f"{found}; put that back, or choose another --workdir"
        )
    for name in differing:
        logger.warning(
            "%s: %s is %r, and was %r in training", folder.config, name, ours[name], theirs[name]
        )


def _described(run: Run) -> dict[str, Any]:
    names = ("experiment", "seed", "corpus", "scored_on", "files")
    fixed = {name: value for name, value, _ in settings(run.config) if name not in END_SETTINGS}
    return {name: getattr(run, name) for name in names} | fixed
