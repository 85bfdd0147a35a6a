"""The plan and the bytes of `LazyConvertRecords` (KIP-283): first a promised size, later the bytes, chunk by chunk.

A Fetch response begins with its length, before any batch is converted. So `plan_down_conversion` promises

    Spre = max(size as stored, size of the first batch that gives messages, converted)

and `LazyConversion.pieces` delivers exactly so many bytes. (With `pads_less` the size as stored is replaced by a closer
one where it is too large: see ``promised_size``.) The cases by name (the tests use the same names):

    A  equal       the converted bytes are Spre bytes.
    B  trim        there are more: they are cut at Spre, perhaps inside a message, which every client ignores.
    C  pad         there are fewer: over-long fake batches fill the rest. Their length points beyond the response, so
                   that clients treat them as an incomplete batch.
    D  grow        the first batch alone is more than was stored: Spre is its converted size, so that a client always
                   gets at least one batch (KIP-74).
    E  nothing     no batch gives a message (control batches, empty ones, all below the first offset): Spre is 12,
                   the head of a fake batch.
    F  empty       there is no complete batch: Spre is 0.
    G  zstd first  before anything else: the plan fails, the partition answers UNSUPPORTED_COMPRESSION_TYPE; with
                   `zstd_codec` that codec replaces zstd, also for readers of v2 without zstd (Fetch v4 to v9).
    H  zstd later  its chunk is not sent, padding follows (C); the client fetches again from there, which is G.
    I  bad first   as G, with CORRUPT_MESSAGE.
    J  bad later   the batches before the bad bytes are sent, padding follows.
    L  limit       Fetch v0 to v2 has a limit that also the first batch must keep. If that batch is larger as stored,
                   Spre is the limit, and the messages are cut there as in B. A wrapper that would exceed the limit is
                   omitted: its messages are sent one by one, from the requested offset.
    K  exact       up-conversion: Spre is the exact converted size, as clients of v2 know neither cuts nor fake batches.

The first chunk is that first batch; each other chunk is as many complete batches as fit into the chunk size, at least
one. The stored bytes may be in a file: they are read one chunk at a time (see ``stretch``), and no copy is kept. A
conversion has one buffer from its caller, and one batch while that is decompressed.

Two faults of Kafka's sender are not copied: it sends the first batch twice after batches without messages, and fails on
the padding after zstd. Sources: Kafka `LazyDownConversionRecords`, `LazyDownConversionRecordsSend`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import TypeAlias

from ..errors import BrokerError
from . import kernel_cy, up_kernel_cy, v0, v2
from .batches import complete_batch_at
from .compression import DEFAULT_LIMIT_BYTES, Codec
from .conversion_output import ConversionOutput
from .conversion_tally import Tally
from .convert import (
    MERGED_BATCH_BYTES,
    Converted,
    conversion_error,
    convert_with_codec,
    messages_of,
    structure_error,
    zstd_error,
)
from .kernel_cy import Stop
from .large_message import large_batch, large_message
from .padding import NOTHING_SIZE, padding
from .promised_size import promised_size
from .receipts import NO_RECEIPTS, Receipts
from .stretch import Stretch, StretchHead, as_stretch, window_with_batch

Conversion: TypeAlias = kernel_cy.DownConversion | up_kernel_cy.UpConversion
Piece: TypeAlias = memoryview | bytes

DEFAULT_CHUNK_BYTES = 128 * 1024
"""The default of gregor.message.downconversion.chunk.bytes; Kafka's `MAX_READ_SIZE`, the best size in KIP-283."""
PLANNED_BYTES = 24 * 1024
"""The number of bytes read at a time in the search for the first batch with messages: a little more than the default
batch.size, so that one read is enough."""

TAKES_LONG = b""
"""The piece before a recompression, if `ConversionOutput.may_recompress` is False."""


class RecompressionNeededError(Exception):
    """A plan that requires decompressing batches, which its caller did not allow."""


