"""The compression codecs of record batches, with all variants of framing that Kafka's clients produce.

Decompression gives pieces of bounded size, so that a small batch which inflates to gigabytes costs only the pieces that
are read. Sources: Kafka `Lz4BlockInputStream`, `SnappyFactory`, KIP-57 (lz4 framing), KIP-110 (zstd).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Generator, Iterable, Iterator
from enum import IntEnum
from struct import Struct

import deflate
import lz4.frame
import snappy
import zstandard
from isal import isal_zlib

from ..errors import BrokerError, ErrorCode
from .record import Buffer

PIECE_BYTES = 128 * 1024
"""The largest piece that a stream yields, except for raw snappy blocks (a block is decompressed whole)."""

DEFAULT_LIMIT_BYTES = 64 * 1024 * 1024
"""The default limit of a decompressed batch. Kafka has no such limit."""

FED_BYTES = 16 * 1024
"""The input that a decompressor gets at a time. The libraries copy unconsumed input, so with all of the input each
member or piece would cost a copy of the rest."""

GZIP_WINDOW_BITS = 31
GZIP_LEVEL = 6
"""zlib's default level, as in Java. The promised size of a down-conversion (KIP-283) is the stored one, so if batches
became larger than by zlib, an answer would have fewer messages than Kafka's. libdeflate's output at this level has 0.8
to 1.02 times the size for logs, JSON and source code, up to 1.08 for text of few words."""
LEAST_LIBDEFLATE_BYTES = 4 * 1024
"""The size from which libdeflate is faster than zlib, about twice; a smaller body costs less with zlib."""
MOST_LIBDEFLATE_BYTES = 512 * 1024
"""The size up to which a body is held for libdeflate, which compresses only a whole body; zlib gets larger ones."""
TRANSIT_GZIP_LEVEL = 1
"""isa-l's level for batches that Kafka does not convert: 7 to 9 times faster than zlib. Its output has 0.96 to 1.07
times the size for logs, up to 1.36 for text of few words."""
ZSTD_LEVEL = 3
ZSTD_SKIPPABLE_MAGIC = b"\x2a\x4d\x18"
"""The last bytes of the magic number of a skippable frame; the first is 0x50 to 0x5f."""
ZSTD_MAX_FRAME_HEADER = 18
ZSTD_KEPT_WINDOW_BYTES = 1 << 21
"""The largest window of the usual levels; a decompressor that has seen a larger window is not reused."""
ZSTD_KEPT_DECOMPRESSORS = 8

LZ4_MAGIC = b"\x04\x22\x4d\x18"
LZ4_CONTENT_SIZE_FLAG = 0x08
LZ4_DICTIONARY_FLAG = 0x01
LZ4_INDEPENDENT_BLOCKS_FLAG = 0x20

XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_VERSIONS = Struct(">ii")
XERIAL_HEADER_SIZE = len(XERIAL_MAGIC) + XERIAL_VERSIONS.size
XERIAL_BLOCK_BYTES = 32 * 1024
INT32 = Struct(">i")

SNAPPY_MAX_RATIO = 22
"""The largest ratio of a valid block: a copy element of 3 bytes yields at most 64 bytes."""


class Codec(IntEnum):
    """Compression of a batch: bits 0-2 of its attributes (Kafka `CompressionType`)."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


CODECS = tuple(Codec)
"""The codecs by their number in a batch's attributes."""


def codec_of(attributes: int) -> Codec:
    """Return the codec in a batch's attributes. Raises BrokerError CORRUPT_MESSAGE for ids 5 to 7."""
    codec_id = attributes & 0x07
    if codec_id >= len(CODECS):
        raise BrokerError(ErrorCode.CORRUPT_MESSAGE, f"Unknown compression type id: {codec_id}")
    return CODECS[codec_id]


def compress(codec: Codec, data: Buffer, *, magic: int = 2) -> bytes:
    """Compress a batch's records (v2) or message set (v0, v1) as Kafka's producer of that format does."""
    return compress_pieces(codec, (data,), magic=magic)


