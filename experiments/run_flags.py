"""The flags of train, prepare and table3 that describe a run: experiment, settings, data."""

import dataclasses
import os
from itertools import chain

from absl import flags

from experiments.cli import FLAGS, define_set, define_workdir
from experiments.flag_types import define_integer, define_path, define_paths
from jax_transformer.config import override
from jax_transformer.data.text import listed_paths
from jax_transformer.data.urls import absolute, is_url
from jax_transformer.data.wmt import DATASETS, default_data_dir
from jax_transformer.errors import InputError
from jax_transformer.files import check_regular
from jax_transformer.presets import EXPERIMENTS, find_experiment
from jax_transformer.runs.run_dir import Run, RunFolder, check_trainable

flags.disclaim_key_flags()

TEXT_FLAGS = [
    f"{split}_{side}" for split in ("train", "dev", "test") for side in ("source", "target")
]
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
    for name in TEXT_FLAGS:
        split, side = name.split("_")
        define_paths(
            name,
            f"Text of {split}, {side} side: a sentence a line, plain, .gz or .xz; several files "
            "with commas between them.",
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
        define_paths(name, f"{meaning}. {forms}")
    forms = (
        "instead of a learned one: a model of sentencepiece, a run's vocabulary.model, or "
        "CODES,VOCABULARY of subword-nmt with a comma between."
    )
    for name, meaning in VOCABULARY_FLAGS.items():
        define_paths(name, f"{meaning}, {forms}")
    define_path("treebank_dir", "The Penn Treebank: LDC's folders 02 to 23 of .mrg files.")
    define_path(
        "data_dir",
        "tensorflow-datasets' folder of WMT (default: $TFDS_DATA_DIR or ~/tensorflow_datasets).",
    )


def run_from_flags() -> tuple[Run, RunFolder]:
    """Return the run that the flags describe, and its folder.

    Without --experiment it is the folder's own run with the changes of the flags. With it, it is a
    new run, which takes only its files from the folder.
    """
    name = FLAGS.experiment or "demo"
    folder = RunFolder(FLAGS.workdir or os.path.join("runs", name))
    folder.mend_manifest()
    check_trainable(folder)
    run = folder.read_run()
    if run is None or FLAGS.experiment:
        known, files = find_experiment(name), run.files if run else {}
        run = Run(name, FLAGS.seed, known.config(), files, known.corpus, known.scored_on)
    elif FLAGS["seed"].present:
        run = dataclasses.replace(run, seed=FLAGS.seed)
    config = override(run.config, *FLAGS.set)
    if config.data.task != run.config.data.task:
        raise InputError(
            f"--set data.task={config.data.task}: {run.experiment} is for {run.config.data.task}; "
            "choose another --experiment"
        )
    return dataclasses.replace(run, config=config, files=_files(run)), folder


def given_files(*names: str) -> dict[str, str]:
    """Return the files that these flags name, by flag, as absolute paths with commas between."""
    given = {name: listed_paths(str(FLAGS[name].value)) for name in names if FLAGS[name].value}
    for path in chain.from_iterable(given.values()):
        check_regular(path)  # training reads it more than once
    return {name: ",".join(map(absolute, paths)) for name, paths in given.items()}


def _files(run: Run) -> dict[str, str]:
    """Return the files that the flags name, else those of the run."""
    for name in (*TREE_FLAGS, *VOCABULARY_FLAGS, "treebank_dir", "data_dir"):
        if is_url(FLAGS[name].value):
            raise InputError(
                f"--{name}={FLAGS[name].value}: expected a path, found an address; copy it to a "
                "disk"
            )
    text, trees = given_files(*TEXT_FLAGS), given_files(*TREE_FLAGS, "treebank_dir")
    parses = run.config.data.task == "parsing"
    if wrong := text if parses else trees:
        expected, found = ("trees", "text") if parses else ("text", "trees")
        raise InputError(
            f"--{next(iter(wrong))}: expected {expected} for {run.experiment}, found {found}; "
            f"leave it out, or choose an --experiment for {'translation' if parses else 'parsing'}"
        )
    before = {name: path for name, path in run.files.items() if name not in VOCABULARY_FLAGS}
    return _text_files(run, text or trees or before) | _vocabularies(run)


def _vocabularies(run: Run) -> dict[str, str]:
    """Return the vocabularies that the flags name, else those of the run."""
    given = given_files(*VOCABULARY_FLAGS)
    if given and run.config.data.task == "parsing":
        raise InputError(
            f"--{next(iter(given))}: expected an experiment that translates, found "
            f"{run.experiment}, which learns the vocabulary of its words; leave it out"
        )
    if given and [*given] not in (["vocabulary"], ["source_vocabulary", "target_vocabulary"]):
        raise InputError(
            f"expected --vocabulary alone, or --source_vocabulary and --target_vocabulary, found "
            f"{' and '.join(f'--{name}' for name in given)}; give one or the other"
        )
    return given or {n: path for n, path in run.files.items() if n in VOCABULARY_FLAGS}


def _text_files(run: Run, files: dict[str, str]) -> dict[str, str]:
    """Return the files of text or trees; for a run on WMT its folder."""
    if run.corpus not in DATASETS or "train_source" in files:
        if FLAGS.data_dir:
            raise InputError(
                f"--data_dir={FLAGS.data_dir}: expected an experiment that reads WMT, found "
                f"{run.experiment} on other data; leave the flag out"
            )
        return files
    data_dir = FLAGS.data_dir or files.get("data_dir") or default_data_dir()
    if os.path.isfile(data_dir):
        raise InputError(f"--data_dir={data_dir}: expected a folder, found a file; name another")
    return {"data_dir": os.path.abspath(data_dir)}


def check_files(run: Run) -> None:
    """Raise InputError if a run lacks a file that it needs."""
    files = {name: path for name, path in run.files.items() if name not in VOCABULARY_FLAGS}
    reads_wmt = run.corpus in DATASETS and "data_dir" in files
    if reads_wmt or (run.corpus in ("demo", "demo-trees") and not files):
        return
    needed = TEXT_FLAGS if any(name in files for name in TEXT_FLAGS[4:]) else TEXT_FLAGS[:4]
    if run.config.data.task == "parsing":
        needed = [] if "treebank_dir" in files else ["train_trees", "dev_trees"]
        needed += ["extra_trees"] if run.experiment == "wsj-semi" else []
        spare = [f"--{name}" for name in TREE_FLAGS if name in files and name != "extra_trees"]
        if "treebank_dir" in files and spare:
            raise InputError(
                "--treebank_dir: expected it to give all trees, found also "
                f"{' and '.join(spare)}; leave one of them out"
            )
    missing = [f"--{name}" for name in needed if name not in files]
    if missing:
        instead = ", or --treebank_dir" if "--train_trees" in missing else ""
        raise InputError(
            f"--experiment={run.experiment}: expected {', '.join(missing)}{instead}, found "
            "none; give the data to train on"
        )
