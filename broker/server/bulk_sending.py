"""The sending of a large answer by the threads of `bulk_lane`, and by the connection's task where they cannot.

The answer is given to the threads as a whole, with its length and the bytes gathered before it. A conversion that meets
compressed batches, errors or very large batches is continued by the task, from where the thread has stopped.
"""

from __future__ import annotations

import os
from time import perf_counter
from typing import Protocol

import trio

from .bulk_answer_cy import COMPILED, BulkAnswer
from .bulk_lane import PATIENCE_MS, BulkLane
from .bulk_stop import BulkStop
from .parts import BUFFERS, Answer, BulkPart, Outlet, Sink
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
    async def flush(self) -> None: ...


def bulk_answer(answer: Answer, size_bytes: int, transport: BulkTransport, lane: BulkLane) -> BulkAnswer | None:
    """Return an answer of this size in the form that threads can send, None if they cannot send each of its parts.

    The form begins with the bytes that the transport has gathered, which are then no longer the transport's.
    """
    if not transport.is_plain or not COMPILED:
        return None
    copied_bytes = sum(len(part) for part in answer if isinstance(part, BUFFERS))
    if copied_bytes > MOST_COPIED_BYTES:
        return None
    bulk = lane.answer(transport.descriptor)
    bulk.rows.add_bytes(transport.gathered_with(LENGTH.pack(size_bytes)))
    for part in answer:
        if isinstance(part, BUFFERS):
            bulk.rows.add_bytes(part)
        elif not isinstance(part, BulkPart) or not part.add_to(bulk.rows):
            return None
    transport.forget_gathered()
    return bulk


async def send_in_bulk(bulk: BulkAnswer, answer: Answer, transport: BulkTransport, lane: BulkLane) -> None:
    """Send an answer in the form of `bulk_answer`, and release its parts.

    Raises OSError, of the socket or a file, and EOFError if a file is shorter than its part.
    """
    try:
        # The client has the first bytes before a thread has woken up. With other clients a thread sends those of
        # files: many clients that are ready at once would leave the event loop no time for others.
        begins_here = bulk.rows.begins_converted or not lane.is_busy()
        stop = lane.begin(bulk) if begins_here else BulkStop.TURN
        patience_ms = PATIENCE_MS
        while stop is not BulkStop.SENT:
            if stop is BulkStop.FULL:
                began = perf_counter()
                await trio.lowlevel.wait_writable(transport.descriptor)
                # No thread waits for a client that pauses longer than a thread would wait.
                patience_ms = PATIENCE_MS if perf_counter() - began < PATIENCE_MS / 1000 else 0
            elif stop in (BulkStop.NEEDS_CODEC, BulkStop.FAILED):
                part = answer[bulk.row - 1]
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
            stop = await lane.run(bulk, patience_ms)
    finally:
        lane.forget(bulk)
        for row, part in enumerate(answer, start=1):
            if isinstance(part, BulkPart):
                part.end(bulk.rows.counted(row))
