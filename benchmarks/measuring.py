"""Common parts of the benchmarks: models and their batches, timing, the table and its header."""

import os
import re
import shlex
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

import jax
import numpy as np
from absl import app, flags

from experiments.cli import command, parse_flags
from jax_transformer.config import Config, ModelConfig, override
from jax_transformer.errors import InputError
from jax_transformer.models.transformer import Transformer
from jax_transformer.parallel import Devices
from jax_transformer.runs.step import stack_params, training_step
from jax_transformer.runtime import environment, keep_freed_memory, with_fused_attention
from jax_transformer.training.train_step import Batch, StepMetrics, TrainState, initial_state

PAD_ID, BOS_ID, EOS_ID, FIRST_WORD_ID = 0, 1, 2, 4
WARM_UP = 2  # calls between the one that compiles and the first that is timed
# PyTorch and CTranslate2 compute with OpenMP, whose threads spin up to 0.2 s after their work.
PAUSE = 0.3


@dataclass(frozen=True)
class Workload:
    """A model with its vocabulary, and the batch that it trains on."""

    model: ModelConfig
    vocabulary_size: int
    batch_tokens: int  # tokens on each side, padding included
    length: int  # tokens in a row on each side, padding included

    @property
    def rows(self) -> int:
        """The number of sentence pairs in a batch."""
        return self.batch_tokens // self.length


_TINY = ModelConfig(num_layers=4, d_model=128, d_ff=256, num_heads=4, d_k=32, d_v=32)
_BIG = ModelConfig(d_model=1024, d_ff=4096, num_heads=16, dropout_rate=0.3)
_SMOKE = ModelConfig(num_layers=1, d_model=16, d_ff=32, num_heads=2, d_k=8, d_v=8, dropout_rate=0.0)
WORKLOADS = {
    "tiny": Workload(_TINY, vocabulary_size=8_000, batch_tokens=4096, length=32),
    "base": Workload(ModelConfig(), vocabulary_size=37_000, batch_tokens=2048, length=64),
    "big": Workload(_BIG, vocabulary_size=37_000, batch_tokens=1024, length=64),
    "smoke": Workload(_SMOKE, vocabulary_size=200, batch_tokens=64, length=16),
}

FLAGS = flags.FLAGS
flags.disclaim_key_flags()  # so that --help of a command lists the flags defined below


def define_trials() -> None:
    """Define --trials of every benchmark."""
    meaning = "Timed calls after warming up; the tables show their median."
    flags.DEFINE_integer("trials", 7, meaning, lower_bound=1)


def define_workloads() -> None:
    """Define the flags of `workloads`, and --trials."""
    define_trials()
    flags.DEFINE_multi_enum(
        "model",
        ["tiny", "base"],
        list(WORKLOADS),
        "tiny (4 + 4 layers of 128, 8,000 tokens), base or big (the paper's, 37,000 tokens) or "
        "smoke (a check that the command works)",
    )
    flags.DEFINE_multi_string(
        "set", [], "Change a setting of the model, as in --set=model.compute_dtype=bfloat16."
    )


def define_batch_tokens() -> None:
    """Define --batch_tokens of the benchmarks that train."""
    flags.DEFINE_integer(
        "batch_tokens",
        None,
        "Tokens in a batch on each side (default: the model's; the paper's is 25,000).",
        lower_bound=1,
    )


def define_devices() -> None:
    """Define --devices of the benchmarks that train on several."""
    flags.DEFINE_integer(
        "devices", None, "Devices that share a batch (default: all).", lower_bound=1
    )


def run(main: Callable[[], int | None]) -> None:
    """Run a command; a user's mistake is one line on standard error and exit status 2."""
    keep_freed_memory()  # as training does
    jax.config.update("jax_enable_compilation_cache", False)  # or times to compile would be wrong
    app.run(command(main), flags_parser=parse_flags)


def workloads() -> dict[str, Workload]:
    """Return the workloads that --model, --set and --batch_tokens select, by name.

    Raises InputError for a setting outside `model`, or a batch that is smaller than a row.
    """
    if wrong := [change for change in FLAGS.set if not change.startswith("model.")]:
        raise InputError(f"--set={wrong[0]}: expected a setting of the model, as in model.d_k=16")
    found = {}
    for name in FLAGS.model:
        shape = WORKLOADS[name]
        model = with_fused_attention(override(Config(model=shape.model), *FLAGS.set).model)
        tokens = ("batch_tokens" in FLAGS and FLAGS.batch_tokens) or shape.batch_tokens
        if tokens < shape.length:
            raise InputError(
                f"--batch_tokens={tokens}: expected at least {shape.length}, the length of a row"
            )
        found[name] = replace(shape, model=model, batch_tokens=tokens)
    return found


def random_sentences(
    random: np.random.Generator, lengths: np.ndarray, width: int, vocabulary_size: int
) -> np.ndarray:
    """Draw token ids [len(lengths), width]: uniform words, EOS as the last of `lengths`, PAD."""
    column = np.arange(width)[None, :]
    words = random.integers(FIRST_WORD_ID, vocabulary_size, (len(lengths), width))
    words = np.where(column == lengths[:, None] - 1, EOS_ID, words)
    return np.where(column < lengths[:, None], words, PAD_ID).astype(np.int32)


def training_batch(shape: Workload) -> Batch:
    """Draw random rows that are 80 to 100% full, about as full as length buckets leave them."""
    random = np.random.default_rng(1)
    shortest = round(0.8 * shape.length)

    def side() -> np.ndarray:
        lengths = random.integers(shortest, shape.length + 1, shape.rows)
        return random_sentences(random, lengths, shape.length, shape.vocabulary_size)

    return Batch(side(), side())


