"""From what a user asks for, by flags or from Python, to the description of a run.

A run may continue from the model of another run, whose settings and vocabularies it then has.
"""

import dataclasses
import logging
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path

from jax_transformer.config import Config, differing_settings, override, settings
from jax_transformer.data.sources import Sources, Text, Vocabularies
from jax_transformer.data.urls import absolute, is_url
from jax_transformer.data.wmt import DATASETS, default_data_dir
from jax_transformer.errors import InputError, did_you_mean
from jax_transformer.files import DESCRIPTORS, check_regular
from jax_transformer.presets import find_experiment
from jax_transformer.runs.run_dir import IMPORTED, Initial, Run, RunFolder, check_trainable
from jax_transformer.runs.tasks import TASKS, TEXT_FILES, TREE_FILES

logger = logging.getLogger(__name__)

VOCABULARY_FILES = [part.name for part in fields(Vocabularies)]
_ON_DISK = [*TREE_FILES, *VOCABULARY_FILES, "treebank_dir", "data_dir"]
FILES = [*TEXT_FILES, *_ON_DISK, "init_from", "init_checkpoint"]
# A path, or several, by the name of their flag.
Given = Mapping[str, str | Sequence[str]]
Files = dict[str, tuple[str, ...]]

# Settings for how a model is computed or regularized, which do not change its parameters' meaning.
FREE = (
    *("model.dropout_rate", "model.attention_dropout_rate", "model.compute_dtype"),
    *("model.matmul_precision", "model.remat", "model.fused_attention"),
)


def requested_run(
    folder: RunFolder,
    experiment: str | None = None,
    seed: int | None = None,
    changes: Sequence[str] = (),
    given: Given | None = None,
) -> Run:
    """Return the run that is asked for in a folder. Raises InputError for what does not fit.

    Without an experiment it is the folder's own run with changes; in a new folder that which
    `init_from` names, or the demo. With an experiment it is a new run, which takes its files,
    its seed and its initial model from the folder. changes: settings, as in "model.d_k=16". given:
    the paths of text, trees, vocabularies and of the initial model.
    """
    folder.mend_manifest()
    check_trainable(folder)
    before, files = folder.run, checked_files(given or {})
    initial, parent = _initial(files), None
    if initial:
        trained, own = folder.trained_steps(), before and before.initial
        # Else that model is still needed, and was moved.
        kept = trained or not own or RunFolder(own.run).config.exists()
        if before and not experiment and kept and (own or Initial("")).run != initial.run:
            raise InputError(
                f"{folder.address}: expected a new folder for a run that continues from "
                f"{initial.run}, found another run; choose another --workdir, or leave "
                "--init_from out to go on with that one"
            )
        if not trained:  # else it is not needed any more
            parent = RunFolder(initial.run)
    if before and not experiment:
        run = before if seed is None else dataclasses.replace(before, seed=seed)
    else:
        known = before.seed if before else 1
        run = _new_run(before, parent, experiment, known if seed is None else seed)
    config = override(run.config, *changes)
    if config.data.task != run.config.data.task:
        raise InputError(
            f"--set data.task={config.data.task}: {run.experiment} is for {run.config.data.task}; "
            "choose another --experiment"
        )
    initial = initial or run.initial
    if config.data.task == "parsing" and config.data.unescape_html and not folder.trained_steps():
        raise InputError("data.unescape_html=true is for translation only; set it to false")
    if parent and initial:
        check_same_model(config, parent)
        _check_checkpoint(parent, initial.checkpoint)
    run = dataclasses.replace(run, config=config, initial=initial, sources=_sources(run, files))
    return dataclasses.replace(run, vocabularies=_vocabularies(run, files))


def _new_run(
    before: Run | None, parent: RunFolder | None, experiment: str | None, seed: int
) -> Run:
    """Return the experiment's run, or the parent's, with the files of the run before."""
    known = find_experiment(experiment or "demo")
    run = Run(experiment or "demo", seed, known.config())
    run = dataclasses.replace(run, corpus=known.corpus, scored_on=known.scored_on)
    if parent and not experiment:
        run = parent.load_run()
        # Text is not taken over, so the demo's must not take the place of other text.
        of_files = run.sources != Sources() and run.corpus not in DATASETS
        corpus = "files" if run.corpus == IMPORTED or of_files else run.corpus
        run = dataclasses.replace(run, seed=seed, corpus=corpus)
    of_same_kind = before and before.task.text is run.task.text
    return dataclasses.replace(
        run,
        sources=before.sources if before and of_same_kind else Sources(),
        vocabularies=before.vocabularies if before and of_same_kind else None,
        initial=before.initial if before else None,
        imported_from="",
    )


