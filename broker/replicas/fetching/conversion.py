"""Parts of an answer that convert stored records while sending, for clients that do not read the stored format.

The rules, sizes and chunks are those of `protocol.records.lazy`, the memory is that of `conversion_pool`; this module
reads the file and waits for clients. A plan keeps only numbers. When it is sent, the segment is read a chunk at a time
into a buffer that conversions share, converted into another buffer, and sent: an answer of 250 partitions holds no
memory of its own, and the chunk stays in the processor's caches. (Reading costs less than mapping, whose page faults
take longer than the copy.)
"""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import time
from collections.abc import Callable, Generator, Sequence
from functools import partial

from ....protocol.errors import BrokerError
from ....protocol.records import v0, v2
from ....protocol.records.batches import MAGIC_AT
from ....protocol.records.compression import DEFAULT_LIMIT_BYTES
from ....protocol.records.conversion_need import needs_conversion, readable_bytes
from ....protocol.records.conversion_output import ConversionOutput
from ....protocol.records.lazy import (
    TAKES_LONG,
    LazyConversion,
    Piece,
    RecompressionNeededError,
    plan_down_conversion,
    plan_up_conversion,
)
from ....protocol.records.stretch import StretchHead
from ....storage.log.partition_log import LogSlice
from ...server.client_connection import ConversionCost
from ...server.parts import Sink
from ...server.worker_threads import run_in_worker
from .conversion_pool import NOBODY, ConversionMemory, ConversionPool, Lease

PLAN_IN_THREAD_BYTES = 32 * 1024
"""A compressed first batch of at least this size is converted in a worker thread to compute its converted size."""
INFLATED_HERE_BYTES = 256 * 1024
"""Largest decompressed size of a smaller first batch that is converted in the event loop's thread."""
SENT_BYTES = 256 * 1024
"""Bytes of a large record that are passed to the socket at a time."""
LEGACY_MAGICS = 0b011
"""Bits of `LogSlice.magics` for formats v0 and v1."""


_stretch_numbers = itertools.count(NOBODY + 1)
"""A memory identifies the stretch whose bytes it holds by number: an object reference would make a cycle."""


class SliceStretch:
    """A view of a slice's bytes, a window at a time (a `Stretch`), read into a memory that others may use in between.

    Windows above the chunk size, for large batches, are mapped for this conversion alone: pieces of large records are
    views of the mapping, which must last until they are sent.
    """

    __slots__ = ("_descriptor", "_map", "_mapped_at", "_number", "_start", "memory", "size_bytes")

    def __init__(self, log_slice: LogSlice, memory: ConversionMemory) -> None:
        self._number = next(_stretch_numbers)
        self._descriptor = log_slice.descriptor
        self._start = log_slice.position
        self.memory = memory
        """The memory into which windows are read; it may be replaced between two windows."""
        self._map: mmap.mmap | None = None
        self._mapped_at = (0, 0)
        self.size_bytes = log_slice.size_bytes

    def window(self, position: int, size_bytes: int) -> memoryview:
        """Return a window of the slice as `Stretch.window` does.

        Raises OSError, and EOFError if the file is shorter than the slice.
        """
        size_bytes = min(size_bytes, self.size_bytes - position)
        memory = self.memory
        if size_bytes > memory.chunk_bytes:
            return self._mapped(position, size_bytes)
        self._map = None
        window = memory.stored[:size_bytes]
        if memory.holder != self._number or memory.position != position or memory.size_bytes < size_bytes:
            memory.holder = NOBODY
            if os.preadv(self._descriptor, [window], self._start + position) < size_bytes:
                raise EOFError(f"a segment ends before {self._start + position + size_bytes}")
            memory.holder, memory.position, memory.size_bytes = self._number, position, size_bytes
        return window

    def give_back_pages(self) -> None:
        """Release the pages of a mapped window; another access reads them from the page cache again."""
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
    """A part with one partition's records in another format (KIP-283); `plan` computes its `size`, `send_to` converts.

    It converts down to v0 or v1 as Kafka does, and also up to v2, since logs here keep the format of old producers.
    """

    __slots__ = (
        "_costs",
        "_first_end",
        "_is_compressed",
        "_opened_bytes",
        "_pool",
        "_slice",
        "_stored_bytes",
        "_to_magic",
        "size",
    )

    def __init__(
        self,
        log_slice: LogSlice,
        conversion: LazyConversion,
        pool: ConversionPool,
        costs: Sequence[ConversionCost] = (),
    ) -> None:
        self._slice = log_slice
        self._pool = pool
        self._stored_bytes = conversion.stored_bytes
        self._to_magic = conversion.to_magic
        self._first_end = conversion.first_end
        self._is_compressed = conversion.is_compressed
        self._opened_bytes = conversion.opened_bytes
        self._costs = costs
        self.size = conversion.size

    @classmethod
    async def plan(
        cls,
        log_slice: LogSlice,
        to_magic: int,
        pool: ConversionPool,
        costs: Sequence[ConversionCost] = (),
        *,
        most_bytes: int | None = None,
    ) -> LazyConvertRecords:
        """Return a part for a slice that is not empty, with its size in format ``to_magic``; add the CPU time to
        ``costs``.

        ``most_bytes`` limits the size. The part becomes the owner of the slice.
        Raises BrokerError as `plan_down_conversion` and `plan_up_conversion`.
        """
        conversion, cpu_ns = await plan_conversion(log_slice, to_magic, pool, most_bytes)
        for cost in costs:
            cost.add(0, 0, cpu_ns)
        return cls(log_slice, conversion, pool, costs)

    async def send_to(self, sink: Sink) -> None:
        stored = SliceStretch(self._slice, self._pool.shared)
        conversion = LazyConversion(
            StretchHead(stored, self._stored_bytes),
            self._to_magic,
            self._slice.start_offset,
            size=self.size,
            first_end=self._first_end,
            is_compressed=self._is_compressed,
            chunk_bytes=self._pool.chunk_bytes,
            limit_bytes=DEFAULT_LIMIT_BYTES,
            receipts=self._slice.receipts,
            opened_bytes=self._opened_bytes,
        )
        await ConvertedSending(self._slice, stored, conversion, self._pool, self._costs).send_to(sink)


