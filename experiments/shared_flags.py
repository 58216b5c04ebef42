"""The flags that several commands share, and the values that they stand for.

A run's folder, checkpoint and settings; the run to train; the options of decoding.
"""

import os
import re
from typing import TYPE_CHECKING, Literal, get_args, get_origin

from absl import flags

from experiments import cli
from jax_transformer.config import Config, override_free
from jax_transformer.decoding.request import Request, options, request_of
from jax_transformer.errors import InputError
from jax_transformer.files import expanded
from jax_transformer.presets import EXPERIMENTS
from jax_transformer.runs.request import FILES, requested_run
from jax_transformer.runs.run_dir import Run, RunFolder
from jax_transformer.runs.tasks import TASKS, TEXT_FILES

if TYPE_CHECKING:
    from jax_transformer.runs.trained import Trained

FLAGS = flags.FLAGS
flags.disclaim_key_flags()  # a flag defined by a function here belongs to the command that calls it

CORPORA = "give it once for each corpus (see data.train_weights)"
TEXTS = {"train": ("training", CORPORA), "dev": ("development", ""), "test": ("test", "")}
TREE_FLAGS = {
    "train_trees": f"Training trees; {CORPORA}.",
    "dev_trees": "Development trees.",
    "test_trees": "Test trees.",
    "extra_trees": "More training trees, such as a parser's; data.extra_share is their share.",
}
VOCABULARY_FLAGS = {
    "vocabulary": "Use this vocabulary for both sides instead of learning one",
    "source_vocabulary": "Vocabulary of the source (requires --target_vocabulary)",
    "target_vocabulary": "Vocabulary of the target (requires --source_vocabulary)",
}


class _PathParser(flags.ArgumentParser):
    """A parser of a path that expands `~`, which the shell does not do in `--flag=~/file`."""

    def parse(self, argument: str) -> str:
        return expanded(argument)


class _IntegerParser(flags.IntegerParser):
    """A parser of a whole number in ASCII digits; Python's int() takes those of every script."""

    def convert(self, argument: int | str) -> int:
        if isinstance(argument, str) and not argument.isascii():
            raise ValueError("expected the digits 0 to 9")
        return super().convert(argument)


def define_path(name: str, meaning: str, *, several: bool = False) -> flags.FlagHolder:
    """Define a flag with the path of a file or a folder, in which `~` is the home folder.

    several: True if the flag may be repeated; its value is then a list.
    """
    if several:
        return flags.DEFINE_multi(_PathParser(), flags.ArgumentSerializer(), name, None, meaning)
    return flags.DEFINE(_PathParser(), name, None, meaning)


def define_integer(
    name: str,
    default: int | None,
    meaning: str,
    *,
    lower_bound: int,
    upper_bound: int | None = None,
) -> flags.FlagHolder:
    """Define a flag with a whole number in a range."""
    return flags.DEFINE(_IntegerParser(lower_bound, upper_bound), name, default, meaning)


def define_workdir(meaning: str = "The folder of a trained run.") -> None:
    """Define --workdir, the run folder."""
    define_path("workdir", meaning)


def define_checkpoint() -> None:
    """Define --checkpoint, which chooses the parameters of the run."""
    flags.DEFINE_string(
        "checkpoint",
        None,
        "Checkpoint to use: averaged, best, last or a step number (default: averaged if there is "
        "one, otherwise last).",
    )


def define_set(example: str, scope: str) -> None:
    """Define --set, which changes settings of the experiment or the run."""
    flags.DEFINE_multi_string(
        "set",
        [],
        f"Change a setting{scope}, as in --set {example}. List all settings with: "
        f"{cli.call}train --settings",
    )


def define_model_flags(*, ensembles: bool = False) -> None:
    """Define --workdir, --checkpoint and --set of the commands that use a trained model.

    ensembles: True for the flags with which `load_models` loads several.
    """
    define_workdir()
    define_checkpoint()
    define_set("decoding.beam_size=1", " of the search, the scoring or the languages")
    if ensembles:
        meaning = "Another run folder: at each token, average the probabilities of its model and "
        define_path("ensemble", f"{meaning}--workdir's.", several=True)
        meaning = "Weights of the models of --workdir and of each --ensemble, such as 2,1."
        flags.DEFINE_list("ensemble_weights", None, meaning)


def required(name: str) -> str:
    """Return the value of a flag. Raises InputError with the flag's help if it is not given."""
    value = FLAGS[name].value
    if value is None or not value.strip():
        meaning = str(FLAGS[name].help).rstrip(".")
        raise InputError(f"--{name} is required: {meaning[0].lower()}{meaning[1:]}")
    return value


def run_folder() -> RunFolder:
    """Return the folder that --workdir names."""
    return RunFolder(required("workdir"))


def trained_run() -> tuple[RunFolder, Run, Config]:
    """Return the folder of --workdir, its run, and the run's settings with the changes of --set.

    Raises what `override_free` does.
    """
    folder = run_folder()
    run = folder.load_run()
    return folder, run, override_free(run.config, *FLAGS.set)


def define_text_flags() -> None:
    """Define --train_source, --train_target and so on."""
    for name in TEXT_FILES:
        split, side = name.split("_")
        text, several = TEXTS[split]
        meaning = f"{side.title()} side of the {text} text, one sentence per line; "
        meaning += "plain, .bz2, .gz or .xz"
        define_path(name, f"{meaning}; {several}." if several else f"{meaning}.", several=True)


