"""Which connections have input: one epoll set for all of them, asked by one task.

Waiting for each socket through trio costs two system calls and a task switch a request. Here sockets are registered
once, edge-triggered, and whoever is ready is called in turn, in the task that asked: a request that can be answered at
once never switches tasks. Everybody else's task gets its turn between two rounds.
"""

from __future__ import annotations

import select
from collections.abc import Callable

import trio

INPUT = select.EPOLLIN
HANGUP = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR
EVENTS = INPUT | select.EPOLLRDHUP | select.EPOLLET

Ready = Callable[[int], bool]
"""Called with the events; returns whether there may be more input, so that it is to be called in the next round too."""


class Readiness:
    """The sockets of one server. `watch` before the first read, `forget` before closing."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._callbacks: dict[int, Ready] = {}

    def watch(self, descriptor: int, callback: Ready) -> None:
        """Call ``callback`` whenever input arrives or the peer hangs up. What is there already counts as arriving."""
        if self._epoll.closed:
            # Accepted in the moment in which the server was cancelled.
            return
        self._callbacks[descriptor] = callback
        self._epoll.register(descriptor, EVENTS)

    def forget(self, descriptor: int) -> None:
        """Stop watching a descriptor that is still open."""
        if self._callbacks.pop(descriptor, None) is not None and not self._epoll.closed:
            self._epoll.unregister(descriptor)

    async def run(self) -> None:
        """Serve until cancelled."""
        unfinished: list[int] = []
        events: list[tuple[int, int]] = []
        try:
            while True:
                # Where only one was ready, another one seldom is by now.
                is_busy = unfinished or len(events) > 1
                events = self._epoll.poll(0) if is_busy else []
                if events or unfinished:
                    await trio.lowlevel.checkpoint()
                else:
                    # Nothing is left to do, so this is also when others have their turn.
                    await trio.lowlevel.wait_readable(self._epoll.fileno())
                    events = self._epoll.poll(0)
                unfinished = self._call(events, unfinished)
        finally:
            self._epoll.close()

    def _call(self, events: list[tuple[int, int]], unfinished: list[int]) -> list[int]:
        """One round: each ready descriptor once; returns those to be called again."""
        ready = dict.fromkeys(unfinished, INPUT)
        ready.update(events)
        again = []
        for descriptor, mask in ready.items():
            callback = self._callbacks.get(descriptor)
            if callback is not None and callback(mask):
                again.append(descriptor)
        return again