class LazyConversion:
    """One partition's part of a Fetch response: `size` bytes are promised, and `pieces` yields exactly so many.

    `is_compressed`: the first chunk has to be recompressed, so a piece may take milliseconds.
    """

    __slots__ = (
        "_begin",
        "_chunk_bytes",
        "_first_offset",
        "_limit_bytes",
        "_receipts",
        "_stored",
        "_tally",
        "first_end",
        "growth",
        "is_compressed",
        "opened_bytes",
        "size",
        "to_magic",
        "zstd_codec",
    )

    def __init__(
        self,
        stored: Stretch,
        to_magic: int,
        first_offset: int,
        *,
        size: int,
        first_end: int,
        is_compressed: bool,
        chunk_bytes: int,
        limit_bytes: int,
        receipts: Receipts = NO_RECEIPTS,
        opened_bytes: int | None = None,
        zstd_codec: Codec | None = None,
        growth: float = 1.0,
        begin: int = 0,
    ) -> None:
        self._begin = begin
        """The position of the first batch to convert: another conversion has sent the batches before it."""
        self.zstd_codec = zstd_codec
        """The codec that replaces zstd; None if zstd is refused."""
        self.growth = growth
        """The size of the first chunk's messages relative to the stored batches."""
        self._stored = stored
        self.opened_bytes = opened_bytes
        """The size of the first batch's messages if they are sent one by one, since their wrapper exceeds the limit."""
        self._receipts = receipts
        self._first_offset = first_offset
        self.first_end = first_end
        self._chunk_bytes = chunk_bytes
        self._limit_bytes = limit_bytes
        self.to_magic = to_magic
        self.size = size
        self.is_compressed = is_compressed
        self._tally = Tally()

    @property
    def stored_bytes(self) -> int:
        """Return the number of stored bytes, from the beginning, that the promised size covers."""
        return self._stored.size_bytes

    @property
    def converted_count(self) -> int:
        """Return the number of converted records, once `pieces` has ended or was closed."""
        return self._tally.record_count

    @property
    def temporary_bytes(self) -> int:
        """Return the bytes that were in memory, once `pieces` has ended or was closed."""
        return self._tally.temporary_bytes

    def pieces(self, out: bytearray | memoryview | ConversionOutput) -> Generator[Piece, None, None]:
        """Yield the promised bytes in order. A piece is valid until the next request, as most are views of `out`.

        `out` may have any size of at least one byte: a larger message is sent from the stored bytes. Pieces of a
        recompressed batch that is larger than `out` are copies, which remain valid. A piece `TAKES_LONG` requests a
        worker thread, in which `ConversionOutput.may_recompress` may be set. Errors after the first batch lead to
        padding (H, J) and are not raised.
        """
        remaining = self.size
        output = out if isinstance(out, ConversionOutput) else ConversionOutput(out)
        try:
            for piece in self._converted(output):
                if len(piece) >= remaining:
                    yield piece[:remaining]
                    return
                yield piece
                remaining -= len(piece)
        except BrokerError:
            # The client fetches again from the end of the bytes; then this batch is the first one: G or I.
            pass
        yield from padding(remaining)

    def _converted(self, output: ConversionOutput) -> Iterator[Piece]:
        return converted_chunks(
            self._stored,
            self.to_magic,
            self._first_offset,
            output,
            first_end=self.first_end,
            chunk_bytes=self._chunk_bytes,
            limit_bytes=self._limit_bytes,
            receipts=self._receipts,
            tally=self._tally,
            opened_bytes=self.opened_bytes,
            zstd_codec=self.zstd_codec,
            begin=self._begin,
        )


