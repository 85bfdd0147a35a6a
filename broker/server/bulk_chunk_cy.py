"""The chunk of stored batches that an answer's loop converts: `BulkChunk`.

This is ordinary Python that is also compiled: ``bulk_chunk_cy.pxd`` has the C types.
"""

from __future__ import annotations

try:
    import cython
except ImportError:
    from ...protocol.records import cython_stand_in as cython

from ...protocol.records.compression import Codec
from ...protocol.records.kernel_cy import DownConversion, Stop
from ...protocol.records.recompression_cy import Recompression
from .bulk_rows import CONVERTED, DESCRIPTOR, FIRST_END, FIRST_OFFSET, POSITION, STORED, TEMPORARY, TO_MAGIC
from .bulk_stop import BulkStop

if not cython.compiled:
    from ...protocol.records.kernel_cy import survey as survey_unchecked
    from ...storage.log.file_reads import read_at
    from .bulk_calls import begin_conversion, convert_into, recompress_next

SENT, NEEDS_CODEC = int(BulkStop.SENT), int(BulkStop.NEEDS_CODEC)
STOP_AT_END, STOP_OUT_IS_FULL, STOP_NEEDS_CODEC = int(Stop.AT_END), int(Stop.OUT_IS_FULL), int(Stop.NEEDS_CODEC)
CODEC_WORK = 1 | 1 << Codec.GZIP | 1 << Codec.SNAPPY | 1 << Codec.LZ4
"""The work (`kernel_cy.survey`) that the loop does: conversions of batches without codec or of these codecs."""


class BulkChunk:
    """A chunk of complete batches of a row, and how far it is converted.

    `is_open` tells that a part of it is not converted yet, `is_loaded` that its bytes are in the memory of the thread.
    """

    def __init__(self) -> None:
        self.conversion = DownConversion(0, 0)
        self.is_open = False
        self.is_loaded = False
        self.limit_bytes = self.size_bytes = 0
        self.stop = STOP_AT_END

    def load(self, table: memoryview, base: int, stored_at: int, stored: memoryview) -> int:
        """Read the next chunk, or the present one again after another answer has used the memory.

        Returns SENT, NEEDS_CODEC if the chunk is not for this loop, or the negative error of `read_at`.
        """
        if self.is_open and self.is_loaded:
            return SENT
        window = min(table[base + STORED] - stored_at, self.limit_bytes)
        if self.is_open:
            window = self.size_bytes
        elif stored_at == 0:
            window = table[base + FIRST_END]
            if not 0 < window <= self.limit_bytes:
                return NEEDS_CODEC
        error = read_at(table[base + DESCRIPTOR], stored, 0, window, table[base + POSITION] + stored_at)
        if error < 0:
            return error
        self.is_loaded = True
        if self.is_open:
            return SENT
        to_magic = table[base + TO_MAGIC]
        size = window
        if stored_at > 0:
            size, work = survey_unchecked(stored, 0, window, self.limit_bytes, to_magic)
            if size == 0 or work > CODEC_WORK:
                return NEEDS_CODEC
        begin_conversion(self.conversion, to_magic, table[base + FIRST_OFFSET])
        self.size_bytes = size
        self.is_open = True
        return SENT

    def fill(
        self,
        recompression: Recompression,
        table: memoryview,
        base: int,
        stored: memoryview,
        out: memoryview,
        filled: int,
        most: int,
        capacity: int,
    ) -> int:
        """Convert batches into ``out`` from ``filled`` to ``capacity``; set `stop`, return the end of the messages.

        Compressed batches are converted until the messages end at ``most`` or later.
        """
        while True:
            before = filled
            filled = convert_into(self.conversion, stored, self.size_bytes, out, before, capacity)
            table[base + TEMPORARY] += filled - before
            self.stop = self.conversion.stop
            if self.stop != STOP_NEEDS_CODEC:
                return filled
            size = recompress_next(recompression, self.conversion, stored, self.size_bytes)
            if size == 0:
                return filled
            if size > capacity - filled:
                # The batch is converted again when there is room.
                self.stop = STOP_OUT_IS_FULL
                return filled
            recompression.take(out, filled)
            filled += size
            self.conversion.position += recompression.stored_bytes
            table[base + CONVERTED] += recompression.record_count
            table[base + TEMPORARY] += recompression.written_bytes
            if filled >= most and self.conversion.position < self.size_bytes:
                self.stop = STOP_OUT_IS_FULL
                return filled
