"""The process of a command: JAX's compilation cache, a CPU's allocator, one process of several."""

import contextlib
import ctypes
import logging
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import entry_points, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from jax_transformer.config import ModelConfig
from jax_transformer.errors import InputError, warn_once
from jax_transformer.files import cache_folder

logger = logging.getLogger(__name__)

# The names that glibc's malloc.h gives to mallopt's parameters.
_M_TRIM_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -4, -8
_DEVICE_COUNT = "xla_force_host_platform_device_count"
_VECTORS = {"avx512f": "AVX-512", "avx2": "AVX2"}  # names in /proc/cpuinfo, the widest first
SHUTDOWN_SECONDS = 20  # time that a process waits for the others at its end
LAST_SECONDS = 3  # time that the others have to end after a failure, each with a line of its own

_last_seconds: list[int] = []  # what this process, if others depend on it, waits before it ends


def prepare_process(*, searches: bool = False) -> None:
    """Set up the process of a command; call it before JAX compiles or allocates anything.

    searches: True for a command that searches and does not train: see `split_cpu`.
    """
    if searches:
        split_cpu()
    enable_compilation_cache()
    keep_freed_memory()


def enable_compilation_cache() -> Path | None:
    """Point JAX's compilation cache to `~/.cache/jax_transformer`, or below $XDG_CACHE_HOME.

    JAX runs the code that it reads there, so the folder is made for its user alone (mode 0700),
    and is not used if somebody else owns it or may write to it. Returns the folder, or None
    if nothing was changed: JAX has a folder already ($JAX_COMPILATION_CACHE_DIR), the cache is
    off ($JAX_ENABLE_COMPILATION_CACHE=false), the folder cannot be used, or several processes
    train on GPUs.
    """
    import jax

    settings: Any = jax.config  # its type does not list its options
    if settings.jax_compilation_cache_dir or not settings.jax_enable_compilation_cache:
        return None
    if jax.distributed.is_initialized() and _has_cuda():
        return None  # see start_processes
    try:
        folder = cache_folder()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except (OSError, InputError) as error:
        warn_once(logger, f"compiled functions are not cached: {error}")
        return None
    if status.st_uid != os.getuid() or status.st_mode & 0o022 or not os.access(folder, os.W_OK):
        warn_once(
            logger,
            "compiled functions are not cached: expected a folder that you own and that nobody "
            f"else may write to, found {folder}; run chmod 700 on it, or set "
            "JAX_COMPILATION_CACHE_DIR",
        )
        return None
    settings.update("jax_compilation_cache_dir", str(folder))
    settings.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    return folder


def keep_freed_memory() -> bool:
    """Make glibc keep freed memory instead of returning it to the kernel after each step.

    A training step on a CPU frees and allocates its activations. Without this the kernel clears
    every page of them again, which takes a quarter of a small model's step. Call it before JAX
    starts its threads, which get arenas of their own otherwise. Does nothing, and returns False,
    if JAX may use an accelerator, $GLIBC_TUNABLES has settings of the user's, or the C library is
    not glibc.
    """
    if "GLIBC_TUNABLES" in os.environ or _may_use_accelerator():
        return False
    if platform.libc_ver()[0] != "glibc":
        return False
    libc = ctypes.CDLL(None)
    # -1 means "never trim"; the largest int would still return blocks over 2 GiB.
    settings = [(_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, -1), (_M_ARENA_MAX, 1)]
    return all(libc.mallopt(name, value) == 1 for name, value in settings)


def with_fused_attention(model: ModelConfig, device: Any = None) -> ModelConfig:
    """Return a model's settings with `fused_attention` as a device allows it.

    Unless it is given, it is on where it was measured to be faster, on Hopper.

    Args:
        model: the settings.
        device: where the model will run; by default the first device of this process.
    """
    import jax

    device = device or jax.local_devices()[0]
    capability = str(getattr(device, "compute_capability", ""))  # 9.0; of an AMD GPU gfx90a
    fused = model.fused_attention
    if fused is None:
        fused = model.can_be_fused and capability == "9.0"
    able = device.platform == "gpu" and re.fullmatch(r"([89]|\d\d)\.\d", capability)
    return replace(model, fused_attention=fused and bool(able))


