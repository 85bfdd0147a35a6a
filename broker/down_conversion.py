"""Parts that convert stored records while they are sent, for clients that do not read the format they are stored in.

The rules, sizes and chunks are those of `protocol.records.lazy`; here are the file, the memory and the waiting. An
answer of 250 partitions holds one mapped stretch and one chunk at a time: a plan keeps numbers only, the segment is
mapped anew when its turn to be sent comes, and pages that were read are given back before the next wait (they count as
this process's memory, though they are only the page cache).
"""

from __future__ import annotations

import mmap
import time
from collections.abc import Generator, Sequence

import trio

from ..protocol.records import v2
from ..protocol.records.batches import read_batch
from ..protocol.records.compression import DEFAULT_LIMIT_BYTES
from ..protocol.records.lazy import (
    DEFAULT_CHUNK_BYTES,
    LazyConversion,
    needs_down_conversion,
    needs_up_conversion,
    plan_down_conversion,
    plan_up_conversion,
)
from ..storage.partition_log import LogSlice
from .parts import Sink
from .requests import ConversionCost

PLAN_IN_THREAD_BYTES = 32 * 1024
"""Compressed batches of at least this many bytes are converted in a worker thread to learn their size."""
LEGACY_MAGICS = 0b011
"""Bits of `LogSlice.magics` for formats v0 and v1."""
MAPPED_BYTES = 1 << 20
"""About so much of a segment stays mapped while a fast client is served; for a slow one it is nothing."""


class ConversionMemory:
    """The one buffer that all conversions of a broker write to, a chunk at a time, between two waits."""

    __slots__ = ("chunk_bytes", "out")

    def __init__(self, chunk_bytes: int = DEFAULT_CHUNK_BYTES) -> None:
        self.chunk_bytes = chunk_bytes
        # Small records grow when they are converted down; with room for twice the chunk most stay one piece.
        self.out = bytearray(2 * chunk_bytes)


class MappedSlice:
    """A slice's bytes in memory, to be used as a context manager; outside of it no page is held."""

    __slots__ = ("_map", "data")

    def __init__(self, log_slice: LogSlice) -> None:
        begin = log_slice.position - log_slice.position % mmap.ALLOCATIONGRANULARITY
        end = log_slice.position + log_slice.size_bytes
        self._map = mmap.mmap(log_slice.descriptor, end - begin, access=mmap.ACCESS_READ, offset=begin)
        self.data = memoryview(self._map)[log_slice.position - begin :]

    def __enter__(self) -> MappedSlice:
        return self

    def __exit__(self, *_: object) -> None:
        # Views that a conversion still holds keep the map alive; it goes with the last of them.
        del self.data, self._map

    def give_back_pages(self) -> None:
        """Unmap what was read so far; reading it again brings it back from the page cache."""
        self._map.madvise(mmap.MADV_DONTNEED)


class LazyDownConvertRecords:
    """Records of one partition in another format (KIP-283); `plan` promises their `size`, `send_to` converts.

    Down to v0 or v1 as in Kafka, and by the same means up to v2, since logs here hold what old producers wrote.
    """

    __slots__ = (
        "_chunk_bytes",
        "_costs",
        "_first_end",
        "_is_compressed",
        "_memory",
        "_slice",
        "_stored_bytes",
        "_to_magic",
        "size",
    )

    def __init__(
        self,
        log_slice: LogSlice,
        conversion: LazyConversion,
        memory: ConversionMemory,
        costs: Sequence[ConversionCost] = (),
    ) -> None:
        self._slice = log_slice
        self._memory = memory
        self._to_magic = conversion.to_magic
        self._stored_bytes = conversion.stored_bytes
        self._first_end = conversion.first_end
        self._is_compressed = conversion.is_compressed
        self._chunk_bytes = memory.chunk_bytes
        self._costs = costs
        self.size = conversion.size

    @classmethod
    async def plan(
        cls, log_slice: LogSlice, to_magic: int, memory: ConversionMemory, costs: Sequence[ConversionCost] = ()
    ) -> LazyDownConvertRecords:
        """Promise a size for a slice that is not empty, in format ``to_magic``; ``costs`` are told what it takes.

        Takes the slice over. Raises BrokerError as `plan_down_conversion` and `plan_up_conversion`.
        """
        with MappedSlice(log_slice) as mapped:
            stored = mapped.data
            first = read_batch(stored)
            looked_at = len(stored) if first is None or to_magic == v2.MAGIC else first.size_bytes
            is_long_work = first is not None and first.is_compressed and looked_at >= PLAN_IN_THREAD_BYTES
            arguments = (stored, to_magic, log_slice.start_offset)
            if is_long_work:
                conversion, cpu_ns = await trio.to_thread.run_sync(_timed_plan, *arguments)
            else:
                conversion, cpu_ns = _timed_plan(*arguments)
            for cost in costs:
                cost.add(0, 0, cpu_ns)
            return cls(log_slice, conversion, memory, costs)

    async def send_to(self, sink: Sink) -> None:
        with self._slice as log_slice, MappedSlice(log_slice) as mapped:
            conversion = LazyConversion(
                mapped.data[: self._stored_bytes],
                self._to_magic,
                log_slice.start_offset,
                size=self.size,
                first_end=self._first_end,
                is_compressed=self._is_compressed,
                chunk_bytes=self._chunk_bytes,
                limit_bytes=DEFAULT_LIMIT_BYTES,
            )
            # Compressing takes long: it happens in a worker thread, and so cannot write to the shared buffer.
            out = bytearray(self._chunk_bytes) if self._is_compressed else self._memory.out
            pieces = TimedPieces(conversion.pieces(out))
            try:
                if self._is_compressed:
                    await _send_recompressed(pieces, mapped, sink)
                else:
                    await _send_converted(pieces, mapped, sink)
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


def _timed_plan(stored: memoryview, to_magic: int, start_offset: int) -> tuple[LazyConversion, int]:
    began_ns = time.thread_time_ns()
    if to_magic == v2.MAGIC:
        conversion = plan_up_conversion(stored, start_offset)
    else:
        conversion = plan_down_conversion(stored, to_magic, start_offset)
    return conversion, time.thread_time_ns() - began_ns


async def _send_converted(pieces: TimedPieces, mapped: MappedSlice, sink: Sink) -> None:
    read_bytes = 0
    for piece in pieces:
        read_bytes += len(piece)
        if read_bytes >= MAPPED_BYTES:
            mapped.give_back_pages()
            read_bytes = 0
        await sink.write_borrowed(piece, mapped.give_back_pages)


async def _send_recompressed(pieces: TimedPieces, mapped: MappedSlice, sink: Sink) -> None:
    while (piece := await trio.to_thread.run_sync(next, pieces, None)) is not None:
        mapped.give_back_pages()
        await sink.write_borrowed(piece, mapped.give_back_pages)


def must_convert(log_slice: LogSlice, to_magic: int) -> bool:
    """Whether any batch of a slice that is not empty cannot go to readers of ``to_magic`` as it is stored."""
    if log_slice.magics >> (to_magic + 1):
        return True
    if to_magic == v2.MAGIC and not log_slice.magics & LEGACY_MAGICS:
        return False
    with MappedSlice(log_slice) as mapped:
        if to_magic == v2.MAGIC:
            return needs_up_conversion(mapped.data)
        return needs_down_conversion(mapped.data, to_magic)
