"""The flags of train and prepare that describe a run: experiment, settings, text or trees."""

import dataclasses
import os

from absl import flags

from experiments.cli import FLAGS, define_set, define_workdir
from experiments.configs import EXPERIMENTS, find_experiment
from experiments.corpus import PARSING_CORPORA
from jax_transformer.config import Config, override, settings
from jax_transformer.data.text import listed_paths
from jax_transformer.data.wmt import DATASETS, default_data_dir
from jax_transformer.errors import InputError
from jax_transformer.runs.run_dir import Run, RunFolder

flags.disclaim_key_flags()

TREE_FLAGS = ["train_trees", "dev_trees", "test_trees"]
TEXT_FLAGS = [
    f"{split}_{side}" for split in ("train", "dev", "test") for side in ("source", "target")
]


def define_run_flags() -> None:
    """The flags for what to train, and on what data."""
    define_workdir("The run folder (default: runs/EXPERIMENT).")
    names = "\n".join(f"{name}: {e.purpose}" for name, e in EXPERIMENTS.items())
    flags.DEFINE_string("experiment", None, f"What to train (default: demo).\n{names}")
    # JAX's keys are made of 32 bits: a larger seed would be the same as a smaller one.
    meaning = "Seed of parameters, dropout and data order."
    flags.DEFINE_integer("seed", 1, meaning, lower_bound=0, upper_bound=2**32 - 1)
    define_set("model.d_k=16", " of the experiment")
    for name in TEXT_FLAGS:
        split, side = name.split("_")
        flags.DEFINE_string(
            name,
            None,
            f"Text of {split}, {side} side: a sentence a line, plain, .gz or .xz; several files "
            "with commas between them.",
        )
    for name in [*TREE_FLAGS, "extra_trees"]:
        role = f"to parse: {name[:-6]}"
        if name == "extra_trees":
            role = "more trees to train on, such as a parser's: data.extra_share of all"
        flags.DEFINE_string(
            name,
            None,
            f"Penn bracketings, {role}; files or folders, plain, .gz or .xz, several with commas "
            "between them.",
        )
    flags.DEFINE_string(
        "treebank_dir", None, "The Penn Treebank, LDC's folders 02 to 23 of .mrg files."
    )
    flags.DEFINE_string(
        "data_dir",
        None,
        "Where tensorflow-datasets keeps WMT (default: $TFDS_DATA_DIR or ~/tensorflow_datasets).",
    )


def described_run(
    experiment: str | None = None, folder: RunFolder | None = None
) -> tuple[Run, RunFolder]:
    """The run that the flags describe, and its folder; the folder's own run fills what they omit.

    experiment, folder: take the place of --experiment and --workdir where those are not given.
    """
    experiment = FLAGS.experiment or experiment
    known = find_experiment(experiment or "demo")
    if FLAGS.workdir or folder is None:
        folder = RunFolder(FLAGS.workdir or os.path.join("runs", experiment or "demo"))
    found = folder.read_run()
    if experiment is None and found:
        run = found
        seed = FLAGS.seed if FLAGS["seed"].present else found.seed
    else:
        files, seed = found.files if found else {}, FLAGS.seed
        name = experiment or "demo"
        run = Run(name, seed, known.config(), files, known.corpus, known.scored_on)
    config = override(run.config, *FLAGS.set)
    return dataclasses.replace(run, seed=seed, config=config, files=_files(run)), folder


def settings_table(config: Config) -> str:
    """A line for each setting: its name, value and meaning."""
    return "\n".join(
        f"{name}={value}: {part.metadata['meaning']}" for name, value, part in settings(config)
    )


def _files(run: Run) -> dict[str, str]:
    """The files that the flags name, else those of the run."""
    text, trees = _text_files(), _tree_files(run)
    if text and trees:
        raise InputError(
            f"--{next(iter(trees))}: expected trees or text, found --{next(iter(text))} too; leave "
            "one of them out"
        )
    files = text or trees or run.files
    if "train_source" in files or run.corpus not in DATASETS:
        if FLAGS.data_dir:
            raise InputError(
                f"--data_dir={FLAGS.data_dir}: expected an experiment that reads prepared data, "
                f"found {run.experiment} on other text; leave the flag out"
            )
        return files
    data_dir = FLAGS.data_dir or files.get("data_dir") or default_data_dir()
    if os.path.isfile(data_dir):
        raise InputError(f"--data_dir={data_dir}: expected a folder, found a file; name another")
    return {"data_dir": os.path.abspath(data_dir)}


def _tree_files(run: Run) -> dict[str, str]:
    """The treebanks that flags name, under the names of the flags."""
    given = _given([*TREE_FLAGS, "extra_trees", "treebank_dir"])
    if not given:
        return {}
    if run.corpus not in PARSING_CORPORA:
        raise InputError(
            f"--{next(iter(given))}: expected an experiment that parses, found {run.experiment}; "
            "give --experiment=treebank, treebank-small, wsj or wsj-semi"
        )
    if "treebank_dir" not in given:
        _require(given, "custom trees", ["train_trees", "dev_trees"])
    elif spare := [f"--{name}" for name in TREE_FLAGS if name in given]:
        raise InputError(
            f"--treebank_dir: expected it to give train, dev and test, found also "
            f"{' and '.join(spare)}; leave one of them out"
        )
    return _absolute(given)


def _text_files() -> dict[str, str]:
    """The parallel text that flags name, under the names of the flags."""
    given = _given(TEXT_FLAGS)
    for name, value in given.items():
        for path in listed_paths(value):
            if os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path)):
                raise InputError(
                    f"--{name}: expected a file, found a pipe or a device, {path}; text is read "
                    "more than once, so write it into a file first"
                )
    if given:
        test = [name for name in TEXT_FLAGS[4:] if any(g.startswith("test") for g in given)]
        _require(given, "custom text", TEXT_FLAGS[:4] + test)
    return _absolute(given)


def _given(names: list[str]) -> dict[str, str]:
    return {name: str(FLAGS[name].value) for name in names if FLAGS[name].value}


def _require(given: dict[str, str], kind: str, names: list[str]) -> None:
    missing = [f"--{name}" for name in names if name not in given]
    if missing:
        raise InputError(f"{kind}: expected also {' and '.join(missing)}, found none; give it")


def _absolute(given: dict[str, str]) -> dict[str, str]:
    return {name: ",".join(map(os.path.abspath, listed_paths(v))) for name, v in given.items()}
