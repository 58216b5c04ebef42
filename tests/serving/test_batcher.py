"""Jobs of several clients, done together by one thread."""

import threading
import time
from typing import Any

import pytest

from jax_transformer.errors import InputError
from jax_transformer.serving.batcher import Batcher, QueueFullError


def results(futures):
    """What the futures of a job have, once it is done."""
    return [result for future in futures for result in future.result(60)]


class Held:
    """Work that waits at its first batch until it is let go; `batches` has what came."""

    def __init__(self):
        self.batches, self.go = [], threading.Event()

    def __call__(self, kind, items):
        self.batches.append((kind, list(items)))
        assert self.go.wait(60)
        if "wrong" in items:
            raise InputError(f"items: {items}")
        if "bug" in items:
            raise KeyError("bug")
        return [f"{kind} {item}" for item in items]


@pytest.fixture
def held():
    return Held()


@pytest.fixture
def batcher(held):
    batcher = Batcher(held, most_waiting=8, most_together=4)
    yield batcher
    held.go.set()
    batcher.close()


def busy(batcher, held, item: Any = "first"):
    """Occupy the thread."""
    first = batcher.submit("a", [item])
    end = time.monotonic() + 60
    while not held.batches and time.monotonic() < end:
        time.sleep(0.001)
    return first


def test_jobs_of_the_kind_of_the_oldest_are_done_together_and_answered_apart(batcher, held):
    first = busy(batcher, held)
    jobs = [batcher.submit(kind, [f"{kind}{i}", "x"]) for i, kind in enumerate("abab")]
    assert batcher.waiting == 8
    held.go.set()
    assert results(first) == ["a first"]
    assert results(jobs[1]) == ["b b1", "b x"]
    assert results(jobs[2]) == ["a a2", "a x"]
    assert held.batches[1:] == [("a", ["a0", "x", "a2", "x"]), ("b", ["b1", "x", "b3", "x"])]


def test_no_batch_is_more_than_full_and_a_large_job_is_cut(batcher, held):
    busy(batcher, held)
    jobs = [batcher.submit("a", list(range(count))) for count in (3, 1, 4)]
    held.go.set()
    assert [len(results(job)) for job in jobs] == [3, 1, 4]
    assert [len(items) for _, items in held.batches] == [1, 4, 4]
    assert len(results(batcher.submit("a", list(range(9))))) == 9
    assert [len(items) for _, items in held.batches[3:]] == [4, 4, 1]


def test_requests_of_others_come_between_the_parts_of_a_large_one(held):
    batcher = Batcher(held, most_waiting=99, most_together=2)
    busy(batcher, held)
    jobs = [batcher.submit("b", list(range(8))), batcher.submit("c", ["x"])]
    held.go.set()
    for job in jobs:
        results(job)
    batcher.close()
    assert [kind for kind, _ in held.batches[1:]] == ["b", "b", "c", "b", "b"]


def test_those_of_the_size_of_the_oldest_join_it_first(held):
    batcher = Batcher(held, most_waiting=99, most_together=20, size=lambda kind, item: item)
    busy(batcher, held, item=0)
    jobs = [batcher.submit("b", [number]) for number in (5, 19, 6, 7, 50)]
    held.go.set()
    for job in jobs:
        results(job)
    batcher.close()
    assert held.batches[1:] == [("b", [5, 6, 7]), ("b", [19]), ("b", [50])]


def test_items_that_are_larger_are_done_in_smaller_batches(held):
    batcher = Batcher(held, most_waiting=99, most_together=4, size=lambda kind, item: item)
    busy(batcher, held, item=0)
    assert batcher.submit("b", []) == []
    jobs = [batcher.submit("b", [1, 1, 2, 3, 9, 1, 1]), batcher.submit("c", [1])]
    held.go.set()
    assert results(jobs[0]) == [f"b {item}" for item in (1, 1, 2, 3, 9, 1, 1)]
    batcher.close()
    kinds = [("b", [1, 1, 2]), ("b", [3]), ("c", [1]), ("b", [9]), ("b", [1, 1])]
    assert held.batches[1:] == kinds


def test_a_job_that_cannot_be_done_harms_no_other(batcher, held):
    busy(batcher, held)
    good, wrong, later = (batcher.submit("a", [item]) for item in ("good", "wrong", "later"))
    held.go.set()
    assert results(good) == ["a good"]
    assert results(later) == ["a later"]
    with pytest.raises(InputError, match=r"items: \['wrong'\]"):
        results(wrong)