def plan_down_conversion(
    stored: memoryview | Stretch,
    to_magic: int,
    first_offset: int,
    *,
    chunk_bytes: int = DEFAULT_CHUNK_BYTES,
    limit_bytes: int = DEFAULT_LIMIT_BYTES,
    receipts: Receipts = NO_RECEIPTS,
    most_bytes: int | None = None,
    zstd_codec: Codec | None = None,
    pads_less: bool = False,
    counted_bytes: int | None = None,
) -> LazyConversion:
    """Plan the conversion of `stored` to format `to_magic` (0 or 1); only the last batch of `stored` may be incomplete.

    Reads only up to the first batch that gives messages, and converts that batch only if it is compressed. At most
    `most_bytes` are promised, if given (L). With `pads_less` it also measures uncompressed batches. `counted_bytes` is
    the size of `stored` and of an incomplete batch that was cut off its end.
    Raises BrokerError: UNSUPPORTED_COMPRESSION_TYPE (G); CORRUPT_MESSAGE, UNKNOWN_SERVER_ERROR (I).
    """
    stretch = as_stretch(stored)
    position = first_size = passed_size = 0
    is_compressed = False
    opened_bytes: int | None = None
    while first_size == 0:
        window = window_with_batch(stretch, position, PLANNED_BYTES)
        conversion = _begin(to_magic, first_offset)
        conversion.receipt_ms = receipts.at(position)
        first_size = conversion.measure_batch(window, len(window))
        if conversion.stop in (Stop.CORRUPT, Stop.BAD_TIMESTAMP):
            raise conversion_error(conversion)
        if conversion.stop == Stop.NEEDS_CODEC:
            is_compressed = True
            receipt_ms = receipts.at(position + conversion.position)
            first = complete_batch_at(window, conversion.position)
            first_size, last_offset = _converted_with_codec(conversion, window, limit_bytes, receipt_ms, zstd_codec)
            if first.magic == v2.MAGIC and last_offset < first_offset <= first.last_offset:
                # Compaction has removed the records from the first offset on; a client needs the next batch too.
                passed_size, first_size = first_size, 0
            elif first.magic == v2.MAGIC and most_bytes is not None and passed_size + first_size > most_bytes:
                opened = messages_of(first, to_magic, first_offset, most_bytes, limit_bytes=limit_bytes)
                opened_bytes = first_size = len(opened.data)
                passed_size = 0
        if conversion.position == 0:
            break
        position += conversion.position
    if first_size:
        first_size += passed_size
    size_of_nothing = NOTHING_SIZE if position > 0 else 0
    counted_bytes = counted_bytes or stretch.size_bytes
    size = max(counted_bytes, first_size) if first_size else size_of_nothing
    if first_size and pads_less and not receipts:
        size = promised_size(stretch, counted_bytes, to_magic, first_offset, position, first_size)
    return LazyConversion(
        stretch,
        to_magic,
        first_offset,
        size=size if most_bytes is None else min(size, most_bytes),
        first_end=position if first_size else 0,
        is_compressed=is_compressed,
        chunk_bytes=chunk_bytes,
        limit_bytes=limit_bytes,
        receipts=receipts,
        opened_bytes=opened_bytes,
        zstd_codec=zstd_codec,
        growth=first_size / position if first_size else 1.0,
    )


def plan_up_conversion(
    stored: memoryview | Stretch,
    first_offset: int,
    *,
    chunk_bytes: int = DEFAULT_CHUNK_BYTES,
    limit_bytes: int = DEFAULT_LIMIT_BYTES,
    receipts: Receipts = NO_RECEIPTS,
    may_recompress: bool = True,
    zstd_codec: Codec | None = None,
) -> LazyConversion:
    """Plan the conversion of `stored` to format v2, for clients that read no other format, with the exact size (K).

    With `zstd_codec` that codec replaces zstd; without it batches of zstd are copied.

    No broker sends fake batches to such clients, so nothing is padded or cut. All of `stored` is measured, but only up
    to the end of the first chunk with compressed batches: the client fetches the rest later. Raises BrokerError
    CORRUPT_MESSAGE (I), and RecompressionNeededError unless `may_recompress`.
    """
    stretch = as_stretch(stored)
    position = first_end = size_bytes = 0
    is_compressed = False
    try:
        while not is_compressed and (size_of_chunk := _chunk_size(stretch, position, chunk_bytes, v2.MAGIC)):
            begin = position
            for conversion, converted_bytes in _measured_batches(
                stretch.window(begin, size_of_chunk),
                begin,
                first_offset,
                limit_bytes,
                receipts,
                zstd_codec,
                may_recompress=may_recompress,
            ):
                size_bytes += converted_bytes
                position = begin + conversion.position
                is_compressed = is_compressed or conversion.stop == Stop.NEEDS_CODEC
            first_end = first_end or position
    except BrokerError:
        if size_bytes == 0:
            raise
    return LazyConversion(
        StretchHead(stretch, position),
        v2.MAGIC,
        first_offset,
        size=size_bytes,
        first_end=(first_end or position) if size_bytes else 0,
        is_compressed=is_compressed,
        chunk_bytes=chunk_bytes,
        limit_bytes=limit_bytes,
        receipts=receipts,
        zstd_codec=zstd_codec,
    )