class TrainingStep:
    """A step as training takes it: a batch put ahead, and a donated state.

    A call starts the next step, and returns its results without waiting.
    """

    def __init__(self, shape: Workload, devices: Devices, stacked: bool | None = None) -> None:
        """Begin a training. Raises InputError if the devices cannot share the rows.

        stacked: whether parameters of one shape are one array; None is as training does.
        """
        if shape.rows % devices.count:
            raise InputError(
                f"--devices={devices.count}: expected a divisor of the batch's {shape.rows} rows"
            )
        model = Transformer(shape.model, shape.vocabulary_size, PAD_ID)
        optimizer, step = training_step(Config(model=shape.model), model, BOS_ID)
        state = initial_state(model, optimizer, seed=1)
        if devices.prefer_few_arrays if stacked is None else stacked:
            state = stack_params(jax.device_get(state))
        self._step: Any = devices.train_step(step)
        self._device = devices.local[0]
        self._state, self._batch = devices.replicate(state), devices.put_rows(training_batch(shape))

    def __call__(self) -> tuple[TrainState, StepMetrics]:
        """Start a step."""
        self._state, metrics = self._step(self._state, self._batch)
        return self._state, metrics

    def memory(self) -> int:
        """Return the most bytes of a device that this process has used so far.

        A CPU does not count them: there it is what the compiled step needs.
        """
        if most := (self._device.memory_stats() or {}).get("peak_bytes_in_use"):
            return most
        needs = self._step.lower(self._state, self._batch).compile().memory_analysis()
        kept = needs.output_size_in_bytes - needs.alias_size_in_bytes
        return needs.argument_size_in_bytes + needs.temp_size_in_bytes + kept


@dataclass(frozen=True)
class Timing:
    """The seconds of each timed call, and the time of the first call beyond their median."""

    seconds: list[float]
    compile_seconds: float

    @property
    def median(self) -> float:
        """The median in seconds."""
        return statistics.median(self.seconds)

    def of_each(self, count: int) -> "Timing":
        """Return the timing of one step, if each call takes `count` steps."""
        return Timing([seconds / count for seconds in self.seconds], self.compile_seconds)

    def cells(self) -> list[str]:
        """Return the median and the range, in milliseconds."""
        low, high = (1000 * limit(self.seconds) for limit in (min, max))
        return [f"{1000 * self.median:,.1f}", f"{low:,.1f} - {high:,.1f}"]


def time_call(call: Callable[[], object], trials: int) -> Timing:
    """Time `call`, which must return only when its work is done."""
    return time_alternating({"": call}, trials)[""]


def time_alternating(calls: Mapping[str, Callable[[], object]], trials: int) -> dict[str, Timing]:
    """Time several candidates, A B A B ..., so that a disturbance of the machine affects all."""
    first = {name: _seconds(call, calls) for name, call in calls.items()}
    for _ in range(WARM_UP):
        for call in calls.values():
            _seconds(call, calls)
    rounds = [{name: _seconds(call, calls) for name, call in calls.items()} for _ in range(trials)]
    timings = {}
    for name in calls:
        seconds = [each[name] for each in rounds]
        timings[name] = Timing(seconds, max(first[name] - statistics.median(seconds), 0.0))
    return timings


def _seconds(call: Callable[[], object], among: Sized) -> float:
    if len(among) > 1:
        time.sleep(PAUSE)
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table: the first column is flush left, the others are flush right."""
    cells = [list(columns), *(list(row) for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    lines = [
        [cell.rjust(width) if i else cell.ljust(width) for i, (cell, width) in enumerate(pairs)]
        for pairs in (zip(row, widths, strict=True) for row in cells)
    ]
    rule = ["-" * width if i == 0 else "-" * (width - 1) + ":" for i, width in enumerate(widths)]
    return "\n".join("| " + " | ".join(line) + " |" for line in [lines[0], rule, *lines[1:]])


def read_table(text: str) -> list[dict[str, str]]:
    """Return the rows of the `table` in a command's output, by column; none without a table."""
    lines = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line] for line in lines]
    return [dict(zip(rows[0], row, strict=True)) for row in rows[2:]]


def read_header(text: str) -> dict[str, Any]:
    """Return the facts above a command's table by name; `versions` are by package."""
    found: dict[str, Any] = dict(re.findall(r"^(\w+) +(.+)$", text, re.MULTILINE))
    found["versions"] = dict(item.split(" ") for item in found["versions"].split(", "))
    return found


def header(*packages: str) -> str:
    """Return versions (of `packages` too, if installed), devices, processor and commit as text.

    A benchmark that was started by `python -m` has its command as the first line.
    """
    found = environment()
    names = ["python", "jax", "jaxlib", "flax", "jax_transformer"]
    versions = [f"{name} {found[name]}" for name in names]
    versions += [f"{name} {version(name)}" for name in filter(find_spec, packages)]
    load = f"load average {os.getloadavg()[0]:.1f} at the start"
    facts = [
        f"versions    {', '.join(versions)}",
        f"devices     {found['devices']}",
        f"processor   {found['processor']}, {found['cores']} cores, {load}",
        f"commit      {found['commit'] or 'unknown'}",
    ]
    return "\n".join([*(f"command     {line}" for line in command_line()), *facts])


def command_line() -> list[str]:
    """Return the command of this process as a list of one, or of none for `python -c`."""
    module = getattr(sys.modules["__main__"], "__spec__", None)
    return [shlex.join(["python", "-m", module.name, *sys.argv[1:]])] if module else []


def on_gpu() -> bool:
    """Return whether JAX computes on a GPU; the peer of a comparison must do the same."""
    return jax.default_backend() == "gpu"
