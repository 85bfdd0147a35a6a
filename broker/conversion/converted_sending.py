"""Conversions that are planned and sent: at first in the event loop's thread, in worker threads if they take long.

The rules, sizes and chunks are those of `protocol.records.lazy`, the memory is that of `conversion_pool`; this module
decides which thread converts, and waits for clients.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Protocol

from ...protocol.errors import BrokerError
from ...protocol.records import v0, v2
from ...protocol.records.batches import MAGIC_AT
from ...protocol.records.compression import DEFAULT_LIMIT_BYTES, Codec
from ...protocol.records.conversion_need import MUST_CONVERT
from ...protocol.records.conversion_output import ConversionOutput
from ...protocol.records.kernel_cy import survey
from ...protocol.records.lazy import (
    PLANNED_BYTES,
    TAKES_LONG,
    LazyConversion,
    Piece,
    RecompressionNeededError,
    plan_down_conversion,
    plan_up_conversion,
)
from ...protocol.records.receipts import NO_RECEIPTS, Receipts
from ...protocol.records.stretch import Stretch
from ..server.client_connection import ConversionCost
from ..server.parts import Sink
from ..server.worker_threads import run_in_worker
from .conversion_pool import ConversionMemory, ConversionPool, Lease

PLAN_IN_THREAD_BYTES = 32 * 1024
"""A compressed first batch of at least this size is converted in a worker thread to compute its converted size."""
INFLATED_HERE_BYTES = 256 * 1024
"""Largest decompressed size of a smaller first batch that is converted in the event loop's thread."""
SENT_BYTES = 256 * 1024
"""Bytes of a large record that are passed to the socket at a time."""


class StoredBatches(Stretch, Protocol):
    """A view of batches to convert, which may be read into a memory of the pool a window at a time."""

    memory: ConversionMemory
    """The memory into which windows are read; it may be replaced between two windows."""

    def give_back_pages(self) -> None:
        """Release memory that `window` can fill again."""


OpenBatches = Callable[[ConversionMemory], StoredBatches]
"""Opens a view of the batches to convert that reads into this memory."""


class ConvertedSending:
    """A conversion that is being sent: at first in the event loop's thread, then in worker threads if it takes long."""

    def __init__(
        self,
        stored: StoredBatches,
        conversion: LazyConversion,
        pool: ConversionPool,
        costs: Sequence[ConversionCost],
        release: Callable[[], None],
    ) -> None:
        """Create a sender; ``release`` is called once, when the stored batches are no longer used."""
        self._release = release
        self._stored = stored
        self._conversion = conversion
        self._limiter = pool.limiter
        self._costs = costs
        self._output = ConversionOutput(pool.shared.out, may_recompress=False)
        self._lease = Lease(pool, self._output)
        self._pieces = TimedPieces(conversion.pieces(self._output))
        self._is_in_thread = False

    async def send_to(self, sink: Sink) -> None:
        """Send all pieces, then release the batches; an abandoned worker thread releases them when it ends."""
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
            conversion = self._conversion
            cost.add(
                conversion.converted_count, self._stored.size_bytes, self._pieces.cpu_ns, conversion.temporary_bytes
            )
            cost.ended()
        self._release()


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
    open_batches: OpenBatches,
    to_magic: int,
    first_offset: int,
    pool: ConversionPool,
    *,
    receipts: Receipts = NO_RECEIPTS,
    most_bytes: int | None = None,
    zstd_codec: Codec | None = None,
    counted_bytes: int | None = None,
) -> tuple[LazyConversion, int]:
    """Return a planned conversion with its size, and the CPU time of planning in nanoseconds.

    With ``zstd_codec`` that codec replaces zstd, for clients that do not read it. ``counted_bytes`` is the size of the
    batches and of an incomplete batch that was cut off their end.
    A batch that must be decompressed for the plan is read in a worker thread, unless it is small in both forms.
    Raises BrokerError as `plan_down_conversion` and `plan_up_conversion`.
    """
    plan = partial(
        _timed_plan,
        to_magic=to_magic,
        first_offset=first_offset,
        receipts=receipts,
        most_bytes=most_bytes,
        zstd_codec=zstd_codec,
        counted_bytes=counted_bytes,
    )
    stored = open_batches(pool.shared)
    if not _begins_large_and_compressed(stored):
        # A batch that decompresses beyond the limit is refused here, and planned in the thread.
        with contextlib.suppress(RecompressionNeededError, BrokerError):
            return plan(stored, INFLATED_HERE_BYTES)
    del stored  # which may refer to a mapped file
    memory = await pool.take()
    give_back = partial(pool.put_back, memory)
    in_thread = open_batches(memory)
    try:
        planned = await run_in_worker(
            plan, in_thread, DEFAULT_LIMIT_BYTES, limiter=pool.limiter, if_abandoned=give_back
        )
    except Exception:
        give_back()
        raise
    give_back()
    return planned


