"""Call commands as a user does, in this process or in another, on a tiny text and model."""

import contextlib
import importlib
import io
import json
import logging
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from absl import flags
from absl import logging as absl_logging
from absl.testing import flagsaver

from experiments import cli

ROOT = Path(__file__).parents[2]
TIMEOUT = 3600  # seconds; a process takes a few on a quiet machine, minutes on a busy one
STEPS, EVERY = 120, 20
SETTINGS = {
    "model.num_layers": 1,
    "model.d_model": 16,
    "model.d_ff": 16,
    "model.num_heads": 2,
    "training.steps": STEPS,
    "training.batch_tokens": 256,  # fewer, and the outputs are blank on some processors
    "training.warmup_steps": 30,
    "training.checkpoint_steps": EVERY,
    "training.evaluate_steps": 60,
    "training.log_steps": 1,
    "training.average_last": 3,
    "decoding.max_extra_length": 2,
    "decoding.batch_tokens": 256,
    "data.vocabulary_size": 85,
    "data.buckets": 1,
    "data.max_length": 8,
    "data.packing": "false",  # see test_interruptions.py
}


class Done(NamedTuple):
    """A command that has ended."""

    code: int
    stdout: str
    stderr: str


def run_command(command: str, *arguments: Any, stdin: bytes = b"", fails: int | None = 0) -> Done:
    """Call a command's main in this process; its exit status has to be `fails`, if any is given."""
    streams = {
        "stdin": io.TextIOWrapper(io.BytesIO(stdin)),
        "stdout": io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline=""),
        "stderr": io.StringIO(),
    }
    before = {name: getattr(sys, name) for name in streams}
    level, handler = logging.root.level, absl_logging.get_absl_handler()
    with flagsaver.flagsaver():  # forgets the command's flags at the end
        try:
            for name, stream in streams.items():
                setattr(sys, name, stream)
            code = _call(command, [command, *map(str, arguments)])
        finally:
            for name, stream in before.items():
                setattr(sys, name, stream)
            logging.root.removeHandler(handler)
            logging.root.setLevel(level)
    streams["stdout"].flush()
    out, err = streams["stdout"].buffer.getvalue().decode(), streams["stderr"].getvalue()
    assert fails in (None, code), f"exit {code}\n{out}\n{err}"
    return Done(code, out, err)


def command_module(command: str) -> Any:
    """A command's module, for its functions; its flags are forgotten again."""
    with flagsaver.flagsaver():
        return _import_anew(command)


def flag_value(command: str, name: str, text: str) -> Any:
    """The value of a command's flag that is given as --name=text."""
    with flagsaver.flagsaver():
        _import_anew(command)
        cli.parse_flags([command, f"--{name}={text}"])
        return flags.FLAGS[name].value


def flag_names(command: str) -> list[str]:
    """The names of a command's flags."""
    with flagsaver.flagsaver():
        module = _import_anew(command)
        return [flag.name for flag in flags.FLAGS.get_key_flags_for_module(module.__name__)]


def _import_anew(command: str) -> Any:
    """Import a module once more, for commands define flags of the same names when imported."""
    name = f"experiments.{command}"
    sys.modules.pop(name, None)
    return importlib.import_module(name)


def _call(command: str, argv: list[str]) -> int:
    try:
        main = _import_anew(command).main
        rest = cli.parse_flags(argv)
        flags.FLAGS.verbosity, flags.FLAGS.logtostderr = 0, True  # as app.run has it
        return main(rest)
    except SystemExit as error:
        return int(error.code or 0)


def only_error(command: str, *arguments: Any, **options: Any) -> str:
    """The only line on standard error of a command that fails with exit status 2."""
    stderr = run_command(command, *arguments, fails=2, **options).stderr
    lines = [line for line in stderr.splitlines() if line.startswith(("error: ", "warning: "))]
    assert len(lines) == 1, stderr
    assert stderr.endswith(f"{lines[0]}\n")
    assert lines[0].startswith("error: ")
    return lines[0]


# What JAX, XLA and gRPC report, for example if a machine is so busy that their threads wait.
OF_LIBRARIES = re.compile(
    r"[WE]\d{4} \d\d:\d\d:|WARNING: All log messages before absl|\*{20}|\[Compiling module |$"
    r"|\S+: UserWarning: Error reading persistent compilation cache|  warnings\.warn\("
)


def own_lines(stderr: str) -> list[str]:
    """The lines on standard error of a process that no library has written."""
    return [line for line in stderr.splitlines() if not OF_LIBRARIES.match(line)]


def process_arguments(command: str, *arguments: Any) -> dict[str, Any]:
    """What subprocess.run needs to call a command as a process, with as many devices as here."""
    cache = {
        "JAX_PLATFORMS": "cpu",
        "JAX_COMPILATION_CACHE_DIR": jax.config.jax_compilation_cache_dir,  # pyright: ignore
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",  # as commands set it for themselves
    }
    return {
        "args": [sys.executable, "-m", f"experiments.{command}", *map(str, arguments)],
        "cwd": ROOT,
        "env": {**os.environ, **cache},
    }


@contextlib.contextmanager
def started(command: str, *arguments: Any, **streams: Any) -> Iterator[Any]:
    """A process, with its streams piped as text; killed at the end of the block."""
    piped: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE) | streams
    options = process_arguments(command, *arguments)
    with subprocess.Popen(**options, **piped, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for(condition: Callable[[], Any], process: "subprocess.Popen[str]") -> None:
    """Until the condition holds; fails if the process ends before."""
    end = time.monotonic() + TIMEOUT
    while not condition():
        assert process.poll() is None, f"ended too soon: {process.communicate()}"
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def setting_flags(**changes: Any) -> list[str]:
    """--set flags for SETTINGS with changes, written as training__steps=3."""
    settings = SETTINGS | {name.replace("__", "."): value for name, value in changes.items()}
    return [f"--set={name}={value}" for name, value in settings.items()]


def text_flags(folder: Path, **other: object) -> list[str]:
    """The six flags that name the text of `folder`; other: some of them, with another value."""
    flags = {
        f"{split}_{name}": folder / f"{split}.{side}"
        for split in ("train", "dev", "test")
        for name, side in (("source", "en"), ("target", "de"))
    }
    return [f"--{name}={value}" for name, value in (flags | other).items()]


def metrics(workdir: Path, split: str = "train") -> list[dict[str, Any]]:
    """The whole lines of metrics.jsonl, also while it is being written."""
    path = workdir / "metrics.jsonl"
    written = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []
    return [line for line in map(json.loads, written) if line["split"] == split]


def results(workdir: Path) -> list[dict[str, Any]]:
    """The entries of results.json."""
    return json.loads((workdir / "results.json").read_text(encoding="utf-8"))


def files_of(folder: Path) -> dict[Path, bytes]:
    """The content of each file."""
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def record(workdir: Path, step: int) -> dict[str, Any]:
    """The description of a checkpoint: place in the data, CRC-32 of every array, moments too."""
    path = workdir / "checkpoints" / str(step) / "description" / "metadata"
    found = json.loads(path.read_text(encoding="utf-8"))["content"]
    del found["position"]["seconds"]  # other each time
    return {name: found[name] for name in ("step", "position", "arrays")}


def flat_params(workdir: Path, checkpoint: str | int) -> tuple[list[int], np.ndarray]:
    """(steps, parameters in one row) of a checkpoint, or of the averaged model."""
    from jax_transformer.runs.load import load

    model = load(workdir, checkpoint)
    return model.steps, np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(model.params)])
