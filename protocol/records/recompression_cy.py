"""Down-conversion of compressed v2 batches: decompress, convert and compress in one step.

The compiled build does not hold the interpreter's lock meanwhile, and moves the matches that the producer's compressor
found to the converted messages, since keys and values stay as they are. It searches nothing, so that compression costs
little more than a copy. Headers resemble each other, and get matches of their own. As plain Python this module calls
the codecs' libraries.

This is ordinary Python that is also compiled: ``recompression_cy.pxd`` has the C types.
"""

from __future__ import annotations

try:
    import cython
except ImportError:
    from . import cython_stand_in as cython

from .kernel_cy import DownConversion

if not cython.compiled:
    from .checksum_libraries import crc32_of
    from .codec_memory import (
        HEAD_ROOM,
        LZ_OUT_IS_FULL,
        CodecMemory,
        note_message,
        read_content,
        release_memory,
        reserve_memory,
        write_content,
    )
    from .message_bytes import (
        copy_bytes,
        int16_at,
        put_int32,
        put_uint32,
        put_v0_head,
        put_v1_head,
    )

GZIP, SNAPPY = 1, 2
FIRST_RAW_BYTES = 64 * 1024
"""Decompressed size for which there is memory at first, and for which there is more if a batch needs more.

It is the largest size for snappy, whose blocks of 32 kB begin elsewhere in the converted records: each beginning costs
the matches with the block before.
"""
MOST_RAW_BYTES = 512 * 1024
"""Largest decompressed size of a batch. Larger batches are converted in pieces, which takes less memory."""
KEPT_RAW_BYTES = 128 * 1024
"""A conversion that had a larger batch gives its memory back."""
LEAST_CONTENT_BYTES = 1024
"""A smaller batch is compressed well only with matches between headers and values, for which the libraries search."""
LEAST_RECORD_BYTES = 7
INT32_BYTES = 4
V0_KEY_AT = 22
V1_KEY_AT = 30
V0_CRC_FROM = 16
CRC_AT = 12
ATTRIBUTES_AT, RECORDS_AT = 21, 61
CODEC_MASK = 0x07

COMPILED: bool = cython.compiled
"""Whether this module is compiled."""