def test_too_many_wait_only_behind_others_and_none_after_the_end(held):
    batcher = Batcher(held, most_waiting=8, most_together=4)
    busy(batcher, held)
    large = batcher.submit("a", [1] * 20)  # nobody waits before it
    with pytest.raises(QueueFullError):
        batcher.submit("a", [1])
    held.go.set()
    batcher.close()
    assert len(results(large)) == 20  # what waited was finished
    with pytest.raises(QueueFullError):
        batcher.submit("a", [1])


def test_what_was_given_up_makes_room(batcher, held):
    busy(batcher, held)
    (given_up, *_), kept = batcher.submit("b", [1] * 5), batcher.submit("b", [2] * 3)
    with pytest.raises(QueueFullError):
        batcher.submit("b", [3] * 4)
    assert given_up.cancel()  # of four items
    last = batcher.submit("b", [3] * 4)
    held.go.set()
    assert results(kept) + results(last) == ["b 2"] * 3 + ["b 3"] * 4


class Parts:
    """Live work that does one item at a time."""

    def __init__(self):
        self.items, self.busy = [], False

    @property
    def total(self):
        return len(self.items)

    def add(self, items):
        self.items += [(turn, item, result) for item, result, turn in items]
        self.busy = True

    def advance(self):
        self.items.sort(key=lambda each: each[0])
        _, item, result = self.items.pop(0)
        self.busy = bool(self.items)
        if not result.set_running_or_notify_cancel():
            return 0, 0
        result.set_result([f"part {item}"])
        return 1, len(self.items) + 1


def test_live_work_takes_turns_with_batches_and_what_was_given_up_is_not_done(held):
    parts, counts = Parts(), []
    batcher = Batcher(
        held,
        most_waiting=8,
        most_together=2,
        live=lambda kind: parts if kind == "live" else None,
    )
    batcher.on_batch = lambda new, together: counts.append((new, together))
    busy(batcher, held)
    many, one = batcher.submit("live", [1, 2, 3, 4, 5]), batcher.submit("live", [6])
    batch = batcher.submit("b", ["x"])
    assert many[4].cancel()
    assert batcher.waiting == 6
    with pytest.raises(QueueFullError):
        batcher.submit("live", [7, 8, 9])
    held.go.set()
    assert [each.result(60) for each in many[:4]] == [[f"part {i}"] for i in (1, 2, 3, 4)]
    assert (results(one), results(batch)) == (["part 6"], ["b x"])
    batcher.close()
    assert not parts.busy
    assert counts[:3] == [(1, 1), (1, 5), (1, 1)]  # a batch, a part of all, the next batch
    assert sum(new for new, _ in counts) == 7


def test_live_work_prepares_for_later_items_only_if_no_job_waits(batcher, held):
    class Preparing(Parts):
        def advance(self):
            self.busy = False
            held.batches.append(("prepares", []))
            return 0, 0

    preparing = Preparing()
    preparing.busy = True
    busy(batcher, held)
    batcher.go_on(preparing)
    batch = batcher.submit("b", ["x"])
    held.go.set()
    assert results(batch) == ["b x"]
    batcher.close()
    assert [kind for kind, _ in held.batches] == ["a", "b", "prepares"]


def test_live_work_prepares_for_later_items_only_if_no_other_has_any(held):
    live = {"one": Parts(), "other": Parts()}
    batcher = Batcher(held, most_waiting=8, most_together=4, live=live.get)
    seen = list[int]()

    def prepare():
        seen.append(live["other"].total)
        live["one"].busy = False
        return 0, 0

    busy(batcher, held)
    live["one"].advance, live["one"].busy = prepare, True
    batcher.go_on(live["one"])
    several = batcher.submit("other", ["x", "y", "z"])
    held.go.set()
    assert results(several) == ["part x", "part y", "part z"]
    batcher.close()
    assert seen == [0]


def test_a_batch_that_is_done_again_job_by_job_counts_once(batcher, held):
    counts = []
    busy(batcher, held)
    batcher.on_batch = lambda new, _: counts.append(new)
    jobs = [batcher.submit("a", [item, "x"]) for item in ("good", "wrong")]
    held.go.set()
    results(jobs[0])
    with pytest.raises(InputError):
        results(jobs[1])
    assert counts == [4]
