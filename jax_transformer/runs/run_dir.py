"""A run is a folder: settings, vocabulary, tokens, checkpoints, metrics, scores.

A run can be evaluated and can translate with this folder alone, and the folder can be moved.
"""

import contextlib
import errno
import logging
import os
import re
import shlex
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from annotated_types import Ge, Lt

from jax_transformer.config import END_SETTINGS, FREE_SETTINGS, Config, settings
from jax_transformer.data.manifest import NAME as MANIFEST
from jax_transformer.data.manifest import DataFolder
from jax_transformer.data.sources import Sources, Vocabularies
from jax_transformer.data.text import SIDES
from jax_transformer.data.urls import is_url
from jax_transformer.declared import Declared
from jax_transformer.errors import InputError
from jax_transformer.files import (
    append_bytes,
    encode_json,
    exclusive,
    lines_of_json,
    read_bytes,
    read_json,
    remove_partial,
    write_json,
)
from jax_transformer.runs.bucket import LARGE, Bucket
from jax_transformer.runs.tasks import TASKS, Task
from jax_transformer.runtime import environment

if TYPE_CHECKING:  # it imports JAX
    from jax_transformer.parallel import Devices

logger = logging.getLogger(__name__)

# Orbax takes a path with these characters for a pattern of names and does not save any array;
# TensorStore turns a backslash into a slash.
PATTERNS = frozenset("*?[\\")

_IMPORT = "import another program's model with python -m experiments.import_model first"

NFS_SECONDS = 70  # for which an NFS client may not see a new file
IMPORTED = "imported"  # the corpus of a run that was made from another program's model

# JAX makes keys of 32 bits: a larger seed would give the same key as a smaller one.
Seed = Annotated[int, Ge(0), Lt(2**32)]


@dataclass(frozen=True)
class Initial(Declared):
    """The model that a run continues from: of another run, whose folder or URL this is.

    checkpoint: as for `jt.load`; empty for the default.
    """

    run: str
    checkpoint: str = ""


@dataclass(frozen=True)
class Run(Declared):
    """The description of a run: everything that its result depends on.

    corpus: the text that is read if `sources` are empty, such as "demo". imported_from: the files
    of another program's model.
    """

    experiment: str
    seed: Seed
    config: Config
    sources: Sources = field(default_factory=Sources)
    vocabularies: Vocabularies | None = None
    initial: Initial | None = None
    imported_from: str = ""
    corpus: str = "files"
    scored_on: Literal["dev", "test"] = "test"

    @property
    def task(self) -> Task:
        """What the run does."""
        return TASKS[self.config.data.task]

    def fixed_settings(self) -> dict[str, Any]:
        """Return what the parameters depend on, by name, except for the text and vocabularies."""
        names = ("experiment", "seed", "corpus")
        free: tuple[str, ...] = FREE_SETTINGS
        if self.config.training.keep_best in ("bleu", "chrf"):  # scores of one kind are compared
            free = tuple(name for name in FREE_SETTINGS if name != "data.bleu_")
        fixed = {
            name: value
            for name, value in settings(self.config).items()
            if name not in END_SETTINGS and not name.startswith(free)
        }
        initial = self.initial or Initial("")
        origin = {"init_from": initial.run, "init_checkpoint": initial.checkpoint}
        return {name: getattr(self, name) for name in names} | fixed | origin

    def is_regular(self, step: int) -> bool:
        """Return True if a run that nobody stops saves this step.

        Only such steps are averaged, and that with which on_metrics ended training.

        If checkpoints are saved by the clock, every step counts: the step does not show why it was
        saved.
        """
        training = self.config.training
        last = step == training.steps
        evaluated = training.keep_best != "none" and step % training.evaluate_steps == 0
        saved = training.checkpoint_minutes > 0 or step % training.checkpoint_steps == 0
        return last or evaluated or saved