def _measured_batches(
    window: memoryview,
    begin: int,
    first_offset: int,
    limit_bytes: int,
    receipts: Receipts,
    zstd_codec: Codec | None,
    *,
    may_recompress: bool,
) -> Iterator[tuple[up_kernel_cy.UpConversion, int]]:
    """Convert the chunk at `begin` batch by batch; after each batch return the conversion and the batch's size."""
    conversion = up_kernel_cy.UpConversion(first_offset, MERGED_BATCH_BYTES, stops_at_zstd=zstd_codec is not None)
    while conversion.position < len(window):
        head = _same_receipt(conversion, window, begin, receipts)
        size_bytes = conversion.measure_batch(head, len(head))
        if conversion.stop == Stop.NEEDS_CODEC:
            if not may_recompress:
                raise RecompressionNeededError
            size_bytes, _ = _converted_with_codec(conversion, window, limit_bytes, conversion.receipt_ms, zstd_codec)
        elif conversion.stop in (Stop.CORRUPT, Stop.BAD_TIMESTAMP):
            raise conversion_error(conversion)
        yield conversion, size_bytes


def _same_receipt(conversion: Conversion, window: memoryview, begin: int, receipts: Receipts) -> memoryview:
    """Limit the window at `begin` to v0 messages of one receipt time, and set that time in the conversion."""
    position = begin + conversion.position
    conversion.receipt_ms = receipts.at(position)
    return window[: receipts.end_after(position, begin + len(window)) - begin]


def _converted_with_codec(
    conversion: Conversion, stored: memoryview, limit_bytes: int, receipt_ms: int, zstd_codec: Codec | None
) -> tuple[int, int]:
    """Pass over the next batch; return its converted size and the offset of its wrapper: that of its last record."""
    batch = complete_batch_at(stored, conversion.position)
    converted = convert_with_codec(
        batch, conversion.to_magic, limit_bytes=limit_bytes, receipt_ms=receipt_ms, zstd_codec=zstd_codec
    )
    conversion.skip_batch(stored)
    size_bytes = len(converted.data)
    last_offset, _ = v0.OFFSET_AND_SIZE.unpack_from(converted.data) if size_bytes else (batch.last_offset, 0)
    return size_bytes, last_offset


def _begin(to_magic: int, first_offset: int, position: int = 0, *, replaces_zstd: bool = False) -> Conversion:
    if to_magic == v2.MAGIC:
        return up_kernel_cy.UpConversion(first_offset, MERGED_BATCH_BYTES, position, replaces_zstd)
    return kernel_cy.DownConversion(to_magic, first_offset, position)


def converted_chunks(
    stored: memoryview | Stretch,
    to_magic: int,
    first_offset: int,
    out: memoryview | ConversionOutput,
    *,
    first_end: int,
    chunk_bytes: int = DEFAULT_CHUNK_BYTES,
    limit_bytes: int = DEFAULT_LIMIT_BYTES,
    receipts: Receipts = NO_RECEIPTS,
    tally: Tally | None = None,
    opened_bytes: int | None = None,
    zstd_codec: Codec | None = None,
    begin: int = 0,
) -> Iterator[Piece]:
    """Convert all of `stored`: first the part before `first_end`, then chunk by chunk; no piece spans two chunks.

    With a position `begin`, at which a chunk must begin, only what follows is converted.

    With `opened_bytes` the compressed batch of the first part becomes messages of that size without a wrapper.

    Raises BrokerError at the start of a chunk with a zstd batch, and at bytes that break their format.
    """
    stretch = as_stretch(stored)
    output = ConversionOutput(out) if isinstance(out, memoryview) else out
    tally = tally or Tally()
    position, size_bytes = 0, first_end
    if begin > 0:
        opened_bytes = None
        position = begin
        size_bytes = _chunk_size(stretch, begin, chunk_bytes, to_magic, reads_zstd=zstd_codec is not None)
    while size_bytes > 0:
        conversion = _begin(to_magic, first_offset, replaces_zstd=zstd_codec is not None)
        try:
            window = partial(stretch.window, position, size_bytes)
            yield from _chunk_pieces(
                conversion, window, position, output, limit_bytes, receipts, tally, opened_bytes, zstd_codec
            )
        finally:
            tally.record_count += conversion.converted_count
            tally.temporary_bytes += size_bytes
        opened_bytes = None
        position += size_bytes
        size_bytes = _chunk_size(stretch, position, chunk_bytes, to_magic, reads_zstd=zstd_codec is not None)