def command_of(run: Run) -> str:
    """Return the command that trains a run, with the names of its files without their folders.

    Raises InputError if there is no such experiment, as for a model that was imported.
    """
    ours, preset = settings(run.config), settings(find_experiment(run.experiment).config())
    changed = {name for name, value in ours.items() if value != preset[name]}
    if changed & {"model.d_model", "model.num_heads"}:  # which the widths of heads would follow
        changed |= {"model.d_k", "model.d_v"}
    files = run.sources.flags() | (vars(run.vocabularies) if run.vocabularies else {})
    files |= {name: (getattr(run.sources, name),) for name in ("treebank_dir", "data_dir")}
    words = ["python", "-m", "experiments.train"]
    words += [f"--experiment={run.experiment}", f"--seed={run.seed}"]
    if run.initial:
        words.append(f"--workdir=runs/{run.experiment}-continued")
        files |= {"init_from": (run.initial.run,), "init_checkpoint": (run.initial.checkpoint,)}
    for name, paths in files.items():
        flag = re.sub(r"^train_\d+_", "train_", name)  # of the second corpus and so on
        words += [f"--{flag}={os.path.basename(path.rstrip('/'))}" for path in paths if path]
    for name, value in ours.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        words += ["--set", f"{name}={text}"] if name in changed else []
    return shlex.join(words)


def checked_files(given: Given) -> Files:
    """Return the absolute paths of each name.

    Raises InputError for an unknown name, or a path that cannot be read more than once.
    """
    files: Files = {}
    for name, value in given.items():
        if name not in FILES:
            raise InputError(f"{name}: no file of a run has this name{did_you_mean(name, FILES)}")
        paths = (value,) if isinstance(value, str) else tuple(value)
        for path in paths:
            if name in _ON_DISK and is_url(path):
                raise InputError(
                    f"--{name}={path}: expected a path, found an address; copy it to a disk"
                )
            if name != "init_checkpoint":
                check_regular(path)
            if path.startswith(DESCRIPTORS):
                raise InputError(
                    f"--{name}={path}: expected a file that later commands can open too, found one "
                    "that only this command has open; give the path of a file"
                )
        files[name] = paths if name == "init_checkpoint" else tuple(map(absolute, paths))
    return files


def _initial(files: Files) -> Initial | None:
    if "init_from" in files:
        if found := files["init_from"][1:]:
            raise InputError(f"--init_from={found[0]}: expected one run, found several; give one")
        return Initial(files["init_from"][0], *files.get("init_checkpoint", ()))
    if "init_checkpoint" in files:
        raise InputError("--init_checkpoint: expected --init_from with it; give both")
    return None


def _sources(run: Run, files: Files) -> Sources:
    """Return the text or trees that are given, else those of the run; for one on WMT its folder."""
    task = run.task
    for other in TASKS.values():
        wrong = [name for name in other.files if name in files and name not in task.files]
        if wrong:
            raise InputError(
                f"--{wrong[0]}: expected {task.text.__name__.lower()} for {run.experiment}, found "
                f"{other.text.__name__.lower()}; leave it out, or choose an --experiment for "
                f"{other.name}"
            )
    own = {name: files[name] for name in task.files if name in files}
    sources = Sources.named(own, task.text) if own else run.sources
    given = "".join(files.get("data_dir", ()))
    if run.corpus not in DATASETS or sources.train:
        if given:
            raise InputError(
                f"--data_dir={given}: expected an experiment that reads WMT, found "
                f"{run.experiment} on other data; leave the flag out"
            )
        return dataclasses.replace(sources, data_dir="")  # that of another experiment, if any
    if own:
        raise InputError(
            f"--{next(iter(own))}: expected --train_source and --train_target with it, because "
            f"without them {run.experiment} reads all text from WMT; give both, or leave it out"
        )
    return Sources(data_dir=wmt_folder(given or sources.data_dir))


def wmt_folder(given: str | None) -> str:
    """Return the absolute path of WMT's folder. Raises InputError for a file or an address."""
    named = given or default_data_dir()
    if is_url(named):
        name = "--data_dir" if given else "TFDS_DATA_DIR"
        raise InputError(f"{name}={named}: expected a folder, found an address; give --data_dir")
    data_dir = absolute(named)
    if os.path.isfile(data_dir):
        raise InputError(f"--data_dir={data_dir}: expected a folder, found a file; name another")
    return data_dir


