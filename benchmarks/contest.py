"""Contenders that take turns, A B C A B C ..., each in a process of its own, one at a time."""

import contextlib
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

from absl import flags

from benchmarks.contender import Ready, Refusal, Turn, cores
from benchmarks.measuring import MEMORY, WARM_UP, Timing
from experiments.cli import FLAGS
from jax_transformer.errors import InputError

ROOT = Path(__file__).parents[1]
KERNEL_TIMES = Path("/proc/stat")
CLEAN = 0.05  # share of the cores that other processes may take in a turn that counts
TICK = 0.01  # seconds, the unit of the kernel's times
# OpenMP's threads spin after their work, up to 0.2 s in Intel's; the next turn waits for them.
PAUSE = 0.3
# All contenders hold their models on the same GPU: JAX may not take its memory in advance.
SHARED_GPU = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}


@dataclass(frozen=True)
class Contender:
    """What to start: `function` ("module:name") gives benchmarks.contender.Prepared.

    arguments: plain values, so that the process loads no more than its own libraries.
    environment: beside the parent's, in force before the process starts.
    """

    name: str
    function: str
    arguments: dict[str, Any]
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Result:
    """What was found of one contender.

    timing: seconds of one call in each turn that counts, and those beyond in the first turn.
    turns, clean: turns taken after warming up, and those that nothing else disturbed. Where
    fewer than the asked repetitions are clean, all of them count.
    """

    timing: Timing
    turns: int
    clean: int
    peak_memory: int  # bytes
    facts: dict[str, Any]
    results: list[Any]  # of all turns


class Contest:
    """A context manager: on entering, each contender has been started and has prepared."""

    def __init__(self, contenders: Sequence[Contender]) -> None:
        """The order of the contenders is that of their turns."""
        self._contenders = contenders
        self._running: list[_Running] = []

    def __enter__(self) -> Self:
        """Raises InputError where a contender cannot run here."""
        try:
            for contender in self._contenders:  # one after another, not to share the memory
                self._running.append(_Running(contender))
                self._running[-1].prepare()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """End all processes."""
        for running in self._running:
            running.end()

    @property
    def facts(self) -> dict[str, dict[str, Any]]:
        """What each contender said of itself."""
        return {running.contender.name: running.ready.facts for running in self._running}

    def measure(self, repetitions: int, most: int, before: int = 1 + WARM_UP) -> dict[str, Result]:
        """Rounds of turns until each contender has `repetitions` clean ones; at most `most`.

        before: rounds that come first and do not count, to compile and to warm up.
        """
        for _ in range(before):
            self._round()
        for _ in range(max(most, repetitions)):
            self._round()
            if all(running.clean_since(before) >= repetitions for running in self._running):
                break
        return {r.contender.name: r.result(before, repetitions) for r in self._running}

    def _round(self) -> None:
        for running in self._running:
            time.sleep(PAUSE)
            running.take_turn()


class _Running:
    """A contender's process."""

    def __init__(self, contender: Contender) -> None:
        self.contender = contender
        self.ready = Ready(1, {})
        self.turns: list[tuple[Turn, bool]] = []  # with whether it was clean
        self._connection, theirs = Pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.contender", str(theirs.fileno())],
            cwd=ROOT,
            env=SHARED_GPU | os.environ | contender.environment,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # so that what it starts can be ended with it
        )
        theirs.close()

    def prepare(self) -> None:
        self.ready = self._ask((self.contender.function, self.contender.arguments))

    def take_turn(self) -> None:
        start, busy = time.perf_counter(), busy_seconds()
        turn: Turn = self._ask("turn")
        seconds = time.perf_counter() - start
        self.turns.append((turn, is_clean(busy, busy_seconds(), turn.own_cpu, seconds)))

    def clean_since(self, before: int) -> int:
        return sum(clean for _, clean in self.turns[before:])

    def result(self, before: int, repetitions: int) -> Result:
        counted, clean = self.turns[before:], self.clean_since(before)
        chosen = [turn for turn, was in counted if was or clean < repetitions]
        seconds = [turn.seconds / self.ready.calls for turn in chosen]
        first = self.turns[0][0].seconds - self.ready.calls * statistics.median(seconds)
        return Result(
            Timing(seconds, max(first, 0.0)),
            len(counted),
            clean,
            self._ask("memory"),
            self.ready.facts,
            [turn.result for turn, _ in self.turns],
        )

    def end(self) -> None:
        self._connection.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _ask(self, message: Any) -> Any:
        connection: Connection = self._connection
        try:
            connection.send(message)
            reply = connection.recv()
        except (EOFError, OSError):
            raise InputError(
                f"{self.contender.name}: expected a measurement, found its process ended early; "
                "most likely memory ran out: give fewer peers at a time or a smaller shape"
            ) from None
        if isinstance(reply, Refusal):
            raise InputError(f"{self.contender.name}: {reply.message}")
        return reply


def busy_seconds() -> float | None:
    """CPU seconds spent so far on our cores by whatever process, or None where nobody counts."""
    try:
        lines = KERNEL_TIMES.read_text(encoding="utf-8").splitlines()
        ours = {f"cpu{index}" for index in os.sched_getaffinity(0)}
    except (OSError, AttributeError):
        return None
    rows = [line.split() for line in lines if line.split(" ")[0] in ours]
    # user nice system idle iowait irq softirq steal
    return sum(int(row[i]) for row in rows for i in (1, 2, 3, 6, 7, 8)) * TICK


def is_clean(before: float | None, after: float | None, own_cpu: float, seconds: float) -> bool:
    """Whether others had at most CLEAN of the cores, up to a tick of each; True if unknown."""
    if before is None or after is None:
        return True
    others = after - before - own_cpu - TICK * cores()
    return others <= CLEAN * seconds * cores()


def define_contest(repetitions: int = 7, rounds: int = 21, least: int = 5) -> None:
    """The flags of every door that holds contests: --repetitions, --rounds."""
    flags.DEFINE_integer(
        "repetitions", repetitions, "Clean turns asked of each.", lower_bound=least
    )
    meaning = "Turns taken at most where other programs disturb them."
    flags.DEFINE_integer("rounds", rounds, meaning, lower_bound=least)


def contest_lines() -> list[str]:
    """What the columns of a contest's table are."""
    return [
        "turns       one process at a time, until each has had so many clean ones: "
        f"{FLAGS.repetitions}; clean is where other programs had at most {CLEAN:.0%} of the cores",
        "clean       clean turns of those taken; medians and ranges are theirs, or of all where "
        "fewer than asked are clean",
        f"memory      {MEMORY}",
    ]
