"""The background tasks of a client, between `async with` and its end."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

import trio


class BackgroundTasks:
    """A nursery that is opened and closed by two calls, in one task and one after the other.

    A task that fails takes the `async with` body down; otherwise the body's own exceptions pass as they are, not
    wrapped into groups.
    """

    def __init__(self) -> None:
        self._manager: AbstractAsyncContextManager[trio.Nursery] | None = None
        self._nursery: trio.Nursery | None = None

    async def open(self) -> trio.Nursery:
        """Begin."""
        self._manager = trio.open_nursery()
        self._nursery = await self._manager.__aenter__()
        return self._nursery

    async def close(self) -> None:
        """Cancel the tasks and wait until they are gone. Raises what a task has failed with."""
        if self._manager is None or self._nursery is None:
            return
        self._nursery.cancel_scope.cancel()
        manager, self._manager = self._manager, None
        await manager.__aexit__(None, None, None)
