"""Readiness of connections: one epoll set for all of them, polled by one task.

Waiting for each socket through trio costs two system calls and a task switch for each request. Here sockets are
registered once, edge-triggered, and the callbacks of ready sockets are called in turn, in the polling task: a request
that can be answered at once never switches tasks. All other tasks get their turn between two rounds.
"""

from __future__ import annotations

import select
from collections.abc import Callable

import trio

from .loop_idleness import LoopIdleness

INPUT = select.EPOLLIN
HANGUP = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR
EVENTS = INPUT | select.EPOLLRDHUP | select.EPOLLET

Ready = Callable[[int], bool]
"""Called with the events; returns whether there may be more input, so that the next round calls it again."""


class Readiness:
    """A set of the sockets of one server. Call `watch` before the first read, `forget` before closing."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._callbacks: dict[int, Ready] = {}

    def watch(self, descriptor: int, callback: Ready) -> None:
        """Call ``callback`` whenever input arrives or the peer disconnects; present input counts as arriving."""
        if self._epoll.closed:
            # Accepted just when the server was cancelled.
            return
        self._callbacks[descriptor] = callback
        self._epoll.register(descriptor, EVENTS)

    def forget(self, descriptor: int) -> None:
        """Stop watching a descriptor that is still open."""
        if self._callbacks.pop(descriptor, None) is not None and not self._epoll.closed:
            self._epoll.unregister(descriptor)

    async def run(self) -> None:
        """Serve until cancelled."""
        idleness = LoopIdleness()
        try:
            with select.epoll() as everything:
                if idleness.descriptor is not None:
                    # trio's epoll set will contain `_epoll`, so `_epoll` cannot contain trio's: a third one has both.
                    everything.register(self._epoll, select.EPOLLIN)
                    everything.register(idleness.descriptor, select.EPOLLIN)
                await self._run(idleness, everything)
        finally:
            idleness.close()
            self._epoll.close()

    async def _run(self, idleness: LoopIdleness, everything: select.epoll) -> None:
        own = self._epoll.fileno()
        unfinished: list[int] = []
        events: list[tuple[int, int]] = []
        while True:
            idle_s = idleness.idle_s()
            # While no other task can run, this task waits without a pass of trio's loop.
            ready = everything.poll(0 if unfinished else idle_s) if idle_s > 0 else []
            if len(ready) == 1 and ready[0][0] == own:
                idleness.uninterrupted()
                events = self._epoll.poll(0)
            elif idle_s > 0 and unfinished and not ready:
                events = []
            else:
                if ready:
                    idleness.interrupted()
                # If only one socket was ready, another one seldom is now.
                events = self._epoll.poll(0) if unfinished or len(events) > 1 else []
                if events or unfinished:
                    await trio.lowlevel.checkpoint()
                else:
                    # No socket is ready: this wait also gives other tasks their turn.
                    await trio.lowlevel.wait_readable(own)
                    events = self._epoll.poll(0)
            unfinished = self._call(events, unfinished)

    def _call(self, events: list[tuple[int, int]], unfinished: list[int]) -> list[int]:
        """Call each ready descriptor's callback once; return those to be called again."""
        if unfinished:
            ready = dict.fromkeys(unfinished, INPUT)
            ready.update(events)
            events = list(ready.items())
        again = []
        for descriptor, mask in events:
            callback = self._callbacks.get(descriptor)
            if callback is not None and callback(mask):
                again.append(descriptor)
        return again
