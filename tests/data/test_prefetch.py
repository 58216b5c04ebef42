"""A thread that makes items ahead of time changes neither their order nor their errors."""

import itertools
import threading

import pytest

from jax_transformer.data.batching import prefetch


def test_items_come_in_order_and_are_made_by_another_thread():
    items = prefetch(((i, threading.get_ident()) for i in itertools.count()), ahead=3)
    first = list(itertools.islice(items, 50))
    assert [i for i, _ in first] == list(range(50))
    assert {maker for _, maker in first} != {threading.get_ident()}
    assert len({maker for _, maker in first}) == 1


def test_so_many_items_are_made_before_they_are_asked_for():
    made = threading.Semaphore(0)

    def endless():
        for i in itertools.count():
            made.release()
            yield i

    items = prefetch(endless(), ahead=3)
    assert next(items) == 0
    for _ in range(1 + 3):
        assert made.acquire(timeout=10)
    assert not made.acquire(timeout=0.1)


def test_an_error_comes_where_its_item_would_have():
    def endless():
        yield from range(5)
        raise OSError("the tokens are gone")

    items = prefetch(endless(), ahead=3)
    assert list(itertools.islice(items, 5)) == list(range(5))
    with pytest.raises(OSError, match="the tokens are gone"):
        next(items)


def test_closing_ends_the_thread():
    items = prefetch(itertools.count(), ahead=3)
    next(items)
    assert any(thread.name.startswith("prefetch") for thread in threading.enumerate())
    items.close()
    assert not any(thread.name.startswith("prefetch") for thread in threading.enumerate())
