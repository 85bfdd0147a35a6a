"""Waiting for another process: nobody there could set an event."""

from __future__ import annotations

import time
from collections.abc import Callable

import trio

PATIENCE_S = 120.0
"""How long anything may take that will happen. It only ends a test that hangs: also a machine that is ten times slower
than a developer's, and pauses for seconds, is never so late."""


async def eventually(holds: Callable[[], bool]) -> None:
    """Return as soon as `holds()`; raises trio.TooSlowError after a long while."""
    with trio.fail_after(PATIENCE_S):
        while not holds():  # noqa: ASYNC110 (see above)
            await trio.sleep(0.01)


def wait_until(holds: Callable[[], bool]) -> None:
    """As `eventually`, for tests without an event loop. Raises AssertionError after a long while."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, f"not so within {PATIENCE_S} s"
        time.sleep(0.01)
