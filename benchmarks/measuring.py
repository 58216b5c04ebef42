"""What the benchmarks share: shapes, timings, the machine's peak, tables and their headers."""

import os
import platform
import signal
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from importlib.metadata import version
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import flags

from benchmarks.contender import cores, peak_memory
from jax_transformer.config import ModelConfig
from jax_transformer.errors import InputError
from jax_transformer.parallel import Devices
from jax_transformer.runtime.cpu import keep_freed_memory

PAD_ID, BOS_ID, EOS_ID, FIRST_WORD_ID = 0, 1, 2, 4
MEMORY = (
    "the process's largest resident set; on a GPU what its arrays took there at most, which "
    "CTranslate2 does not tell"
)
WARM_UP = 2  # calls after the one that compiles, before the first that counts


@dataclass(frozen=True)
class Shape:
    """A model with its vocabulary, and the batch it trains on."""

    model: ModelConfig
    vocabulary_size: int
    batch_tokens: int  # source tokens, and as many target tokens, padding included
    length: int  # tokens of a row on each side, padding included

    @property
    def rows(self) -> int:
        """Sentence pairs in a batch."""
        return self.batch_tokens // self.length


_TINY = ModelConfig(num_layers=4, d_model=128, d_ff=256, num_heads=4, d_k=32, d_v=32)
_BIG = ModelConfig(
    d_model=1024, d_ff=4096, num_heads=16, d_k=64, d_v=64, num_layers=6, dropout_rate=0.3
)
_SMOKE = ModelConfig(num_layers=1, d_model=16, d_ff=32, num_heads=2, d_k=8, d_v=8)
SHAPES = {
    "tiny": Shape(_TINY, vocabulary_size=8_000, batch_tokens=4096, length=32),
    "base": Shape(ModelConfig(), vocabulary_size=37_000, batch_tokens=2048, length=64),
    "big": Shape(_BIG, vocabulary_size=37_000, batch_tokens=1024, length=64),
    "smoke": Shape(_SMOKE, vocabulary_size=50, batch_tokens=64, length=16),
}


def define_shape_changes() -> None:
    """The flags of `asked_shape`."""
    flags.DEFINE_enum("dtype", "float32", ["float32", "bfloat16"], "Of the operands of products.")
    flags.DEFINE_integer(
        "batch_tokens",
        None,
        "Source tokens of a batch, and as many target tokens (default: the shape's; the paper's is "
        "25,000).",
        lower_bound=1,
    )
    flags.DEFINE_bool(
        "fused_attention", False, "Ours by cuDNN's kernel, on an NVIDIA GPU; wants bfloat16."
    )


def asked_shape(
    name: str, dtype: str, batch_tokens: int | None = None, fused_attention: bool = False
) -> Shape:
    """The shape of that name as flags want it. InputError where that cannot be."""
    shape = SHAPES[name]
    tokens = batch_tokens or shape.batch_tokens
    if tokens < shape.length:
        raise InputError(
            f"--batch_tokens={tokens}: expected at least {shape.length}, a row of {name}; give more"
        )
    if fused_attention and dtype != "bfloat16":
        raise InputError(
            f"--fused_attention: expected --dtype=bfloat16, found {dtype}; give both or neither"
        )
    changes: dict[str, Any] = {"compute_dtype": dtype, "fused_attention": fused_attention}
    return replace(shape, model=replace(shape.model, **changes), batch_tokens=tokens)


@dataclass(frozen=True)
class Timing:
    """Seconds of each repetition of one call, and of compiling it."""

    seconds: list[float]
    compile_seconds: float

    @property
    def median(self) -> float:
        """The middle repetition, in seconds."""
        return statistics.median(self.seconds)

    def cells(self) -> list[str]:
        """The median and the range, in milliseconds."""
        low, high = (1000 * limit(self.seconds) for limit in (min, max))
        return [f"{1000 * self.median:,.1f}", f"{low:,.1f} - {high:,.1f}"]


def time_call(call: Callable[[], Any], repetitions: int) -> Timing:
    """Time `call`, which returns when its work is done.

    The first call compiles; what it takes beyond the median of the repetitions is the time
    to trace and compile. Two more calls warm up.
    """
    first = _seconds(call)
    for _ in range(WARM_UP):
        call()
    seconds = [_seconds(call) for _ in range(repetitions)]
    return Timing(seconds, max(first - statistics.median(seconds), 0.0))


def _seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def matrix_product_peak(
    sizes: Sequence[int], devices: Devices, dtype: str = "float32", repetitions: int = 5
) -> float:
    """FLOP/s of the fastest product of two square matrices, through JAX.

    Operands of `dtype` and a float32 result at JAX's default precision, as the model's. The best
    repetition of the best size, on one device. CPU devices share the machine's cores, so one
    reaches the peak of all; of other devices each has its own.
    """
    best = 0.0
    for matrix in square_matrices(sizes, dtype):
        call = lambda m=matrix: square_product(m).block_until_ready()  # noqa: E731
        best = max(best, 2 * len(matrix) ** 3 / min(time_call(call, repetitions).seconds))
    shared = devices.devices[0].platform == "cpu"
    return best * (1 if shared else devices.count)


