"""The background tasks of a client, between `async with` and its end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
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

    async def open(self, start_tasks: Callable[[trio.Nursery], Awaitable[None]]) -> None:
        """Open the nursery and await `start_tasks(nursery)`.

        Whatever `start_tasks` raises, Cancelled included, is raised after the nursery was closed again: no `__aexit__`
        follows an `__aenter__` that failed, and a nursery left open corrupts trio's stack of cancel scopes.
        """
        self._manager = trio.open_nursery()
        self._nursery = await self._manager.__aenter__()
        try:
            await start_tasks(self._nursery)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Cancel the tasks and wait until they are gone. Raises what a task has failed with."""
        if self._manager is None or self._nursery is None:
            return
        self._nursery.cancel_scope.cancel()
        manager, self._manager = self._manager, None
        await manager.__aexit__(None, None, None)
