"""Eight fake CPU devices, strict rank promotion, and what all files of tests share.

That is a cache of compiled functions, folders that are made once, and paths to real text.
"""

import fcntl
import gc
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

# Before anything imports JAX. Tests of 1 and 3 devices take the first ones of the eight.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Most of the suite's time is compiling, which without optimization takes a third.
os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "")
    + " --xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0"
)

# Where Python may not write bytecode, each process that tests start compiles a thousand modules.
if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
    sys.dont_write_bytecode = False

# A shell starts background jobs with Ctrl-C ignored, and nohup ignores the end of a terminal;
# commands under test must not inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

import jax
import pytest
from real_data import real_data

from jax_transformer.errors import warn_once

jax.config.update("jax_numpy_rank_promotion", "raise")

# The servers of tests are on this machine, and not behind a proxy.
for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
    del os.environ[name]

MOST_MAPS = 20_000


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all workers of this run of the suite; empty at its start."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(scope="session")
def made_once(shared_folder: Path) -> Callable[[str, Callable[[Path], object]], Path]:
    """A function of a name and a maker: the folder that the first worker to need it has made.

    The others wait for it. Whoever changes something in it takes a copy.
    """

    def made(name: str, make: Callable[[Path], object]) -> Path:
        folder, finished = shared_folder / name, shared_folder / f"{name}.finished"
        with (shared_folder / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not finished.exists():
                shutil.rmtree(folder, ignore_errors=True)  # where making it failed
                folder.mkdir()
                make(folder)
                finished.touch()
        return folder

    return made


@pytest.fixture(scope="session")
def small_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run with random parameters (`write_run`); copy it before changing it."""
    from small_run import write_run  # after jaxtyping's import hook is there

    return write_run(tmp_path_factory.mktemp("small") / "run")


@pytest.fixture(scope="session", autouse=True)
def _compilation_cache(shared_folder: Path) -> Iterator[None]:
    """Workers, and the commands that they start, share what they compile."""
    before = jax.config.jax_compilation_cache_dir  # pyright: ignore
    jax.config.update("jax_compilation_cache_dir", str(shared_folder / "compiled"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    yield
    jax.config.update("jax_compilation_cache_dir", before)


@pytest.fixture(autouse=True)
def _warnings_of_each_test() -> None:
    """Forget which warnings have been logged."""
    warn_once.cache_clear()


@pytest.fixture(scope="module", autouse=True)
def _few_memory_maps() -> Iterator[None]:
    """Forget compiled functions before Linux refuses more memory maps, 65,530 of a process.

    Each function has some, and JAX ends in a segmentation fault when it gets no more.
    """
    yield
    maps = Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > MOST_MAPS:
        jax.clear_caches()


@pytest.fixture(scope="session")
def multi30k() -> Path:
    """Multi30k as it was written; tokenised in tok."""
    return real_data("multi30k")


@pytest.fixture(scope="session")
def newstest2014() -> Path:
    """The folder of WMT14's news test, newstest2014.en and .de."""
    return real_data("newstest2014_2737_ende")


@pytest.fixture(scope="session")
def evalb_data() -> Path:
    """EVALB's parameter file and its sample with its own results."""
    return real_data("evalb")


@pytest.fixture(scope="session")
def craft() -> Path:
    """The folder of CRAFT's trees, train.mrg.txt and dev.mrg.txt."""
    return real_data("craft")


def pytest_collection_finish() -> None:
    """What is imported by now is there to stay: collecting garbage need not look at it each time.

    A tenth of the time of tests that trace models.
    """
    gc.collect()
    gc.freeze()
