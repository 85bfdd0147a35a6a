"""Down-conversion of compressed v2 batches: decompress, convert and compress in one step, without the interpreter's lock.

In the compiled build the matches that the producer's compressor found are moved to the converted messages, since keys
and values stay as they are: nothing is searched, so that compression costs little more than a copy. Headers resemble
each other, and get matches of their own. As plain Python the libraries compress.

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
        add_span,
        read_content,
        release_memory,
        reserve_memory,
        write_content,
    )
    from .message_bytes import put_int32, put_uint32, put_v0_head, put_v1_head

GZIP = 1
FIRST_RAW_BYTES = 64 * 1024
MOST_RAW_BYTES = 512 * 1024
"""Largest decompressed size of a batch. Larger batches are converted in pieces, which takes less memory."""
KEPT_RAW_BYTES = 128 * 1024
"""A conversion that had a larger batch gives its memory back."""
LEAST_RECORD_BYTES = 7
INT32_BYTES = 4
V0_KEY_AT = 22
V1_KEY_AT = 30
V0_CRC_FROM = 16
CRC_AT = 12

COMPILED: bool = cython.compiled
"""Whether this module is compiled."""


class Recompression:
    """A conversion of compressed v2 batches to wrappers, one batch after the other, with buffers that are reused.

    After `convert`, `last_offset` and `max_timestamp` are those of the last batch's records, and `written_bytes` is the
    size of their messages before compression.
    """

    def __init__(self) -> None:
        self._conversion = DownConversion(0, 0)
        if not cython.compiled:
            self._memory = CodecMemory()
        self.written_bytes = 0

    def __dealloc__(self) -> None:
        release_memory(cython.address(self._memory) if cython.compiled else self._memory)

    def convert(
        self,
        stored: memoryview,
        codec: int,
        to_magic: int,
        count: int,
        base_offset: int,
        base_timestamp: int,
        log_append_time: int,
        is_log_append_time: bool,
    ) -> bytes | None:
        """Return the wrapper, in format `to_magic`, of the `count` records compressed in `stored`.

        Returns None for data that is broken, that is larger than MOST_RAW_BYTES decompressed, or that only the codec's
        library reads: other code converts it or finds the error.
        """
        size_bytes = len(stored)
        if size_bytes == 0 or count <= 0 or base_offset < 0 or count > MOST_RAW_BYTES // LEAST_RECORD_BYTES:
            return None
        self._conversion.begin(to_magic, 0, 0)
        self._conversion.open_records(
            count, 0, base_offset, base_timestamp, log_append_time, is_log_append_time, 0
        )
        data = cython.address(stored[0]) if cython.compiled else stored
        with cython.nogil:
            size_bytes = self._run(data, size_bytes, codec, count)
        wrapper = None
        if size_bytes > 0:
            encoded = self._memory.encoded
            head = HEAD_ROOM - (V1_KEY_AT if to_magic else V0_KEY_AT) - INT32_BYTES
            wrapper = encoded[head:size_bytes] if cython.compiled else bytes(encoded[head:size_bytes])
        if self._memory.raw_capacity > KEPT_RAW_BYTES:
            release_memory(cython.address(self._memory) if cython.compiled else self._memory)
        return wrapper

    def _run(self, data: memoryview, size_bytes: int, codec: int, count: int) -> int:
        """Write the wrapper; return the position behind it in `encoded`, 0 if other code converts the batch."""
        memory = cython.address(self._memory) if cython.compiled else self._memory
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
        if content < count * LEAST_RECORD_BYTES:
            return 0
        if COMPILED and codec == GZIP and crc32_of(memory.raw, 0, content) != memory.crc:
            return 0
        size = self._convert_records(memory, content)
        if size <= 0:
            return 0
        self.written_bytes = size
        conversion = self._conversion
        is_v0 = conversion.to_magic == 0
        crc = crc32_of(memory.converted, 0, size) if codec == GZIP else 0
        size = write_content(memory, codec, is_v0, size, crc)
        start = HEAD_ROOM - INT32_BYTES - (V0_KEY_AT if is_v0 else V1_KEY_AT)
        attributes = conversion.attributes | codec
        message = HEAD_ROOM - start + size - CRC_AT
        if is_v0:
            put_v0_head(memory.encoded, start, conversion.offset, message, attributes, -1)
        else:
            put_v1_head(memory.encoded, start, conversion.offset, message, attributes, conversion.max_timestamp, -1)
        put_int32(memory.encoded, HEAD_ROOM - INT32_BYTES, size)
        put_uint32(memory.encoded, start + CRC_AT, crc32_of(memory.encoded, start + V0_CRC_FROM, HEAD_ROOM + size))
        return HEAD_ROOM + size

    def _convert_records(self, memory: CodecMemory, content: int) -> int:
        """Convert the decompressed records and note their keys and values; return the size of the messages or 0."""
        conversion = self._conversion
        conversion.batch_end = content
        key_at = V0_KEY_AT if conversion.to_magic == 0 else V1_KEY_AT
        at = 0
        before = 0
        is_first = True
        while conversion.records_left > 0:
            size = conversion.write_record(memory.raw, memory.converted, at, memory.converted_capacity, is_first)
            if size <= 0:
                return 0
            resembles = 0 if is_first else at - before
            field = at + key_at
            if conversion.key_length > 0:
                add_span(memory, conversion.key_at, field, conversion.key_length, resembles)
                field += conversion.key_length
                resembles = 0
            value_length = conversion.value_length if conversion.value_length > 0 else 0
            add_span(memory, conversion.value_at, field + INT32_BYTES, value_length, resembles)
            before = at
            at += size
            is_first = False
        return at if conversion.position == content else 0