class Recompression:
    """A conversion of compressed v2 batches to wrappers, one batch after the other, with buffers that are reused.

    After a batch, `stored_bytes`, `record_count` and `written_bytes` are its size, the number of its records and the
    size of their messages before compression.
    """

    def __init__(self) -> None:
        self._conversion = DownConversion(0, 0)
        if not cython.compiled:
            self._memory = CodecMemory()
        self.stored_bytes = 0
        self.record_count = 0
        self.written_bytes = 0
        self._begin = self._end = 0

    def __dealloc__(self) -> None:
        release_memory(cython.address(self._memory) if cython.compiled else self._memory)

    def convert(self, batch: memoryview, to_magic: int, limit_bytes: int) -> bytes | None:
        """Return the wrapper, in format `to_magic`, of a complete v2 batch.

        Returns None for a batch that is broken, that is larger than `limit_bytes` or MOST_RAW_BYTES decompressed, or
        that only the codec's library reads: other code converts it or finds the error. Raises ValueError for fewer
        bytes than a header.
        """
        size_bytes = len(batch)
        if size_bytes < RECORDS_AT:
            raise ValueError(f"a batch of {size_bytes} bytes")
        data = cython.address(batch[0]) if cython.compiled else batch
        with cython.nogil:
            size_bytes = self.convert_unlocked(data, 0, size_bytes, to_magic, limit_bytes)
        if size_bytes == 0:
            return None
        memory = cython.address(self._memory) if cython.compiled else self._memory
        encoded = memory.encoded
        wrapper = bytes(encoded[self._begin : self._end])
        self._shrink()
        return wrapper

    def convert_unlocked(
        self, data: memoryview, position: int, size_bytes: int, to_magic: int, limit_bytes: int
    ) -> int:
        """Convert the complete v2 batch at `position`, as `convert` does, without the interpreter's lock.

        Returns the size of the wrapper, which `take` copies, and 0 where `convert` returns None. The caller has checked
        the bounds.
        """
        memory = cython.address(self._memory) if cython.compiled else self._memory
        self._conversion.begin_unlocked(to_magic, 0, 0)
        if size_bytes <= RECORDS_AT or not self._conversion.open_header(data, position):
            return 0
        codec = int16_at(data, position + ATTRIBUTES_AT) & CODEC_MASK
        count = self._conversion.records_left
        if count == 0 or count > MOST_RAW_BYTES // LEAST_RECORD_BYTES:
            return 0
        self.stored_bytes = size_bytes
        self.record_count = count
        at = position + RECORDS_AT
        stored = cython.address(data[at]) if cython.compiled else data[at:]
        self._end = self._run(memory, stored, size_bytes - RECORDS_AT, codec, count, limit_bytes)
        self._begin = HEAD_ROOM - (V1_KEY_AT if to_magic else V0_KEY_AT) - INT32_BYTES
        if self._end > 0:
            return self._end - self._begin
        self._shrink()
        return 0

    def take(self, out: memoryview, at: int) -> None:
        """Copy the last wrapper to `out`; the caller has checked that there is one, and its size. Once for a batch."""
        memory = cython.address(self._memory) if cython.compiled else self._memory
        copy_bytes(out, at, memory.encoded, self._begin, self._end - self._begin)
        self._shrink()

    def _shrink(self) -> None:
        """Give the memory of a large batch back."""
        memory = cython.address(self._memory) if cython.compiled else self._memory
        if memory.raw_capacity > KEPT_RAW_BYTES:
            release_memory(memory)

    def _run(
        self, memory: CodecMemory, data: memoryview, size_bytes: int, codec: int, count: int, limit_bytes: int
    ) -> int:
        """Write the wrapper; return the position behind it in `encoded`, 0 if other code converts the batch."""
        raw_bytes = FIRST_RAW_BYTES
        while True:
            if not reserve_memory(memory, raw_bytes, count):
                return 0
            content = read_content(memory, codec, data, size_bytes)
            if content != LZ_OUT_IS_FULL:
                break
            raw_bytes = 2 * memory.raw_capacity
            if raw_bytes > MOST_RAW_BYTES:
                return 0
        if not LEAST_CONTENT_BYTES <= content <= limit_bytes or content < count * LEAST_RECORD_BYTES:
            return 0
        if codec == SNAPPY and content > FIRST_RAW_BYTES:
            return 0
        if codec == GZIP and crc32_of(memory.raw, 0, content) != memory.crc:
            return 0
        size = self._convert_records(memory, content)
        if size <= 0:
            return 0
        self.written_bytes = size
        is_v0 = self._conversion.to_magic == 0
        crc = crc32_of(memory.converted, 0, size) if codec == GZIP else 0
        size = write_content(memory, codec, is_v0, size, crc)
        start = HEAD_ROOM - INT32_BYTES - (V0_KEY_AT if is_v0 else V1_KEY_AT)
        attributes = self._conversion.attributes | codec
        offset = self._conversion.offset
        latest = self._conversion.max_timestamp
        message = HEAD_ROOM - start + size - CRC_AT
        if is_v0:
            put_v0_head(memory.encoded, start, offset, message, attributes, -1)
        else:
            put_v1_head(memory.encoded, start, offset, message, attributes, latest, -1)
        put_int32(memory.encoded, HEAD_ROOM - INT32_BYTES, size)
        put_uint32(memory.encoded, start + CRC_AT, crc32_of(memory.encoded, start + V0_CRC_FROM, HEAD_ROOM + size))
        return HEAD_ROOM + size

    def _convert_records(self, memory: CodecMemory, content: int) -> int:
        """Convert the decompressed records and note their keys and values; return the size of the messages or 0."""
        self._conversion.batch_end = content
        key_at = V0_KEY_AT if self._conversion.to_magic == 0 else V1_KEY_AT
        at = 0
        while self._conversion.records_left > 0:
            size = self._conversion.write_record(memory.raw, memory.converted, at, memory.converted_capacity, at == 0)
            if size <= 0:
                return 0
            key_to = at + key_at
            value_to = key_to + INT32_BYTES
            if self._conversion.key_length > 0:
                value_to += self._conversion.key_length
            value_bytes = at + size - value_to
            note_message(memory, at, self._conversion.key_at, key_to, self._conversion.value_at, value_to, value_bytes)
            at += size
        return at if self._conversion.position == content else 0
