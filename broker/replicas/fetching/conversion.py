"""Parts that convert stored records while they are sent, for clients that do not read the format they are stored in.

The rules, sizes and chunks are those of `protocol.records.lazy`; here are the file, the memory and the waiting. A plan
keeps numbers only. When its turn to be sent comes, the segment is read a chunk at a time into a buffer that all
conversions share, converted into another one, and sent: an answer of 250 partitions holds nothing of its own, and the
chunk stays in the processor's caches all the way. (Reading costs less than mapping, whose page faults take longer
than the copy.)
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Generator, Sequence

import trio

from ....protocol.records import v0, v2
from ....protocol.records.batches import read_batch
from ....protocol.records.compression import DEFAULT_LIMIT_BYTES
from ....protocol.records.lazy import (
    DEFAULT_CHUNK_BYTES,
    PLANNED_BYTES,
    LazyConversion,
    needs_conversion,
    plan_down_conversion,
    plan_up_conversion,
)
from ....protocol.records.stretch import StretchHead, window_with_batch
from ....storage.log.partition_log import LogSlice
from ...server.parts import Sink
from ...server.requests import ConversionCost

PLAN_IN_THREAD_BYTES = 32 * 1024
"""A first batch that is compressed and at least this large is converted in a worker thread to learn its size."""
SENT_BYTES = 256 * 1024
"""How much of a large record is given to the socket at a time."""
LEGACY_MAGICS = 0b011
"""Bits of `LogSlice.magics` for formats v0 and v1."""


class ConversionMemory:
    """What conversions read into and write to, a chunk at a time. All of a broker share one, between two waits."""

    __slots__ = ("chunk_bytes", "holder", "out", "position", "size_bytes", "stored")

    def __init__(self, chunk_bytes: int = DEFAULT_CHUNK_BYTES) -> None:
        self.chunk_bytes = chunk_bytes
        self.stored = memoryview(bytearray(chunk_bytes))
        self.holder: SliceStretch | None = None
        """Whose bytes are in ``stored``: ``size_bytes`` from ``position`` on."""
        self.position = 0
        self.size_bytes = 0
        # Small records grow when they are converted down; with room for twice the chunk most stay one piece.
        self.out = bytearray(2 * chunk_bytes)


class SliceStretch:
    """A slice's bytes, a window at a time (a `Stretch`), read into a memory that others may use in between.

    Larger windows, which a batch above the chunk's size takes, are mapped, for this conversion alone: pieces of large
    records are views of them, and must last until they are sent.
    """

    __slots__ = ("_descriptor", "_map", "_mapped_at", "_memory", "_start", "size_bytes")

    def __init__(self, log_slice: LogSlice, memory: ConversionMemory) -> None:
        self._descriptor = log_slice.descriptor
        self._start = log_slice.position
        self._memory = memory
        self._map: mmap.mmap | None = None
        self._mapped_at = (0, 0)
        self.size_bytes = log_slice.size_bytes

    def window(self, position: int, size_bytes: int) -> memoryview:
        """See `Stretch.window`. Raises OSError, and EOFError if the file is shorter than the slice."""
        size_bytes = min(size_bytes, self.size_bytes - position)
        memory = self._memory
        if size_bytes > memory.chunk_bytes:
            return self._mapped(position, size_bytes)
        self._map = None
        window = memory.stored[:size_bytes]
        if memory.holder is not self or memory.position != position or memory.size_bytes < size_bytes:
            memory.holder = None
            if os.preadv(self._descriptor, [window], self._start + position) < size_bytes:
                raise EOFError(f"a segment ends before {self._start + position + size_bytes}")
            memory.holder, memory.position, memory.size_bytes = self, position, size_bytes
        return window

    def give_back_pages(self) -> None:
        """Unmap what was read of a mapped window; reading it again brings it back from the page cache."""
        if self._map is not None:
            self._map.madvise(mmap.MADV_DONTNEED)

    def _mapped(self, position: int, size_bytes: int) -> memoryview:
        surplus = (self._start + position) % mmap.ALLOCATIONGRANULARITY
        if self._map is None or self._mapped_at != (position, size_bytes):
            begin = self._start + position - surplus
            length = size_bytes + surplus
            self._map = mmap.mmap(self._descriptor, length, access=mmap.ACCESS_READ, offset=begin)
            self._mapped_at = (position, size_bytes)
        return memoryview(self._map)[surplus:]


class LazyConvertRecords:
    """Records of one partition in another format (KIP-283); `plan` promises their `size`, `send_to` converts.

    Down to v0 or v1 as in Kafka, and by the same means up to v2, since logs here hold what old producers wrote.
    """

    __slots__ = ("_costs", "_first_end", "_is_compressed", "_memory", "_slice", "_stored_bytes", "_to_magic", "size")

    def __init__(
        self,
        log_slice: LogSlice,
        conversion: LazyConversion,
        memory: ConversionMemory,
        costs: Sequence[ConversionCost] = (),
    ) -> None:
        self._slice = log_slice
        self._memory = memory
        self._stored_bytes = conversion.stored_bytes
        self._to_magic = conversion.to_magic
        self._first_end = conversion.first_end
        self._is_compressed = conversion.is_compressed
        self._costs = costs
        self.size = conversion.size

    @classmethod
    async def plan(
        cls, log_slice: LogSlice, to_magic: int, memory: ConversionMemory, costs: Sequence[ConversionCost] = ()
    ) -> LazyConvertRecords:
        """Promise a size for a slice that is not empty, in format ``to_magic``; ``costs`` are told what it takes.

        Takes the slice over. Raises BrokerError as `plan_down_conversion` and `plan_up_conversion`.
        """
        stored = SliceStretch(log_slice, memory)
        first = read_batch(window_with_batch(stored, 0, PLANNED_BYTES))
        looked_at = stored.size_bytes if first is None or to_magic == v2.MAGIC else first.size_bytes
        if first is not None and first.is_compressed and looked_at >= PLAN_IN_THREAD_BYTES:
            stored = SliceStretch(log_slice, ConversionMemory(memory.chunk_bytes))
            conversion, cpu_ns = await trio.to_thread.run_sync(_timed_plan, stored, to_magic, log_slice)
        else:
            conversion, cpu_ns = _timed_plan(stored, to_magic, log_slice)
        for cost in costs:
            cost.add(0, 0, cpu_ns)
        return cls(log_slice, conversion, memory, costs)

    async def send_to(self, sink: Sink) -> None:
        # Compressing takes long: it happens in a worker thread, and so cannot use the shared buffers.
        memory = ConversionMemory(self._memory.chunk_bytes) if self._is_compressed else self._memory
        with self._slice as log_slice:
            stored = SliceStretch(log_slice, memory)
            conversion = LazyConversion(
                StretchHead(stored, self._stored_bytes),
                self._to_magic,
                log_slice.start_offset,
                size=self.size,
                first_end=self._first_end,
                is_compressed=self._is_compressed,
                chunk_bytes=memory.chunk_bytes,
                limit_bytes=DEFAULT_LIMIT_BYTES,
                receipts=log_slice.receipts,
            )
            pieces = TimedPieces(conversion.pieces(memory.out))
            try:
                if self._is_compressed:
                    await _send_recompressed(pieces, stored, sink)
                else:
                    await _send_converted(pieces, stored, sink)
            finally:
                pieces.close()
                for cost in self._costs:
                    cost.add(conversion.converted_count, log_slice.size_bytes, pieces.cpu_ns)


class TimedPieces:
    """The pieces of a conversion, with the CPU time that making them has taken so far."""

    __slots__ = ("_pieces", "cpu_ns")

    def __init__(self, pieces: Generator[memoryview, None, None]) -> None:
        self._pieces = pieces
        self.cpu_ns = 0

    def __iter__(self) -> TimedPieces:
        return self

    def __next__(self) -> memoryview:
        began_ns = time.thread_time_ns()
        try:
            return next(self._pieces)
        finally:
            self.cpu_ns += time.thread_time_ns() - began_ns

    def close(self) -> None:
        """Give up the rest."""
        self._pieces.close()


def _timed_plan(stored: SliceStretch, to_magic: int, log_slice: LogSlice) -> tuple[LazyConversion, int]:
    began_ns = time.thread_time_ns()
    if to_magic == v2.MAGIC:
        conversion = plan_up_conversion(stored, log_slice.start_offset, receipts=log_slice.receipts)
    else:
        conversion = plan_down_conversion(stored, to_magic, log_slice.start_offset, receipts=log_slice.receipts)
    return conversion, time.thread_time_ns() - began_ns


async def _send_converted(pieces: TimedPieces, stored: SliceStretch, sink: Sink) -> None:
    for piece in pieces:
        await _send_piece(piece, stored, sink)


async def _send_recompressed(pieces: TimedPieces, stored: SliceStretch, sink: Sink) -> None:
    while (piece := await trio.to_thread.run_sync(next, pieces, None)) is not None:
        await _send_piece(piece, stored, sink)


async def _send_piece(piece: memoryview, stored: SliceStretch, sink: Sink) -> None:
    """Send a piece; of one that is a view of a large record, no more is copied than a slow client waits for."""
    if len(piece) <= SENT_BYTES:
        await sink.write_borrowed(piece, stored.give_back_pages)
        return
    for start in range(0, len(piece), SENT_BYTES):
        await sink.write_borrowed(piece[start : start + SENT_BYTES], stored.give_back_pages)


def must_convert(log_slice: LogSlice, to_magic: int, memory: ConversionMemory) -> bool:
    """Whether any batch of a slice that is not empty cannot go to readers of ``to_magic`` as it is stored."""
    if log_slice.magics >> (to_magic + 1) or (log_slice.receipts and to_magic > v0.MAGIC):
        return True
    if to_magic == v2.MAGIC and not log_slice.magics & LEGACY_MAGICS:
        return False
    return needs_conversion(SliceStretch(log_slice, memory), to_magic)