def define_seed(
    meaning: str = "Random seed of parameters, dropout and data order; in a run folder that of the "
    "run.",
) -> None:
    """Define --seed."""
    # JAX makes keys of 32 bits: a larger seed would give the same key as a smaller one.
    define_integer("seed", 1, meaning, lower_bound=0, upper_bound=2**32 - 1)


def define_run_flags() -> None:
    """Define the flags that describe a run: its folder, experiment, settings and data."""
    define_workdir("Run folder (default: runs/EXPERIMENT).")
    names = "\n".join(f"{name}: {e.purpose}" for name, e in EXPERIMENTS.items())
    flags.DEFINE_string(
        "experiment",
        None,
        "Experiment to train (default: that of the run folder; a new folder takes the settings of "
        f"--init_from, or those of demo).\n{names}",
    )
    define_seed()
    define_set("model.d_k=16", " of the experiment")
    define_text_flags()
    for name, meaning in TREE_FLAGS.items():
        form = "A file or folder of Penn bracketings, plain, .bz2, .gz or .xz."
        define_path(name, f"{meaning} {form}", several=True)
    forms = (
        "a sentencepiece model or a run folder. For subword-nmt give the flag twice: first the "
        "codes, then the vocabulary."
    )
    for name, meaning in VOCABULARY_FLAGS.items():
        define_path(name, f"{meaning}: {forms}", several=True)
    define_path(
        "init_from",
        "Start a new run with the parameters and vocabulary of this run folder. The settings also "
        "come from it, unless you give --experiment; see docs/fine-tune.md.",
    )
    flags.DEFINE_string(
        "init_checkpoint",
        None,
        "Checkpoint of --init_from: averaged, best, last or a step number (default: averaged if "
        "there is one, otherwise last).",
    )
    define_path(
        "treebank_dir", "Folder of the Penn Treebank, with LDC's folders 02 to 23 of .mrg files."
    )
    define_path(
        "data_dir",
        "Folder of tensorflow-datasets with WMT (default: "
        "$TFDS_DATA_DIR or ~/tensorflow_datasets).",
    )


def run_from_flags() -> tuple[Run, RunFolder]:
    """Return the run that the flags describe, and its folder."""
    if FLAGS.init_from and not FLAGS.workdir:
        raise InputError("--init_from requires --workdir; give the folder of the new run")
    folder = RunFolder(FLAGS.workdir or os.path.join("runs", FLAGS.experiment or "demo"))
    seed = FLAGS.seed if FLAGS["seed"].present else None
    return requested_run(folder, FLAGS.experiment, seed, FLAGS.set, given_files()), folder


def given_files() -> dict[str, str | list[str]]:
    """Return the paths that flags name, by flag; a list for a flag that may be repeated."""
    values = {name: FLAGS[name].value for name in FILES if name in FLAGS}
    return {name: value for name, value in values.items() if value}


def define_output_flags() -> None:
    """Define a flag for each decoding option."""
    for name, option in options().items():
        if name == "prefixes":
            define_path(name, f"File with one prefix for each line of input. {option.meaning}")
        elif option.kind is bool:
            flags.DEFINE_bool(name, option.default, option.meaning)
        elif option.kind is float:
            flags.DEFINE_float(name, option.default, option.meaning)
        elif option.kind is int:
            define_integer(name, option.default, option.meaning, lower_bound=0)
        elif get_origin(option.kind) is Literal:
            flags.DEFINE_enum(name, option.default, get_args(option.kind), option.meaning)
        else:
            flags.DEFINE_multi_string(name, [], option.meaning)


def requested(config: Config) -> Request:
    """Return the request that the flags describe; of prefixes only that there are some.

    Raises InputError for what a run with these settings does not have.
    """
    given = {name: FLAGS[name].value for name in options()}
    given["prefixes"] = () if FLAGS.prefixes else None
    try:
        request = request_of(given, "translate")
        parts = config.model, config.decoding.beam_size
        TASKS[config.data.task].check(request, *parts, ensemble=bool(FLAGS.ensemble))
        if request.samples and any("decoding.beam_size" in change for change in FLAGS.set):
            raise InputError("samples cannot be combined with --set decoding.beam_size; remove one")
    except InputError as error:
        names = rf"\b({'|'.join(given)})\b(?=[=:;,)]|$| cannot| requires| with| or| \()"
        raise InputError(re.sub(names, r"--\1", str(error))) from None
    return request


def load_models(folder: RunFolder) -> "Trained":
    """Load the run, or with --ensemble all of them. Raises InputError for wrong weights."""
    from jax_transformer.runs.load import load

    if not FLAGS.ensemble:
        if FLAGS.ensemble_weights:
            raise InputError(
                "--ensemble_weights requires --ensemble; give it too, or remove --ensemble_weights"
            )
        return load(folder, FLAGS.checkpoint)
    try:
        weights = FLAGS.ensemble_weights and [float(weight) for weight in FLAGS.ensemble_weights]
    except ValueError as error:
        raise InputError(f"--ensemble_weights: {error}; give numbers, as in 2,1") from None
    return load([folder, *FLAGS.ensemble], FLAGS.checkpoint, weights)
