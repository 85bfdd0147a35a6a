"""Parts of an answer that convert stored records while sending, for clients that do not read the stored format.

This module reads the segment for a conversion (`conversion/converted_sending.py`). A plan keeps only numbers. When it
is sent, the segment is read a chunk at a time into a buffer that conversions share, converted into another buffer, and
sent: an answer of 250 partitions holds no memory of its own, and the chunk stays in the processor's caches. (Reading
costs less than mapping, whose page faults take longer than the copy.)
"""

from __future__ import annotations

import itertools
import mmap
import os
from collections.abc import Callable, Sequence
from functools import partial

from ....protocol.records import v0, v2
from ....protocol.records.compression import DEFAULT_LIMIT_BYTES, Codec
from ....protocol.records.conversion_need import needs_conversion, readable_bytes
from ....protocol.records.lazy import LazyConversion
from ....protocol.records.padding import padding
from ....protocol.records.stretch import StretchHead
from ....storage.log.log_reading import cut_incomplete_batch
from ....storage.log.partition_log import LogSlice
from ...conversion.conversion_pool import NOBODY, ConversionMemory, ConversionPool
from ...conversion.converted_sending import PLAN_IN_THREAD_BYTES, ConvertedSending, convert_at_once, plan_conversion
from ...server.bulk_rows import BulkRows
from ...server.client_connection import ConversionCost
from ...server.parts import BulkPart, Sink

SMALL_BYTES = 8 * 1024
"""Most stored bytes of a partition that are converted while the answer is made."""
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


class LazyConvertRecords(BulkPart):
    """A part with one partition's records in another format (KIP-283); `plan` computes its `size`, `send_to` converts.

    It converts down to v0 or v1 as Kafka does, and also up to v2, since logs here keep the format of old producers.
    """

    __slots__ = (
        "_costs",
        "_first_end",
        "_is_compressed",
        "_opened_bytes",
        "_pool",
        "_rest",
        "_size_bytes",
        "_slice",
        "_stored_bytes",
        "_to_magic",
        "_zstd_codec",
    )

    def __init__(
        self,
        log_slice: LogSlice,
        pool: ConversionPool,
        to_magic: int,
        *,
        size_bytes: int,
        first_end: int,
        stored_bytes: int,
        is_compressed: bool = False,
        opened_bytes: int | None = None,
        zstd_codec: Codec | None = None,
    ) -> None:
        """Create a part of ``size_bytes`` for the first ``stored_bytes`` of a slice; see `LazyConversion`."""
        self._slice = log_slice
        self._pool = pool
        self._stored_bytes = stored_bytes
        self._to_magic = to_magic
        self._first_end = first_end
        self._is_compressed = is_compressed
        self._opened_bytes = opened_bytes
        self._zstd_codec = zstd_codec
        self._costs: Sequence[ConversionCost] = ()
        self._size_bytes = size_bytes
        self._rest = ConversionCost()
        """The cost of what threads have left to the connection's own task."""

    def charge(self, costs: Sequence[ConversionCost], cpu_ns: int) -> None:
        """Add the CPU time of the plan to ``costs``, and later the cost of the conversion."""
        self._costs = costs
        for cost in costs:
            cost.add(0, 0, cpu_ns)

    @property
    def size(self) -> int:
        return self._size_bytes

    @classmethod
    async def plan(
        cls,
        log_slice: LogSlice,
        to_magic: int,
        pool: ConversionPool,
        costs: Sequence[ConversionCost] = (),
        *,
        most_bytes: int | None = None,
        zstd_codec: Codec | None = None,
    ) -> LazyConvertRecords:
        """Return a part, with its size, for a slice that is not empty; add the CPU time to ``costs``.

        ``most_bytes`` limits the size; ``zstd_codec`` replaces zstd. The part becomes the owner of the slice.
        Raises BrokerError as `plan_down_conversion` and `plan_up_conversion`.
        """
        counted_bytes = log_slice.size_bytes
        if to_magic < v2.MAGIC:
            # An incomplete batch is not converted, and most of its bytes would become padding.
            cut_incomplete_batch(log_slice)
        conversion, cpu_ns = await plan_conversion(
            partial(SliceStretch, log_slice),
            to_magic,
            log_slice.start_offset,
            pool,
            receipts=log_slice.receipts,
            most_bytes=most_bytes,
            zstd_codec=zstd_codec,
            counted_bytes=counted_bytes,
        )
        part = cls(
            log_slice,
            pool,
            to_magic,
            size_bytes=conversion.size,
            first_end=conversion.first_end,
            stored_bytes=conversion.stored_bytes,
            is_compressed=conversion.is_compressed,
            opened_bytes=conversion.opened_bytes,
            zstd_codec=conversion.zstd_codec,
        )
        part.charge(costs, cpu_ns)
        return part

    async def send_to(self, sink: Sink) -> None:
        await self._send(sink, 0, self.size, self._costs, self._slice.release)

    async def _send(
        self, sink: Sink, begin: int, size_bytes: int, costs: Sequence[ConversionCost], release: Callable[[], None]
    ) -> None:
        stored = SliceStretch(self._slice, self._pool.shared)
        conversion = LazyConversion(
            StretchHead(stored, self._stored_bytes),
            self._to_magic,
            self._slice.start_offset,
            size=size_bytes,
            first_end=self._first_end,
            is_compressed=self._is_compressed,
            chunk_bytes=self._pool.chunk_bytes,
            limit_bytes=DEFAULT_LIMIT_BYTES,
            receipts=self._slice.receipts,
            opened_bytes=self._opened_bytes,
            zstd_codec=self._zstd_codec,
            begin=begin,
        )
        await ConvertedSending(stored, conversion, self._pool, costs, release).send_to(sink)

    def add_to(self, rows: BulkRows) -> bool:
        """Add the conversion as a row, if it is a down-conversion without receipt times that keeps its wrappers."""
        if self._to_magic == v2.MAGIC or self._opened_bytes is not None or self._slice.receipts:
            return False
        rows.add_conversion(
            self._slice.descriptor,
            self._slice.position,
            self._stored_bytes,
            self.size,
            self._first_end,
            self._to_magic,
            self._slice.start_offset,
            takes_long=self._is_compressed and self._first_end >= PLAN_IN_THREAD_BYTES,
        )
        return True

    async def send_rest(self, sink: Sink, stored_at: int, *, has_failed: bool) -> None:
        if has_failed:
            for piece in padding(sink.remaining_bytes):
                await sink.write(piece)
        else:
            await self._send(sink, stored_at, sink.remaining_bytes, [self._rest], _keep)

    def end(self, counted: tuple[int, int, int]) -> None:
        records, temporary_bytes, cpu_ns = counted
        rest = self._rest
        for cost in self._costs:
            cost.add(
                records + rest.record_count,
                self._stored_bytes,
                cpu_ns + rest.cpu_ns,
                temporary_bytes + rest.temporary_bytes,
            )
            cost.ended()
        self._slice.release()


