"""An answer of many bytes that a thread sends without the interpreter's lock: `BulkAnswer`.

The answer is a table of numbers, a row for each part, so that one compiled loop reads, converts and sends all of it.
The loop returns to its caller only at the end of the answer, when other answers wait for their turn, when the client
does not read, and where a conversion needs what the loop does not have (codecs' libraries, errors, very large batches).

This is ordinary Python that is also compiled: ``bulk_answer_cy.pxd`` has the C types.
"""

from __future__ import annotations

import errno
from array import array

try:
    import cython
except ImportError:
    from ...protocol.records import cython_stand_in as cython

from ...protocol.records.kernel_cy import Stop
from ...protocol.records.recompression_cy import Recompression
from ...protocol.records.record import Buffer
from .bulk_chunk_cy import BulkChunk
from .bulk_memory import BulkMemory
from .bulk_rows import (
    BYTES,
    COLUMNS,
    CONVERSION,
    CONVERTED,
    CPU,
    DESCRIPTOR,
    FILE,
    KIND,
    POSITION,
    SIZE,
    STORED,
    TEMPORARY,
    BulkRows,
)
from .bulk_stop import BulkStop

if not cython.compiled:
    from ...protocol.records.message_bytes import copy_bytes
    from ...storage.log.file_reads import read_at
    from .bulk_calls import (
        put_padding,
        send_bytes,
        send_file,
        thread_cpu_ns,
        wait_writable,
    )

NO_HEADS = b"\0"
"""A stand-in for the bytes of an answer without any."""
COMPILED: bool = cython.compiled
"""Whether this module is compiled."""


SENT, FULL, TURN, NEEDS_CODEC, FAILED, BROKEN, FILE_HAS_ENDED, CANCELLED = map(int, BulkStop)

TURN_BYTES = 512 * 1024
"""The bytes after which an answer lets another one have its turn."""
FILE_BYTES = 1024 * 1024
"""Most bytes of a file that are sent with one call."""
SMALL_FILE_BYTES = 8 * 1024
"""Largest range of a file for which a copy costs less than a separate system call."""
LEAST_ROOM_BYTES = 32 * 1024
"""While the socket accepts nothing, records are converted ahead as long as the output has this much room."""
BEGIN_BYTES = 4 * 1024
"""The bytes after which an answer that only begins stops: one call passes as many as the socket accepts, or a chunk."""
ONLY_BEGIN = -1
"""The patience of an answer that only begins."""
BEGIN_FILE_BYTES = 128 * 1024
"""Most bytes of a file with which an answer begins, in the event loop's thread."""
WAIT_MS = 1
"""The time for which a thread waits for a client although other answers wait for the thread.

A client that reads has read some of the bytes by then, and waiting through the event loop costs more than a chunk.
"""
SOCKET_IS_FULL = -errno.EAGAIN
"""The result of `send_bytes` and `send_file` if the socket accepts no bytes now."""
FILE_IS_SHORTER = -1000000
"""The result of `read_at` and `send_file` behind the end of the file."""

STOP_AT_END, STOP_OUT_IS_FULL, STOP_NEEDS_CODEC = int(Stop.AT_END), int(Stop.OUT_IS_FULL), int(Stop.NEEDS_CODEC)