def compress_pieces(codec: Codec, pieces: Iterable[Buffer], *, magic: int = 2, is_for_transit: bool = False) -> bytes:
    """Compress data that comes in pieces, as `compress` does; a piece may be overwritten once the next is read.

    What is not stored, and has no promised size (`is_for_transit`), is compressed fast rather than well.
    """
    if is_for_transit and codec is Codec.GZIP:
        return _gzip_for_transit(pieces)
    return _COMPRESSORS[codec](pieces, magic)


def decompress(codec: Codec, data: Buffer, *, magic: int = 2, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> bytes:
    """Decompress all of `data`.

    Raises BrokerError: CORRUPT_MESSAGE for broken data, MESSAGE_TOO_LARGE for more than `limit_bytes`.
    """
    pieces = list(decompressed_pieces(codec, data, magic=magic, limit_bytes=limit_bytes))
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def decompressed_pieces(
    codec: Codec, data: Buffer, *, magic: int = 2, limit_bytes: int = DEFAULT_LIMIT_BYTES
) -> Iterator[bytes]:
    """Yield the decompressed data in pieces; only requested pieces are decompressed. Raises as `decompress` does."""
    total = 0
    try:
        for piece in _DECOMPRESSORS[codec](data, magic, limit_bytes):
            total += len(piece)
            if total > limit_bytes:
                raise _inflates_beyond(codec, limit_bytes)
            if piece:
                yield piece
    except _codec_faults() as fault:
        raise BrokerError(
            ErrorCode.CORRUPT_MESSAGE, f"Broken {codec.name.lower()} data in a record batch: {fault}"
        ) from fault


def _inflates_beyond(codec: Codec, limit_bytes: int) -> BrokerError:
    return BrokerError(
        ErrorCode.MESSAGE_TOO_LARGE, f"The {codec.name.lower()} batch inflates beyond {limit_bytes} bytes"
    )


class _BrokenStreamError(ValueError):
    """Compressed data that breaks a rule which the codec's library does not check."""


def _codec_faults() -> tuple[type[Exception], ...]:
    """Return the errors that the codecs' libraries raise; asked for at the first of them, as it loads all libraries."""
    # Rust's panics are not Exceptions, its errors are; the others raise ValueError, RuntimeError or their own classes.
    return (
        isal_zlib.error,  # type: ignore[return-value]  # its stub declares an instance
        zstandard.ZstdError,
        snappy.UncompressError,
        RuntimeError,
        ValueError,
        EOFError,
        MemoryError,
    )


# --- none ---


def _keep(pieces: Iterable[Buffer], magic: int) -> bytes:
    return b"".join(map(bytes, pieces))


def _pass_through(data: Buffer, magic: int, limit_bytes: int) -> Iterator[bytes]:
    yield bytes(data)


# --- gzip ---


def _gzip(pieces: Iterable[Buffer], magic: int) -> bytes:
    body = bytearray()
    unread = iter(pieces)
    last: Buffer = b""
    for last in unread:
        if len(body) + len(last) > MOST_LIBDEFLATE_BYTES:
            break
        body += last
        last = b""
    if not last and len(body) >= LEAST_LIBDEFLATE_BYTES:
        return bytes(deflate.gzip_compress(body, GZIP_LEVEL))
    compressor = zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, GZIP_WINDOW_BITS)
    found = [compressor.compress(body), compressor.compress(last)]
    return b"".join([*found, *map(compressor.compress, unread), compressor.flush()])


def _gzip_for_transit(pieces: Iterable[Buffer]) -> bytes:
    compressor = isal_zlib.compressobj(TRANSIT_GZIP_LEVEL, zlib.DEFLATED, GZIP_WINDOW_BITS)
    return b"".join([*map(compressor.compress, pieces), compressor.flush()])


def _gunzip(data: Buffer, magic: int, limit_bytes: int) -> Iterator[bytes]:
    view = memoryview(data)
    position = 0
    while True:
        position = yield from _gunzip_member(view, position)
        # Members may follow each other (RFC 1952); anything else after the end is ignored, as Java's reader does.
        if bytes(view[position : position + 2]) != b"\x1f\x8b":
            return


