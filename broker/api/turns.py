"""Turns of the event loop for requests with thousands of entries: other requests are served in between."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable
from time import monotonic
from types import CoroutineType
from typing import Any, TypeVar, cast

import trio

from ..server.outcome import Outcome

Item = TypeVar("Item")
Result = TypeVar("Result")

LONGEST_TURN_S = 0.003
MOST_AT_ONCE = 500
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


def each_in_turns(
    function: Callable[[Item], Result | Coroutine[Any, Any, Result]], items: Collection[Item], entry_count: int
) -> Outcome[list[Result]]:
    """Return what the function returns for each item: at once for few entries, else as a coroutine that works in turns.

    An item may stand for several of the ``entry_count`` entries. For more than `MOST_AT_ONCE` entries the function may
    return coroutines, which are awaited. The collection must not change meanwhile.
    """
    if entry_count <= MOST_AT_ONCE:
        return [cast(Result, function(item)) for item in items]
    return _each_in_turns(function, items)


async def _each_in_turns(
    function: Callable[[Item], Result | Coroutine[Any, Any, Result]], items: Collection[Item]
) -> list[Result]:
    results = []
    end = monotonic() + LONGEST_TURN_S
    for item in items:
        result = function(item)
        # The abstract class would be a slower check.
        if isinstance(result, CoroutineType):
            result = await result
        results.append(cast(Result, result))
        if monotonic() >= end:
            await trio.lowlevel.checkpoint()
            end = monotonic() + LONGEST_TURN_S
    return results
