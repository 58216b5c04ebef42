"""The flags of train, prepare and table3 that describe a run: experiment, settings, data."""

import os

from absl import flags

from experiments.cli import FLAGS, define_set, define_workdir
from experiments.flag_types import define_integer, define_path, define_paths
from jax_transformer.errors import InputError
from jax_transformer.presets import EXPERIMENTS
from jax_transformer.runs.request import TEXT_FILES, requested_run
from jax_transformer.runs.run_dir import INITIAL, Run, RunFolder

flags.disclaim_key_flags()

TREE_FLAGS = {
    "train_trees": "Trees to train on",
    "dev_trees": "Trees for development",
    "test_trees": "Trees to score on",
    "extra_trees": "More trees to train on, such as a parser's: data.extra_share of all",
}

VOCABULARY_FLAGS = {
    "vocabulary": "A vocabulary for both sides",
    "source_vocabulary": "A vocabulary for the source; with --target_vocabulary",
    "target_vocabulary": "A vocabulary for the target; with --source_vocabulary",
}


def define_text_flags() -> None:
    """Define --train_source, --train_target and so on."""
    for name in TEXT_FILES:
        split, side = name.split("_")
        define_paths(
            name,
            f"Text of {split}, {side} side: a sentence a line, plain, .gz or .xz; several files "
            "with commas between them."
            + (
                " Repeatable: each is a corpus; see data.train_weights." if split == "train" else ""
            ),
            several=split == "train",
        )


def define_seed() -> None:
    """Define --seed."""
    # JAX makes keys of 32 bits: a larger seed would give the same key as a smaller one.
    meaning = "Seed of parameters, dropout and data order."
    define_integer("seed", 1, meaning, lower_bound=0, upper_bound=2**32 - 1)


def define_run_flags() -> None:
    """Define the flags that describe a run: its folder, experiment, settings and data."""
    define_workdir("The run folder (default: runs/EXPERIMENT).")
    names = "\n".join(f"{name}: {e.purpose}" for name, e in EXPERIMENTS.items())
    flags.DEFINE_string("experiment", None, f"What to train (default: demo).\n{names}")
    define_seed()
    define_set("model.d_k=16", " of the experiment")
    define_text_flags()
    forms = "Penn bracketings; files or folders, plain, .gz or .xz, several with commas between."
    for name, meaning in TREE_FLAGS.items():
        repeatable = " Repeatable, as --train_source is." if name == "train_trees" else ""
        define_paths(name, f"{meaning}. {forms}{repeatable}", several=bool(repeatable))
    forms = (
        "instead of a learned one: a model of sentencepiece, the folder of a run, or "
        "CODES,VOCABULARY of subword-nmt with a comma between."
    )
    for name, meaning in VOCABULARY_FLAGS.items():
        define_paths(name, f"{meaning}, {forms}")
    define_path(
        "init_from",
        "Continue from the model of this run folder, with its settings and vocabulary, as a new "
        "run; see docs/fine-tune.md.",
    )
    flags.DEFINE_string(
        "init_checkpoint",
        None,
        "The checkpoint of --init_from: averaged, best, last or a step (default: averaged if there "
        "is one).",
    )
    define_path("treebank_dir", "The Penn Treebank: LDC's folders 02 to 23 of .mrg files.")
    define_path(
        "data_dir",
        "tensorflow-datasets' folder of WMT (default: $TFDS_DATA_DIR or ~/tensorflow_datasets).",
    )


def run_from_flags() -> tuple[Run, RunFolder]:
    """Return the run that the flags describe, and its folder."""
    if FLAGS.init_from and not FLAGS.workdir:
        raise InputError("--init_from: expected --workdir with it, found none; name a new folder")
    folder = RunFolder(FLAGS.workdir or os.path.join("runs", FLAGS.experiment or "demo"))
    seed = FLAGS.seed if FLAGS["seed"].present else None
    return requested_run(folder, FLAGS.experiment, seed, FLAGS.set, given_files()), folder


def given_files() -> dict[str, str | list[str]]:
    """Return the files that flags name, by flag; a list of a flag that may be repeated."""
    names = (*TEXT_FILES, *TREE_FLAGS, *VOCABULARY_FLAGS, "treebank_dir", "data_dir", *INITIAL)
    values = {name: FLAGS[name].value for name in names if name in FLAGS}
    return {name: value for name, value in values.items() if value}
