"""Eight fake CPU devices, strict rank promotion, and paths to real text where it is at hand."""

import gc
import os
import signal
from pathlib import Path

# Before anything imports JAX. Tests of 1 and 3 devices take the first ones of the eight.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
)

# A shell starts background jobs with Ctrl-C ignored, and nohup ignores the end of a terminal;
# commands under test must not inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

import jax
import pytest
from real_data import real_data

jax.config.update("jax_numpy_rank_promotion", "raise")

# Files of ten seconds and more.
LONG = {"test_notebooks", "test_parallel", "test_parser", "test_train_step", "test_transformer"}


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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The files that take longest come first, so that two workers end at about the same time."""

    def place(item: pytest.Item) -> int:
        if "experiments" in item.path.parts:  # commands: few tests, long ones
            return 0
        return 1 if item.path.stem in LONG else 2

    items.sort(key=place)


def pytest_collection_finish() -> None:
    """What is imported by now is there to stay: collecting garbage need not look at it each time.

    A tenth of the time of tests that trace models.
    """
    gc.collect()
    gc.freeze()
