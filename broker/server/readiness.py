"""Readiness of connections: one epoll set for all of them, polled by one task.

Waiting for each socket through trio costs two system calls and a task switch for each request. Here sockets are
registered once, edge-triggered, and the callbacks of ready sockets are called in turn, in the polling task: a request
that can be answered at once never switches tasks. All other tasks get their turn between two rounds.
"""

from __future__ import annotations

import os
import select
import threading
from collections import deque
from collections.abc import Callable

import trio

from .bulk_lane import BulkLane
from .busy_polling import BusyPolling, Events, never
from .loop_idleness import LoopIdleness
from .relay_calls import wait_alone
from .socket_rounds import SocketRounds

INPUT = select.EPOLLIN
HANGUP = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR
EVENTS = INPUT | select.EPOLLRDHUP | select.EPOLLET
LONGEST_ALONE_MS = 2
"""The longest wait of `Readiness.wait_alone`; a peer that needs longer has paused."""
MOST_EVENTS = 64
"""The events of a round; the kernel gives further ones to the next round, in turn."""

Ready = Callable[[int], bool]
"""Called with the events; returns whether there may be more input, so that the next round calls it again."""


class Readiness:
    """A set of the sockets of one server. Call `watch` before the first read, `forget` before closing.

    While no other task can run, the task of `run` waits for its sockets and for trio's at once, in a system call of its
    own: trio's epoll set is then in this one. While such waits are suspended, trio waits, and this set is in trio's.
    Neither set may contain the other at the same time.
    """

    def __init__(
        self, busy_poll_max_us: int = 0, lane: BulkLane | None = None, rounds: SocketRounds | None = None
    ) -> None:
        """Start without sockets; no wait polls longer than this number of microseconds, or while ``lane`` is busy.

        ``rounds`` has the work of others at the end of each round.
        """
        self._rounds = rounds or SocketRounds()
        self._epoll = select.epoll()
        self._callbacks: dict[int, Ready] = {}
        self._posted: deque[Callable[[], None]] = deque()
        self._posting = threading.Lock()
        self._post = -1
        """The eventfd(2) that becomes readable with each posted call; -1 while `run` does not run."""
        self._polling = BusyPolling(busy_poll_max_us, has_other_work=never if lane is None else lane.is_busy)
        self._has_others = False
        """Whether trio's epoll set is in this one."""
        self._are_others_ready = False
        """Whether trio's epoll set has become readable in the present round."""
        self._idleness: LoopIdleness | None = None
        """The state of trio's loop while `run` runs."""
        self._task: trio.lowlevel.Task | None = None
        """The task of `run`."""
        self._has_uncalled = False
        """Whether callbacks are due that wait for a pass of trio's loop."""

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

    def call_soon(self, call: Callable[[], None]) -> None:
        """Call a function in the task of `run`, as one of its callbacks; may be called in any thread.

        It takes no pass of trio's loop, unlike `trio.lowlevel.TrioToken.run_sync_soon`. A call that comes after the end
        of `run` is dropped.
        """
        self._posted.append(call)
        with self._posting:
            if self._post >= 0:
                os.eventfd_write(self._post, 1)

    def wait_alone(self, descriptor: int) -> bool:
        """Wait in the running task for input of a descriptor that is not watched, without a pass of trio's loop.

        Return whether it has come, and nothing else needs the event loop; the caller must wait through trio if not.
        Such a wait costs one system call. It is for bytes that are on their way: it lasts `LONGEST_ALONE_MS` at most.
        """
        quiet_ms, own, others = self.quiet()
        return quiet_ms > 0 and wait_alone(descriptor, False, own, others, min(quiet_ms, LONGEST_ALONE_MS))

    def quiet(self) -> tuple[int, int, int]:
        """Return for how many milliseconds nothing but two descriptors needs the event loop, and these two.

        The running task may wait so long, outside of trio's loop, if it also waits for these descriptors. Either is -1
        if it needs no wait.
        """
        idleness = self._idleness
        if idleness is None or idleness.descriptor is None or self._has_uncalled or self._epoll.closed:
            return 0, -1, -1
        quiet_ms = int(idleness.quiet_s(self._task) * 1000)
        return quiet_ms, self._epoll.fileno(), -1 if self._has_others else idleness.descriptor

    async def run(self) -> None:
        """Serve until cancelled."""
        self._idleness = idleness = LoopIdleness()
        self._task = trio.lowlevel.current_task()
        # Readable at first, for calls that came before.
        self._post = os.eventfd(1, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        # Edge-triggered: each write makes an event, and no read is needed.
        self._epoll.register(self._post, select.EPOLLIN | select.EPOLLET)
        self._callbacks[self._post] = self._call_posted
        try:
            await self._run(idleness)
        finally:
            self._idleness = self._task = None
            idleness.close()
            self._epoll.close()
            with self._posting:
                os.close(self._post)
                self._post = -1

    async def _run(self, idleness: LoopIdleness) -> None:
        poll, own = self._epoll.poll, self._epoll.fileno()
        others = idleness.descriptor
        unfinished: list[int] = []
        events: Events = []
        while True:
            idle_s = idleness.idle_s()
            if idle_s > 0 and others is not None:
                # While no other task can run, this task waits without a pass of trio's loop.
                if not self._has_others:
                    self._take_in(others)
                events = poll(0, MOST_EVENTS) if unfinished else self._polling.wait(self._epoll, idle_s, MOST_EVENTS)
                must_wait = not events and not unfinished
            elif self._has_others and not idleness.is_suspended:
                # The other tasks' turn.
                self._has_uncalled = bool(unfinished)
                await trio.lowlevel.checkpoint()
                events = poll(0, MOST_EVENTS)
                must_wait = False
            else:
                # If only one socket was ready, another one seldom is now.
                events = poll(0, MOST_EVENTS) if unfinished or len(events) > 1 else []
                must_wait = not events and not unfinished
                if not must_wait:
                    self._has_uncalled = True
                    await trio.lowlevel.checkpoint()
            if must_wait:
                # No socket is ready: this wait also gives other tasks their turn.
                if self._has_others and others is not None:
                    self._give_back(others)
                await trio.lowlevel.wait_readable(own)
                events = poll(0, MOST_EVENTS)
            self._has_uncalled = False
            unfinished = self._call(events, unfinished)
            if self._are_others_ready:
                self._are_others_ready = False
                idleness.interrupted()
                self._has_uncalled = bool(unfinished)
                await trio.lowlevel.checkpoint()
            elif events:
                idleness.uninterrupted()

    def _take_in(self, others: int) -> None:
        """Put trio's epoll set ``others`` into this one, which must not be in trio's then."""
        trio.lowlevel.notify_closing(self._epoll)
        self._epoll.register(others, select.EPOLLIN)
        self._callbacks[others] = self._note_others
        self._has_others = True

    def _give_back(self, others: int) -> None:
        """Take trio's epoll set out of this one."""
        self._epoll.unregister(others)
        del self._callbacks[others]
        self._has_others = False

    def _note_others(self, _: int) -> bool:
        """Note that descriptors of other tasks are ready, whose turn comes when all ready sockets were called."""
        self._are_others_ready = True
        return False

    def _call_posted(self, _: int) -> bool:
        while self._posted:
            self._posted.popleft()()
        return False

    def _call(self, events: Events, unfinished: list[int]) -> list[int]:
        """Call each ready descriptor's callback once; return those to be called again."""
        if unfinished:
            ready = dict.fromkeys(unfinished, INPUT)
            ready.update(events)
            events = list(ready.items())
        again: list[int] = []
        if not events:
            return again
        self._rounds.begin()
        try:
            for descriptor, mask in events:
                callback = self._callbacks.get(descriptor)
                if callback is not None and callback(mask):
                    again.append(descriptor)
        finally:
            self._rounds.end()
        return again
