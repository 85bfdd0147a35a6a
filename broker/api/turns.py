"""Turns of the event loop for requests with thousands of entries: other requests are served in between."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterable
from time import monotonic
from typing import TypeVar

import trio

from ..server.outcome import Outcome

Item = TypeVar("Item")
Result = TypeVar("Result")

LONGEST_TURN_S = 0.003
MOST_AT_ONCE = 50
"""The most entries of a request that is answered without a look at the time."""


async def in_turns(items: Iterable[Item]) -> AsyncIterator[Item]:
    """Yield the items, and let other tasks run whenever the work on the items has taken a turn's time.

    The collections that the loop reads may change meanwhile: pass a copy of a collection that may change.
    """
    end = monotonic() + LONGEST_TURN_S
    for item in items:
        yield item
        if monotonic() >= end:
            await trio.lowlevel.checkpoint()
            end = monotonic() + LONGEST_TURN_S


def each_in_turns(function: Callable[[Item], Result], items: Collection[Item]) -> Outcome[list[Result]]:
    """Return what the function returns for each item: at once for few items, else as a coroutine that works in turns.

    The collection must not change meanwhile.
    """
    if len(items) <= MOST_AT_ONCE:
        return [function(item) for item in items]
    return _each_in_turns(function, items)


async def _each_in_turns(function: Callable[[Item], Result], items: Collection[Item]) -> list[Result]:
    results = []
    end = monotonic() + LONGEST_TURN_S
    for item in items:
        results.append(function(item))
        if monotonic() >= end:
            await trio.lowlevel.checkpoint()
            end = monotonic() + LONGEST_TURN_S
    return results
