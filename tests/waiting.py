"""Waiting for another process, which cannot set an event."""

from __future__ import annotations

import time
from collections.abc import Callable

import trio

PATIENCE_S = 120.0
"""Longest time in seconds that a test waits for an event. Only a test that hangs reaches this limit: a machine that is
ten times slower than a developer's, and pauses for seconds, does not."""


async def eventually(holds: Callable[[], bool]) -> None:
    """Return as soon as `holds()`; raises trio.TooSlowError after a long while."""
    with trio.fail_after(PATIENCE_S):
        while not holds():  # noqa: ASYNC110 (see above)
            await trio.sleep(0.01)


def wait_until(holds: Callable[[], bool]) -> None:
    """Wait as `eventually` does, for tests without an event loop. Raises AssertionError after a long time."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, f"not so within {PATIENCE_S} s"
        time.sleep(0.01)
