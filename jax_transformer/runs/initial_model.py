"""The model that a run continues from: that of another run."""

import logging
from typing import TYPE_CHECKING

from jax_transformer.config import Config, settings
from jax_transformer.errors import InputError
from jax_transformer.runs.run_dir import Run, RunFolder

if TYPE_CHECKING:
    from jax_transformer.data.vocabulary import Encoder
    from jax_transformer.types import Params

logger = logging.getLogger(__name__)

# Settings of the model that say how it is computed or regularized, not what its parameters mean.
FREE = (
    *("model.dropout_rate", "model.attention_dropout_rate", "model.compute_dtype"),
    *("model.matmul_precision", "model.remat", "model.fused_attention"),
)


def check_same_model(config: Config, initial: RunFolder) -> None:
    """Raise InputError that names the settings in which a model differs from the initial one."""
    theirs = settings(initial.load_run().config)
    differing = [
        f"{name}={value} instead of {theirs[name]}"
        for name, value in settings(config).items()
        if name.startswith(("model.", "data.task", "data.word_positions"))
        and value != theirs[name]
        and name not in FREE
    ]
    if differing:
        raise InputError(
            f"--init_from={initial.address}: expected the settings of its model, found "
            f"{'; '.join(differing)}; leave these and --experiment out, or start from another run"
        )


def vocabularies_of(folder: RunFolder) -> dict[str, str]:
    """Return the paths of a run's vocabularies by the names that `prepare` is brought them with."""
    source, target = str(folder.vocabulary), str(folder.target_vocabulary)
    if folder.load_run().config.data.task == "parsing":
        return {"vocabulary": source, "labels": str(folder.labels)}
    if folder.target_vocabulary.name in folder.manifest.sums:
        return {"source_vocabulary": source, "target_vocabulary": target}
    return {"vocabulary": source}


def initial_params(run: Run, source: "Encoder", target: "Encoder") -> "Params":
    """Return the parameters that a run begins with, of the run in its `init_from`.

    source, target: the run's vocabularies. Raises InputError if the initial model has others.
    """
    from jax_transformer.runs.loading import load  # it imports JAX

    folder = RunFolder(run.files["init_from"])
    check_same_model(run.config, folder)
    model = load(folder, run.files.get("init_checkpoint"))
    theirs = model.vocabulary.fingerprint, model.target_vocabulary.fingerprint
    if theirs != (source.fingerprint, target.fingerprint):
        raise InputError(
            f"--init_from={folder.address}: expected the vocabularies that this run was prepared "
            "with, found others; choose another --workdir"
        )
    logger.info(f"continuing  from {folder.address}: {model.description}")
    return model.params
