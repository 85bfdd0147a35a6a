"""The buffers of a conversion between compressed batches, and the codecs that fill them: for the interpreted build.

The compiled build has the same functions in C (``codec_memory.h``). They note which bytes the producer's compressor
found repeated, move these matches to the converted records, and so compress without a search. Here the libraries
decompress and compress.
"""

from __future__ import annotations

from ..errors import BrokerError, ErrorCode
from . import v0
from .checksum_libraries import crc32_of
from .compression import CODECS, compress, decompress
from .message_bytes import copy_bytes

HEAD_ROOM = 34
"""The room before compressed bytes for the header of a message."""
MOST_GROWTH = 34
"""The most bytes by which a record of v2 grows as a message of v1."""
LZ_MALFORMED = -1
"""The result for data that is broken, or that only the libraries read."""
LZ_OUT_IS_FULL = -2
"""The result for content that is larger than the memory."""


class CodecMemory:
    """Buffers for decompressed, converted and compressed records; `crc` is the CRC-32 of decompressed gzip data."""

    def __init__(self) -> None:
        self.raw = self.converted = self.encoded = memoryview(b"")
        self.raw_capacity = self.converted_capacity = self.crc = 0


def release_memory(memory: CodecMemory) -> None:
    """Free the buffers."""
    memory.raw = memory.converted = memory.encoded = memoryview(b"")
    memory.raw_capacity = memory.converted_capacity = 0


def reserve_memory(memory: CodecMemory, raw_bytes: int, record_count: int) -> bool:
    """Make room for so many decompressed bytes and records; return whether there is memory."""
    memory.raw_capacity = max(raw_bytes, memory.raw_capacity)
    memory.converted_capacity = max(raw_bytes + MOST_GROWTH * record_count, memory.converted_capacity)
    if len(memory.converted) < memory.converted_capacity:
        memory.converted = memoryview(bytearray(memory.converted_capacity))
    return True


def read_content(memory: CodecMemory, codec: int, data: memoryview, size: int) -> int:
    """Decompress `size` bytes to `raw`; return the size of the content, LZ_OUT_IS_FULL or LZ_MALFORMED."""
    try:
        content = decompress(CODECS[codec], data[:size], limit_bytes=memory.raw_capacity)
    except BrokerError as fault:
        return LZ_OUT_IS_FULL if fault.code is ErrorCode.MESSAGE_TOO_LARGE else LZ_MALFORMED
    memory.raw = memoryview(content)
    memory.crc = crc32_of(memory.raw, 0, len(content))
    return len(content)


def note_message(
    memory: CodecMemory, at: int, key_from: int, key_to: int, value_from: int, value_to: int, value_bytes: int
) -> None:
    """Check a message at `at` in `converted`: its key and value are those at `key_from` and `value_from` in `raw`.

    In C this is noted, for the matches in keys and values and for those between headers.
    """
    key_bytes = value_to - v0.INT32.size - key_to
    assert memory.raw[key_from : key_from + key_bytes] == memory.converted[key_to : key_to + key_bytes]
    assert memory.raw[value_from : value_from + value_bytes] == memory.converted[value_to : value_to + value_bytes]


def write_content(memory: CodecMemory, codec: int, is_v0: bool, size: int, crc: int) -> int:
    """Compress `size` bytes of `converted`, of CRC-32 `crc`, behind HEAD_ROOM bytes in `encoded`; return their size."""
    content = compress(CODECS[codec], memory.converted[:size], magic=0 if is_v0 else 1)
    memory.encoded = memoryview(bytearray(HEAD_ROOM + len(content)))
    copy_bytes(memory.encoded, HEAD_ROOM, memoryview(content), 0, len(content))
    return len(content)
