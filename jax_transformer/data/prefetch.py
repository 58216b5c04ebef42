"""A thread that makes items ahead of time: batches, while the devices compute."""

from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")


def prefetch(endless: Iterator[Item], ahead: int) -> Generator[Item, None, None]:
    """Yield the items of an endless iterator in order; `ahead` of them are made in advance.

    One thread makes them, so the iterator need not be thread-safe. An error that the iterator
    raises is raised in place of its item. Closing this generator waits for the item that is being
    made.

    >>> import itertools
    >>> squares = prefetch((i * i for i in itertools.count()), ahead=2)
    >>> [next(squares) for _ in range(4)]
    [0, 1, 4, 9]
    >>> squares.close()
    """
    maker = ThreadPoolExecutor(1, thread_name_prefix="prefetch")
    try:
        made = deque(maker.submit(next, endless) for _ in range(ahead))
        while True:
            made.append(maker.submit(next, endless))
            yield made.popleft().result()
    finally:
        maker.shutdown(cancel_futures=True)
