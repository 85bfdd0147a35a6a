"""Parts that convert stored records while they are sent, for clients that do not read the format they are stored in.

The rules, sizes and chunks are those of `protocol.records.lazy`; here are the file, the memory and the waiting. An
answer of 250 partitions holds one mapped stretch and one chunk at a time: a plan keeps numbers only, the segment is
mapped anew when its turn to be sent comes, and pages that were read are given back before the next wait (they count as
this process's memory, though they are only the page cache).
"""

from __future__ import annotations

import mmap

import trio

from ..protocol.records.batches import read_batch
from ..protocol.records.compression import DEFAULT_LIMIT_BYTES
from ..protocol.records.lazy import (
    DEFAULT_CHUNK_BYTES,
    LazyConversion,
    needs_down_conversion,
    plan_down_conversion,
)
from ..storage.partition_log import LogSlice
from .parts import Sink

PLAN_IN_THREAD_BYTES = 32 * 1024
"""A first batch that is compressed and at least this large is converted in a worker thread to learn its size."""
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
    """Records of one partition in format v0 or v1 (KIP-283); `plan` promises their `size`, `send_to` converts."""

    __slots__ = ("_chunk_bytes", "_first_end", "_is_compressed", "_memory", "_slice", "_to_magic", "size")

    def __init__(self, log_slice: LogSlice, conversion: LazyConversion, memory: ConversionMemory) -> None:
        self._slice = log_slice
        self._memory = memory
        self._to_magic = conversion.to_magic
        self._first_end = conversion.first_end
        self._is_compressed = conversion.is_compressed
        self._chunk_bytes = memory.chunk_bytes
        self.size = conversion.size

    @classmethod
    async def plan(cls, log_slice: LogSlice, to_magic: int, memory: ConversionMemory) -> LazyDownConvertRecords:
        """Promise a size for a slice that is not empty, in format ``to_magic``.

        Takes the slice over. Raises BrokerError as `plan_down_conversion`.
        """
        with MappedSlice(log_slice) as mapped:
            stored = mapped.data
            first = read_batch(stored)
            is_long_work = first is not None and first.is_compressed and first.size_bytes >= PLAN_IN_THREAD_BYTES
            arguments = (stored, to_magic, log_slice.start_offset)
            if is_long_work:
                conversion = await trio.to_thread.run_sync(plan_down_conversion, *arguments)
            else:
                conversion = plan_down_conversion(*arguments)
            return cls(log_slice, conversion, memory)

    async def send_to(self, sink: Sink) -> None:
        with self._slice as log_slice, MappedSlice(log_slice) as mapped:
            conversion = LazyConversion(
                mapped.data,
                self._to_magic,
                log_slice.start_offset,
                size=self.size,
                first_end=self._first_end,
                is_compressed=self._is_compressed,
                chunk_bytes=self._chunk_bytes,
                limit_bytes=DEFAULT_LIMIT_BYTES,
            )
            if self._is_compressed:
                await _send_recompressed(conversion, mapped, sink, self._memory.chunk_bytes)
            else:
                await _send_converted(conversion, mapped, sink, self._memory.out)


async def _send_converted(conversion: LazyConversion, mapped: MappedSlice, sink: Sink, out: bytearray) -> None:
    read_bytes = 0
    for piece in conversion.pieces(out):
        read_bytes += len(piece)
        if read_bytes >= MAPPED_BYTES:
            mapped.give_back_pages()
            read_bytes = 0
        await sink.write_borrowed(piece, mapped.give_back_pages)


async def _send_recompressed(conversion: LazyConversion, mapped: MappedSlice, sink: Sink, chunk_bytes: int) -> None:
    """Compressing takes long: it happens in a worker thread, and so cannot write to the shared buffer."""
    pieces = conversion.pieces(bytearray(chunk_bytes))
    while (piece := await trio.to_thread.run_sync(next, pieces, None)) is not None:
        mapped.give_back_pages()
        await sink.write_borrowed(piece, mapped.give_back_pages)


def must_convert_down(log_slice: LogSlice, to_magic: int) -> bool:
    """Whether any batch of a slice cannot go to readers of ``to_magic`` (0 or 1) as it is stored."""
    if log_slice.magics >> (to_magic + 1):
        return True
    with MappedSlice(log_slice) as mapped:
        return needs_down_conversion(mapped.data, to_magic)
