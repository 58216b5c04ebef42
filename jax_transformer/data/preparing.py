"""The text of a run: which corpus it is, and preparing it with progress on the screen."""

import shutil
import sys
import time
from pathlib import Path

from tqdm import tqdm

from jax_transformer.data.datasets import Corpus, DemoCorpus, FileCorpus
from jax_transformer.data.prepare import Prepared, prepare
from jax_transformer.data.wmt import DATASETS, TfdsCorpus
from jax_transformer.errors import InputError
from jax_transformer.parsing.treebank import (
    DemoTreebank,
    TreebankCorpus,
    own_trees,
    wall_street_journal,
)
from jax_transformer.runs.run_dir import Run, RunFolder


def check_corpus(run: Run) -> None:
    """InputError where the experiment has no text that can be had, and none is given."""
    corpus = run.corpus
    parses = corpus in ("wsj", "treebank", "demo-trees")
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
    if run.files or corpus in ("demo", "demo-trees"):
        return
    files = "--train_source, --train_target, --dev_source and --dev_target"
    if parses:
        files = "--train_trees and --dev_trees"
    if corpus == "wsj":
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
    if run.corpus in DATASETS:
        return TfdsCorpus(DATASETS[run.corpus], run.files["data_dir"])
    return DemoTreebank() if run.corpus == "demo-trees" else DemoCorpus()


def shared_folder(corpus: str, data_dir: str) -> RunFolder:
    """Where experiments.prepare keeps vocabulary and tokens that runs of one corpus share."""
    return RunFolder(Path(data_dir) / "jax_transformer" / corpus)


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
        say,
        shared=shared if shared and shared.path != folder.path else None,
        meter=Meter,
    )


def say(line: str) -> None:
    """One line on standard output, above the progress bar if there is one."""
    tqdm.write(line, file=sys.stdout)
    sys.stdout.flush()


class Meter:
    """How many pairs are done: a bar on a terminal, elsewhere a line now and then."""

    def __init__(self, what: str, total: int) -> None:
        """total: 0 where it is not known."""
        size = shutil.get_terminal_size()
        self._bar = tqdm(
            total=total or None,
            unit=" pairs",
            desc=what,
            disable=not sys.stderr.isatty(),
            leave=False,
            ncols=size.columns,
            nrows=size.lines,
        )
        self._what, self._total, self._done, self._skipped = what, total, 0, -1
        self._start = self._said = time.monotonic()

    def update(self, count: int) -> None:
        """So many more are done; those of the first call were done before."""
        self._done += count
        if self._skipped < 0:
            self._skipped = count
            if count:
                say(f"{self._what}, going on after {count:,} pairs")
        self._bar.update(count)
        now = time.monotonic()
        if self._bar.disable and now - self._said > 10:
            self._said = now
            rate = (self._done - self._skipped) / (now - self._start)
            left = (self._total - self._done) / rate / 60 if self._total and rate else 0
            say(
                f"{self._what}, {self._done:,} pairs of {self._total:,}, {rate:,.0f} pairs/s, "
                f"{left:.1f} min left"
            )

    def close(self) -> None:
        """Take the bar off the screen."""
        self._bar.close()
