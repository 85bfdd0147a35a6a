"""Turns of the event loop for requests with thousands of entries: other requests are served in between."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from time import monotonic
from typing import TypeVar

import trio

Item = TypeVar("Item")

LONGEST_TURN_S = 0.01


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
