"""The background tasks of a client, from the start of its `async with` block to the end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

import trio

from .errors import ClientError


class BackgroundTasks:
    """A nursery that is opened by one call and closed by another, both in the same task.

    A cancellation around the `async with` block ends the block's body, not these tasks: the end of the block still
    needs them, to commit offsets, leave a group or abort a transaction. `close` ends the tasks. A task that fails
    cancels the body of the `async with` block; otherwise the exceptions of the body are raised unchanged, not wrapped
    into groups.
    """

    def __init__(self) -> None:
        self._manager: AbstractAsyncContextManager[trio.Nursery] | None = None
        self._lifetime = trio.CancelScope(shield=True)
        self._opened = trio.Event()
        self._nursery: trio.Nursery | None = None

    async def open(self, start_tasks: Callable[[trio.Nursery], Awaitable[None]]) -> None:
        """Open the nursery and await `start_tasks(nursery)`.

        An exception of `start_tasks`, Cancelled included, is raised after the nursery has been closed: no
        `__aexit__` follows an `__aenter__` that failed, and a nursery left open corrupts trio's stack of cancel
        scopes. Raises ClientError at the second call: parts of a closed client stay closed, and the nursery of an open
        client would be lost.
        """
        if self._manager is not None or self._lifetime.cancel_called:
            raise ClientError("a client can be entered by `async with` only once: make another client")
        self._manager = trio.open_nursery()
        outer = await self._manager.__aenter__()
        try:
            outer.start_soon(self._hold)
            await self._opened.wait()
            assert self._nursery is not None
            await start_tasks(self._nursery)
        except BaseException:
            await self.close()
            raise

    async def _hold(self) -> None:
        """Hold the nursery of the tasks until `close`."""
        with self._lifetime:
            async with trio.open_nursery() as self._nursery:
                self._opened.set()
                await trio.sleep_forever()

    async def close(self) -> None:
        """Cancel the tasks and wait until they have ended. Raises the error of a task that failed."""
        if self._manager is None:
            return
        self._lifetime.cancel()
        manager, self._manager = self._manager, None
        await manager.__aexit__(None, None, None)