def _gunzip_member(view: memoryview, position: int) -> Generator[bytes, None, int]:
    """Decompress the member at `position`; return the position after the member."""
    stream = isal_zlib.decompressobj(GZIP_WINDOW_BITS)
    piece: bytes = b""
    pending: Buffer = b""
    while not stream.eof:
        # After a full piece the input so far may give more output.
        if not pending and len(piece) < PIECE_BYTES:
            pending = view[position : position + FED_BYTES]
            if not pending:
                raise _BrokenStreamError("the data ends too early")
            position += len(pending)
        piece = stream.decompress(pending, PIECE_BYTES)
        pending = stream.unconsumed_tail
        if piece:
            yield piece
    return position - len(stream.unused_data)


# --- snappy ---


def _snappy(pieces: Iterable[Buffer], magic: int) -> bytes:
    out = bytearray(XERIAL_MAGIC + XERIAL_VERSIONS.pack(1, 1))
    for piece in pieces:
        view = memoryview(piece)
        for start in range(0, len(view), XERIAL_BLOCK_BYTES):
            block = snappy.compress(bytes(view[start : start + XERIAL_BLOCK_BYTES]))
            out += INT32.pack(len(block))
            out += block
    return bytes(out)


def _unsnappy(data: Buffer, magic: int, limit_bytes: int) -> Iterator[bytes]:
    view = memoryview(data)
    if bytes(view[: len(XERIAL_MAGIC)]) != XERIAL_MAGIC:
        yield _unsnappy_block(view, limit_bytes)
        return
    position = XERIAL_HEADER_SIZE
    while position < len(view):
        if bytes(view[position : position + len(XERIAL_MAGIC)]) == XERIAL_MAGIC:
            # Another stream was appended to the first (xerial's reader allows that).
            position += XERIAL_HEADER_SIZE
            continue
        if position + INT32.size > len(view):
            return
        (size,) = INT32.unpack_from(view, position)
        position += INT32.size
        if not 0 < size <= len(view) - position:
            raise _BrokenStreamError(f"a snappy block of {size} bytes in {len(view) - position}")
        yield _unsnappy_block(view[position : position + size], limit_bytes)
        position += size


def _unsnappy_block(block: memoryview, limit_bytes: int) -> bytes:
    promised, shift = 0, 0
    for byte in block[:5]:
        promised |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if promised > SNAPPY_MAX_RATIO * len(block):
        raise _BrokenStreamError(f"a snappy block of {len(block)} bytes claims {promised}")
    if promised > limit_bytes:
        raise _inflates_beyond(Codec.SNAPPY, limit_bytes)
    return bytes(snappy.uncompress(bytes(block)))


# --- lz4 ---


def _lz4(pieces: Iterable[Buffer], magic: int) -> bytes:
    compressor = lz4.frame.LZ4FrameCompressor(
        block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=False, content_checksum=False
    )
    head: bytes = compressor.begin()
    if magic == 0:
        # Clients of format v0 include the frame's magic number in the hash by mistake, and require that (KIP-57).
        head = head[:6] + bytes([_lz4_header_checksum(head[:6])])
    return b"".join([head, *map(compressor.compress, pieces), compressor.flush()])


def _unlz4(data: Buffer, magic: int, limit_bytes: int) -> Iterator[bytes]:
    view = memoryview(data)
    if magic == 0:
        view = memoryview(_with_right_header_checksum(view))
    if len(view) > 4 and not view[4] & LZ4_INDEPENDENT_BLOCKS_FLAG:
        raise _BrokenStreamError("dependent lz4 blocks are not supported")
    stream = lz4.frame.LZ4FrameDecompressor()
    position = 0
    while not stream.eof:
        fed: Buffer = b""
        if stream.needs_input:
            fed = view[position : position + FED_BYTES]
            if not fed:
                raise _BrokenStreamError("the data ends too early")
            position += len(fed)
        if piece := stream.decompress(fed, PIECE_BYTES):
            yield piece


def _with_right_header_checksum(view: memoryview) -> bytes:
    """Return the frame with the header checksum that the lz4 library requires; format v0 may have a wrong one."""
    frame = bytes(view)
    if len(frame) < 7 or frame[:4] != LZ4_MAGIC:
        return frame
    end = 6 + 8 * bool(frame[4] & LZ4_CONTENT_SIZE_FLAG) + 4 * bool(frame[4] & LZ4_DICTIONARY_FLAG)
    return frame[:end] + bytes([_lz4_header_checksum(frame[4:end])]) + frame[end + 1 :]


