"""Reading of answers in steps: the usual answers of a node are handled where sockets are watched, not in a task.

A follower that copies a few records at a time does the same with nearly every answer. Waking its task for each would
cost more than the work: a pass of the event loop, a task switch, and two system calls to wait again.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Protocol

import trio

from ..server.parts import Buffer
from ..server.sleeping import Sleep

LONGEST_S = 0.25
"""Time in seconds after which an answer is left to the task, which looks at more than the steps do."""


class Watcher(Protocol):
    """A watcher of sockets (`server.readiness.Readiness`)."""

    def watch(self, descriptor: int, callback: Callable[[int], bool]) -> None:
        """Call ``callback`` whenever input arrives or the other side disconnects."""

    def forget(self, descriptor: int) -> None:
        """Stop watching a descriptor that is still open."""


class Steps(Protocol):
    """A handler of usual answers (such as `copy_steps_cy.CopySteps`)."""

    correlation_id: int
    is_over: bool

    def take(self, size_bytes: int) -> bytes | None:
        """Handle the answer of that size in memory and return the next request; None if the task must handle it."""


class StepwiseReading:
    """A wait for the first answer that `Steps` leaves to the task, which sleeps until then."""

    def __init__(self, connected: socket.socket, space: memoryview, steps: Steps, watcher: Watcher) -> None:
        self._socket = connected
        self._space = space
        self._steps = steps
        self._watcher = watcher
        self._until = trio.current_time() + LONGEST_S
        self._sleep = Sleep()
        self._unsent: Buffer = b""
        self._received_bytes = 0

    async def run(self) -> int:
        """Return how many bytes were received of the answer that is left, 0 at the end of the stream.

        Raises OSError, and what `Steps.take` raises.
        """
        descriptor = self._socket.fileno()
        self._watcher.watch(descriptor, self._on_ready)
        try:
            # An answer that has come before the socket was watched causes no event.
            is_done = self._step()
            while not (is_done and not self._unsent):
                if self._unsent:
                    await trio.lowlevel.wait_writable(self._socket)
                    self._send(self._unsent)
                    is_done = bool(self._unsent) or self._step()
                else:
                    await self._sleep.until_woken()
                    is_done = True
            return self._received_bytes
        finally:
            self._watcher.forget(descriptor)

    def _on_ready(self, events: int) -> bool:
        if self._sleep.task is None:
            return False
        try:
            is_done = self._step()
        except Exception as failure:
            self._sleep.failure = failure
            is_done = True
        if is_done:
            self._sleep.wake()
        return False

    def _step(self) -> bool:
        """Handle an answer that has arrived; return whether the task must go on."""
        try:
            count = self._received_bytes = self._socket.recv_into(self._space)
        except BlockingIOError:
            return False
        if count == 0:
            return True
        if trio.current_time() >= self._until:
            self._steps.is_over = True
        request = self._steps.take(count)
        if request is None:
            return True
        self._send(request)
        return bool(self._unsent)

    def _send(self, data: Buffer) -> None:
        try:
            sent = self._socket.send(data)
        except BlockingIOError:
            sent = 0
        self._unsent = memoryview(data)[sent:] if sent < len(data) else b""
