"""Work for many logs in threads, since opening and closing a log mostly waits for the disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

THREADS = 16
CHUNK = 8
"""The number of logs that one thread handles at a time; for fewer logs no thread is started."""

_T = TypeVar("_T")
_Result = TypeVar("_Result")


def for_many(work: Callable[[_T], _Result], items: Sequence[_T]) -> Iterator[_Result]:
    """Call `work(item)`, in any thread, for each item; return the results in order.

    The next `THREADS * CHUNK` items are begun when the results of those before have been taken.
    """
    if len(items) <= CHUNK:
        yield from map(work, items)
        return
    # A start with few logs does not load this module.
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(THREADS) as workers:
        for first in range(0, len(items), THREADS * CHUNK):
            round_of = items[first : first + THREADS * CHUNK]
            chunks = [round_of[start : start + CHUNK] for start in range(0, len(round_of), CHUNK)]
            # All results are awaited before the first is returned: the caller may close files that other threads still
            # use.
            for results in list(workers.map(lambda chunk: list(map(work, chunk)), chunks)):
                yield from results
