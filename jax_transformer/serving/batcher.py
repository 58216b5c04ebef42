"""One thread that does the work of all clients, those that can share a batch together."""

import threading
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

# work(kind, items) -> a result for each item
Work = Callable[[Any, list[Any]], Sequence[Any]]


class QueueFullError(Exception):
    """More items are waiting than are allowed to."""


@dataclass(eq=False)
class _Job:
    kind: Hashable
    items: list[Any]
    size: float  # of its largest item
    turn: int
    results: "Future[list[Any]]"


class Batcher:
    """A queue of jobs, and the thread that does them, each in its turn.

    Jobs of the same kind as the first are done together with it, those of its size first, because
    a batch takes as long as its longest item. So a single job is done at once, and under load
    batches grow.

    work: a function from a kind and the items of one or more jobs to a result for each item. If it
      fails for several jobs, each is done again alone, so that one does not harm the others.
    most_waiting, most_together: the largest number of items that may wait, and of those in a batch.
    size: a function from an item to the work that it makes, in any unit.
    on_batch: a function that is called with the number of items before each batch; set it to count.
    """

    def __init__(
        self,
        work: Work,
        *,
        most_waiting: int,
        most_together: int,
        size: Callable[[Any], float] = lambda item: 0,
    ) -> None:
        """Start the thread."""
        self.on_batch: Callable[[int], None] = lambda items: None
        self._work, self._size = work, size
        self._most_waiting, self._most_together = most_waiting, most_together
        self._jobs = deque[_Job]()
        self._submitted = 0
        self._changed = threading.Condition()  # its lock may be taken twice by a thread
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="batcher", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """The number of items that wait, without those that were given up."""
        with self._changed:
            return sum(len(job.items) for job in self._jobs if not job.results.cancelled())

    def submit(
        self, kind: Hashable, items: list[Any], *, follows: bool = False
    ) -> "list[Future[list[Any]]]":
        """Return futures that together have a result for each item; cancel them to give it up.

        Many items are cut into several jobs, of which the n-th has the turn of the n-th request
        after this one, so that other clients' come between, and that what was given up ends soon.

        follows: True for the next step of something that was begun, which is not refused.
        Raises QueueFullError if too many items wait already. If none waits, any number may come.
        """
        most = self._most_together
        parts = [items[first : first + most] for first in range(0, len(items), most)]
        with self._changed:
            waiting = self.waiting
            too_many = waiting and waiting + len(items) > self._most_waiting and not follows
            if self._closed or too_many:
                raise QueueFullError
            self._submitted += 1
            jobs = [
                _Job(kind, part, max(map(self._size, part)), turn, Future())
                for turn, part in enumerate(parts, start=self._submitted)
            ]
            self._jobs.extend(jobs)
            self._changed.notify()
        return [job.results for job in jobs]

    def close(self) -> None:
        """Finish the jobs that wait, and end the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while jobs := self._next():
            self._do(jobs)

    def _next(self) -> list[_Job]:
        """Wait for a job; return it with those that can be done together with it."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._jobs or self._closed)
                if not self._jobs:
                    return []
                first = min(self._jobs, key=lambda job: job.turn)
                alike = [job for job in self._jobs if job.kind == first.kind]
                alike.sort(key=lambda job: (job is not first, abs(job.size - first.size)))
                counts = accumulate(len(job.items) for job in alike)
                both = zip(alike, counts, strict=True)
                together = [job for job, count in both if count <= self._most_together]
                for job in together:
                    self._jobs.remove(job)
            if started := [job for job in together if job.results.set_running_or_notify_cancel()]:
                return started

    def _do(self, jobs: list[_Job]) -> None:
        items = [item for job in jobs for item in job.items]
        try:
            self.on_batch(len(items))
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
