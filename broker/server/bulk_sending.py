"""The sending of a large answer by the threads of `bulk_lane`, and by the connection's task where they cannot.

The answer is given to the threads as a whole, with its length and the bytes gathered before it. A conversion that meets
compressed batches, errors or very large batches is continued by the task, from where the thread has stopped. An answer
that threads send to its end needs no task: `BulkSending.begin` is called where requests are answered, and so is its
``on_end``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine
from time import perf_counter
from typing import Protocol, TypeAlias

import trio

from .bulk_answer_cy import COMPILED, BulkAnswer
from .bulk_lane import PATIENCE_MS, BulkLane, QueuedAnswer
from .bulk_stop import BulkStop
from .parts import BUFFERS, Answer, BulkPart, Outlet, Sink, total_size
from .receive_buffer_cy import LENGTH

LEAST_BULK_BYTES = 256 * 1024
"""The size from which on an answer is sent by a thread; a smaller one is sent before a thread would have begun."""
MOST_COPIED_BYTES = 64 * 1024
"""Most bytes of an answer that are copied for the threads: heads of partitions, not records."""


class BulkTransport(Outlet, Protocol):
    """A view of the transport of an answer (a `SocketTransport`)."""

    descriptor: int

    @property
    def is_plain(self) -> bool: ...
    def gathered_with(self, data: bytes) -> bytes: ...
    def forget_gathered(self) -> None: ...
    def enlarge_send_buffer(self, size_bytes: int) -> None: ...
    async def flush(self) -> None: ...


CallSoon: TypeAlias = Callable[[Callable[[], None]], None]
"""Calls a function in the event loop's thread, soon; may be called in any thread."""


class LargeAnswers:
    """The large answers of one connection, and the threads that send them."""

    def __init__(self, transport: BulkTransport, lane: BulkLane, call_soon: CallSoon) -> None:
        self._transport = transport
        self._lane = lane
        self._call_soon = call_soon

    def sending(self, answer: Answer) -> BulkSending | None:
        """Return an answer in the form that threads can send, None if it is small or they cannot send all of its parts.

        The form begins with the bytes that the transport has gathered, which are then no longer the transport's.
        """
        transport, lane = self._transport, self._lane
        if not transport.is_plain or not COMPILED:
            return None
        size_bytes = total_size(answer)
        if size_bytes < LEAST_BULK_BYTES:
            return None
        bulk = lane.answer(transport.descriptor)
        rows = bulk.rows
        rows.add_bytes(transport.gathered_with(LENGTH.pack(size_bytes)))
        copied_bytes = 0
        for part in answer:
            if isinstance(part, BUFFERS):
                copied_bytes += len(part)
                if copied_bytes > MOST_COPIED_BYTES:
                    return None
                rows.add_bytes(part)
            elif not isinstance(part, BulkPart) or not part.add_to(rows):
                return None
        transport.forget_gathered()
        return BulkSending(bulk, answer, transport, lane, self._call_soon)


class BulkSending:
    """A large answer on its way to the client. `end` must be called, or `finish` or `stop` awaited."""

    def __init__(
        self, bulk: BulkAnswer, answer: Answer, transport: BulkTransport, lane: BulkLane, call_soon: CallSoon
    ) -> None:
        self._bulk = bulk
        self._answer = answer
        self._transport = transport
        self._lane = lane
        self._call_soon = call_soon
        self._stop: BulkStop | None = None
        """The reason why the last sending stopped, None before the first one."""
        self._queued: QueuedAnswer | None = None

    def begin(self, on_end: Callable[[], None]) -> bool:
        """Send the first bytes, and let threads send the rest; return whether a thread has to.

        Then ``on_end`` is called in the event loop's thread when the threads have stopped.
        """
        self._begin_here()
        if self._stop is not BulkStop.TURN:
            return False
        call_soon = self._call_soon
        self._queued = self._lane.submit(self._bulk, PATIENCE_MS, lambda: call_soon(on_end))
        return True

    def is_sent(self) -> bool:
        """Return whether all bytes are sent, while no thread has the answer."""
        queued = self._queued
        return self._stop is BulkStop.SENT or (queued is not None and queued.stop == BulkStop.SENT)

    async def finish(self) -> None:
        """Send what is left, and release the parts.

        Raises OSError, of the socket or a file, and EOFError if a file is shorter than its part.
        """
        try:
            if self._stop is None:
                self._begin_here()
            if self._queued is not None:
                queued, self._queued = self._queued, None
                self._stop = queued.result()
            await self._send_rest()
        finally:
            self.end()

    async def stop(self) -> None:
        """Stop the threads, and release the parts."""
        try:
            if self._queued is not None:
                await self._lane.stop(self._queued)
        finally:
            self.end()

    def end(self) -> None:
        """Release the parts, which no thread uses."""
        self._lane.forget(self._bulk)
        for row, part in enumerate(self._answer, start=1):
            if isinstance(part, BulkPart):
                part.end(self._bulk.rows.counted(row))

    def _begin_here(self) -> None:
        """Send the first bytes in this thread: the client has them before another thread has woken up.

        With other clients a thread sends those of files: many clients that are ready at once would leave the event
        loop no time for others.
        """
        if self._bulk.rows.begins_converted or not self._lane.is_busy():
            self._stop = self._lane.begin(self._bulk)
        else:
            self._transport.enlarge_send_buffer(self._lane.send_buffer_bytes())
            self._stop = BulkStop.TURN

    async def _send_rest(self) -> None:
        bulk, transport = self._bulk, self._transport
        stop, patience_ms = self._stop, PATIENCE_MS
        while stop is not BulkStop.SENT:
            if stop is BulkStop.FULL:
                began = perf_counter()
                await trio.lowlevel.wait_writable(transport.descriptor)
                # No thread waits for a client that pauses longer than a thread would wait.
                patience_ms = PATIENCE_MS if perf_counter() - began < PATIENCE_MS / 1000 else 0
            elif stop in (BulkStop.NEEDS_CODEC, BulkStop.FAILED):
                part = self._answer[bulk.row - 1]
                assert isinstance(part, BulkPart)
                sink = Sink(transport, part.size - bulk.row_done)
                await part.send_rest(sink, bulk.stored_at, has_failed=stop is BulkStop.FAILED)
                sink.finish()
                await transport.flush()
                bulk.skip_row()
            elif stop is BulkStop.FILE_HAS_ENDED:
                raise EOFError(f"a segment ends before the end of part {bulk.row} of an answer")
            elif stop is BulkStop.BROKEN:
                raise OSError(bulk.error, os.strerror(bulk.error))
            stop = await self._lane.run(bulk, patience_ms)


def close(answer: object) -> None:
    """Close a coroutine for an answer that is never awaited, release the parts of a `BulkSending`, ignore others."""
    if isinstance(answer, Coroutine):
        answer.close()
    elif isinstance(answer, BulkSending):
        answer.end()