def return_freed_memory() -> None:
    """Let glibc return what `keep_freed_memory` has made it keep so far; call it after compiling.

    What a compilation leaves behind lies between the activations of the steps around it, so that
    later steps would take other memory.
    """
    if not _may_use_accelerator() and platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)


def split_cpu() -> int:
    """Make each core of a small CPU a device of its own, with one thread; return their number.

    The products of a search are small and gain little from a second thread; sentences on devices
    of their own do: on two cores, a model of 2 + 2 layers translated 1.3 to 1.5 times as many.
    Call it before JAX starts its backends. Does nothing, and returns 1, if JAX may use an
    accelerator, $XLA_FLAGS has a number of devices or is a file's name, $JAX_NUM_CPU_DEVICES is
    set, or there are more than 4 cores: each device has a copy of the parameters.
    """
    given = os.environ.get("XLA_FLAGS", "").strip()
    count = cores()
    chosen = _DEVICE_COUNT in given or os.environ.get("JAX_NUM_CPU_DEVICES")
    if _may_use_accelerator() or chosen or given[:1] not in ("", "-") or not 1 < count <= 4:
        return 1
    split = f"--{_DEVICE_COUNT}={count} --xla_cpu_multi_thread_eigen=false"
    os.environ["XLA_FLAGS"] = f"{given} {split}".strip()
    return count


def cores() -> int:
    """Return the number of cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)  # Linux only
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def environment() -> dict[str, Any]:
    """Return what a result depends on besides its settings: versions, commit, processor, devices.

    commit: None if the package does not lie in a checkout of its own, or without git.
    """
    import jax

    device = jax.devices()[0]
    return {
        "python": platform.python_version(),
        **{name: version(name) for name in ("jax", "jaxlib", "flax")},
        "jax_transformer": vars(sys.modules["jax_transformer"])["__version__"],
        "commit": _commit(),
        "processor": _processor(),
        "cores": cores(),
        "devices": f"{jax.device_count()} x {device.device_kind} ({device.platform})",
    }


def _commit() -> str | None:
    root = Path(__file__).parents[1]
    if not (root / ".git").exists():  # else git would describe a repository around the package
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _processor() -> str:
    """Return the model's name and its vector instructions, which the name may not show."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        text = ""
    name = re.search(r"^model name\s*: (.*)$", text, re.MULTILINE)
    vectors = [shown for flag, shown in _VECTORS.items() if re.search(rf"\b{flag}\b", text)]
    known = name[1].strip() if name else platform.processor() or platform.machine()
    return " with ".join([known, *vectors[:1]])


def _may_use_accelerator() -> bool:
    """Return whether JAX has a plugin for one, without starting its backends."""
    plugins = bool(entry_points(group="jax_plugins")) or find_spec("libtpu") is not None
    return plugins and os.environ.get("JAX_PLATFORMS") != "cpu"


def _has_cuda() -> bool:
    """Return whether JAX has a plugin for NVIDIA GPUs, without starting its backends."""
    plugins = any("cuda" in plugin.name for plugin in entry_points(group="jax_plugins"))
    return plugins and os.environ.get("JAX_PLATFORMS") != "cpu"


def without_triton() -> None:
    """Compile all of this process without Triton's products: see `parallel.compiler_options`.

    Call it before JAX starts its backends. Does nothing without a plugin for CUDA. Raises
    InputError if $XLA_FLAGS is the name of a file, to which XLA lets nothing be added.
    """
    if _has_cuda():
        given = os.environ.get("XLA_FLAGS", "").strip()
        if given[:1] not in ("", "-"):
            raise InputError(f"XLA_FLAGS={given}: expected flags, found a file; write them out")
        os.environ["XLA_FLAGS"] = f"{given} --xla_gpu_enable_triton_gemm=false".strip()


