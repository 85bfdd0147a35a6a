"""The buffers of a conversion between compressed batches, and the codecs that fill them: for the interpreted build.

The compiled build has the same functions in C (``codec_memory.h``). They note which bytes the producer's compressor
found repeated, move these matches to the converted records, and so compress without a search. Here the libraries
decompress and compress.
"""

from __future__ import annotations

from ..errors import BrokerError, ErrorCode
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
    """Buffers for decompressed, converted and compressed records; `crc` is the CRC-32 that gzip data promises."""

    def __init__(self) -> None:
        release_memory(self)


def release_memory(memory: CodecMemory) -> None:
    """Free the buffers."""
    memory.raw = memory.converted = memory.encoded = memoryview(b"")
    memory.raw_capacity = memory.converted_capacity = memory.crc = 0


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
    return len(content)


def add_span(memory: CodecMemory, start: int, to: int, size: int, resembles: int) -> None:
    """Check that `size` bytes, which were at `start` in `raw`, are at `to` in `converted`; C notes this.

    The header before them resembles the bytes `resembles` before; 0 if there are none.
    """
    assert memory.raw[start : start + size] == memory.converted[to : to + size]


def write_content(memory: CodecMemory, codec: int, is_v0: bool, size: int, crc: int) -> int:
    """Compress `size` bytes of `converted`, of CRC-32 `crc`, behind HEAD_ROOM bytes in `encoded`; return their size."""
    content = compress(CODECS[codec], memory.converted[:size], magic=0 if is_v0 else 1)
    memory.encoded = memoryview(bytearray(HEAD_ROOM + len(content)))
    copy_bytes(memory.encoded, HEAD_ROOM, memoryview(content), 0, len(content))
    return len(content)
