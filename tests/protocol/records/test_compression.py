"""Codecs: round trips in pieces, foreign framings, and data with false sizes."""

import gzip
import random
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import lz4.frame
import pytest
import snappy
from hypothesis import given
from hypothesis import strategies as st
from isal import isal_zlib

from gregor.protocol.errors import BrokerError, ErrorCode
from gregor.protocol.records.compression import (
    FED_BYTES,
    LEAST_LIBDEFLATE_BYTES,
    MOST_LIBDEFLATE_BYTES,
    PIECE_BYTES,
    Codec,
    codec_of,
    compress,
    compress_pieces,
    decompress,
    decompressed_pieces,
)
from gregor.protocol.records.record import Buffer
from tests.protocol.records.record_strategies import documented_failures

CODECS = list(Codec)
REAL_CODECS = CODECS[1:]
MAGICS = [0, 1, 2]
BOMB_BYTES = 200 * 2**20


@given(st.binary(max_size=300), st.integers(1, 500), st.sampled_from(CODECS), st.sampled_from(MAGICS))
def test_compressed_data_is_decompressed_unchanged(seed: bytes, repeats: int, codec: Codec, magic: int) -> None:
    data = seed * repeats
    assert decompress(codec, compress(codec, data, magic=magic), magic=magic) == data


@pytest.mark.parametrize("codec", REAL_CODECS)
def test_large_data_comes_in_bounded_pieces(codec: Codec) -> None:
    data = bytes(range(256)) * 4000
    pieces = list(decompressed_pieces(codec, memoryview(compress(codec, data))))
    assert b"".join(pieces) == data
    assert max(map(len, pieces)) <= PIECE_BYTES


@pytest.mark.parametrize("codec", REAL_CODECS)
def test_truncated_data_is_not_decompressed_to_the_whole_data(codec: Codec) -> None:
    whole = b"some bytes to compress" * 3
    packed = compress(codec, whole)
    for end in range(1, len(packed)):
        # Snappy's framing may end between blocks, so a shorter result is valid.
        with documented_failures():
            assert decompress(codec, packed[:end]) != whole


@given(st.binary(max_size=200), st.sampled_from(REAL_CODECS), st.sampled_from(MAGICS))
def test_garbage_is_corrupt_or_too_large(garbage: bytes, codec: Codec, magic: int) -> None:
    packed = bytearray(compress(codec, b"0123456789" * 20, magic=magic))
    packed[len(packed) // 3 :] = garbage
    for data in (garbage, bytes(packed)):
        with documented_failures():
            decompress(codec, data, magic=magic, limit_bytes=10_000)


@pytest.mark.parametrize("codec", REAL_CODECS)
def test_inflating_beyond_the_limit_is_too_large(codec: Codec) -> None:
    packed = compress(codec, bytes(1000))
    assert decompress(codec, packed, limit_bytes=1000) == bytes(1000)
    with pytest.raises(BrokerError, match="inflates beyond 999 bytes") as failure:
        decompress(codec, packed, limit_bytes=999)
    assert failure.value.code is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_a_decompression_bomb_takes_bounded_memory(codec: Codec) -> None:
    block = compress(codec, bytes(2**20))
    # Members, or frames, that follow each other are one stream; lz4 ends after the first.
    bomb = block * (BOMB_BYTES // 2**20) if codec is not Codec.LZ4 else compress(codec, bytes(BOMB_BYTES // 4))
    tracemalloc.start()
    try:
        for _ in decompressed_pieces(codec, bomb, limit_bytes=BOMB_BYTES):
            pass
        assert tracemalloc.get_traced_memory()[1] < 16 * PIECE_BYTES
    finally:
        tracemalloc.stop()


def test_an_abandoned_zstd_stream_does_not_affect_other_streams() -> None:
    first, second = bytes(range(256)) * 2000, b"another" * 50_000
    left = decompressed_pieces(Codec.ZSTD, compress(Codec.ZSTD, first))
    beside = decompressed_pieces(Codec.ZSTD, compress(Codec.ZSTD, second))
    assert first.startswith(next(left))
    assert second.startswith(next(beside))
    del left
    assert decompress(Codec.ZSTD, compress(Codec.ZSTD, first)) == first
    assert second.endswith(b"".join(beside))


def test_format_v0_has_lz4_with_the_header_checksum_of_old_clients() -> None:
    old, new = compress(Codec.LZ4, b"value", magic=0), compress(Codec.LZ4, b"value", magic=1)
    # 0x82 is the right second byte of xxHash32 over the descriptor 60 40, 0x1a that over the magic number as well.
    assert (old[:6], old[7:]) == (new[:6], new[7:])
    assert (old[6], new[6]) == (0x1A, 0x82)
    assert decompress(Codec.LZ4, old, magic=0) == decompress(Codec.LZ4, new, magic=0) == b"value"
    with pytest.raises(BrokerError):
        decompress(Codec.LZ4, old, magic=1)


def test_unframed_snappy_is_read_too() -> None:
    framed = compress(Codec.SNAPPY, b"raw block")
    assert decompress(Codec.SNAPPY, framed[20:]) == b"raw block"


def test_a_snappy_block_with_an_impossible_length_is_refused() -> None:
    with pytest.raises(BrokerError, match="claims"):
        decompress(Codec.SNAPPY, b"\xff\xff\xff\xff\x07" + b"\0" * 10)


def test_unknown_codec_ids_are_refused() -> None:
    assert codec_of(0xFC) is Codec.ZSTD
    with pytest.raises(BrokerError, match="Unknown compression type id: 5"):
        codec_of(5)


class CountingStream:
    """A decompressor that records the length of the input of each call."""

    def __init__(self, stream: Any, given: list[int]) -> None:
        self._stream = stream
        self._given = given

    def decompress(self, data: Buffer, max_length: int) -> bytes:
        self._given.append(len(data))
        piece: bytes = self._stream.decompress(data, max_length)
        return piece

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@pytest.mark.parametrize("members", [1, 1000, 4000])
def test_many_empty_gzip_members_take_linear_work(monkeypatch: pytest.MonkeyPatch, members: int) -> None:
    given: list[int] = []
    real = isal_zlib.decompressobj
    monkeypatch.setattr(isal_zlib, "decompressobj", lambda window_bits: CountingStream(real(window_bits), given))
    data = compress(Codec.GZIP, b"") * members + compress(Codec.GZIP, b"the tail")
    assert decompress(Codec.GZIP, data) == b"the tail"
    assert len(given) <= members + 1 + len(data) // FED_BYTES + 1
    assert max(given) <= FED_BYTES, "the library copies what it does not take"


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4])
def test_decompressors_are_fed_bounded_input(monkeypatch: pytest.MonkeyPatch, codec: Codec) -> None:
    given: list[int] = []
    gunzip, unlz4 = isal_zlib.decompressobj, lz4.frame.LZ4FrameDecompressor
    monkeypatch.setattr(isal_zlib, "decompressobj", lambda window_bits: CountingStream(gunzip(window_bits), given))
    monkeypatch.setattr(lz4.frame, "LZ4FrameDecompressor", lambda: CountingStream(unlz4(), given))
    data = random.Random(1).randbytes(300_000) + bytes(3_000_000)
    assert decompress(codec, compress(codec, data)) == data
    assert max(given) <= FED_BYTES
    assert sum(given) < 60 * FED_BYTES