class RunFolder(DataFolder):
    """The paths inside a run folder, and its small files, each of which is read once."""

    def __init__(self, path: str | Path) -> None:
        """Name the paths; the small files of a folder in a bucket are copied to this machine.

        path: the folder, which need not exist, or its URL in a bucket. Raises InputError if the
          bucket cannot be read, or if checkpoints cannot be saved under this path.
        """
        self.bucket = Bucket(str(path)) if is_url(path) else None
        super().__init__(self.bucket.local if self.bucket else path)
        if found := PATTERNS.intersection(str(self.path)):
            raise InputError(
                f"{self.path}: expected a path without {' '.join(sorted(PATTERNS))}, found "
                f"{' '.join(sorted(found))}, with which no checkpoint can be saved or read; rename "
                "the folder, or choose another --workdir"
            )
        if self.bucket and (self.bucket.holds_run() or self.path.exists()):
            self.bucket.fetch(lambda name: not name.startswith(LARGE))
        self.config = self.path / "config.json"
        self.checkpoints = self.path / "checkpoints"
        self.averaged = self.path / "averaged"
        self.metrics = self.path / "metrics.jsonl"
        self.tensorboard = self.path / "tensorboard"
        self.results = self.path / "results.json"
        self.starts = self.path / "starts.jsonl"

    @cached_property
    def run(self) -> Run | None:
        """The run that config.json describes, or None if there is no such file.

        Raises InputError if it is damaged, or is not what the manifest lists.
        """
        remedy = (
            "put back a copy, use the version of this program that wrote it, or train again; "
            f"settings are changed with --set of experiments.train; {_IMPORT}"
        )
        run = read_json(self.config, Run, remedy)
        if run and self.config.name in self.manifest.sums:
            self.manifest.content(self.config, remedy)
        elif run:  # preparation has not begun, or was killed when it had written this file
            self.manifest.add(self.config, read_bytes(self.config))
        return run

    @property
    def quoted(self) -> str:
        """The address, quoted for a shell."""
        return shlex.quote(self.address)

    @property
    def address(self) -> str:
        """The path, or the URL in a bucket."""
        return self.bucket.url if self.bucket else str(self.path)

    def shown(self, path: Path) -> str:
        """Return the address of a file in the folder, and the path of any other file."""
        return str(path).replace(f"{self.path}/", f"{self.address}/", 1)

    @contextlib.contextmanager
    def written(self) -> Iterator[None]:
        """Copy what the block writes to the folder's bucket, if it is in one."""
        with self.bucket.putting() if self.bucket else contextlib.nullcontext():
            yield

    def fetch_tokens(self) -> None:
        """Copy the token stores from the folder's bucket, if it is in one."""
        if self.bucket:
            self.bucket.fetch(lambda name: name.startswith("tokens/"))

    def fetch_steps(
        self, folder: Path, select: Callable[[list[int]], Sequence[int]] = lambda steps: steps[-3:]
    ) -> None:
        """Copy checkpoints from the folder's bucket, if it is in one.

        folder: `checkpoints` or `averaged`. select: a function that picks, from all steps in
          ascending order, those to copy; by default the newest, and two in case it is damaged.
        """
        if self.bucket:
            steps = {*self.bucket.steps(folder.name), *saved_steps(folder)}
            begins = tuple(f"{folder.name}/{step}/" for step in select(sorted(steps)))
            self.bucket.fetch(lambda name: name.startswith(begins))

    @contextlib.contextmanager
    def in_turn(self, devices: "Devices") -> Iterator[None]:
        """Enter `devices.in_turn`; every process then finds what process 0 has written."""
        with devices.in_turn():
            if not devices.is_first:
                if self.bucket:
                    self.bucket.fetch(lambda name: not name.startswith(LARGE))
                    self.fetch_tokens()
                self.reread()
            yield
            if self.bucket and devices.is_first and devices.processes > 1:
                self.bucket.put()

    def reread(self) -> None:
        """Forget what was read, which another process may have written since.

        As for `mend_manifest`, a damaged manifest counts as missing.
        """
        for name in ("manifest", "run"):
            self.__dict__.pop(name, None)
        self.mend_manifest()

    def appears(self) -> bool:
        """Wait until this process sees what process 0 has begun; False if it does not.

        NFS may remember for a minute that a file was not there.
        """
        for _ in range(NFS_SECONDS):
            if self.run:
                return True
            time.sleep(1)
            self.reread()
        return False

    def load_run(self) -> Run:
        """Return the run that config.json describes. Raises InputError if there is none."""
        if self.run is None:
            found = "a file" if self.path.exists() else "no such folder"
            raise InputError(
                f"{self.address}: expected a run folder with a config.json, found "
                f"{'none in it' if self.path.is_dir() else found}; give the --workdir of a run of "
                f"experiments.train; {_IMPORT}"
            )
        return self.run

    def write_run(self, run: Run) -> None:
        """Write config.json, and note its sum in the manifest."""
        self.manifest.made_of["settings"] = run.fixed_settings()
        self.manifest.replace(self.config, lines_of_json(run))
        self.run = run

    def trained_steps(self) -> list[int]:
        """Return the steps that have a checkpoint, ascending."""
        return self._steps(self.checkpoints)

    def averaged_steps(self) -> list[int]:
        """Return the numbers of the averaged models, ascending."""
        return self._steps(self.averaged)

    def _steps(self, folder: Path) -> list[int]:
        there = self.bucket.steps(folder.name) if self.bucket else []
        return sorted({*there, *saved_steps(folder)})

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder against other training processes, and clear what killed ones left.

        If the block raises InputError before any text is encoded, which may take hours, a new
        folder is removed again.
        Raises InputError if somebody else's files would be replaced.
        """
        new, configured = not self.path.exists(), self.config.exists()
        if not configured:
            self.check_unused()
        with contextlib.ExitStack() as stack:
            try:
                # The link to a new folder may be there before the folder.
                Path(os.path.realpath(self.path)).mkdir(parents=True, exist_ok=True)
                stack.enter_context(exclusive(self.path / "lock", wait=False))
            except BlockingIOError:
                raise InputError(
                    f"{self.path}: another process writes into this folder; wait for it, or "
                    "choose another --workdir"
                ) from None
            except OSError as error:
                if error.errno == errno.ENOSPC:
                    raise
                raise InputError(
                    f"{self.path}: expected a folder to write into, or a place for a new one, "
                    f"found '{error.strerror}'; choose another --workdir"
                ) from None
            if configured:
                remove_partial(path for path in self._written() if not path.is_dir())
            try:
                yield
            except InputError:
                if new and not [*self.path.glob("tokens/*/store.json")]:
                    shutil.rmtree(os.path.realpath(self.path))
                raise

    def _written(self) -> list[Path]:
        """Return the paths that preparing, training and scoring replace or remove."""
        small = [self.config, self.path / MANIFEST]
        small += [self.vocabulary, self.target_vocabulary]
        small += [self.metrics, self.results, self.starts]
        small += [self.text(split, side) for split in ("dev", "test") for side in SIDES]
        return [*small, self.tokens("train").parent, self.checkpoints, self.averaged]

    def check_new(self) -> None:
        """Raise InputError if the folder has a run, or files of one."""
        if self.config.exists():
            raise InputError(
                f"{self.path}: expected a new folder, found one with a config.json; choose another"
            )
        self.check_unused()

    def check_unused(self) -> None:
        """Raise InputError if a folder without a config.json has files that a run would write."""
        if there := [str(path.relative_to(self.path)) for path in self._written() if path.exists()]:
            raise InputError(
                f"{self.path}: expected a config.json next to {', '.join(there)}, found none; "
                "restore it, or for a new run move these away or choose another --workdir"
            )

    def append_start(self, step: int) -> None:
        """Append a line to starts.jsonl: training goes on after `step`, in this environment."""
        append_bytes(self.starts, encode_json({"step": step, **environment()}) + b"\n")

    def read_results(self) -> list[dict[str, Any]]:
        """Return the objects of results.json, one per score.

        Raises InputError if the file holds something else.
        """
        return read_json(self.results, list[dict[str, Any]], "move it away") or []

    def append_results(self, results: Sequence[dict[str, Any]]) -> None:
        """Append scores to results.json; processes that do so at once wait for each other."""
        if self.bucket:  # another machine may have scored meanwhile
            try:
                self.bucket.fetch(lambda name: name == self.results.name)
            except InputError as error:  # the scores took long
                logger.warning("%s; adding the scores to the copy that is here", error)
        with exclusive(self.path / "results.lock"):
            older = self.read_results()
            new = {
                each["translations"]: each["steps"] for each in results if "translations" in each
            }
            for each in older:
                file, steps = each.get("translations"), each.get("steps")
                if new.get(file, steps) != steps:  # it had the outputs of another model
                    del each["translations"]
            write_json(self.results, [*older, *results])


def check_trainable(folder: RunFolder) -> None:
    """Raise InputError if the folder has a model alone: training would replace it."""
    if folder.run and folder.run.corpus == IMPORTED:
        raise InputError(
            f"{folder.address}: expected a run to train, found a model without text; give another "
            f"--workdir, and --init_from={folder.quoted} to continue from it"
        )
    if not folder.trained_steps() and folder.averaged_steps():
        raise InputError(
            f"{folder.address}: expected checkpoints to continue from, found the averaged model "
            "alone, which training would replace; put them back, remove averaged/, or give "
            f"another --workdir and --init_from={folder.quoted} to continue from the model"
        )


def saved_steps(folder: Path) -> list[int]:
    """Return the steps of the checkpoints in a folder, ascending; unverified."""
    paths = folder.iterdir() if folder.is_dir() else ()
    return sorted(int(path.name) for path in paths if is_step(path.name) and path.is_dir())


def is_step(name: str) -> bool:
    """Return True for the name of a checkpoint's folder: ASCII digits without leading zeros."""
    return re.fullmatch("0|[1-9][0-9]{0,9}", name) is not None


def step_range(steps: Sequence[int]) -> str:
    """Describe the steps that parameters come from: `step 9`, or `steps 1 to 9` of an average."""
    if len(steps) == 1:
        return f"step {steps[0]:,}"
    return f"steps {steps[0]:,} to {steps[-1]:,}"
