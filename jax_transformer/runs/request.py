"""From what a user asks for, by flags or from Python, to the description of a run."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jax_transformer.config import override
from jax_transformer.data.corpora import named_files
from jax_transformer.data.text import listed_paths
from jax_transformer.data.urls import absolute, is_url
from jax_transformer.data.wmt import DATASETS, default_data_dir
from jax_transformer.errors import InputError, did_you_mean
from jax_transformer.files import check_regular
from jax_transformer.presets import find_experiment
from jax_transformer.runs.initial_model import check_same_model, vocabularies_of
from jax_transformer.runs.run_dir import (
    IMPORTED,
    INITIAL,
    VOCABULARY_FILES,
    Run,
    RunFolder,
    check_trainable,
)

TEXT_FILES = [
    f"{split}_{side}" for split in ("train", "dev", "test") for side in ("source", "target")
]
TREE_FILES = ["train_trees", "dev_trees", "test_trees", "extra_trees"]
_FOLDERS = ("treebank_dir", "data_dir")
_KNOWN = [*TEXT_FILES, *TREE_FILES, *VOCABULARY_FILES, *_FOLDERS, *INITIAL]
_ON_DISK = [*TREE_FILES, *VOCABULARY_FILES, *_FOLDERS]
# Paths with commas between, by the name of their flag; a list has such a text for each corpus.
Given = Mapping[str, str | Sequence[str]]
Files = Mapping[str, Any]  # of a Run


def requested_run(
    folder: RunFolder,
    experiment: str | None = None,
    seed: int | None = None,
    changes: Sequence[str] = (),
    given: Given | None = None,
) -> Run:
    """Return the run that is asked for in a folder.

    Without an experiment it is the folder's own run with changes; in a new folder that which
    `init_from` names, or the demo. With an experiment it is a new run, which takes only its files
    from the folder.
    experiment, seed: None is not given. changes: settings, as in "model.d_k=16". given: the paths
    of text, trees, vocabularies and of the initial model.

    Raises InputError if they do not fit together.
    """
    if seed is not None and (type(seed) is not int or not 0 <= seed < 2**32):
        raise InputError(f"seed: expected a whole number from 0 to {2**32 - 1:,}, found {seed!r}")
    folder.mend_manifest()
    check_trainable(folder)
    run, initial = folder.read_run(), None
    files = checked_files(given or {}, run.files if run else {})
    if "init_from" in files:
        if run and not experiment and run.files.get("init_from") != files["init_from"]:
            raise InputError(
                f"{folder.address}: expected a new folder for a run that continues from "
                f"{files['init_from']}, found another run; choose another --workdir, or leave "
                "--init_from out to go on with that one"
            )
        if not folder.has_checkpoints():  # else it is not needed any more
            initial = RunFolder(str((given or {})["init_from"]))
    if run is None or experiment:
        run = _new_run(run, initial, experiment, 1 if seed is None else seed)
    elif seed is not None:
        run = dataclasses.replace(run, seed=seed)
    config = override(run.config, *changes)
    if config.data.task != run.config.data.task:
        raise InputError(
            f"--set data.task={config.data.task}: {run.experiment} is for {run.config.data.task}; "
            "choose another --experiment"
        )
    if initial:
        check_same_model(config, initial)
    return dataclasses.replace(run, config=config, files=_files(run, files))


def _new_run(run: Run | None, initial: RunFolder | None, experiment: str | None, seed: int) -> Run:
    files = run.files if run else {}
    if initial and not experiment:
        parent = initial.load_run()
        corpus = "files" if parent.corpus == IMPORTED else parent.corpus
        return dataclasses.replace(parent, seed=seed, files=files, corpus=corpus)
    name = experiment or "demo"
    known = find_experiment(name)
    return Run(name, seed, known.config(), files, known.corpus, known.scored_on)


def checked_files(given: Given, before: Files | None = None) -> dict[str, Any]:
    """Return these files as `named_files` does.

    before: the files of the run so far, which may have been moved away. Raises InputError for an
    unknown name, for one of several files that is missing, or a path that cannot be read more than
    once.
    """
    for name, value in given.items():
        if name not in _KNOWN:
            raise InputError(f"{name}: no file of a run is called so{did_you_mean(name, _KNOWN)}")
        if name in _ON_DISK and any(map(is_url, [value] if isinstance(value, str) else value)):
            raise InputError(
                f"--{name}={value}: expected a path, found an address; copy it to a disk"
            )
    known = {path for value in (before or {}).values() for path in listed_paths(value)}
    text = {name: value for name, value in given.items() if name not in (*INITIAL, *_FOLDERS)}
    files = named_files(text, known)
    for name, value in text.items():
        for each in [value] if isinstance(value, str) else value:
            paths = [*map(absolute, listed_paths(each, known))]
            there = (is_url(p) or p in known or os.path.exists(p) for p in paths)
            if len(paths) > 1 and not all(there):
                missing = [p for p in paths if not os.path.exists(p)]
                raise InputError(
                    f"--{name}={each}: expected a file of this name, or several with commas "
                    f"between them, found no {missing[0]}; check the paths"
                )
    for name in _FOLDERS:
        if name in given:
            check_regular(str(given[name]))
            files[name] = absolute(str(given[name]))
    initial = {name: str(given[name]) for name in INITIAL if name in given}
    if "init_checkpoint" in initial and "init_from" not in initial:
        raise InputError("--init_checkpoint: expected --init_from with it; give both")
    if "init_from" in initial:
        check_regular(initial["init_from"])
        initial["init_from"] = absolute(initial["init_from"])
    return files | initial


def _files(run: Run, given: Files) -> dict[str, Any]:
    """Return the files that are given, else those of the run."""
    initial = {name: given[name] for name in INITIAL if name in given}
    text = {n: path for n, path in given.items() if n.endswith(("_source", "_target"))}
    trees = {n: path for n, path in given.items() if n.endswith("_trees") or n == "treebank_dir"}
    parses = run.config.data.task == "parsing"
    if wrong := text if parses else trees:
        expected, found = ("trees", "text") if parses else ("text", "trees")
        raise InputError(
            f"--{next(iter(wrong))}: expected {expected} for {run.experiment}, found {found}; "
            f"leave it out, or choose an --experiment for {'translation' if parses else 'parsing'}"
        )
    apart = (*VOCABULARY_FILES, *INITIAL)
    before = {name: path for name, path in run.files.items() if name not in apart}
    initial = initial or {name: run.files[name] for name in INITIAL if name in run.files}
    files = _text_files(run, text or trees or before, given.get("data_dir"))
    return files | _vocabularies(run, given, initial) | initial


def _vocabularies(run: Run, given: Files, initial: Files) -> dict[str, Any]:
    """Return the vocabularies that are given, else those of the run."""
    given = _of_runs({name: given[name] for name in VOCABULARY_FILES if name in given})
    if given and initial:
        raise InputError(
            f"--{next(iter(given))}: expected none with --init_from, whose vocabulary is taken; "
            "leave it out"
        )
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
    return given or {n: path for n, path in run.files.items() if n in VOCABULARY_FILES}


def _of_runs(given: Files) -> dict[str, Any]:
    """Return the files of vocabularies, with those of a run in place of its folder."""
    files: dict[str, Any] = {}
    for name, value in given.items():
        path, *others = listed_paths(value)
        if others or not os.path.isdir(path):
            files[name] = value
            continue
        folder = RunFolder(path)
        theirs = {n: p for n, p in vocabularies_of(folder).items() if n in VOCABULARY_FILES}
        if name != "vocabulary":  # one side's, which the run may have for both
            theirs = {name: theirs.get(name) or theirs["vocabulary"]}
        for own_name, own in theirs.items():
            folder.manifest.content(Path(own), "put back a copy")
            files[own_name] = [own] if "," in own else own  # as `named_files` has it
    return files


def _text_files(run: Run, files: dict[str, Any], data_dir: str | None) -> dict[str, Any]:
    """Return the files of text or trees; for a run on WMT its folder."""
    if run.corpus not in DATASETS or "train_source" in files:
        if data_dir:
            raise InputError(
                f"--data_dir={data_dir}: expected an experiment that reads WMT, found "
                f"{run.experiment} on other data; leave the flag out"
            )
        return files
    data_dir = data_dir or str(files.get("data_dir") or default_data_dir())
    if os.path.isfile(data_dir):
        raise InputError(f"--data_dir={data_dir}: expected a folder, found a file; name another")
    return {"data_dir": os.path.abspath(data_dir)}


def check_files(run: Run, folder: RunFolder | None = None) -> None:
    """Raise InputError if a run lacks a file that it needs.

    folder: its folder, which may hold the same run with all of its files.
    """
    apart = (*VOCABULARY_FILES, *INITIAL)
    files = {name: path for name, path in run.files.items() if name not in apart}
    reads_wmt = run.corpus in DATASETS and "data_dir" in files
    if reads_wmt or (run.corpus in ("demo", "demo-trees") and not files):
        return
    needed = TEXT_FILES if any(name in files for name in TEXT_FILES[4:]) else TEXT_FILES[:4]
    if run.config.data.task == "parsing":
        needed = [] if "treebank_dir" in files else ["train_trees", "dev_trees"]
        needed += ["extra_trees"] if run.experiment == "wsj-semi" else []
        spare = [f"--{name}" for name in TREE_FILES if name in files and name != "extra_trees"]
        if "treebank_dir" in files and spare:
            raise InputError(
                "--treebank_dir: expected it to give all trees, found also "
                f"{' and '.join(spare)}; leave one of them out"
            )
    missing = [f"--{name}" for name in needed if name not in files]
    if missing:
        instead = ", or --treebank_dir" if "--train_trees" in missing else ""
        before = folder.read_run() if folder and files else None
        text = ", or leave the flags out to continue with the text of before"
        raise InputError(
            f"{run.experiment}: expected {', '.join(missing)}{instead}, found none; give the data "
            f"to train on{text if before and before.files else ''}"
        )