def square_matrices(sizes: Sequence[int], dtype: str) -> list[jax.Array]:
    """Random ones of these widths."""
    key = jax.random.key(0)
    return [jax.random.normal(key, (size, size), jnp.dtype(dtype)) for size in sizes]


@jax.jit
def square_product(matrix: jax.Array) -> jax.Array:
    """The matrix by itself, in float32."""
    return jnp.matmul(matrix, matrix, preferred_element_type=jnp.float32)


def device_memory() -> int:
    """Bytes that arrays took on a device of JAX's at most so far; of a CPU, the process's own."""
    stats = [device.memory_stats() for device in jax.local_devices()]
    taken = [found["peak_bytes_in_use"] for found in stats if found]
    return max(taken, default=0) or peak_memory()


def has_cuda_plugin() -> bool:
    """Whether JAX could use an NVIDIA GPU if there is one; asks without looking for devices."""
    return any(find_spec(f"jax_cuda{version}_plugin") for version in (12, 13))


def device_of_others() -> str:
    """What PyTorch and CTranslate2 call the device that JAX takes: "cpu" or "cuda".

    Asked in a process of its own, and only where JAX could take a GPU.
    """
    if not has_cuda_plugin():
        return "cpu"
    return "cuda" if in_own_process(jax.default_backend, devices=None) == "gpu" else "cpu"


def in_own_process(function: Callable[..., Any], *arguments: Any, devices: int | None) -> Any:
    """`function(*arguments)` in a new process, so that its peak of memory is its own.

    The process keeps freed memory, as training does, and on a CPU has `devices` devices.
    """
    context = get_context("spawn")
    try:
        with ProcessPoolExecutor(
            1, mp_context=context, initializer=_prepare_process, initargs=(devices,)
        ) as pool:
            return pool.submit(function, *arguments).result()
    except BrokenProcessPool:
        raise InputError(
            "expected a measurement, found its process ended early; most likely memory ran "
            "out: give a smaller --shape"
        ) from None


def _prepare_process(devices: int | None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # the parent says what is to be said
    if devices and "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
        jax.config.update("jax_num_cpu_devices", devices)
    keep_freed_memory()


def take_devices(count: int | None, rows: int) -> Devices:
    """The first `count` devices, or all. InputError where they are fewer or cannot share rows."""
    devices = Devices(count)
    if count not in (None, devices.count):
        raise InputError(
            f"--devices={count}: expected as many devices, found {devices.describe()}; give fewer"
        )
    if rows % devices.count:
        raise InputError(
            f"expected rows that {devices.count} devices can share alike, found {rows}; "
            "give another --devices"
        )
    return devices


def random_sentences(
    random: np.random.Generator, lengths: np.ndarray, width: int, vocabulary_size: int
) -> np.ndarray:
    """Token ids [len(lengths), width]: uniform words, EOS as the last of `lengths`, then PAD."""
    place = np.arange(width)[None, :]
    words = random.integers(FIRST_WORD_ID, vocabulary_size, (len(lengths), width))
    words = np.where(place == lengths[:, None] - 1, EOS_ID, words)
    return np.where(place < lengths[:, None], words, PAD_ID).astype(np.int32)


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table, aligned for reading as it is; the first column left, others right."""
    cells = [list(columns), *(list(row) for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    lines = [
        [cell.rjust(width) if i else cell.ljust(width) for i, (cell, width) in enumerate(pairs)]
        for pairs in (zip(row, widths, strict=True) for row in cells)
    ]
    rule = ["-" * width if i == 0 else "-" * (width - 1) + ":" for i, width in enumerate(widths)]
    return "\n".join("| " + " | ".join(line) + " |" for line in [lines[0], rule, *lines[1:]])


def checked_names(flag: str, given: Sequence[str], known: Sequence[str]) -> list[str]:
    """The names a flag lists. InputError where one is unknown, twice there, or there is none."""
    wrong = [name for name in given if name not in known or given.count(name) > 1]
    if wrong or not given:
        raise InputError(
            f"{flag}={','.join(given)}: expected names out of {', '.join(known)}, each once, found "
            f"{wrong[0] if wrong else 'none'}; give such as {flag}={known[0]}"
        )
    return list(given)


def header(*peers: str) -> str:
    """What a number needs beside it: versions, also of the peers there are, machine, commit."""
    there = [name for name in peers if find_spec(name)]
    versions = [f"{name} {version(name)}" for name in ("jax", "jaxlib", "flax", *there)]
    load = f", load average {os.getloadavg()[0]:.1f} at the start"
    return "\n".join(
        [
            f"versions    {', '.join([f'python {platform.python_version()}', *versions])}",
            f"processor   {_processor()}, {cores()} cores{load}",
            f"commit      {_commit()}",
        ]
    )


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _commit() -> str:
    try:
        name, changes = (_git("rev-parse", "--short", "HEAD"), _git("status", "--porcelain"))
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return name + (" with uncommitted changes" if changes else "")


def _git(*arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
