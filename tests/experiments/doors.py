"""Run a door as a person does, as a process or a fork, on a text and a model that are tiny."""

import contextlib
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]
PATIENCE = 3600  # seconds; a process takes a few on a quiet machine, minutes on a busy one
LETTERS = "abcdefghijklmnopqrst"
STEPS, EVERY = 240, 40
SETTINGS = {
    "model.num_layers": 1,
    "model.d_model": 16,
    "model.d_ff": 16,
    "model.num_heads": 2,
    "model.d_k": 8,
    "model.d_v": 8,
    "training.steps": STEPS,
    "training.batch_tokens": 64,
    "training.warmup_steps": 60,
    "training.checkpoint_steps": EVERY,
    "training.evaluate_steps": 120,
    "training.log_steps": 1,
    "training.average_last": 3,
    "decoding.max_extra_length": 2,
    "decoding.batch_tokens": 256,
    "data.vocabulary_size": 85,
    "data.buckets": 1,
    "data.max_length": 8,
    "data.packing": "false",  # see test_packed_training.py
}


def setting_flags(**changes: Any) -> list[str]:
    """--set flags for SETTINGS with changes, written as training__steps=3."""
    settings = SETTINGS | {name.replace("__", "."): value for name, value in changes.items()}
    return [f"--set={name}={value}" for name, value in settings.items()]


def letters(count: int, seed: int) -> tuple[list[str], list[str]]:
    """Sentences of 3 to 6 letters, and the same in capitals: a language pair to be learned."""
    choose = random.Random(seed)
    lines = [" ".join(choose.choices(LETTERS, k=choose.randint(3, 6))) for _ in range(count)]
    return lines, [line.upper() for line in lines]


def write_letters(folder: Path, train: int = 120) -> None:
    """train, dev and test as .en and .de."""
    folder.mkdir(parents=True, exist_ok=True)
    for seed, (split, count) in enumerate({"train": train, "dev": 6, "test": 6}.items()):
        for side, lines in zip(("en", "de"), letters(count, seed), strict=True):
            (folder / f"{split}.{side}").write_text("\n".join(lines) + "\n", encoding="utf-8")


def text_flags(folder: Path) -> list[str]:
    """The six flags that name the text of `folder`."""
    return [
        f"--{split}_{name}={folder / f'{split}.{side}'}"
        for split in ("train", "dev", "test")
        for name, side in (("source", "en"), ("target", "de"))
    ]


def metrics(workdir: Path, split: str = "train") -> list[dict[str, Any]]:
    """The whole lines of metrics.jsonl, also while it is being written."""
    path = workdir / "metrics.jsonl"
    written = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []
    return [line for line in map(json.loads, written) if line["split"] == split]


def record(workdir: Path, step: int) -> dict[str, Any]:
    """What a checkpoint says of itself: place in the data, CRC-32 of every array, moments too."""
    path = workdir / "checkpoints" / str(step) / "manifest" / "metadata"
    return json.loads(path.read_text(encoding="utf-8"))


def flat_params(workdir: Path, step: int | None = None) -> tuple[Any, np.ndarray]:
    """(steps, parameters in one row) of a checkpoint, or of the averaged model."""
    import jax

    from jax_transformer.runs import checkpoints
    from jax_transformer.runs.loading import abstract_params, build_model, load_vocabularies
    from jax_transformer.runs.run_dir import RunFolder

    folder = RunFolder(workdir)
    like = abstract_params(build_model(folder.need_run(), *load_vocabularies(folder)))
    if step is None:
        steps, params = checkpoints.restore_average(workdir / "averaged", like)
    else:
        steps, params = checkpoints.restore_params(workdir / "checkpoints", like, step)
    return steps, np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(params)])


def wait_for(condition: Callable[[], bool], process: "subprocess.Popen[str]") -> None:
    """Until the condition holds; fails if the process ends before."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert process.poll() is None, f"ended too soon: {process.communicate()}"
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.001)


class Doors:
    """Starts doors that share one cache of compiled functions."""

    def __init__(self, cache: Path) -> None:
        """The cache makes the second process that compiles a function seconds faster."""
        given = os.environ.get("XLA_FLAGS", "").split()
        self.flags = [flag for flag in given if "device_count" not in flag]
        self.environment = {name: os.environ[name] for name in os.environ if name != "XLA_FLAGS"}
        self.environment |= {
            "JAX_PLATFORMS": "cpu",
            "JAX_COMPILATION_CACHE_DIR": os.environ.get("JAX_COMPILATION_CACHE_DIR", str(cache)),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }

    def _process(self, door: str, flags: tuple[Any, ...], devices: int) -> dict[str, Any]:
        flags_of_xla = [*self.flags, f"--xla_force_host_platform_device_count={devices}"]
        return {
            "args": [sys.executable, "-m", f"experiments.{door}", *map(str, flags)],
            "cwd": ROOT,
            "env": self.environment | {"XLA_FLAGS": " ".join(flags_of_xla)},
        }

    def run(
        self, door: str, *flags: Any, devices: int = 1, stdin: bytes = b"", fails: int = 0
    ) -> "subprocess.CompletedProcess[str]":
        """To its end, which has to be with the exit status `fails`."""
        process = self._process(door, flags, devices)
        done = subprocess.run(**process, input=stdin, capture_output=True, timeout=PATIENCE)
        status, out, err = done.returncode, done.stdout.decode(), done.stderr.decode()
        assert status == fails, f"exit {status}\n{out}\n{err}"
        assert "Traceback" not in err, err
        return subprocess.CompletedProcess(process["args"], status, out, err)

    def run_all(self, commands: dict[Any, list[Any]], fails: int) -> dict[Any, Any]:
        """Several doors, as many at a time as there are cores; each has to end with `fails`."""
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            running = {
                name: pool.submit(self.run, *command, fails=fails)
                for name, command in commands.items()
            }
        return {name: future.result() for name, future in running.items()}

    @contextlib.contextmanager
    def started(self, door: str, *flags: Any, **streams: Any) -> "Iterator[subprocess.Popen[str]]":
        """Running, with its streams piped as text; killed at the end of the block."""
        piped: dict[str, Any] = (
            dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE) | streams
        )
        with subprocess.Popen(**self._process(door, flags, 1), **piped, text=True) as process:
            try:
                yield process
            finally:
                process.kill()
