"""A run folder that is made of a model which was not trained in it."""

from jax_transformer.data.vocabularies.base import Vocabulary
from jax_transformer.errors import InputError
from jax_transformer.files import whole_folder, write_bytes
from jax_transformer.runs.checkpoints import save_average
from jax_transformer.runs.run_dir import Run, RunFolder
from jax_transformer.types import Params


def write_model(
    folder: RunFolder,
    run: Run,
    source: Vocabulary,
    target: Vocabulary,
    params: Params,
    steps: list[int],
) -> None:
    """Write settings, vocabularies, manifest and the parameters, as an averaged model.

    source, target: the same object if one vocabulary serves both sides. steps: the training steps
    that the parameters are the mean of.

    Raises InputError if the folder has a run, or files of one. Nothing is left behind then, nor if
    a file cannot be written.
    """
    if folder.config.exists():
        raise InputError(
            f"{folder.path}: expected a new folder, found one with a config.json; choose another"
        )
    folder.check_unused()
    with folder.written(), whole_folder(folder.path) as path:
        building = RunFolder(path)
        contents = {building.vocabulary: source.content}
        if target is not source:
            contents[building.target_vocabulary] = target.content
        building.write_run(run)
        for file, content in contents.items():
            write_bytes(file, content)
            building.manifest.add(file, content)
        building.manifest.write()
        save_average(building.averaged, params, steps, building.manifest.copy())