def convert_at_once(
    stored: memoryview,
    to_magic: int,
    first_offset: int,
    pool: ConversionPool,
    costs: Sequence[ConversionCost],
    *,
    most_bytes: int | None = None,
    zstd_codec: Codec | None = None,
) -> bytes | None:
    """Return all of a few bytes of batches in another format, and add the conversion to ``costs``.

    The bytes are those that a planned conversion sends. Returns None, with nothing counted, if there is no complete
    batch, if one must be decompressed, or if bytes break their format: such conversions are planned.
    Raises BrokerError as `plan_down_conversion` and `plan_up_conversion`.
    """
    size_bytes = len(stored)
    end, work = survey(stored, 0, size_bytes, size_bytes, to_magic)
    if end == 0 or work & ~MUST_CONVERT or survey(stored, end, size_bytes, size_bytes, to_magic)[1]:
        return None
    complete = stored if to_magic == v2.MAGIC else stored[:end]
    conversion, cpu_ns = _timed_plan(
        complete,
        INFLATED_HERE_BYTES,
        to_magic=to_magic,
        first_offset=first_offset,
        receipts=NO_RECEIPTS,
        most_bytes=most_bytes,
        zstd_codec=zstd_codec,
        counted_bytes=size_bytes,
    )
    pieces = TimedPieces(conversion.pieces(ConversionOutput(pool.shared.out, may_recompress=False)))
    converted = b"".join([bytes(piece) for piece in pieces])
    for cost in costs:
        cost.add(conversion.converted_count, len(complete), cpu_ns + pieces.cpu_ns, conversion.temporary_bytes)
    return converted


def _begins_large_and_compressed(stored: StoredBatches) -> bool:
    """Return whether the first batch needs a worker thread, by its header: a waiting task must map nothing."""
    # The plan looks at the same window, which so is read once.
    head = stored.window(0, PLANNED_BYTES)
    if len(head) < v0.MIN_MESSAGE_SIZE:
        return False
    _, size = v0.OFFSET_AND_SIZE.unpack_from(head)
    attributes_at = v2.ATTRIBUTES_AT + 1 if head[MAGIC_AT] == v2.MAGIC else MAGIC_AT + 1
    is_compressed = len(head) > attributes_at and head[attributes_at] & v0.CODEC_MASK != 0
    return is_compressed and size >= PLAN_IN_THREAD_BYTES


def _timed_plan(
    stored: StoredBatches | memoryview,
    limit_bytes: int,
    *,
    to_magic: int,
    first_offset: int,
    receipts: Receipts,
    most_bytes: int | None,
    zstd_codec: Codec | None,
    counted_bytes: int | None,
) -> tuple[LazyConversion, int]:
    began_ns = time.thread_time_ns()
    if to_magic == v2.MAGIC:
        may_recompress = limit_bytes > INFLATED_HERE_BYTES
        conversion = plan_up_conversion(
            stored,
            first_offset,
            receipts=receipts,
            limit_bytes=limit_bytes,
            may_recompress=may_recompress,
            zstd_codec=zstd_codec,
        )
    else:
        conversion = plan_down_conversion(
            stored,
            to_magic,
            first_offset,
            receipts=receipts,
            limit_bytes=limit_bytes,
            most_bytes=most_bytes,
            zstd_codec=zstd_codec,
            pads_less=True,
            counted_bytes=counted_bytes,
        )
    return conversion, time.thread_time_ns() - began_ns


async def _send_piece(piece: Piece, sink: Sink, before_wait: Callable[[], None]) -> None:
    """Send a piece, in parts if it is large, so that a slow client holds a copy of one part only."""
    if len(piece) <= SENT_BYTES:
        await sink.write_borrowed(piece, before_wait)
        return
    for start in range(0, len(piece), SENT_BYTES):
        await sink.write_borrowed(piece[start : start + SENT_BYTES], before_wait)