@pytest.mark.parametrize("size_bytes", [PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES])
@pytest.mark.parametrize("codec", REAL_CODECS)
def test_data_of_about_the_piece_size_is_decompressed_unchanged(codec: Codec, size_bytes: int) -> None:
    for data in (bytes(size_bytes), random.Random(size_bytes).randbytes(size_bytes)):
        packed = compress(codec, data)
        assert decompress(codec, packed) == data
        if codec is Codec.GZIP:
            assert decompress(codec, packed * 3) == data * 3


def test_a_snappy_block_beyond_the_limit_is_refused_before_decompression(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = snappy.compress(bytes(2_000_000))
    monkeypatch.setattr(snappy, "uncompress", None)
    with pytest.raises(BrokerError, match="inflates beyond 1000000 bytes"):
        decompress(Codec.SNAPPY, packed, limit_bytes=1_000_000)


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("sizes", [(), (0,), (1,), (70_000, 1, 300_000)])
def test_data_compressed_for_transit_is_decompressed_unchanged(codec: Codec, sizes: tuple[int, ...]) -> None:
    pieces = [b"transit " * (size // 8) + b"x" * (size % 8) for size in sizes]
    compressed = compress_pieces(codec, iter(pieces), magic=1, is_for_transit=True)
    assert decompress(codec, compressed, magic=1) == b"".join(pieces)
    if codec is Codec.GZIP:
        assert gzip.decompress(compressed) == b"".join(pieces)


@pytest.mark.parametrize("edge", [0, 1, LEAST_LIBDEFLATE_BYTES, MOST_LIBDEFLATE_BYTES, 3 * MOST_LIBDEFLATE_BYTES])
def test_gzip_of_either_library_is_one_member_that_python_reads(edge: int) -> None:
    for size_bytes in {max(edge - 1, 0), edge, edge + 1}:
        body = random.Random(size_bytes).randbytes(size_bytes // 2) + bytes(size_bytes - size_bytes // 2)
        pieces = [body[start : start + 5000] for start in range(0, size_bytes, 5000)]
        for packed in (compress(Codec.GZIP, body), compress_pieces(Codec.GZIP, pieces)):
            reader = zlib.decompressobj(31)
            assert reader.decompress(packed) == body
            assert reader.eof
            assert not reader.unused_data


def test_gzip_copies_pieces_that_are_overwritten() -> None:
    piece = bytearray(10_000)

    def pieces() -> Iterator[Buffer]:
        for number in range(5):
            piece[:] = bytes([number]) * len(piece)
            yield memoryview(piece)

    packed = compress_pieces(Codec.GZIP, pieces())
    assert decompress(Codec.GZIP, packed) == b"".join(bytes([number]) * 10_000 for number in range(5))


@pytest.mark.parametrize("size_bytes", [16_000, 128_000, 1_000_000])
@pytest.mark.parametrize(
    ("kind", "most"), [("json", 1.02), ("hex", 1.02), ("few words", 1.09), ("random", 1.02), ("zeros", 1.02)]
)
def test_gzip_is_about_as_small_as_zlib_makes_it(kind: str, most: float, size_bytes: int) -> None:
    random_ = random.Random(size_bytes)
    records: dict[str, Callable[[int], bytes]] = {
        "json": lambda n: b'{"id":%d,"user":"u%d","amount":%f}' % (n, random_.randrange(9999), random_.random()),
        "hex": lambda _: random_.randbytes(200).hex().encode(),
        "few words": lambda _: b" ".join(random_.choices([b"order", b"status", b"user", b"region", b"click"], k=20)),
        "random": lambda _: random_.randbytes(200),
        "zeros": lambda _: bytes(200),
    }
    body = b""
    while len(body) < size_bytes:
        body += b"".join(bytes(18) + random_.randbytes(4) + records[kind](n) for n in range(500))
    body = body[:size_bytes]
    compressor = zlib.compressobj(6, zlib.DEFLATED, 31)
    by_zlib = compressor.compress(body) + compressor.flush()
    assert len(compress(Codec.GZIP, body)) <= most * len(by_zlib)
