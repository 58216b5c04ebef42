"""The text of a run: the files that its flags name, or what its experiment reads."""

from pathlib import Path

from jax_transformer import demo
from jax_transformer.data.datasets import Corpus, FileCorpus, PairsCorpus
from jax_transformer.data.prepare import Prepared, prepare
from jax_transformer.data.wmt import DATASETS, TfdsCorpus
from jax_transformer.errors import InputError
from jax_transformer.parsing.treebank import (
    GeneratedTreebank,
    TreebankCorpus,
    own_trees,
    wall_street_journal,
)
from jax_transformer.runs.run_dir import Run, RunFolder

PARSING_CORPORA = ("wsj", "treebank", "demo-trees")


def check_corpus(run: Run) -> None:
    """InputError where the experiment has no text of its own and the flags name none."""
    parses = run.corpus in PARSING_CORPORA
    if parses and "train_source" in run.files:
        raise InputError(
            f"--train_source: expected trees for {run.experiment}, found parallel text; give "
            "--train_trees and --dev_trees"
        )
    if parses != (run.config.data.task == "parsing"):
        raise InputError(
            f"--set data.task={run.config.data.task}: {run.experiment} is for "
            f"{'parsing' if parses else 'translation'}; choose another --experiment"
        )
    if run.experiment == "wsj-semi" and "extra_trees" not in run.files:
        raise InputError(
            "--experiment=wsj-semi: expected trees parsed by machine, found none; give "
            "--extra_trees, or take --experiment=wsj"
        )
    if run.files or run.corpus in ("demo", "demo-trees"):
        return
    files = "--train_source, --train_target, --dev_source and --dev_target"
    if parses:
        files = "--train_trees and --dev_trees"
    if run.corpus == "wsj":
        files = f"--treebank_dir (the Penn Treebank as LDC lays it out), or {files}"
    raise InputError(
        f"--experiment={run.experiment}: expected text to train on, found none; give {files}"
    )


def open_corpus(run: Run) -> Corpus:
    """The files that were given, else what the experiment names."""
    if "train_source" in run.files:
        return FileCorpus(run.files)
    if "treebank_dir" in run.files:
        paths = wall_street_journal(run.files["treebank_dir"])
        return TreebankCorpus({**paths, **own_trees(run.files)})
    if "train_trees" in run.files:
        return TreebankCorpus(own_trees(run.files))
    if run.corpus == "demo-trees":
        return GeneratedTreebank(demo.trees)
    if run.corpus in DATASETS:
        return TfdsCorpus(DATASETS[run.corpus], run.files["data_dir"])
    return PairsCorpus(demo_pairs)


def demo_pairs() -> dict[str, list[tuple[str, str]]]:
    """English and German sentences of the built-in grammar; they do not depend on a seed."""
    return {split: demo.sentence_pairs(split) for split in ("train", "dev", "test")}


def shared_folder(dataset: str, data_dir: str) -> RunFolder:
    """Where experiments.prepare keeps the vocabulary and tokens that runs of a data set share."""
    return RunFolder(Path(data_dir) / "jax_transformer" / dataset)


def prepare_run(run: Run, folder: RunFolder) -> Prepared:
    """Vocabulary and token stores of a run in its folder, made or linked where missing."""
    shared = None
    if "data_dir" in run.files:
        shared = shared_folder(run.corpus, run.files["data_dir"])
    return prepare(
        folder,
        open_corpus(run),
        run.config.data,
        run.seed,
        trained=folder.has_checkpoints(),
        shared=shared if shared and shared.path != folder.path else None,
    )