def _lz4_header_checksum(descriptor: bytes) -> int:
    """Compute the second byte of xxHash32 (seed 0) over fewer than 16 bytes, for which the hash needs no stripes."""
    prime2, prime3, prime4, prime5 = 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1
    prime1, mask = 0x9E3779B1, 0xFFFFFFFF
    hashed = prime5 + len(descriptor)
    words_end = len(descriptor) & ~3
    for start in range(0, words_end, 4):
        word = int.from_bytes(descriptor[start : start + 4], "little")
        hashed = (hashed + word * prime3) & mask
        hashed = ((hashed << 17 | hashed >> 15) & mask) * prime4 & mask
    for byte in descriptor[words_end:]:
        hashed = (hashed + byte * prime5) & mask
        hashed = ((hashed << 11 | hashed >> 21) & mask) * prime1 & mask
    hashed = (hashed ^ hashed >> 15) * prime2 & mask
    hashed = (hashed ^ hashed >> 13) * prime3 & mask
    return (hashed ^ hashed >> 16) >> 8 & 0xFF


# --- zstd ---


def _zstd(pieces: Iterable[Buffer], magic: int) -> bytes:
    compressor = zstandard.ZstdCompressor(level=ZSTD_LEVEL, write_content_size=False).compressobj()
    return b"".join([*map(compressor.compress, pieces), compressor.flush()])


_idle_zstd_decompressors: list[zstandard.ZstdDecompressor] = []
"""The unused decompressors: each serves one stream at a time, and creating one costs more than a small batch."""


def _unzstd(data: Buffer, magic: int, limit_bytes: int) -> Iterator[bytes]:
    window_bytes = _largest_zstd_window(memoryview(data))
    decompressor = _idle_zstd_decompressors.pop() if _idle_zstd_decompressors else zstandard.ZstdDecompressor()
    with decompressor.stream_reader(data, read_across_frames=True) as stream:
        while piece := stream.read(PIECE_BYTES):
            yield piece
    # A decompressor keeps the memory of its largest window. One whose stream was not read to the end is not reused.
    if window_bytes <= ZSTD_KEPT_WINDOW_BYTES and len(_idle_zstd_decompressors) < ZSTD_KEPT_DECOMPRESSORS:
        _idle_zstd_decompressors.append(decompressor)


def _largest_zstd_window(data: memoryview) -> int:
    """Return the size of the largest window that a frame of `data` requires. Raises ValueError for an incomplete frame.

    Walks the blocks of all frames (RFC 8878), since the library accepts an incomplete frame as a complete one.
    """
    largest = 0
    position = 0
    while position < len(data):
        if bytes(data[position + 1 : position + 4]) == ZSTD_SKIPPABLE_MAGIC and data[position] & 0xF0 == 0x50:
            position += 8 + int.from_bytes(data[position + 4 : position + 8], "little")
            continue
        frame = data[position : position + ZSTD_MAX_FRAME_HEADER]
        parameters = zstandard.get_frame_parameters(frame)
        largest = max(largest, parameters.window_size)
        position += zstandard.frame_header_size(frame)
        is_last = False
        while not is_last:
            header = int.from_bytes(data[position : position + 3], "little")
            is_last = header & 1 == 1
            is_run = header >> 1 & 3 == 1
            position += 3 + (1 if is_run else header >> 3)
            if position > len(data):
                raise _BrokenStreamError("the data ends too early")
        position += 4 if parameters.has_checksum else 0
    if position > len(data):
        raise _BrokenStreamError("the data ends too early")
    return largest


_COMPRESSORS: dict[Codec, Callable[[Iterable[Buffer], int], bytes]] = {
    Codec.NONE: _keep,
    Codec.GZIP: _gzip,
    Codec.SNAPPY: _snappy,
    Codec.LZ4: _lz4,
    Codec.ZSTD: _zstd,
}

_DECOMPRESSORS: dict[Codec, Callable[[Buffer, int, int], Iterator[bytes]]] = {
    Codec.NONE: _pass_through,
    Codec.GZIP: _gunzip,
    Codec.SNAPPY: _unsnappy,
    Codec.LZ4: _unlz4,
    Codec.ZSTD: _unzstd,
}
