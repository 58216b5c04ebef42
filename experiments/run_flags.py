"""The flags of train, prepare and table3 that describe a run: experiment, settings, data."""

import os

from absl import flags

from experiments.cli import FLAGS, define_set, define_workdir
from experiments.flag_types import define_integer, define_path
from jax_transformer.errors import InputError
from jax_transformer.presets import EXPERIMENTS
from jax_transformer.runs.request import FILES, requested_run
from jax_transformer.runs.run_dir import Run, RunFolder
from jax_transformer.runs.tasks import TEXT_FILES

flags.disclaim_key_flags()

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
    "source_vocabulary": "Vocabulary of the source; requires --target_vocabulary",
    "target_vocabulary": "Vocabulary of the target; requires --source_vocabulary",
}


def define_text_flags() -> None:
    """Define --train_source, --train_target and so on."""
    for name in TEXT_FILES:
        split, side = name.split("_")
        text, several = TEXTS[split]
        meaning = (
            f"{side.title()} side of the {text} text, one sentence per line; plain, .gz or .xz"
        )
        define_path(name, f"{meaning}; {several}." if several else f"{meaning}.", several=True)


def define_seed() -> None:
    """Define --seed."""
    # JAX makes keys of 32 bits: a larger seed would give the same key as a smaller one.
    meaning = "Random seed of parameters, dropout and data order."
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
        form = "Penn bracketings; a file or folder, plain, .gz or .xz."
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
    define_path("treebank_dir", "Penn Treebank: LDC's folders 02 to 23 of .mrg files.")
    define_path(
        "data_dir",
        "tensorflow-datasets' folder of WMT (default: $TFDS_DATA_DIR or ~/tensorflow_datasets).",
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