def _chunk_size(stretch: Stretch, position: int, chunk_bytes: int, to_magic: int, *, reads_zstd: bool = False) -> int:
    window = window_with_batch(stretch, position, chunk_bytes)
    size_bytes, work = kernel_cy.survey(window, 0, len(window), chunk_bytes, to_magic)
    if work & 1 << Codec.ZSTD and to_magic < v2.MAGIC and not reads_zstd:
        raise zstd_error()
    if size_bytes == 0 and work:
        raise structure_error(position)
    return size_bytes


def _chunk_pieces(
    conversion: Conversion,
    window: Callable[[], memoryview],
    begin: int,
    output: ConversionOutput,
    limit_bytes: int,
    receipts: Receipts,
    tally: Tally,
    opened_bytes: int | None,
    zstd_codec: Codec | None,
) -> Iterator[Piece]:
    filled = 0
    while True:
        # After each yielded piece the chunk may have to be read again.
        chunk, out = window(), output.buffer
        stored = _same_receipt(conversion, chunk, begin, receipts)
        before = filled
        filled = conversion.fill(stored, len(stored), out, filled)
        tally.temporary_bytes += filled - before
        stop = conversion.stop
        if stop == Stop.AT_END and conversion.position == len(stored) < len(chunk):
            continue
        if stop == Stop.NEEDS_CODEC:
            if not output.may_recompress:
                if filled:
                    yield out[:filled]
                    filled = 0
                yield TAKES_LONG
                continue
            convert = partial(_recompressed, conversion, window, begin, limit_bytes, receipts, opened_bytes, zstd_codec)
            try:
                converted = convert()
            except BrokerError:
                if filled:
                    yield out[:filled]
                raise
            tally.record_count += converted.record_count
            tally.temporary_bytes += converted.written_bytes
            size_bytes = len(converted.data)
            if size_bytes <= len(out) - filled:
                out[filled : filled + size_bytes] = converted.data
                filled += size_bytes
                conversion.skip_batch(stored)
                continue
            output.batch = converted.data
            del converted
            if filled:
                yield out[:filled]
            yield from output.pieces_of_batch(size_bytes, convert)
            conversion.skip_batch(window())
        elif filled:
            yield out[:filled]
        elif stop == Stop.OUT_IS_FULL:
            yield from tally.counted(_larger_than_the_buffer(conversion, stored))
        if stop == Stop.AT_END and conversion.position == len(stored):
            return
        if stop not in (Stop.NEEDS_CODEC, Stop.OUT_IS_FULL):
            raise conversion_error(conversion)
        filled = 0


def _recompressed(
    conversion: Conversion,
    window: Callable[[], memoryview],
    begin: int,
    limit_bytes: int,
    receipts: Receipts,
    opened_bytes: int | None,
    zstd_codec: Codec | None,
) -> Converted:
    """Convert the compressed batch at the conversion's position; the conversion stays before the batch."""
    batch = complete_batch_at(window(), conversion.position)
    if opened_bytes is not None:
        return messages_of(batch, conversion.to_magic, conversion.first_offset, opened_bytes, limit_bytes=limit_bytes)
    receipt_ms = receipts.at(begin + conversion.position)
    return convert_with_codec(
        batch, conversion.to_magic, limit_bytes=limit_bytes, receipt_ms=receipt_ms, zstd_codec=zstd_codec
    )


def _larger_than_the_buffer(conversion: Conversion, stored: memoryview) -> Iterator[memoryview]:
    if isinstance(conversion, kernel_cy.DownConversion):
        yield from large_message(conversion, stored)
        return
    measured = _begin(v2.MAGIC, conversion.first_offset, conversion.position)
    measured.receipt_ms = conversion.receipt_ms
    size_bytes = measured.measure_batch(stored, len(stored))
    if size_bytes > MERGED_BATCH_BYTES:
        yield from large_batch(conversion, stored)
    else:
        out = memoryview(bytearray(size_bytes))
        conversion.fill(stored, measured.position, out)
        yield out