def start_processes(
    coordinator: str | None = None,
    processes: int | None = None,
    process: int | None = None,
    *,
    heartbeat_seconds: int = 100,
) -> None:
    """Join the processes of a run, before JAX does anything else.

    Waits until all are here. JAX ends the process, with an error of its own, after five minutes.

    coordinator: the host:port of process 0. processes: the number of processes. process: this
    process's number, from 0 on. Without these three JAX gets them from Slurm, Open MPI or the Cloud
    TPU. Raises InputError if it finds none of these, or they are not valid.
    heartbeat_seconds: end all processes if one has not answered for this many seconds.
    """
    import jax

    port = re.fullmatch("[^ ]+:([0-9]{1,5})", coordinator or "any:1")
    if not port or not 0 < int(port[1]) < 2**16:
        raise InputError(
            f"--coordinator_address={coordinator}: expected the host and a port of process 0, as "
            "in host0:8476; give both"
        )
    if _has_cuda() and "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        # Only process 0 writes the cache. Once it reads its step there, the others would wait for
        # its share of choosing kernels, which XLA divides among those that compile.
        jax.config.update("jax_enable_compilation_cache", False)
    # Its handler of SIGTERM would replace Python's default, and swallow the signal.
    jax.config.update("jax_enable_preemption_service", False)
    sys.excepthook = _end_with_traceback
    if not process:
        logger.info("processes   waiting for the others, up to five minutes ...")
    try:
        with _without_proxies():
            jax.distributed.initialize(
                coordinator,
                processes,
                process,
                # Under Slurm it would hide all but one GPU, even with explicit arguments.
                cluster_detection_method="deactivate" if coordinator else None,
                heartbeat_timeout_seconds=heartbeat_seconds,
                shutdown_timeout_seconds=SHUTDOWN_SECONDS,
            )
    except (ValueError, RuntimeError) as error:
        found = " ".join(str(error).split())
        number = f"the {processes}" if processes else "all"
        raise InputError(
            f"expected {number} processes of this run to find each other at "
            f"{coordinator or 'the address that Slurm, Open MPI or the Cloud TPU gives'}, found: "
            f"{found}; see docs/devices.md"
        ) from error


@contextlib.contextmanager
def _without_proxies() -> Iterator[None]:
    """Hide the proxies in the environment: gRPC would look for process 0 behind them, for ever."""
    names = [name for name in os.environ if name.lower().endswith("_proxy")]
    hidden = {name: os.environ.pop(name) for name in names}
    try:
        yield
    finally:
        os.environ.update(hidden)


def one_of_several() -> str | None:
    """Return the variable by which a launcher gives the number of processes, None if not over 1.

    Slurm's number is that of an allocation, whose shell and batch script are one process; srun
    starts a step of several. Raises InputError if its value is not a number.
    """
    step = os.environ.get("SLURM_STEP_ID") and os.environ.get("SLURM_STEP_NUM_TASKS") != "1"
    for name in ("SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE"):
        count = os.environ.get(name) or "1"
        if not re.fullmatch("[0-9]{1,9}", count):
            raise InputError(
                f"{name}={count}: expected a number of processes; unset the variable, or give "
                "--distributed=none"
            )
        if int(count) > 1 and (step or not name.startswith("SLURM")):
            return name
    return None


def end_after_others() -> None:
    """Let this process, if it fails, end after the others: JAX aborts them when it has ended."""
    _last_seconds[:] = [LAST_SECONDS]


def end_process(status: int, *, always: bool = False) -> None:
    """End this process at once if it is one of several: the others notice it, and end too.

    The usual end would wait for devices that wait for other processes. always: True to end it at
    once even if it is the only one.
    """
    jax = sys.modules.get("jax")  # a process that has not imported it is the only one
    if always or (jax and jax.distributed.is_initialized()):
        for stream in (sys.stdout, sys.stderr):
            if stream:  # None if it is closed
                with contextlib.suppress(OSError):  # of a pipe without a reader, or a full disk
                    stream.flush()
        time.sleep(sum(_last_seconds) if status else 0)
        os._exit(status)


def _end_with_traceback(*error: Any) -> None:
    sys.__excepthook__(*error)
    end_process(1)