class BulkAnswer:
    """An answer to one client, whose parts are its `rows`. Call `run`, in one thread at a time, until it returns SENT.

    `row` is the present row. `row_done` counts the row's bytes that were sent or are about to be, `stored_at` the
    stored bytes that were converted for them. `sent_bytes` counts the bytes that the socket has accepted.
    """

    def __init__(self, descriptor: int, waiting: array[int]) -> None:
        """Begin an answer for the non-blocking socket `descriptor`.

        The first number in ``waiting`` (of 8 bytes) tells how many other answers wait for a thread.
        """
        self.descriptor = descriptor
        self._waiting = waiting
        self.rows = BulkRows()
        self._unsent = b""
        self._chunk = BulkChunk()
        self.row = 0
        self.row_count = 0
        self.row_done = 0
        self.stored_at = 0
        self.sent_bytes = 0
        self.error = 0
        self.is_cancelled = False
        self._has_begun = False
        self._chunk_limit = self._capacity = self._ahead_bytes = self._out_bytes = 0
        self._padded = self._at = self._filled = 0
        self._is_out_full = self._sends_little = False
        self._trouble = SENT

    @property
    def held_bytes(self) -> int:
        """The converted bytes that the answer keeps until its client reads."""
        return len(self._unsent)

    def cancel(self) -> None:
        """Let `run` return soon, in whichever thread it is."""
        self.is_cancelled = True

    def skip_row(self) -> None:
        """Continue behind the present row."""
        self.row += 1
        self.row_done = 0
        self.stored_at = 0
        self._padded = 0
        self._chunk.is_open = False
        self._trouble = SENT

    def run(self, memory: BulkMemory, patience_ms: int) -> int:
        """Send as much as possible with the memory; return a `BulkStop`.

        A client that does not read is waited for during ``patience_ms``, `WAIT_MS` if other answers wait. With
        `ONLY_BEGIN` it is not waited for, and TURN is returned after the first bytes. Converted bytes that were not
        sent are copied (`held_bytes`): at most `ahead_bytes` of the memory, or twice a
        message that is larger.
        """
        self._ahead_bytes = memory.ahead_bytes
        self._at, self._filled = 0, len(self._unsent)
        memory.out[: self._filled] = self._unsent
        self._unsent = b""
        self._chunk.is_loaded = False
        self.row_count = self.rows.count
        stop = self._run_in(
            memory.recompression,
            self.rows.table,
            self.rows.heads or NO_HEADS,
            memory.stored,
            memory.out,
            self._waiting,
            patience_ms,
        )
        if self._filled > self._at:
            self._unsent = bytes(memory.out[self._at : self._filled])
        return stop

    def _run_in(
        self,
        recompression: Recompression,
        rows: array[int],
        heads: Buffer,
        stored: bytearray,
        out: bytearray,
        waiting: array[int],
        patience_ms: int,
    ) -> int:
        """Run without the interpreter's lock."""
        self._chunk_limit = self._chunk.limit_bytes = len(stored)
        self._out_bytes = len(out)
        # An earlier run, which was allowed more, may have left more.
        self._capacity = max(self._ahead_bytes, self._filled)
        if cython.compiled:
            table = cython.address(rows[0])
            head = cython.address(heads[0])
            source = cython.address(stored[0])
            target = cython.address(out[0])
            others = cython.address(waiting[0])
        else:
            table, others = memoryview(rows), memoryview(waiting)
            head, source, target = memoryview(heads), memoryview(stored), memoryview(out)
        with cython.nogil:
            return self._run(recompression, table, head, source, target, others, patience_ms)

    def _run(
        self,
        recompression: Recompression,
        table: memoryview,
        heads: memoryview,
        stored: memoryview,
        out: memoryview,
        waiting: memoryview,
        patience_ms: int,
    ) -> int:
        must_send = self._filled > 0
        is_blocked = is_full = is_reading = False
        only_begins = patience_ms < 0
        most_bytes = BEGIN_BYTES if only_begins else TURN_BYTES
        turn_bytes = 0
        while not self.is_cancelled:
            if turn_bytes >= most_bytes and (only_begins or waiting[0] > 0):
                return TURN
            base = self.row * COLUMNS
            kind = table[base + KIND] if self.row < self.row_count else BYTES
            if is_blocked:
                has_room = self._capacity - self._filled >= LEAST_ROOM_BYTES
                if must_send and is_reading and not is_full and kind == CONVERSION and has_room:
                    # The client reads while further records are converted; of a slow one they would only be held.
                    is_full = True
                    must_send = False
                elif only_begins:
                    return TURN if turn_bytes > 0 else FULL
                elif not self._wait(waiting, patience_ms):
                    return FULL
                else:
                    is_reading = True
                is_blocked = False
                continue
            if must_send or (self.row == self.row_count and self._filled > self._at):
                # The client wakes up for the first bytes while the following ones are on their way.
                sent = self._send_output(out, kind == FILE and self._has_begun)
                if sent < 0 and sent != SOCKET_IS_FULL:
                    return self._failed(sent)
                # A socket that accepts a part has no room for the rest.
                is_blocked = must_send = self._at < self._filled
                self._sends_little = self._sends_little or is_blocked
                is_full = is_full and sent < 0
                turn_bytes += max(sent, 0)
                continue
            if self.row == self.row_count:
                return SENT
            left = table[base + SIZE] - self.row_done
            if left == 0:
                self.row += 1
                self.row_done = self.stored_at = self._padded = 0
                self._chunk.is_open = False
            elif kind == CONVERSION:
                stop = self._convert(recompression, table, base, left, stored, out)
                if stop != SENT and self._filled == self._at:
                    return stop
                has_room = self._filled - self._at < self._least_sent() and not self._is_out_full
                must_send = stop != SENT or is_full or not has_room or (not self._has_begun and self._filled > 0)
            elif kind == BYTES or (
                left <= SMALL_FILE_BYTES and self.row_done == 0 and left <= self._capacity - self._filled
            ):
                stop = self._gather(table, base, left, heads, out)
                if stop != SENT:
                    return stop
                must_send = self._filled == self._capacity
            elif self._filled > self._at:
                must_send = True
            else:
                size = min(left, BEGIN_FILE_BYTES if only_begins else FILE_BYTES)
                sent = self._send_part_of_file(table, base, size)
                if sent < 0 and sent != SOCKET_IS_FULL:
                    return self._failed(sent)
                is_blocked = sent < size
                turn_bytes += max(sent, 0)
        return CANCELLED

    def _least_sent(self) -> int:
        """Return the converted bytes that are sent at once, if records follow.

        Each time a client has read all that there is, it sleeps, and to wake it takes as long as to convert 30 kB. So
        it gets two chunks at a time, as long as its socket has room for all that is sent.
        """
        return self._chunk_limit // 2 if self._sends_little else self._chunk_limit + self._chunk_limit // 2

    def _send_output(self, out: memoryview, has_more: bool) -> int:
        """Send the bytes in the output as far as the socket accepts them; return their number or a negative error."""
        sent = send_bytes(self.descriptor, out, self._at, self._filled, has_more)
        if sent >= 0:
            self._at += sent
            self.sent_bytes += sent
            self._has_begun = True
            if self._at == self._filled:
                self._at = self._filled = 0
                self._capacity = self._ahead_bytes
                self._is_out_full = False
        return sent

    def _send_part_of_file(self, table: memoryview, base: int, size: int) -> int:
        """Send the next bytes of a range of a file; return as `_send_output`."""
        position = table[base + POSITION] + self.row_done
        sent = send_file(self.descriptor, table[base + DESCRIPTOR], position, size)
        if sent > 0:
            self.row_done += sent
            self.sent_bytes += sent
        return sent

    def _gather(self, table: memoryview, base: int, left: int, heads: memoryview, out: memoryview) -> int:
        """Copy bytes, or all of a small range of a file, behind the output; return SENT or an error."""
        if table[base + KIND] == FILE:
            error = read_at(table[base + DESCRIPTOR], out, self._filled, left, table[base + POSITION])
            if error < 0:
                return self._failed(error)
            size = left
        else:
            size = min(left, self._capacity - self._filled)
            copy_bytes(out, self._filled, heads, table[base + POSITION] + self.row_done, size)
        self._filled += size
        self.row_done += size
        return SENT

    def _wait(self, waiting: memoryview, patience_ms: int) -> bool:
        """Wait for the client to read; return whether the socket accepts bytes again."""
        waited_ms = 0
        while not wait_writable(self.descriptor, min(WAIT_MS, patience_ms)):
            waited_ms += WAIT_MS
            if self.is_cancelled or waiting[0] > 0 or waited_ms >= patience_ms:
                return False
        return True

    def _failed(self, error: int) -> int:
        if error == FILE_IS_SHORTER:
            return FILE_HAS_ENDED
        self.error = -error
        return BROKEN

    def _convert(
        self, recompression: Recompression, table: memoryview, base: int, left: int, stored: memoryview, out: memoryview
    ) -> int:
        """Convert records of the present row while they fit; return SENT, or the reason why the row cannot go on."""
        if self._trouble != SENT:
            return self._trouble
        if 0 < self.stored_at == table[base + STORED]:
            # All batches are converted, and their messages are smaller than promised.
            written = put_padding(out, self._filled, self._capacity, self._padded, left)
            self._filled += written
            self._padded += written
            self._is_out_full = self._filled == self._capacity
            self.row_done += written
            return SENT
        began_ns = thread_cpu_ns()
        loaded = self._chunk.load(table, base, self.stored_at, stored)
        if loaded != SENT:
            return self._failed(loaded) if loaded < 0 else loaded
        before = self._filled
        most = min(before + left, self._at + self._chunk_limit // 2)
        written = self._chunk.fill(recompression, table, base, stored, out, before, most, self._capacity) - before
        stop = self._chunk.stop
        position = self._chunk.conversion.position
        is_whole = written >= left
        self._filled = before + min(written, left)
        self.row_done += min(written, left)
        if is_whole or stop != STOP_OUT_IS_FULL:
            self._chunk.is_open = False
            table[base + CONVERTED] += self._chunk.conversion.converted_count
            table[base + TEMPORARY] += self._chunk.size_bytes
            self.stored_at += position
            if not is_whole and stop == STOP_NEEDS_CODEC:
                self._trouble = NEEDS_CODEC
            elif not is_whole and (stop != STOP_AT_END or position != self._chunk.size_bytes):
                self._trouble = FAILED
        elif written > 0 or self._filled > self._at:
            self._is_out_full = True
        elif self._capacity < self._out_bytes:
            self._capacity = min(2 * self._capacity, self._out_bytes)
        else:
            # A message always fits into twice a chunk, a wrapper of a compressed batch nearly always.
            self._trouble = NEEDS_CODEC if self._chunk.conversion.stop == STOP_NEEDS_CODEC else FAILED
        table[base + CPU] += thread_cpu_ns() - began_ns
        return self._trouble