class ConvertedSending:
    """A conversion that is being sent: at first in the event loop's thread, then in worker threads if it takes long."""

    def __init__(
        self,
        log_slice: LogSlice,
        stored: SliceStretch,
        conversion: LazyConversion,
        pool: ConversionPool,
        costs: Sequence[ConversionCost],
    ) -> None:
        self._slice = log_slice
        self._stored = stored
        self._conversion = conversion
        self._limiter = pool.limiter
        self._costs = costs
        self._output = ConversionOutput(pool.shared.out, may_recompress=False)
        self._lease = Lease(pool, self._output)
        self._pieces = TimedPieces(conversion.pieces(self._output))
        self._is_in_thread = False

    async def send_to(self, sink: Sink) -> None:
        """Send all pieces, then release the slice; an abandoned worker thread releases it when it ends."""
        try:
            if self._conversion.is_compressed or not await self._convert_here(sink):
                await self._convert_in_threads(sink)
        finally:
            if not self._is_in_thread:
                self._end()

    async def _convert_here(self, sink: Sink) -> bool:
        """Send the pieces that convert quickly; return whether these were all."""
        for piece in self._pieces:
            if piece is TAKES_LONG:
                return False
            await _send_piece(piece, sink, self._stored.give_back_pages)
        return True

    async def _convert_in_threads(self, sink: Sink) -> None:
        self._output.may_recompress = True
        while True:
            self._stored.memory = await self._lease.hold()
            piece = await self._next_piece()
            if piece is None:
                return
            if isinstance(piece, bytes):
                self._before_wait()
                await sink.write(piece)
            else:
                await _send_piece(piece, sink, self._before_wait)
            del piece

    async def _next_piece(self) -> Piece | None:
        self._is_in_thread = True
        try:
            piece = await run_in_worker(next, self._pieces, None, limiter=self._limiter, if_abandoned=self._end)
        except Exception:
            self._is_in_thread = False
            raise
        self._is_in_thread = False
        return piece

    def _before_wait(self) -> None:
        """Release memory that this conversion can read or compute again."""
        self._stored.give_back_pages()
        self._lease.lend()

    def _end(self) -> None:
        self._pieces.close()
        self._lease.release()
        for cost in self._costs:
            cost.add(self._conversion.converted_count, self._slice.size_bytes, self._pieces.cpu_ns)
        self._slice.release()


class TimedPieces:
    """An iterator over the pieces of a conversion that measures their CPU time."""

    __slots__ = ("_pieces", "cpu_ns")

    def __init__(self, pieces: Generator[Piece, None, None]) -> None:
        self._pieces = pieces
        self.cpu_ns = 0

    def __iter__(self) -> TimedPieces:
        return self

    def __next__(self) -> Piece:
        began_ns = time.thread_time_ns()
        try:
            return next(self._pieces)
        finally:
            self.cpu_ns += time.thread_time_ns() - began_ns

    def close(self) -> None:
        """Discard the remaining pieces."""
        self._pieces.close()


