"""A run folder that is made of a model which was not trained in it."""

from jax_transformer.data.vocabulary import Vocabulary
from jax_transformer.errors import InputError
from jax_transformer.files import write_bytes
from jax_transformer.parsing.labels import LabelVocabulary
from jax_transformer.parsing.treebank import labels_content
from jax_transformer.runs.checkpoints import save_average
from jax_transformer.runs.run_dir import Run, RunFolder
from jax_transformer.types import Params


def write_model(
    folder: RunFolder,
    run: Run,
    source: Vocabulary,
    target: Vocabulary | LabelVocabulary,
    params: Params,
    steps: list[int],
) -> None:
    """Write settings, vocabularies, manifest and the parameters, as an averaged model.

    source, target: the same object if one vocabulary serves both sides. steps: the training steps
    that the parameters are the mean of.

    Raises InputError if the folder has a run, or files of one; nothing is left behind then.
    """
    if folder.config.exists():
        raise InputError(
            f"{folder.path}: expected a new folder, found one with a config.json; choose another"
        )
    contents = {folder.vocabulary: source.content}
    if isinstance(target, LabelVocabulary):
        contents[folder.labels] = labels_content(target)
    elif target is not source:
        contents[folder.target_vocabulary] = target.content
    with folder.written(), folder.locked():
        folder.write_run(run)
        for path, content in contents.items():
            write_bytes(path, content)
            folder.manifest.add(path, content)
        folder.manifest.write()
        save_average(folder.averaged, params, steps, folder.manifest.copy())
