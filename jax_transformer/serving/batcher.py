"""One thread that does the work of all clients, what can share a batch or a search together."""

import threading
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, Protocol

from jax_transformer.decoding.live_search import Answer

# work(kind, items) -> a result for each item
Work = Callable[[Any, list[Any]], Sequence[Any]]


class Live(Protocol):
    """Work that goes on in parts, which items enter and leave: see `LiveSearch`."""

    @property
    def busy(self) -> bool:
        """True if there is something to do."""
        ...

    @property
    def total(self) -> int:
        """The number of items in it; without any it prepares for later ones."""
        ...

    def add(self, items: Sequence[tuple[Any, Answer, int]], /) -> None:
        """Let items wait for their places: (item, result, turn); results are lists of one."""
        ...

    def advance(self) -> tuple[int, int]:
        """Do a part; return the number of items that began with it, and of all it was done for."""
        ...


class QueueFullError(Exception):
    """More items are waiting than are allowed to."""


@dataclass(eq=False)
class _Job:
    kind: Hashable
    items: list[Any]
    largest: float  # size of an item
    size: float  # of all
    turn: int
    results: Answer
    live: Live | None
    added: bool = False  # to `live`

    @property
    def waits(self) -> bool:
        return not (self.results.running() or self.results.done())


class Batcher:
    """A queue of jobs, and the thread that does them, each in its turn.

    Jobs of a live kind enter work that goes on. Of the others, those of the same kind as the first
    are done together with it, those with items of its size first, because a batch takes as long as
    its longest item. So a single job is done at once, and under load batches grow. A part of all
    live work and a batch are done in turn.

    work: a function from a kind and the items of one or more jobs to a result for each item. If it
      fails for several jobs, each is done again alone, so that one does not harm the others.
    most_waiting: the largest number of items that may wait.
    size: a function from a kind and an item to the work that it makes.
    most_together: the largest size of a batch; a single item may be larger.
    live: a function from a kind to its live work; None if its jobs are done in batches.
    on_batch: a function that is called for each batch, and each part of live work, with the number
      of items that begin with it, and of all that it is done for; set it to count.
    """

    def __init__(
        self,
        work: Work,
        *,
        most_waiting: int,
        most_together: int,
        size: Callable[[Any, Any], float] = lambda kind, item: 1,
        live: Callable[[Any], Live | None] = lambda kind: None,
    ) -> None:
        """Start the thread."""
        self.on_batch: Callable[[int, int], None] = lambda new, together: None
        self._work, self._size, self._live = work, size, live
        self._most_waiting, self._most_together = most_waiting, most_together
        self._jobs = list[_Job]()  # that wait, or have begun a moment ago
        self._running = list[Live]()
        self._submitted = 0
        self._changed = threading.Condition()  # its lock may be taken twice by a thread
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="batcher", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """The number of items that wait, without those that were given up."""
        with self._changed:
            return sum(len(job.items) for job in self._jobs if job.waits)

    def submit(self, kind: Hashable, items: list[Any], *, follows: bool = False) -> list[Answer]:
        """Return futures that together have a result for each item.

        To give it up, cancel them and set `left`, because those that have begun go on.

        Many items are cut into several parts, of which the n-th has the turn of the n-th request
        after this one, so that other clients' come between, and that what was given up ends soon.

        follows: True for the next step of something that was begun, which is not refused.
        Raises QueueFullError if too many items wait already. If none waits, any number may come.
        """
        most, live = self._most_together, self._live(kind)
        sizes = [self._size(kind, item) for item in items]
        cuts, room = list[int](), -1.0
        for first, size in enumerate(sizes):
            if live or size > room:
                cuts.append(first)
                room = most
            room -= size
        with self._changed:
            if self._closed or (not follows and self._is_full(len(items))):
                raise QueueFullError
            self._submitted += 1
            jobs = list[_Job]()
            for number, (first, last) in enumerate(pairwise([*cuts, len(items)])):
                own, part = sizes[first:last], items[first:last]
                turn = self._submitted + (number // most if live else number)
                jobs.append(_Job(kind, part, max(own), sum(own), turn, Answer(), live))
            self._jobs.extend(jobs)
            self._changed.notify()
        return [job.results for job in jobs]

    def _is_full(self, more: int) -> bool:
        room = self._most_waiting - more
        if sum(len(job.items) for job in self._jobs) <= room:  # those that have begun included
            return False
        return bool(waiting := self.waiting) and waiting > room

    def go_on(self, live: Live) -> None:
        """Do what live work has to do without items."""
        with self._changed:
            self._running.append(live)
            self._changed.notify()

    def close(self) -> None:
        """Finish the jobs that wait, and end the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while self._wait():
            with self._changed:
                self._running = [live for live in self._running if live.busy]
                others = any(not job.live for job in self._jobs)
                others |= any(live.total for live in self._running)
            for live in self._running:
                if others and not live.total:
                    continue
                new, together = live.advance()
                if together:
                    self.on_batch(new, together)
            if jobs := self._next():
                count = sum(len(job.items) for job in jobs)
                self.on_batch(count, count)
                self._do(jobs)

    def _wait(self) -> bool:
        """Wait for a job, and add those of live work to it; False if there will be none."""
        with self._changed:
            self._changed.wait_for(lambda: self._jobs or self._running or self._closed)
            self._jobs = [job for job in self._jobs if job.waits]
            new = [job for job in self._jobs if job.live and not job.added]
            goes_on = self._jobs or self._running or not self._closed
        by_live = defaultdict[Live, list[tuple[Any, Answer, int]]](list)
        for job in new:
            assert job.live
            job.added = True
            by_live[job.live].append((job.items[0], job.results, job.turn))
        for live, items in by_live.items():
            live.add(items)
            if live not in self._running:
                self._running.append(live)
        return bool(goes_on)

    def _next(self) -> list[_Job]:
        """Return the first job that no live work has, with those that can be done with it."""
        with self._changed:
            others = [job for job in self._jobs if not job.live and job.waits]
            if not others:
                return []
            first = min(others, key=lambda job: job.turn)
            alike = [job for job in others if job.kind == first.kind]
            alike.sort(key=lambda job: (job is not first, abs(job.largest - first.largest)))
            both = zip(alike, accumulate(job.size for job in alike), strict=True)
            together = [job for job, size in both if job is first or size <= self._most_together]
            return [job for job in together if job.results.set_running_or_notify_cancel()]

    def _do(self, jobs: list[_Job]) -> None:
        items = [item for job in jobs for item in job.items]
        try:
            results = iter(self._work(jobs[0].kind, items))
            each = [[next(results) for _ in job.items] for job in jobs]
        except BaseException as error:  # of any kind: the client is answered, the thread goes on
            if jobs[1:]:
                for job in jobs:
                    self._do([job])
            else:
                jobs[0].results.set_exception(error)
            return
        for job, own in zip(jobs, each, strict=True):
            job.results.set_result(own)