async def plan_conversion(
    log_slice: LogSlice, to_magic: int, pool: ConversionPool, most_bytes: int | None
) -> tuple[LazyConversion, int]:
    """Return a planned conversion with its size, and the CPU time of planning in nanoseconds.

    A batch that must be decompressed for the plan is read in a worker thread, unless it is small in both forms.
    Raises BrokerError as `plan_down_conversion` and `plan_up_conversion`.
    """
    stored = SliceStretch(log_slice, pool.shared)
    if not _begins_large_and_compressed(stored):
        # A batch that decompresses beyond the limit is refused here, and planned in the thread.
        with contextlib.suppress(RecompressionNeededError, BrokerError):
            return _timed_plan(stored, to_magic, log_slice, INFLATED_HERE_BYTES, most_bytes)
    del stored  # and what it may have mapped
    memory = await pool.take()
    give_back = partial(pool.put_back, memory)
    in_thread = SliceStretch(log_slice, memory)
    try:
        planned = await run_in_worker(
            _timed_plan,
            in_thread,
            to_magic,
            log_slice,
            DEFAULT_LIMIT_BYTES,
            most_bytes,
            limiter=pool.limiter,
            if_abandoned=give_back,
        )
    except Exception:
        give_back()
        raise
    give_back()
    return planned


def _begins_large_and_compressed(stored: SliceStretch) -> bool:
    """Return whether the first batch needs a worker thread, by its header: a waiting task must map nothing."""
    head = stored.window(0, v2.HEADER_SIZE)
    if len(head) < v0.MIN_MESSAGE_SIZE:
        return False
    _, size = v0.OFFSET_AND_SIZE.unpack_from(head)
    attributes_at = v2.ATTRIBUTES_AT + 1 if head[MAGIC_AT] == v2.MAGIC else MAGIC_AT + 1
    is_compressed = len(head) > attributes_at and head[attributes_at] & v0.CODEC_MASK != 0
    return is_compressed and size >= PLAN_IN_THREAD_BYTES


def _timed_plan(
    stored: SliceStretch, to_magic: int, log_slice: LogSlice, limit_bytes: int, most_bytes: int | None
) -> tuple[LazyConversion, int]:
    began_ns = time.thread_time_ns()
    first_offset, receipts = log_slice.start_offset, log_slice.receipts
    if to_magic == v2.MAGIC:
        may_recompress = limit_bytes > INFLATED_HERE_BYTES
        conversion = plan_up_conversion(
            stored, first_offset, receipts=receipts, limit_bytes=limit_bytes, may_recompress=may_recompress
        )
    else:
        conversion = plan_down_conversion(
            stored, to_magic, first_offset, receipts=receipts, limit_bytes=limit_bytes, most_bytes=most_bytes
        )
    return conversion, time.thread_time_ns() - began_ns


async def _send_piece(piece: Piece, sink: Sink, before_wait: Callable[[], None]) -> None:
    """Send a piece, in parts if it is large, so that a slow client holds a copy of one part only."""
    if len(piece) <= SENT_BYTES:
        await sink.write_borrowed(piece, before_wait)
        return
    for start in range(0, len(piece), SENT_BYTES):
        await sink.write_borrowed(piece[start : start + SENT_BYTES], before_wait)


def must_convert(log_slice: LogSlice, to_magic: int, memory: ConversionMemory) -> bool:
    """Return whether any batch of a slice that is not empty must be converted for readers of ``to_magic``."""
    if log_slice.magics >> (to_magic + 1) or (log_slice.receipts and to_magic > v0.MAGIC):
        return True
    if to_magic == v2.MAGIC and not log_slice.magics & LEGACY_MAGICS:
        return False
    return needs_conversion(SliceStretch(log_slice, memory), to_magic)


def keep_readable(log_slice: LogSlice, to_magic: int, memory: ConversionMemory) -> bool:
    """Cut a slice that is not empty before its first batch of a format newer than ``to_magic``.

    Returns whether any bytes are left. Raises OSError and EOFError as `SliceStretch.window`.
    """
    if log_slice.magics >> (to_magic + 1):
        log_slice.cut(readable_bytes(SliceStretch(log_slice, memory), to_magic))
    return log_slice.size_bytes > 0