def _keep() -> None:
    """Do nothing: the slice is released with the whole answer."""


def converted_small(
    log_slice: LogSlice,
    to_magic: int,
    pool: ConversionPool,
    costs: Sequence[ConversionCost],
    *,
    most_bytes: int | None = None,
    zstd_codec: Codec | None = None,
) -> bytes | None:
    """Return the records of a small slice that is not empty in format ``to_magic``, and release the slice.

    A consumer that waits for the next record so gets that record without a task of its connection.
    Returns None, with nothing done, if the slice has more than `SMALL_BYTES`, or if it needs `LazyConvertRecords`: its
    batches are compressed, incomplete or broken, or their records get the times of their receipt.
    Raises BrokerError as `LazyConvertRecords.plan`, and OSError.
    """
    if log_slice.size_bytes > SMALL_BYTES or log_slice.receipts:
        return None
    stored = log_slice.read()
    if len(stored) < log_slice.size_bytes:
        return None
    converted = convert_at_once(
        memoryview(stored),
        to_magic,
        log_slice.start_offset,
        pool,
        costs,
        most_bytes=most_bytes,
        zstd_codec=zstd_codec,
    )
    if converted is not None:
        log_slice.release()
    return converted


def must_convert(log_slice: LogSlice, to_magic: int, memory: ConversionMemory, *, reads_zstd: bool = True) -> bool:
    """Return whether any batch of a slice that is not empty must be converted for readers of ``to_magic``."""
    if log_slice.magics >> (to_magic + 1) or (log_slice.receipts and to_magic > v0.MAGIC):
        return True
    if to_magic == v2.MAGIC and reads_zstd and not log_slice.magics & LEGACY_MAGICS:
        return False
    return needs_conversion(SliceStretch(log_slice, memory), to_magic, reads_zstd=reads_zstd)


def keep_readable(log_slice: LogSlice, to_magic: int, memory: ConversionMemory) -> bool:
    """Cut a slice that is not empty before its first batch of a format newer than ``to_magic``.

    Returns whether any bytes are left. Raises OSError and EOFError as `SliceStretch.window`.
    """
    if log_slice.magics >> (to_magic + 1):
        log_slice.cut(readable_bytes(SliceStretch(log_slice, memory), to_magic))
    return log_slice.size_bytes > 0