def _vocabularies(run: Run, files: Files) -> Vocabularies | None:
    """Return the vocabularies that are given, else those of the run."""
    given: Files = {}
    for name in VOCABULARY_FILES:
        if name in files:
            given |= _of_run(name, files[name])
    if given and run.initial:
        raise InputError(
            f"--{next(iter(given))}: expected none with --init_from, whose vocabulary is taken; "
            "leave it out"
        )
    if given and not run.task.has_vocabularies:
        raise InputError(
            f"--{next(iter(given))}: expected an experiment that translates, found "
            f"{run.experiment}, which learns the vocabulary of its words; leave it out"
        )
    return Vocabularies(**given) if given else run.vocabularies


def _of_run(name: str, paths: tuple[str, ...]) -> Files:
    """Return the files of a vocabulary; if the path is a run's folder, those of the run."""
    path, *others = paths
    if others or not os.path.isdir(path):
        return {name: paths}
    folder = RunFolder(path)
    if folder.run is None:
        raise InputError(
            f"--{name}={path}: expected a file, or the folder of a run, found a folder without a "
            "config.json; name the file in it"
        )
    theirs = {n: path for n, path in vocabularies_of(folder).items() if n in VOCABULARY_FILES}
    if name != "vocabulary":  # one side's, which the run may have for both
        theirs = {name: theirs.get(name) or theirs["vocabulary"]}
    for (file,) in theirs.values():
        folder.manifest.content(Path(file), "put back a copy")
    return theirs


def vocabularies_of(folder: RunFolder) -> Files:
    """Return the paths of a run's vocabularies by the names under which `prepare` takes them."""
    source, target = (str(folder.vocabulary),), (str(folder.target_vocabulary),)
    if folder.target_vocabulary.name in folder.manifest.sums:
        return {"source_vocabulary": source, "target_vocabulary": target}
    return {"vocabulary": source}


def check_files(run: Run, folder: RunFolder | None = None) -> None:
    """Raise InputError if a run lacks a file that it needs.

    folder: its folder, which may hold the same run with all of its files.
    """
    sources, files = run.sources, run.sources.flags()
    is_demo = run.corpus in ("demo", "demo-trees") and sources == Sources()
    if is_demo or (run.corpus in DATASETS and sources.data_dir):
        return
    needed = run.task.needed(sources, run.experiment)
    if missing := [f"--{name}" for name in needed if name not in files]:
        instead = ", or --treebank_dir" if "--train_trees" in missing else ""
        before = folder.run if folder and sources != Sources() else None
        text = ", or leave the flags out to continue with the text that the run had before"
        raise InputError(
            f"{run.experiment}: expected {', '.join(missing)}{instead}, found none; give the data "
            f"to train on{text if before and before.sources != Sources() else ''}"
        )
    for split, part in sources.splits().items():
        if isinstance(part, Text) and len(part.source) != len(part.target):
            raise InputError(
                f"{split}: expected a target file for each source file, found {len(part.source)} "
                f"in --{split}_source and {len(part.target)} in --{split}_target; give one of "
                "each, in the same order"
            )
        same = {*part.source} & {*part.target} if isinstance(part, Text) else None
        if same and split.startswith("train"):
            logger.warning(f"{split}: {min(same)} is both source and target: a copy")


def _check_checkpoint(initial: RunFolder, name: str) -> None:
    """Raise InputError if the initial run lacks this checkpoint, before text is encoded."""
    steps, averaged = initial.trained_steps(), initial.averaged_steps()
    kept = initial.load_run().config.training.keep_best != "none"
    named = {"averaged": averaged, "last": steps, "best": steps and kept}
    there = [*(known for known in named if named[known]), *map(str, steps)]
    if not there:
        raise InputError(
            f"--init_from={initial.address}: expected a trained model, found no checkpoint; train "
            "it first, or give another run"
        )
    if name and name not in there:
        raise InputError(
            f"--init_from={initial.address}: expected the checkpoint {name}, found "
            f"{', '.join(there[:9])}; choose another --init_checkpoint"
        )


def check_same_model(config: Config, initial: RunFolder) -> None:
    """Raise InputError that names the settings in which a model differs from the initial one."""
    fixed = {
        name: value
        for name, value in settings(config).items()
        if name.startswith(("model.", "data.task", "data.word_positions")) and name not in FREE
    }
    if found := differing_settings(fixed, settings(initial.load_run().config)):
        raise InputError(
            f"--init_from={initial.address}: expected the settings of its model, found "
            f"{'; '.join(found)}; leave these and --experiment out, or start from another run"
        )
